// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
	"github.com/csi-proxy/csi-proxy/internal/windows/winsys"
	"github.com/csi-proxy/csi-proxy/published"
)

// What the driver plays.
const (
	number     = 9
	volumeName = `\\?\Volume{c51a0000-0000-4000-8000-000000000009}\`

	mib = 1 << 20
	gib = 1 << 30

	ioctlTakeRecord = win.IoctlCode(0x22<<16 | 0x800<<2)
	ioctlGrowDisk   = win.IoctlCode(0x22<<16 | 0x801<<2)
)

// system is Windows with the disk and the volume put where Wine has nothing that a
// driver could register at: the lists of devices, the mount manager and the file
// systems. What goes to the disk and the volume goes to the driver.
type system struct {
	*winsys.System
}

func (s *system) DeviceInterfaces(context.Context, winid.GUID) ([]string, error) {
	return []string{win.PhysicalDrive(number)}, nil
}

func (s *system) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := s.System.OpenDevice(ctx, path, access)
	if err != nil {
		return nil, err
	}
	return guarded{d, access}, nil
}

// guarded is a device that demands of its handle the rights that a control code
// names, as Windows' I/O manager does and Wine's doesn't.
type guarded struct {
	win.Device
	access win.Access
}

func (g guarded) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	const read, write = 1, 2 // FILE_READ_ACCESS, FILE_WRITE_ACCESS of CTL_CODE
	needed := code >> 14 & 3
	if needed&read != 0 && g.access&win.GenericRead == 0 || needed&write != 0 && g.access&win.GenericWrite == 0 {
		return 0, winerr.ErrorAccessDenied
	}
	return g.Device.Control(ctx, code, in, out)
}

func (s *system) FindVolumes(context.Context) ([]string, error) { return []string{volumeName}, nil }

func (s *system) VolumeInformation(context.Context, string) (win.VolumeInformation, error) {
	return win.VolumeInformation{FileSystem: "NTFS"}, nil
}

// The daemon's operations on a disk, from the first look to the growth, and what
// arrives at the driver of each.
func TestDisk(t *testing.T) {
	load(t)
	win32, err := winsys.Open(winsys.Options{Handles: handletrack.New()})
	must(t, err)
	defer func() {
		if err := win32.Close(); err != nil {
			t.Error(err)
		}
	}()
	n, err := nodeops.New(&system{win32}, nodeops.Options{})
	must(t, err)
	d := &double{t, win32}
	ctx := t.Context()

	t.Run("identify", func(t *testing.T) {
		ids, err := n.Disk.ListDiskIDs(ctx)
		want := map[csiproxy.DiskNumber]published.DiskIDs{number: {Page83: "60022480abcdef01", SerialNumber: "vol0123456789abcdef0"}}
		if diff := cmp.Diff(want, ids); err != nil || diff != "" {
			t.Errorf("ListDiskIDs: %v (-want +got)\n%s", err, diff)
		}
		locations, err := n.Disk.ListDiskLocations(ctx)
		if diff := cmp.Diff(map[csiproxy.DiskNumber]published.DiskLocation{number: {Adapter: "3", Target: "1", LUNID: "7"}},
			locations); err != nil || diff != "" {
			t.Errorf("ListDiskLocations: %v (-want +got)\n%s", err, diff)
		}
	})

	t.Run("size", func(t *testing.T) {
		stats, err := n.Disk.GetDiskStats(ctx, number)
		if err != nil || stats.SizeBytes != gib {
			t.Errorf("GetDiskStats gives %+v, %v, want 1 GiB", stats, err)
		}
	})

	t.Run("attributes", func(t *testing.T) {
		d.take()
		for _, online := range []bool{true, false, true} {
			if err := n.Disk.SetDiskState(ctx, number, online); err != nil {
				t.Error(err)
			}
			if got, err := n.Disk.GetDiskState(ctx, number); err != nil || got != online {
				t.Errorf("GetDiskState gives %t, %v, want %t", got, err, online)
			}
		}
		d.want(t, []string{
			"attributes persist=1 attributes=0 mask=1",
			"update properties",
			"attributes persist=1 attributes=1 mask=1",
			"attributes persist=1 attributes=0 mask=1",
			"update properties",
		})
	})

	t.Run("partition", func(t *testing.T) {
		must(t, n.Disk.SetDiskState(ctx, number, false))
		d.take()
		for range 2 { // the second time there is nothing to do
			must(t, n.Disk.PartitionDisk(ctx, number))
		}
		const front, back = 34 * 512, 33 * 512
		layout := d.layout()
		if len(layout.Partitions) != 2 {
			t.Fatalf("the disk has the partitions %+v, want two", layout.Partitions)
		}
		reserved, data := layout.Partitions[0], layout.Partitions[1]
		d.want(t, []string{
			"attributes persist=1 attributes=0 mask=1",
			"update properties",
			fmt.Sprintf("create style=1 id=%s max=128", braced(layout.DiskID)),
			"update properties",
			fmt.Sprintf("layout style=1 count=2 id=%s usable=%d+%d max=128", braced(layout.DiskID), front, gib-front-back),
			fmt.Sprintf("partition style=1 start=%d length=%d number=1 rewrite=1 type=%s id=%s attributes=0 name=Microsoft "+
				"reserved partition",
				front, 16*mib-front, braced(win.PartitionTypeMicrosoftReserved), braced(reserved.ID)),
			fmt.Sprintf("partition style=1 start=%d length=%d number=2 rewrite=1 type=%s id=%s attributes=8000000000000000 "+
				"name=Basic data partition",
				16*mib, gib-17*mib, braced(win.PartitionTypeBasicData), braced(data.ID)),
			"update properties",
		})
		ids, err := n.Volume.ListVolumesOnDisk(ctx, number, 0)
		if diff := cmp.Diff([]csiproxy.VolumeID{volumeName}, ids); err != nil || diff != "" {
			t.Errorf("ListVolumesOnDisk: %v (-want +got)\n%s", err, diff)
		}
		if got, err := n.Volume.GetDiskNumberFromVolumeID(ctx, volumeName); err != nil || got != number {
			t.Errorf("GetDiskNumberFromVolumeID gives %d, %v", got, err)
		}
	})

	t.Run("grow", func(t *testing.T) {
		d.grow(2 * gib)
		d.take()
		must(t, n.Volume.ResizeVolume(ctx, volumeName, 0))
		layout := d.layout()
		data := layout.Partitions[1]
		if want := int64(2*gib - 17*mib); data.Length != want {
			t.Errorf("the partition has %d bytes, want %d", data.Length, want)
		}
		record := d.take()
		for _, want := range []string{
			"update size", "update properties", // the new size is read before anything is done
			fmt.Sprintf("grow number=2 bytes=%d", gib),
			fmt.Sprintf("extend sectors=%d", data.Length/512),
		} {
			at := slices.Index(record, want)
			if at < 0 {
				t.Fatalf("the driver wasn't told %q, or not in this order: %q", want, record)
			}
			record = record[at+1:]
		}
		if stats, err := n.Disk.GetDiskStats(ctx, number); err != nil || stats.SizeBytes != 2*gib {
			t.Errorf("GetDiskStats gives %+v, %v, want 2 GiB", stats, err)
		}
	})
}

// double is the test's own way to the driver.
type double struct {
	t   *testing.T
	sys *winsys.System
}

func (d *double) open(access win.Access) win.DeviceHandle {
	d.t.Helper()
	h, err := win.OpenDevice(d.t.Context(), d.sys, win.PhysicalDrive(number), access)
	must(d.t, err)
	return h
}

// take takes the lines that the driver has written down.
func (d *double) take() []string {
	d.t.Helper()
	h := d.open(win.AccessNone)
	defer h.Close()
	text := make([]byte, 16<<10)
	n, err := h.Control(d.t.Context(), ioctlTakeRecord, nil, text)
	must(d.t, err)
	return strings.FieldsFunc(string(text[:n]), func(r rune) bool { return r == '\n' })
}

// want asserts what the driver has written down.
func (d *double) want(t *testing.T, lines []string) {
	t.Helper()
	if diff := cmp.Diff(lines, d.take()); diff != "" {
		t.Errorf("the driver was told (-want +got):\n%s", diff)
	}
}

// grow makes the disk larger, as a cloud does.
func (d *double) grow(size int64) {
	d.t.Helper()
	h := d.open(win.AccessNone)
	defer h.Close()
	if _, err := h.Control(d.t.Context(), ioctlGrowDisk, binary.LittleEndian.AppendUint64(nil, uint64(size)),
		nil); err != nil {
		d.t.Fatal(err)
	}
}

func (d *double) layout() *win.DriveLayout {
	d.t.Helper()
	h := d.open(win.AccessNone)
	defer h.Close()
	layout, err := h.Layout(d.t.Context())
	must(d.t, err)
	return layout
}

// braced is a GUID as the driver writes it.
func braced(g winid.GUID) string { return "{" + strings.Trim(g.String(), "{}") + "}" }

// load loads the driver, which stays until Windows ends.
func load(t *testing.T) {
	t.Helper()
	path := os.Getenv("CSI_PROXY_TEST_DRIVER")
	if path == "" {
		t.Skip("CSI_PROXY_TEST_DRIVER names no driver")
	}
	path, err := filepath.Abs(path)
	must(t, err)
	m, err := mgr.Connect()
	must(t, err)
	defer m.Disconnect()
	s, err := m.CreateService("csi-proxy-test-disk", `\??\`+path, mgr.Config{
		ServiceType: windows.SERVICE_KERNEL_DRIVER, StartType: mgr.StartManual,
	})
	must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(s.Delete(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	must(t, s.Start())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
