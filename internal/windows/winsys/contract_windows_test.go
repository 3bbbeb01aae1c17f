// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/windows"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/lab/virtdisk"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Windows keeps the contract. Shares and iSCSI targets are those of TestNativeSMB and
// TestNativeISCSI, which drive the daemon.
func TestContract(t *testing.T) { seamtest.Run(t, contractConfig()) }

// What the simulated node takes for what Windows does, though nobody has promised it.
func TestGuessContract(t *testing.T) { seamtest.RunGuesses(t, contractConfig()) }

// The most important assumptions, on one disk.
func TestGuessQuick(t *testing.T) { seamtest.RunQuick(t, contractConfig(), nil) }

// What others have found out about Windows.
func TestGuessFacts(t *testing.T) {
	c := seamtest.Config{New: newFixture}
	if underWine() {
		c.Skip = factsNotInWine
	}
	seamtest.RunOracles(t, c)
}

func contractConfig() seamtest.Config {
	c := seamtest.Config{New: newFixture}
	if underWine() {
		c.Skip = notInWine
	}
	return c
}

// notInWine has what Wine 10 lacks or does otherwise, by rows of the suite.
var notInWine = map[string]string{
	"File.OpenAt/isn't led astray":                  noReparse,
	"File.OpenAt/below what has become a link":      noReparse,
	"File.FinalPath/below its volume":               "Wine has no paths below a volume's name",
	"File.FinalPath/of a deleted file":              "Wine deletes a file when it is closed",
	"File.FinalPath/through a link":                 noReparse,
	"Files.OpenFile/follows links":                  noReparse,
	"Files.OpenFile/of a link to itself":            noReparse,
	"Files.FileAttributes/of a link":                noReparse,
	"Files.AttributesWithoutLinks/behind a link":    noReparse,
	"Files.AttributesWithoutLinks/of a link itself": noReparse,
	"File.ReadDir/shows links":                      noReparse,
	"File.Control/reparse points":                   noReparse,
	"File.Control/errors of reparse points":         noReparse,
	"File.Delete/a link itself":                     noReparse,
	"File.DenyCreation":                             "Wine makes a file's mode of its access list",
	"File.AddAccess":                                "Wine makes a file's mode of its access list",
	"File.AccessList":                               "Wine makes a file's mode of its access list",
	"File.LockByte/without the right":               "Wine needs none",
	"File.LockByte/of a directory":                  "Wine says 6",
	"File.ReadDir/names of half pairs":              noSuchNames,
	"Devices.OpenDevice/a root directory": "Wine opens a volume's root directory without being " +
		"asked for backup",
	"Devices.DeviceInterfaces":                               "Wine has no device interfaces of disks",
	"Devices.ReenumerateDevice":                              "Wine has no CM_Reenumerate_DevNode",
	"Device.Flush/without the right":                         "Wine's volumes don't know FlushFileBuffers",
	"Volumes.VolumeNameForMountPoint/of what isn't there":    "Wine says 4390",
	"Volumes.VolumeNameForMountPoint/of a volume's own name": "Wine takes drive letters only",
	"Volumes.FormatVolume":                                   noStorage,
	"Volumes.RepairVolume":                                   noStorage,
	"Volumes.TryStorageProvider":                             noStorage,
	"SMBMappings.SMBConnections":                             noSMB,
	"Volumes.SetVolumeMountPoint":                            "Wine's SetVolumeMountPointW does nothing",
	"Volumes.DeleteVolumeMountPoint":                         "Wine's DeleteVolumeMountPointW knows drive letters only",
	"SMBMappings.SMBGlobalMappings":                          noSMB,
	"SMBMappings.CreateSMBGlobalMapping":                     noSMB,
	"SMBMappings.RemoveSMBGlobalMapping":                     noSMB,
	"Services.ActiveDependentServices":                       "Wine's EnumDependentServicesW finds none",
}

