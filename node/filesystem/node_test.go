// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package filesystem_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
	"github.com/csi-proxy/csi-proxy/node/filesystem"
)

const kubelet = `C:\var\lib\kubelet`

// newNode starts a simulated node, and fails the test if handles are left open.
func newNode(t *testing.T) *winsim.System {
	t.Helper()
	sys, err := winsim.Open(winsim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if open := sys.OpenHandles(); len(open) > 0 {
			t.Errorf("handles left open: %q", open)
		}
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return sys
}

// must ends the test if a step of its preparation fails.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFilesystem returns the operations with the kubelet directory and the working
// directories allowed.
func newFilesystem(t *testing.T, sys filesystem.System, workingDirs ...string) *filesystem.Filesystem {
	t.Helper()
	p, err := pathpolicy.New(kubelet, workingDirs...)
	must(t, err)
	return filesystem.New(sys, p, filesystem.Options{})
}

// newVolume attaches a disk with one formatted volume, which it returns as
// \\?\Volume{guid}\ with the number of the disk.
func newVolume(t *testing.T, sys *winsim.System) (string, uint32) {
	t.Helper()
	before, err := sys.FindVolumes(t.Context())
	must(t, err)
	arrived, stop, err := sys.NotifyArrivals(t.Context(), win.InterfaceClassVolume)
	must(t, err)
	defer stop()
	number, err := sys.AttachDisk(winsim.DiskSpec{SizeBytes: 1 << 30})
	must(t, err)
	disk, err := sys.OpenDevice(t.Context(), `\\.\PhysicalDrive1`, win.GenericRead|win.GenericWrite)
	must(t, err)
	defer disk.Close()
	gpt := win.CreateDisk{Style: win.StyleGPT, DiskID: win.NewGUID(), MaxPartitionCount: 128}
	_, err = disk.Control(t.Context(), win.IoctlDiskCreateDisk, gpt.Encode(), nil)
	must(t, err)
	layout := win.DriveLayout{Style: win.StyleGPT, Partitions: []win.Partition{{
		Style: win.StyleGPT, StartingOffset: 1 << 20, Length: 512 << 20, ID: win.NewGUID(),
		Type: win.PartitionTypeBasicData, Attributes: win.GPTAttributeNoDriveLetter,
	}}}
	_, err = disk.Control(t.Context(), win.IoctlDiskSetDriveLayoutEx, layout.Encode(), nil)
	must(t, err)
	for {
		volumes, err := sys.FindVolumes(t.Context())
		must(t, err)
		for _, v := range volumes {
			if !slices.Contains(before, v) {
				must(t, sys.FormatVolume(t.Context(), v, win.FormatOptions{FileSystem: "NTFS"}))
				return v, number
			}
		}
		<-arrived
	}
}

// mount makes a directory and mounts a volume there.
func mount(t *testing.T, sys *winsim.System, dir, volume string) {
	t.Helper()
	must(t, sys.MkdirAll(dir))
	must(t, sys.SetVolumeMountPoint(t.Context(), dir+`\`, volume))
}

// tree lists what is at and below a directory, without following links, each as
// its path and what it is. The directory may be missing.
func tree(t *testing.T, sys *winsim.System, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	var list func(dir string)
	list = func(dir string) {
		entries, err := sys.ReadDir(dir)
		if errors.Is(err, win.ErrorFileNotFound) || errors.Is(err, win.ErrorPathNotFound) {
			return
		}
		must(t, err)
		found[dir] = "directory"
		for _, e := range entries {
			path := dir + `\` + e.Name
			switch {
			case e.IsReparsePoint():
				found[path] = "link to " + linkTarget(t, sys, path)
				if strings.HasPrefix(found[path], `link to \\?\Volume{`) { // another name at each run
					found[path] = "link to a volume"
				}
			case e.IsDir():
				list(path)
			default:
				data, err := sys.ReadFile(path)
				must(t, err)
				found[path] = "file " + string(data)
			}
		}
	}
	list(dir)
	return found
}

// linkTarget reads a link.
func linkTarget(t *testing.T, sys *winsim.System, path string) string {
	t.Helper()
	f, err := sys.OpenFile(t.Context(), path, win.OpenOptions{Disposition: win.FileOpen, Options: win.FileOpenReparsePoint})
	must(t, err)
	defer f.Close()
	b := make([]byte, win.MaximumReparseDataSize)
	n, err := f.Control(t.Context(), win.FsctlGetReparsePoint, nil, b)
	must(t, err)
	r, err := win.DecodeReparsePoint(b[:n])
	must(t, err)
	return r.Target()
}
