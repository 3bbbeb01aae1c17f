// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
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

func mustParse(t *testing.T, p *pathpolicy.Policy, path string) pathpolicy.Path {
	t.Helper()
	parsed, err := p.Parse(path, pathpolicy.MaxPath)
	must(t, err)
	return parsed
}

func newPolicy(t *testing.T, workingDirs ...string) *pathpolicy.Policy {
	t.Helper()
	p, err := pathpolicy.New(kubelet, workingDirs...)
	must(t, err)
	return p
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
