// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// deviceOf is the path under which the device of a volume is opened.
func deviceOf(volume string) string { return strings.TrimSuffix(volume, `\`) }

func physicalDrive(n csiproxy.DiskNumber) string { return fmt.Sprintf(`\\.\PhysicalDrive%d`, n) }

var deviceRows = []row{
	{
		method: "Devices.OpenDevice", name: "any case",
		promise: "Names of devices, volumes and files compare without regard to case.",
		test: func(t *testing.T, f *Fixture) {
			for _, path := range []string{strings.ToUpper(deviceOf(f.systemVolume(t))),
				strings.ToLower(deviceOf(f.systemVolume(t)))} {
				closing(t, f.device(t, path, win.AccessNone))
			}
		},
	},
	{
		method: "Devices.DeviceInterfaces", name: "of disks",
		promise: "the paths of the devices of a class, in no particular order",
		test: func(t *testing.T, f *Fixture) {
			for _, class := range []winid.GUID{win.InterfaceClassDisk, win.InterfaceClassVolume} {
				paths, err := f.System.DeviceInterfaces(t.Context(), class)
				must(t, err)
				if len(paths) == 0 {
					t.Errorf("class %v has no devices", class)
				}
				for _, path := range paths {
					if !strings.HasPrefix(path, `\\?\`) || !strings.HasSuffix(strings.ToLower(path), "#{"+class.String()+"}") {
						t.Errorf("interface %s", path)
					}
					closing(t, f.device(t, path, win.AccessNone))
				}
			}
		},
	},
	{
		method: "Devices.DeviceInterfaces", name: "of an unknown class",
		promise: "A class that nothing has gives no paths and no error.",
		test: func(t *testing.T, f *Fixture) {
			paths, err := f.System.DeviceInterfaces(t.Context(), winid.NewGUID())
			if err != nil || len(paths) != 0 {
				t.Errorf("%q, %v", paths, err)
			}
		},
	},
	{
		method: "Devices.ReenumerateDevice", name: "the root and adapters",
		promise: `The device is that of an interface path; "" is the root of the device tree.`,
		test: func(t *testing.T, f *Fixture) {
			must(t, f.System.ReenumerateDevice(t.Context(), ""))
			ports, err := f.System.DeviceInterfaces(t.Context(), win.InterfaceClassStoragePort)
			must(t, err)
			for _, port := range ports {
				wantErrno(t, port, f.System.ReenumerateDevice(t.Context(), port))
			}
		},
	},
	{
		method: "Devices.ReenumerateDevice", name: "what has left",
		promise: "Errors: 13 and 1168 the device has left",
		test: func(t *testing.T, f *Fixture) {
			err := f.System.ReenumerateDevice(t.Context(), `\\?\no#such#device#{`+win.InterfaceClassDisk.String()+`}`)
			wantErrno(t, "an unknown interface", err, 13, winerr.ErrorNotFound)
		},
	},
	{
		method: "Notices.NotifyArrivals", name: "begins and ends",
		promise: "until stop is called",
		test: func(t *testing.T, f *Fixture) {
			for range 3 {
				arrived, stop, err := f.System.NotifyArrivals(t.Context(), win.InterfaceClassDisk)
				must(t, err)
				if arrived == nil {
					t.Error("no channel")
				}
				stop()
				stop()
			}
		},
	},
	{
		method: "Notices.NotifyArrivals", name: "tells of a disk", needs: []need{aDisk},
		promise: "A value comes on arrived after one or more interfaces of the class arrived or left",
		guess:   "whether each change gives a notice isn't documented",
		test: func(t *testing.T, f *Fixture) {
			arrived, stop, err := f.System.NotifyArrivals(t.Context(), win.InterfaceClassDisk)
			must(t, err)
			defer stop()
			f.NewDisk(t)
			f.await(t, "a notice", func() bool { return len(arrived) > 0 })
		},
	},
}

// control sends a control code through a handle of its own.
func (f *Fixture) control(t testing.TB, path string, code win.IoctlCode, in []byte, room int) ([]byte, error) {
	t.Helper()
	d := f.device(t, path, readWrite)
	defer closing(t, d)
	out := make([]byte, room)
	n, err := d.Control(t.Context(), code, in, out)
	return out[:n], err
}

const partitionSize = 256 << 20

// partition gives a raw disk an empty GPT and then one partition of 256 MiB at 16 MiB, and
// returns its volume.
func (f *Fixture) partition(t *testing.T, n csiproxy.DiskNumber) (volume string) {
	t.Helper()
	drive := physicalDrive(n)
	create := win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID(), MaxPartitionCount: 128}
	_, err := f.control(t, drive, win.IoctlDiskSetDiskAttributes,
		win.SetDiskAttributes{Mask: win.DiskOffline | win.DiskReadOnly}.Encode(), 0)
	must(t, err)
	_, err = f.control(t, drive, win.IoctlDiskCreateDisk, create.Encode(), 0)
	must(t, err)
	must(t, f.setLayout(t, n, dataPartition(16<<20, partitionSize)))
	return f.volumeOf(t, n)
}