// factsNotInWine has the facts that Wine 10 doesn't show.
var factsNotInWine = map[string]string{
	"setrp": noReparse,
	"link":  noReparse,

	"half-pairs":     noSuchNames,
	"delete-pending": notDeleted,

	"btrfs-create/64 emoji":       noSuchNames,
	"btrfs-create/256 characters": noSuchNames,

	"btrfs-delete/deletefile9, open when it is being deleted":       notDeleted,
	"winfsp-delete/POSIX semantics, deleted through another handle": notDeleted,

	"fsa-open/requirement 368":                               "Wine says 5",
	"fsa-open/requirement 368, of a directory that is there": "Wine says 5",
	"fsa-open/requirement 53":                                "root below Wine may write to all files",
	"fsa-open/requirement 2422":                              "root below Wine may write to all files",

	"wine-volume/GetVolumeNameForVolumeMountPoint, no backslash": "Wine says 2",
	"wine-volume/GetVolumeInformation, no backslash":             "Wine says 144",
	"wine-volume/GetVolumePathNamesForVolumeName, no backslash":  "Wine says 2",
	"wine-volume/GetVolumePathNamesForVolumeName, a backslash":   "Wine says 123",

	"trailing-backslash": "Wine takes such a path for that of the file",
	"no-server":          "Wine has no shares",
	"csi-driver-smb":     noSMB,
}

const (
	noSuchNames = "the files below Wine can't have such names"
	notDeleted  = "Wine deletes a file when it is closed, and lets it be opened until then"

	noReparse = "Wine has no FSCTL_SET_REPARSE_POINT"
	noStorage = "Wine has no storage management classes"
	noSMB     = "Wine has no WMI namespace of SMB"
)

func newFixture(t *testing.T) *seamtest.Fixture {
	t.Helper()
	f := &seamtest.Fixture{
		System: newSystem(t), Directory: t.TempDir(),
		SetReadOnly: func(t *testing.T, path string, readOnly bool) {
			t.Helper()
			mode := os.FileMode(0o600)
			if readOnly {
				mode = 0o400
			}
			if err := os.Chmod(path, mode); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
		},
		WriteFile: func(t *testing.T, path, contents string) {
			t.Helper()
			if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		Blocked:      blockedRead,
		NewServices:  contractServices,
		StringsValue: [2]string{`SOFTWARE\Microsoft\Windows NT\CurrentVersion`, "ProductName"},
		NumberValue:  [2]string{`SOFTWARE\Microsoft\Windows NT\CurrentVersion`, "CurrentMajorVersionNumber"},
	}
	if !underWine() {
		f.NewDisk = virtualDisk
	}
	return f
}

// virtualDisk attaches a VHDX file.
func virtualDisk(t *testing.T) seamtest.Disk {
	t.Helper()
	d, err := virtdisk.New(filepath.Join(t.TempDir(), "disk.vhdx"), 1<<30, 512)
	if virtdisk.IsDenied(err) {
		t.Skip("only an administrator may attach disks")
	}
	must(t, err)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return seamtest.Disk{
		Number: csiproxy.DiskNumber(d.Number),
		Detach: func() {
			if err := d.Detach(); err != nil {
				t.Error(err)
			}
		},
		Grow: func(t testing.TB, size uint64) (csiproxy.DiskNumber, error) {
			way, err := d.Grow(size)
			t.Logf("the disk grew by %q", way)
			return csiproxy.DiskNumber(d.Number), err
		},
	}
}

// blockedRead returns a read of a pipe that nobody writes to.
func blockedRead(t *testing.T) (call func(ctx context.Context) error, begun <-chan struct{}) {
	t.Helper()
	const path = `\\.\pipe\csi-proxy-wintest-winsys-contract`
	name, err := utf16Ptr(path)
	must(t, err)
	server, err := windows.CreateNamedPipe(name, windows.PIPE_ACCESS_DUPLEX, windows.PIPE_WAIT, 1, 512, 512, 0, nil)
	must(t, err)
	t.Cleanup(func() { windows.CloseHandle(server) })
	d, err := newSystem(t).OpenDevice(t.Context(), path, win.GenericRead)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return func(ctx context.Context) error {
		_, err := d.ReadAt(ctx, make([]byte, 16), 0)
		return err
	}, nil
}

func contractServices(t *testing.T) seamtest.Services {
	t.Helper()
	const prefix = "csi-proxy-wintest-winsys-"
	s := seamtest.Services{Plain: prefix + "plain", Disabled: prefix + "disabled",
		Chain: []string{prefix + "top", prefix + "middle", prefix + "base"}}
	createService(t, s.Plain, win.ServiceDemandStart, "runs")
	createService(t, s.Disabled, win.ServiceDisabled, "runs")
	createService(t, s.Chain[2], win.ServiceDemandStart, "runs")
	createService(t, s.Chain[1], win.ServiceDemandStart, "runs", s.Chain[2])
	createService(t, s.Chain[0], win.ServiceDemandStart, "runs", s.Chain[1])
	return s
}
