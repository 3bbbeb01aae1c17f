// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// cannotTell are the errors of a Windows or file system that doesn't tell processes.
var cannotTell = []winerr.Errno{winerr.ErrorInvalidFunction, winerr.ErrorNotSupported, winerr.ErrorInvalidParameter}

// wantSelf wants this process among ids, if Windows tells any.
func wantSelf(t *testing.T, ids func(context.Context) ([]win.ProcessID, error)) {
	t.Helper()
	got, err := ids(t.Context())
	if err != nil {
		wantErrno(t, "ProcessIDs", err, cannotTell...)
		return
	}
	if self := win.ProcessID(os.Getpid()); !slices.Contains(got, self) {
		t.Errorf("the processes are %v, without this one, %d", got, self)
	}
}

// lock is FSCTL_LOCK_VOLUME or its kin on a handle.
func lock(t testing.TB, d win.Device, code win.IoctlCode) error {
	t.Helper()
	_, err := d.Control(t.Context(), code, nil, nil)
	return err
}

// lock locks a volume that only the test uses. Just after it was formatted or a file on it was
// closed, somebody else may look at it for a moment, such as a scanner.
func (f *Fixture) lock(t testing.TB, d win.Device) (err error) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); ; {
		err = lock(t, d, win.FsctlLockVolume)
		if f.Settle != nil || !errors.Is(err, winerr.ErrorAccessDenied) || time.Now().After(deadline) {
			return err
		}
		must(t, win.Sleep(t.Context(), 100*time.Millisecond))
	}
}

// healthRows are about who uses a volume, and in which state it is.
var healthRows = []row{
	{
		method: "Volumes.TryStorageProvider", name: "answers",
		promise: "FormatVolume and RepairVolume find their provider.",
		test:    func(t *testing.T, f *Fixture) { must(t, f.System.TryStorageProvider(t.Context())) },
	},
	{
		method: "SMBMappings.SMBConnections", name: "are listed",
		promise: "the connections of all accounts of this node to shares, with the user at the server.",
		test: func(t *testing.T, f *Fixture) {
			connections, err := f.System.SMBConnections(t.Context())
			must(t, err)
			for _, c := range connections {
				if c.Server == "" || c.Share == "" {
					t.Errorf("a connection to nothing: %+v", c)
				}
			}
		},
	},
	{
		method: "File.ProcessIDs", name: "this process", needs: []need{aDirectory},
		promise: "This process, whose handle it is, is among them.",
		test: func(t *testing.T, f *Fixture) {
			wantSelf(t, f.openFile(t, f.Directory, open(win.FileReadAttributes)).ProcessIDs)
		},
	},
	{
		method: "Device.ProcessIDs", name: "this process", needs: []need{aDisk},
		promise: "ProcessIDs is [File.ProcessIDs] of the device.",
		test: func(t *testing.T, f *Fixture) {
			_, volume := f.formatted(t)
			wantSelf(t, f.device(t, deviceOf(volume), win.GenericRead).ProcessIDs)
		},
	},
	{
		method: "Processes.ProcessImage", name: "of this process",
		promise: "the path of the program that the process runs.",
		test: func(t *testing.T, f *Fixture) {
			image, err := f.System.ProcessImage(t.Context(), win.ProcessID(os.Getpid()))
			if err != nil || !strings.Contains(image, `\`) {
				t.Errorf("%q, %v", image, err)
			}
			wantErrno(t, "no process", errorOf(f.System.ProcessImage(t.Context(), 0xFFFFFFF0)), winerr.ErrorInvalidParameter)
		},
	},
	{
		method: "Device.Control", name: "dirty", needs: []need{aDisk},
		promise: "FsctlIsVolumeDirty tells whether Windows wants to check the file system",
		test: func(t *testing.T, f *Fixture) {
			_, volume := f.formatted(t)
			out, err := f.control(t, deviceOf(volume), win.FsctlIsVolumeDirty, nil, 4)
			must(t, err)
			if dirty, err := win.DecodeVolumeIsDirty(out); err != nil || dirty {
				t.Errorf("a new volume is dirty: %v, %v", dirty, err)
			}
		},
	},
	{
		method: "Volumes.FormatVolume", name: "short names", needs: []need{aDisk},
		promise: "NoShortNames makes no 8.3 names beside the long ones.",
		test: func(t *testing.T, f *Fixture) {
			volume := f.partition(t, f.NewDisk(t).Number)
			o := win.FormatOptions{FileSystem: "NTFS", ClusterSize: 65536, Label: "label", NoShortNames: true}
			must(t, f.format(t, volume, o))
			out, err := f.control(t, deviceOf(volume), win.FsctlGetNtfsVolumeData, nil, 96)
			must(t, err)
			if data, err := win.DecodeNTFSVolumeData(out); err != nil || data.BytesPerCluster != o.ClusterSize {
				t.Errorf("%+v, %v", data, err)
			}
			closing(t, f.openFile(t, volume+"a long name", creating(win.FileCreate, win.FileNonDirectoryFile)))
			_, err = f.System.FileAttributes(t.Context(), volume+"ALONGN~1")
			wantErrno(t, "the short name", err, winerr.ErrorFileNotFound)
		},
	},
}