func dataPartition(offset, length int64) win.Partition {
	return win.Partition{
		Style: win.StyleGPT, StartingOffset: offset, Length: length, RewritePartition: true,
		Type: win.PartitionTypeBasicData, ID: winid.NewGUID(), Attributes: win.GPTAttributeNoDriveLetter, Name: "test",
	}
}

func (f *Fixture) layout(t testing.TB, n csiproxy.DiskNumber) *win.DriveLayout {
	t.Helper()
	out, err := f.control(t, physicalDrive(n), win.IoctlDiskGetDriveLayoutEx, nil, 64<<10)
	must(t, err)
	l, err := win.DecodeDriveLayout(out)
	must(t, err)
	return l
}

func (f *Fixture) setLayout(t testing.TB, n csiproxy.DiskNumber, partitions ...win.Partition) error {
	t.Helper()
	l := f.layout(t, n)
	l.Partitions = partitions
	if _, err := f.control(t, physicalDrive(n), win.IoctlDiskSetDriveLayoutEx, l.Encode(), 64<<10); err != nil {
		return err
	}
	_, err := f.control(t, physicalDrive(n), win.IoctlDiskUpdateProperties, nil, 0)
	return err
}

// volumesOf returns the names of the volumes on a disk.
func (f *Fixture) volumesOf(t testing.TB, n csiproxy.DiskNumber) (on []string) {
	t.Helper()
	names, err := f.System.FindVolumes(t.Context())
	must(t, err)
	for _, name := range names {
		d, err := f.System.OpenDevice(t.Context(), deviceOf(name), win.AccessNone)
		if err != nil {
			continue // one that is leaving
		}
		out := make([]byte, 12)
		if k, err := d.Control(t.Context(), win.IoctlStorageGetDeviceNumber, nil, out); err == nil {
			if number, err := win.DecodeDeviceNumber(out[:k]); err == nil && number.DeviceType == win.FileDeviceDisk &&
				number.DeviceNumber == n {
				on = append(on, name)
			}
		}
		closing(t, d)
	}
	return on
}

// volumeOf waits for the only volume of a disk.
func (f *Fixture) volumeOf(t testing.TB, n csiproxy.DiskNumber) (name string) {
	t.Helper()
	f.await(t, "the disk has one volume", func() bool {
		names := f.volumesOf(t, n)
		if len(names) == 1 {
			name = names[0]
		}
		return len(names) == 1
	})
	return name
}

// formatted returns a disk with an NTFS volume, and its name.
func (f *Fixture) formatted(t *testing.T) (Disk, string) {
	t.Helper()
	d := f.NewDisk(t)
	volume := f.partition(t, d.Number)
	must(t, f.format(t, volume, win.FormatOptions{FileSystem: "NTFS", Label: "label"}))
	return d, volume
}

func (f *Fixture) setOffline(t testing.TB, n csiproxy.DiskNumber, offline bool) {
	t.Helper()
	set := win.SetDiskAttributes{Mask: win.DiskOffline}
	if offline {
		set.Attributes = win.DiskOffline
	}
	_, err := f.control(t, physicalDrive(n), win.IoctlDiskSetDiskAttributes, set.Encode(), 0)
	must(t, err)
}

