// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simtest prepares simulated nodes for tests of the code above the seam,
// by calls of the seam alone.
package simtest

import (
	"cmp"
	"fmt"
	"os"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/credential"
	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Kubelet is the kubelet directory of a simulated node.
const Kubelet = `C:\var\lib\kubelet`

// Passwords take most of the time of a test with thousands of nodes.
func init() { credential.Rounds = 1 }

// Open starts a node that ends with the test, and fails the test if handles are
// left open then, with the stacks that opened them. OnWindows sets its switches.
func Open(t testing.TB, delays winsim.Delays) *winsim.System {
	t.Helper()
	return OpenNode(t, winsim.Config{Delays: delays})
}

// OpenNode is Open of a node that may be in a file.
func OpenNode(t testing.TB, c winsim.Config) *winsim.System {
	t.Helper()
	handles := handletrack.New()
	c.Handles = handles
	sys, err := winsim.Open(c)
	Must(t, err)
	Must(t, sys.SetSettings(windows))
	t.Cleanup(func() {
		if err := sys.CheckRules(); err != nil && !t.Failed() && !t.Skipped() {
			t.Error(err)
		}
		// An operation that its caller gave up ends soon after.
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
			err := handles.Err()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Error(err)
				break
			}
		}
		if err := sys.Close(); err != nil {
			t.Error(err)
		}
	})
	return sys
}

// SocketDir returns a directory of the test's own for sockets. That of the test itself may have too
// long a path.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := pipe.MkdirTemp("test")
	Must(t, err)
	t.Cleanup(func() { Must(t, os.RemoveAll(dir)) })
	return dir
}

// Attach attaches a disk, of 10 GiB if the spec doesn't say.
func Attach(t testing.TB, sys *winsim.System, spec winsim.DiskSpec) csiproxy.DiskNumber {
	t.Helper()
	if spec.SizeBytes == 0 {
		spec.SizeBytes = 10 << 30
	}
	number, err := sys.AttachDisk(spec)
	Must(t, err)
	return number
}

// Partition gives a raw disk a GPT with so many data partitions of 1 GiB, one after
// the other from 16 MiB on. Their volumes may not be there yet.
func Partition(t testing.TB, sys *winsim.System, number csiproxy.DiskNumber, partitions int) {
	t.Helper()
	partition(t, sys, number, partitions, win.GPTAttributeNoDriveLetter)
}

// PartitionWithLetters is Partition with partitions as another machine makes them: Windows gives their
// volumes drive letters by itself.
func PartitionWithLetters(t testing.TB, sys *winsim.System, number csiproxy.DiskNumber, partitions int) {
	t.Helper()
	partition(t, sys, number, partitions, 0)
}

func partition(t testing.TB, sys *winsim.System, number csiproxy.DiskNumber, partitions int, attributes uint64) {
	t.Helper()
	h, err := sys.OpenDevice(t.Context(), fmt.Sprintf(`\\.\PhysicalDrive%d`, number), win.GenericRead|win.GenericWrite)
	Must(t, err)
	defer h.Close()
	layout := win.DriveLayout{Style: win.StyleGPT}
	for i := range partitions {
		layout.Partitions = append(layout.Partitions, win.Partition{
			Style: win.StyleGPT, StartingOffset: 16<<20 + int64(i)<<30, Length: 1 << 30,
			Type: win.PartitionTypeBasicData, ID: winid.NewGUID(), Attributes: attributes,
		})
	}
	create := win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID(), MaxPartitionCount: 128}
	_, err = h.Control(t.Context(), win.IoctlDiskCreateDisk, create.Encode(), nil)
	Must(t, err)
	_, err = h.Control(t.Context(), win.IoctlDiskSetDriveLayoutEx, layout.Encode(), nil)
	Must(t, err)
}

// Volume attaches a disk with one formatted volume, and returns its name,
// \\?\Volume{guid}\, and the number of the disk.
func Volume(t testing.TB, sys *winsim.System) (name string, number csiproxy.DiskNumber) {
	t.Helper()
	number = Attach(t, sys, winsim.DiskSpec{})
	Partition(t, sys, number, 1)
	sys.Settle()
	volumes := sys.VolumesOfDisk(number)
	if len(volumes) != 1 {
		t.Fatalf("disk %d has the volumes %q", number, volumes)
	}
	Must(t, sys.FormatVolume(t.Context(), volumes[0], win.FormatOptions{FileSystem: "NTFS"}))
	return volumes[0], number
}

// Lettered attaches a disk with one formatted volume that another machine has made, and to
// which Windows gave a drive letter by itself when it arrived.
func Lettered(t testing.TB, sys *winsim.System, spec winsim.DiskSpec) (name string, number csiproxy.DiskNumber, letter string) {
	t.Helper()
	spec.SizeBytes = cmp.Or(spec.SizeBytes, 10<<30)
	number = Attach(t, sys, spec)
	PartitionWithLetters(t, sys, number, 1)
	sys.Settle()
	volumes := sys.VolumesOfDisk(number)
	if len(volumes) != 1 {
		t.Fatalf("disk %d has the volumes %q", number, volumes)
	}
	Must(t, sys.FormatVolume(t.Context(), volumes[0], win.FormatOptions{FileSystem: "NTFS"}))
	paths, err := sys.VolumePathNames(t.Context(), volumes[0])
	Must(t, err)
	if len(paths) != 1 || len(paths[0]) != len(`D:\`) {
		t.Fatalf("the volume of disk %d has the paths %q, and no drive letter", number, paths)
	}
	return volumes[0], number, paths[0]
}

// Mount makes a directory and mounts a volume there.
func Mount(t testing.TB, sys *winsim.System, directory, volume string) {
	t.Helper()
	Must(t, sys.MkdirAll(directory))
	Must(t, sys.SetVolumeMountPoint(t.Context(), directory+`\`, volume))
}
