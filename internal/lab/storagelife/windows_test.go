// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build windows

package storagelife

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/windows"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/lab/virtdisk"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/node"
)

// Volumes live on this Windows as on the simulated node.
func TestGuessLife(t *testing.T) {
	if windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil {
		t.Skip("Wine has no virtual disks, no mount points and no storage management")
	}
	live(t, native(t))
}

func native(t *testing.T) testNode {
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	check(t, os.MkdirAll(filepath.Join(kubelet, "pods"), 0o700))
	operations, err := node.Open(node.Options{KubeletPath: kubelet})
	check(t, err)
	claimed, err := pipe.Claim("")
	check(t, err)
	return testNode{
		step:   func(t *testing.T, name string, f func(t *testing.T)) bool { return t.Run(name, f) },
		listen: func(name string) (net.Listener, error) { return claimed.Listen(t.Context(), name) },
		dial: func(ctx context.Context, group, version string) (net.Conn, error) {
			return pipe.Dial(ctx, pipe.Address("", api.EndpointName(group, version)))
		},
		operations: rpc.Operations(*operations),
		kubelet:    kubelet,
		attach: func(t *testing.T) testDisk {
			d := &virtualDisk{t: t, path: filepath.Join(t.TempDir(), "disk.vhdx")}
			var err error
			d.disk, err = virtdisk.New(d.path, gib, 512)
			if virtdisk.IsDenied(err) {
				t.Skip("only an administrator may attach disks")
			}
			check(t, err)
			t.Cleanup(d.close)
			return d
		},
		write: func(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) },
		read: func(path string) (string, error) {
			text, err := os.ReadFile(path)
			return string(text), err
		},
		hold: func(t *testing.T, path string) func() {
			f, err := os.Open(path)
			check(t, err)
			return func() { check(t, f.Close()) }
		},
		letter: giveLetter,
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// giveLetter gives the volume the last drive letter that is free.
func giveLetter(t *testing.T, id csiproxy.VolumeID) {
	t.Helper()
	used, err := windows.GetLogicalDrives()
	check(t, err)
	for letter := 'Z'; letter >= 'D'; letter-- {
		if used&(1<<(letter-'A')) != 0 {
			continue
		}
		drive := windows.StringToUTF16Ptr(string(letter) + `:\`)
		check(t, windows.SetVolumeMountPoint(drive, windows.StringToUTF16Ptr(string(id))))
		t.Cleanup(func() { _ = windows.DeleteVolumeMountPoint(drive) }) // it should be gone by then
		return
	}
	t.Skip("no drive letter is free")
}

// virtualDisk is a VHDX file that is attached, or was. It and its copies are closed when t ends.
type virtualDisk struct {
	t    *testing.T
	path string
	disk *virtdisk.Disk // nil if the file is closed
}

func (d *virtualDisk) number() csiproxy.DiskNumber { return csiproxy.DiskNumber(d.disk.Number) }

func (d *virtualDisk) grow(t *testing.T, size uint64) {
	t.Helper()
	way, err := d.disk.Grow(size)
	check(t, err)
	t.Logf("the disk grew by %s", way)
}

func (d *virtualDisk) detach(t *testing.T) {
	t.Helper()
	check(t, d.disk.Detach())
}

func (d *virtualDisk) close() {
	if d.disk != nil {
		if err := d.disk.Close(); err != nil {
			d.t.Error(err)
		}
		d.disk = nil
	}
}

// copy copies the file, which must not be attached meanwhile.
func (d *virtualDisk) copy(t *testing.T) func(t *testing.T) testDisk {
	t.Helper()
	d.close()
	content, err := os.ReadFile(d.path)
	check(t, err)
	clone := &virtualDisk{t: d.t, path: d.path + ".copy.vhdx"}
	check(t, os.WriteFile(clone.path, content, 0o600))
	d.disk, err = virtdisk.Open(d.path)
	check(t, err)
	d.t.Cleanup(clone.close)
	return func(t *testing.T) testDisk {
		var err error
		clone.disk, err = virtdisk.Open(clone.path)
		check(t, err)
		return clone
	}
}