var diskRows = []row{
	{
		method: "Devices.OpenDevice", name: "a disk by each of its paths", needs: []need{aDisk},
		promise: `path is \\.\PhysicalDriveN, a path from DeviceInterfaces, or \\?\Volume{guid} without a backslash at its end`,
		test: func(t *testing.T, f *Fixture) {
			n := f.NewDisk(t).Number
			paths, err := f.System.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
			must(t, err)
			found := slices.ContainsFunc(append(paths, physicalDrive(n)), func(path string) bool {
				d, err := f.System.OpenDevice(t.Context(), path, win.AccessNone)
				if err != nil {
					return false
				}
				defer closing(t, d)
				out := make([]byte, 12)
				_, err = d.Control(t.Context(), win.IoctlStorageGetDeviceNumber, nil, out)
				number, decodeErr := win.DecodeDeviceNumber(out)
				return err == nil && decodeErr == nil && number.DeviceNumber == n
			})
			if !found {
				t.Errorf("no interface is that of disk %d: %q", n, paths)
			}
		},
	},
	{
		method: "Device.Control", name: "a property that is cut", needs: []need{aDisk},
		promise: "Two answers are cut instead, and begin with their length: a storage property, and, with ErrorMoreData, " +
			"the extents of a volume.",
		test: func(t *testing.T, f *Fixture) {
			drive, query := physicalDrive(f.NewDisk(t).Number), win.EncodePropertyQuery(win.PropertyDevice)
			whole, err := f.control(t, drive, win.IoctlStorageQueryProperty, query, 4096)
			must(t, err)
			head, err := f.control(t, drive, win.IoctlStorageQueryProperty, query, 8)
			must(t, err)
			if size, err := win.DescriptorSize(head); err != nil || int(size) != len(whole) {
				t.Errorf("the header says %d, %v, and there are %d bytes", size, err, len(whole))
			}
		},
	},
	{
		method: "Device.Control", name: "partitions", needs: []need{aDisk},
		promise: "IoctlDiskSetDriveLayoutEx replaces the whole partition table: a partition that it leaves out is gone. " +
			"The volumes of new partitions arrive afterwards.",
		test: func(t *testing.T, f *Fixture) {
			n := f.NewDisk(t).Number
			f.partition(t, n)
			var at []int64
			for _, p := range f.layout(t, n).Partitions {
				if p.Type == win.PartitionTypeBasicData {
					at = append(at, p.StartingOffset, p.Length)
				}
			}
			if !slices.Equal(at, []int64{16 << 20, 256 << 20}) {
				t.Errorf("data partitions %v", at)
			}
			must(t, f.setLayout(t, n))
			f.await(t, "the volume is gone", func() bool { return len(f.volumesOf(t, n)) == 0 })
		},
	},
	{
		method: "Device.Control", name: "a disk that is offline", needs: []need{aDisk},
		promise: "The volumes of a disk that is offline are gone, and come again, with their names, when it is online.",
		test: func(t *testing.T, f *Fixture) {
			n := f.NewDisk(t).Number
			before := f.partition(t, n)
			f.setOffline(t, n, true)
			f.await(t, "its volume is gone", func() bool { return len(f.volumesOf(t, n)) == 0 })
			_, err := f.control(t, physicalDrive(n), win.IoctlDiskCreateDisk,
				win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID(), MaxPartitionCount: 128}.Encode(), 0)
			wantErrno(t, "IOCTL_DISK_CREATE_DISK", err, winerr.ErrorWriteProtect)
			f.setOffline(t, n, false)
			if after := f.volumeOf(t, n); !strings.EqualFold(after, before) {
				t.Errorf("the volume was %s, and is %s", before, after)
			}
		},
	},
	{
		method: "Devices.OpenDevice", name: "a read-only volume", needs: []need{aDisk},
		promise: "a volume on a read-only disk can be opened for writing, and locked by a handle that reads",
		guess:   "the documentation names neither; Microsoft's driver for FAT does so",
		test: func(t *testing.T, f *Fixture) {
			d, volume := f.formatted(t)
			set := win.SetDiskAttributes{Mask: win.DiskReadOnly, Attributes: win.DiskReadOnly}
			f.setOffline(t, d.Number, true)
			_, err := f.control(t, physicalDrive(d.Number), win.IoctlDiskSetDiskAttributes, set.Encode(), 0)
			must(t, err)
			f.setOffline(t, d.Number, false)
			f.volumeOf(t, d.Number)
			h, err := f.System.OpenDevice(t.Context(), deviceOf(volume), win.GenericRead|win.GenericWrite)
			must(t, err)
			closing(t, h)
			must(t, f.lock(t, f.device(t, deviceOf(volume), win.GenericRead)))
		},
	},
	{
		method: "Device.Control", name: "the layout of an offline disk", needs: []need{aDisk},
		promise: "a disk that is offline shows its partitions", guess: "whether Windows reads its table isn't documented",
		test: func(t *testing.T, f *Fixture) {
			n := f.NewDisk(t).Number
			f.partition(t, n)
			f.setOffline(t, n, true)
			if l := f.layout(t, n); l.Style != win.StyleGPT || len(l.Partitions) == 0 {
				t.Errorf("style %v, %d partitions", l.Style, len(l.Partitions))
			}
		},
	},
	{
		method: "Device.Control", name: "the layout of a blank disk", needs: []need{aDisk},
		promise: "a disk without a partition table shows an MBR without a signature and without partitions",
		guess:   "the documentation has PARTITION_STYLE_RAW for it; an event of Windows 10 shows such an MBR",
		test: func(t *testing.T, f *Fixture) {
			if l := f.layout(t, f.NewDisk(t).Number); l.Style != win.StyleMBR || l.Signature != 0 || len(l.Partitions) != 0 {
				t.Errorf("layout %+v", l)
			}
		},
	},
	{
		method: "Device.Control", name: "reserved partition", needs: []need{aDisk},
		promise: "IOCTL_DISK_CREATE_DISK adds no partition",
		guess:   "its documentation says that it adds the reserved one, and public code adds its own",
		test: func(t *testing.T, f *Fixture) {
			n := f.NewDisk(t).Number
			create := win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID(), MaxPartitionCount: 128}
			_, err := f.control(t, physicalDrive(n), win.IoctlDiskCreateDisk, create.Encode(), 0)
			must(t, err)
			if l := f.layout(t, n); len(l.Partitions) != 0 || l.Style != win.StyleGPT {
				t.Errorf("style %v, partitions %+v", l.Style, l.Partitions)
			}
		},
	},
}

// format formats a volume. Storage management may not know a new one for a while, and then
// gives ErrorRetry.
func (f *Fixture) format(t *testing.T, volume string, o win.FormatOptions) (err error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		err = f.System.FormatVolume(t.Context(), volume, o)
		if !errors.Is(err, winerr.ErrorRetry) || time.Now().After(deadline) {
			return err
		}
		must(t, win.Sleep(t.Context(), 100*time.Millisecond))
	}
}
