// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

func TestSystemDisk(t *testing.T) {
	s := newNode(t, Delays{})
	type part struct {
		Number uint32
		Type   winid.GUID
		Offset int64
		Length int64
	}
	var got []part
	for _, p := range layoutOf(t, s, 0).Partitions {
		got = append(got, part{p.Number, p.Type, p.StartingOffset, p.Length})
	}
	want := []part{
		{1, win.PartitionTypeEFISystem, mib, 100 * mib},
		{2, win.PartitionTypeMicrosoftReserved, 101 * mib, 16 * mib},
		{3, win.PartitionTypeBasicData, 117 * mib, 64*gib - 118*mib},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	d := openDevice(t, s, drivePath(0), win.GenericRead)
	defer closeHandle(t, d)
	header := make([]byte, 512)
	if _, err := d.ReadAt(t.Context(), header, 512); err != nil || string(header[:8]) != "EFI PART" {
		t.Errorf("its second sector begins with %q, %v", header[:8], err)
	}
	name, err := s.VolumeNameForMountPoint(t.Context(), `C:\`)
	must(t, err)
	if all, err := s.FindVolumes(t.Context()); err != nil || !slices.Equal(all, []string{name}) {
		t.Errorf("volumes %q, %v; C: is %q", all, err, name)
	}
	for _, dir := range []string{kubelet + `\plugins`, kubelet + `\pods`, `c:\windows\SYSTEM32`} {
		a, err := s.FileAttributes(t.Context(), dir)
		if err != nil || a != win.AttributeDirectory {
			t.Errorf("%s: attributes %#x, %v", dir, a, err)
		}
	}
	offline := win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}.Encode()
	_, err = control(t, s, drivePath(0), win.IoctlDiskSetDiskAttributes, offline)
	wantErr(t, "take the system disk offline", err, winerr.ErrorAccessDenied)
	_, err = control(t, s, drivePath(0), win.IoctlDiskCreateDisk,
		win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID()}.Encode())
	wantErr(t, "initialise the system disk", err, winerr.ErrorAccessDenied)
	wantErr(t, "format C:", s.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: "NTFS"}),
		winerr.ErrorAccessDenied)
	wantErr(t, "detach the system disk", s.DetachDisk(0), winerr.ErrorAccessDenied)
}

// numbers gives the disk numbers by serial number, win.NoNumber left out.
func diskNumbers(s *System) map[string]csiproxy.DiskNumber {
	m := map[string]csiproxy.DiskNumber{}
	for _, d := range s.Disks() {
		if d.Number != win.NoNumber {
			m[d.Spec.Serial] = d.Number
		}
	}
	return m
}

func TestDiskNumbers(t *testing.T) {
	s := newNode(t, Delays{})
	for _, serial := range []string{"a", "b", "c"} {
		attach(t, s, DiskSpec{Serial: serial})
	}
	must(t, s.DetachDisk(2))
	if diff := cmp.Diff(map[string]csiproxy.DiskNumber{"SIMSYSTEM": 0, "a": 1, "c": 3}, diskNumbers(s)); diff != "" {
		t.Errorf("a number moved (-want +got):\n%s", diff)
	}
	attach(t, s, DiskSpec{Serial: "d"}) // takes the gap
	must(t, s.DetachDisk(1))
	attach(t, s, DiskSpec{Serial: "b", SCSI: &win.SCSIAddress{PortNumber: 2}})
	if diff := cmp.Diff(map[string]csiproxy.DiskNumber{"SIMSYSTEM": 0, "b": 1, "d": 2, "c": 3}, diskNumbers(s)); diff != "" {
		t.Errorf("after attaching (-want +got):\n%s", diff)
	}
	must(t, s.DetachDisk(2))
	must(t, s.Reboot())
	if diff := cmp.Diff(map[string]csiproxy.DiskNumber{"SIMSYSTEM": 0, "c": 1, "b": 2}, diskNumbers(s)); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
}

func TestAttachErrors(t *testing.T) {
	s := newNode(t, Delays{})
	attach(t, s, DiskSpec{Serial: "a", SCSI: &win.SCSIAddress{PortNumber: 1, LUN: 7}})
	for name, tc := range map[string]struct {
		spec DiskSpec
		want winerr.Errno
	}{
		"no size":         {DiskSpec{}, winerr.ErrorInvalidParameter},
		"small":           {DiskSpec{SizeBytes: 512}, winerr.ErrorInvalidParameter},
		"half a sector":   {DiskSpec{SizeBytes: gib + 512, SectorSize: 4096}, winerr.ErrorInvalidParameter},
		"sector size":     {DiskSpec{SizeBytes: gib, SectorSize: 520}, winerr.ErrorInvalidParameter},
		"serial in use":   {DiskSpec{SizeBytes: gib, Serial: "a"}, winerr.ErrorAlreadyExists},
		"address in use":  {DiskSpec{SizeBytes: gib, SCSI: &win.SCSIAddress{PortNumber: 1, LUN: 7}}, winerr.ErrorBusy},
		"system's serial": {DiskSpec{SizeBytes: gib, Serial: "SIMSYSTEM"}, winerr.ErrorAlreadyExists},
	} {
		wantErr(t, name, errorOf(s.AttachDisk(tc.spec)), tc.want)
	}
	if n := len(s.Disks()); n != 2 {
		t.Errorf("failed calls left %d disks, want 2", n)
	}
	wantErr(t, "detach an unknown disk", s.DetachDisk(9), winerr.ErrorNotFound)
	wantErr(t, "detach no disk", s.DetachDisk(win.NoNumber), winerr.ErrorNotFound)
	wantErr(t, "grow to less", s.GrowDisk(1, gib), winerr.ErrorInvalidParameter)
	wantErr(t, "grow by a byte", s.GrowDisk(1, 10*gib+1), winerr.ErrorInvalidParameter)
	wantErr(t, "write behind the end", s.WriteImage(1, make([]byte, 2), 10*gib-1), winerr.ErrorInvalidParameter)
	wantErr(t, "read behind the end", s.ReadImage(1, make([]byte, 2), 10*gib-1), winerr.ErrorInvalidParameter)
}

// TestDetached: a detached disk comes back with its data.
func TestDetached(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{Serial: "a", SectorSize: 4096})
	must(t, s.WriteImage(n, []byte("data"), 5000))
	must(t, s.DetachDisk(n))
	if d := s.Disks()[1]; d.State != disks.Detached || d.Number != win.NoNumber {
		t.Errorf("detached: %+v", d)
	}
	wantErr(t, "read a detached disk", s.ReadImage(n, make([]byte, 4), 5000), winerr.ErrorNotFound)

	address := &win.SCSIAddress{PortNumber: 3, LUN: 4}
	n, err := s.AttachDisk(DiskSpec{Serial: "a", SizeBytes: 20 * gib, SCSI: address})
	must(t, err)
	address.LUN = 5 // the caller's own
	b := make([]byte, 4)
	must(t, s.ReadImage(n, b, 5000))
	if string(b) != "data" {
		t.Errorf("the disk holds %q", b)
	}
	d := s.Disks()[1]
	if d.Spec.SectorSize != 4096 || d.Size != 20*gib || d.Seen != 20*gib ||
		!strings.HasSuffix(d.Spec.Location, "LUN 4") || d.Spec.SCSI.LUN != 4 {
		t.Errorf("attached again: %+v", d)
	}
}

// TestDeleteDisk: what has its serial number afterwards is another disk.
func TestDeleteDisk(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{Serial: "a"})
	must(t, s.WriteImage(n, []byte("data"), 5000))
	wantErr(t, "delete an attached disk", s.DeleteDisk("a"), winerr.ErrorDeviceInUse)
	must(t, s.DetachDisk(n))
	must(t, s.DeleteDisk("a"))
	wantErr(t, "delete it again", s.DeleteDisk("a"), winerr.ErrorNotFound)
	if disks := s.Disks(); len(disks) != 1 {
		t.Errorf("disks %+v", disks)
	}
	n = attach(t, s, DiskSpec{Serial: "a"})
	b := make([]byte, 4)
	must(t, s.ReadImage(n, b, 5000))
	if string(b) != "\x00\x00\x00\x00" {
		t.Errorf("the new disk holds %q", b)
	}

	must(t, s.ISCSI().AddTarget(iscsitarget.Target{IQN: iqn, Portals: []win.ISCSIPortal{portal1}},
		DiskSpec{SizeBytes: gib, Serial: "lun"}))
	wantErr(t, "delete a target's disk", s.DeleteDisk("lun"), winerr.ErrorNotSupported)
	must(t, s.ISCSI().RemoveTarget(iqn))
	must(t, s.DeleteDisk("lun"))
}

func TestIdentity(t *testing.T) {
	s := newNode(t, Delays{})
	ids := []win.Identifier{{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte("Google  PersistentDisk  data-1")}}
	n := attach(t, s, DiskSpec{
		Serial: " vol1 ", Page83: ids, SCSI: &win.SCSIAddress{PortNumber: 2, PathID: 1, TargetID: 3, LUN: 9},
		BusType: win.BusTypeNVMe, VendorID: "Google", ProductID: "PersistentDisk",
	})
	query := func(id win.PropertyID) []byte {
		return mustControl(t, s, drivePath(n), win.IoctlStorageQueryProperty, win.EncodePropertyQuery(id))
	}
	device, err := win.DecodeDeviceDescriptor(query(win.PropertyDevice))
	must(t, err)
	if want := (win.DeviceDescriptor{BusType: win.BusTypeNVMe, VendorID: "Google", ProductID: "PersistentDisk",
		Revision: "1.0", SerialNumber: " vol1 "}); device != want {
		t.Errorf("device descriptor %+v, want %+v", device, want)
	}
	if got, err := win.DecodeDeviceIDs(query(win.PropertyDeviceID)); err != nil || !cmp.Equal(got, ids) {
		t.Errorf("page 83: %+v, %v", got, err)
	}
	location, err := win.DecodeDeviceLocation(query(win.PropertyDeviceLocation))
	must(t, err)
	if want := (win.DeviceLocation{Adapter: 2, Port: 1, Target: 3, LUN: 9,
		Text: "Integrated : Adapter 2 : Port 1 : Target 3 : LUN 9"}); location != want {
		t.Errorf("location %+v, want %+v", location, want)
	}
	if b := query(win.PropertyAccessAlignment); len(b) != 28 || b[17] != 512>>8 || b[21] != 4096>>8 {
		t.Errorf("alignment % x", b)
	}
	address, err := win.DecodeSCSIAddress(mustControl(t, s, drivePath(n), win.IoctlScsiGetAddress, nil))
	must(t, err)
	if want := (win.SCSIAddress{PortNumber: 2, PathID: 1, TargetID: 3, LUN: 9}); address != want {
		t.Errorf("address %+v, want %+v", address, want)
	}
}

func TestUnsupportedQueries(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{Page83Error: winerr.ErrorInvalidFunction, LocationError: winerr.ErrorNotSupported,
		SCSIAddressError: winerr.ErrorInvalidFunction})
	_, err := control(t, s, drivePath(n), win.IoctlStorageQueryProperty, win.EncodePropertyQuery(win.PropertyDeviceID))
	wantErr(t, "page 83", err, winerr.ErrorInvalidFunction)
	_, err = control(t, s, drivePath(n), win.IoctlStorageQueryProperty,
		win.EncodePropertyQuery(win.PropertyDeviceLocation))
	wantErr(t, "location", err, winerr.ErrorNotSupported)
	_, err = control(t, s, drivePath(n), win.IoctlScsiGetAddress, nil)
	wantErr(t, "SCSI address", err, winerr.ErrorInvalidFunction)
}

// TestDiskControlErrors is about handles and buffers of which the contract and the facts of others
// say nothing.
func TestDiskControlErrors(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	createGPT(t, s, n)
	attributes := win.SetDiskAttributes{Mask: win.DiskReadOnly}
	badVersion := attributes.Encode()
	badVersion[0] = 16
	unknownBit := win.SetDiskAttributes{Mask: 4, Attributes: 4}.Encode()
	for _, tc := range []struct {
		name   string
		access win.Access
		code   win.IoctlCode
		in     []byte
		out    int
		want   winerr.Errno
	}{
		{"geometry", win.AccessNone, win.IoctlDiskGetDriveGeometryEx, nil, 40, 0},
		{"geometry, short", win.AccessNone, win.IoctlDiskGetDriveGeometryEx, nil, 39, winerr.ErrorInsufficientBuffer},
		{"length, write access", win.GenericWrite, win.IoctlDiskGetLengthInfo, nil, 8, winerr.ErrorAccessDenied},
		{"layout", win.AccessNone, win.IoctlDiskGetDriveLayoutEx, nil, 48, 0},
		{"layout, short", win.AccessNone, win.IoctlDiskGetDriveLayoutEx, nil, 47, winerr.ErrorInsufficientBuffer},
		{"set attributes", readWrite, win.IoctlDiskSetDiskAttributes, attributes.Encode(), 0, 0},
		{"set attributes, short", readWrite, win.IoctlDiskSetDiskAttributes, attributes.Encode()[:39],
			0, winerr.ErrorInvalidParameter},
		{"set attributes, version", readWrite, win.IoctlDiskSetDiskAttributes, badVersion, 0, winerr.ErrorInvalidParameter},
		{"set attributes, unknown one", readWrite, win.IoctlDiskSetDiskAttributes, unknownBit, 0, winerr.ErrorInvalidParameter},
		{"update properties", win.AccessNone, win.IoctlDiskUpdateProperties, nil, 0, 0},
		{"create disk, short", readWrite, win.IoctlDiskCreateDisk, make([]byte, 23), 0, winerr.ErrorInvalidParameter},
		{"create disk, unknown style", readWrite, win.IoctlDiskCreateDisk, win.CreateDisk{Style: 7}.Encode(), 0,
			winerr.ErrorInvalidParameter},
		{"create disk, too many entries", readWrite, win.IoctlDiskCreateDisk,
			win.CreateDisk{Style: win.StyleGPT, MaxPartitionCount: 1 << 31}.Encode(), 0, winerr.ErrorInvalidParameter},
		{"set layout, short", readWrite, win.IoctlDiskSetDriveLayoutEx, make([]byte, 47), 0, winerr.ErrorInvalidParameter},
		{"SCSI address", win.AccessNone, win.IoctlScsiGetAddress, nil, 8, 0},
		{"SCSI address, short", win.AccessNone, win.IoctlScsiGetAddress, nil, 7, winerr.ErrorInsufficientBuffer},
		{"property, short", win.AccessNone, win.IoctlStorageQueryProperty, win.EncodePropertyQuery(win.PropertyDevice), 7,
			winerr.ErrorInsufficientBuffer},
		{"property, unknown", win.AccessNone, win.IoctlStorageQueryProperty, win.EncodePropertyQuery(999), 64,
			winerr.ErrorInvalidFunction},
		{"unknown control", readWrite, 0x12345678, nil, 64, winerr.ErrorInvalidFunction},
	} {
		d := openDevice(t, s, drivePath(n), tc.access)
		wantErr(t, tc.name, errorOf(d.Control(t.Context(), tc.code, tc.in, make([]byte, tc.out))), tc.want)
		closeHandle(t, d)
		_, err := d.Control(t.Context(), tc.code, tc.in, make([]byte, tc.out))
		wantErr(t, tc.name+", closed", err, winerr.ErrorInvalidHandle)
	}
}

func TestOpenDevice(t *testing.T) {
	s := newNode(t, Delays{})
	n, volume := newVolume(t, s, false)
	paths, err := s.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
	must(t, err)
	volumes, err := s.DeviceInterfaces(t.Context(), win.InterfaceClassVolume)
	must(t, err)
	if len(paths) != 2 || len(volumes) != 2 {
		t.Fatalf("disks %q, volumes %q", paths, volumes)
	}
	for _, path := range append(append(paths, volumes...),
		drivePath(n), strings.ToUpper(paths[1]), `\\?\physicaldrive1`, device1(volume), `\\.\`+volume[4:len(volume)-1], strings.ToUpper(device1(volume)), `\\.\C:`) {
		closeHandle(t, openDevice(t, s, path, win.AccessNone))
	}
	for path, want := range map[string]winerr.Errno{
		`\\.\PhysicalDrive9`:  winerr.ErrorFileNotFound,
		`\\.\PhysicalDrive01`: winerr.ErrorFileNotFound,
		`\\.\PhysicalDrive`:   winerr.ErrorFileNotFound,
		`\\.\Q:`:              winerr.ErrorFileNotFound,
		`C:\`:                 winerr.ErrorFileNotFound,
		``:                    winerr.ErrorFileNotFound,
		volume:                winerr.ErrorAccessDenied,
		`\\?\Volume{00000000-0000-0000-0000-000000000000}`:  winerr.ErrorFileNotFound,
		`\\?\Volume{00000000-0000-0000-0000-000000000000}\`: winerr.ErrorPathNotFound,
	} {
		wantErr(t, path, errorOf(s.OpenDevice(t.Context(), path, win.AccessNone)), want)
	}
}

func TestAttributes(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{Offline: true, ReadOnly: true})
	get := func() win.DiskAttributes {
		t.Helper()
		a, err := win.DecodeGetDiskAttributes(mustControl(t, s, drivePath(n), win.IoctlDiskGetDiskAttributes, nil))
		must(t, err)
		return a
	}
	set := func(a win.SetDiskAttributes) {
		t.Helper()
		mustControl(t, s, drivePath(n), win.IoctlDiskSetDiskAttributes, a.Encode())
	}
	if a := get(); a != win.DiskOffline|win.DiskReadOnly {
		t.Errorf("a disk under a SAN policy has %d", a)
	}
	set(win.SetDiskAttributes{Mask: win.DiskOffline})
	if a := get(); a != win.DiskReadOnly {
		t.Errorf("after going online: %d", a)
	}
	must(t, s.Reboot())
	if a := get(); a != win.DiskOffline|win.DiskReadOnly {
		t.Errorf("what wasn't set to persist after a restart: %d", a)
	}
	set(win.SetDiskAttributes{Persist: true, Mask: win.DiskOffline | win.DiskReadOnly})
	must(t, s.Reboot())
	if a := get(); a != 0 {
		t.Errorf("what was set to persist after a restart: %d", a)
	}
	must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Mask: win.DiskReadOnly,
		Attributes: win.DiskReadOnly | win.DiskOffline}))
	if a := get(); a != win.DiskReadOnly {
		t.Errorf("attributes outside of the mask were set: %d", a)
	}
	must(t, s.DetachDisk(n))
	attach(t, s, DiskSpec{Serial: s.Disks()[1].Spec.Serial})
	if a := get(); a != 0 {
		t.Errorf("what wasn't set to persist, attached again: %d", a)
	}
}

func TestGrowIsSeenLate(t *testing.T) {
	s := newNode(t, Delays{})
	size := func(n csiproxy.DiskNumber) int64 {
		t.Helper()
		g, err := win.DecodeDiskGeometryEx(mustControl(t, s, drivePath(n), win.IoctlDiskGetDriveGeometryEx, nil))
		must(t, err)
		return g.DiskSize
	}
	a, b := attach(t, s, DiskSpec{SCSI: &win.SCSIAddress{PortNumber: 1}}),
		attach(t, s, DiskSpec{SCSI: &win.SCSIAddress{PortNumber: 2}})
	must(t, s.GrowDisk(a, 20*gib))
	must(t, s.GrowDisk(b, 20*gib))
	if size(a) != 10*gib || size(b) != 10*gib {
		t.Errorf("seen at once: %d and %d", size(a), size(b))
	}
	g := mustControl(t, s, drivePath(a), win.IoctlDiskUpdateDriveSize, nil)
	if len(g) != win.DiskGeometrySize || size(a) != 20*gib || size(b) != 10*gib {
		t.Errorf("after the update of one: %d and %d, answer % x", size(a), size(b), g)
	}
	must(t, s.ReenumerateDevice(t.Context(), disks.PortInterface(1)))
	if size(b) != 10*gib {
		t.Error("the enumeration of another adapter saw the growth")
	}
	must(t, s.ReenumerateDevice(t.Context(), disks.PortInterface(2)))
	if size(b) != 20*gib {
		t.Error("the enumeration of its adapter didn't see the growth")
	}
	must(t, s.GrowDisk(b, 30*gib))
	before := size(b)
	length, err := win.DecodeInt64(mustControl(t, s, drivePath(b), win.IoctlDiskGetLengthInfo, nil))
	if err != nil || before != 20*gib || length != 30*gib || size(b) != 30*gib {
		t.Errorf("the geometry has %d bytes, the length is %d, %v; then the geometry has %d", before, length, err, size(b))
	}
}

func TestRescan(t *testing.T) {
	s := newNode(t, Delays{})
	spec := DiskSpec{Serial: "slow", NeedsRescan: true, SCSI: &win.SCSIAddress{PortNumber: 5}}
	if n := attach(t, s, spec); n != 1 {
		t.Errorf("it will have the number %d", n)
	}
	if _, err := s.OpenDevice(t.Context(), win.PhysicalDrive(1), win.AccessNone); err != winerr.ErrorFileNotFound {
		t.Errorf("before it arrived: %v", err)
	}
	if n := attach(t, s, DiskSpec{Serial: "quick"}); n != 2 {
		t.Errorf("the next disk has the number %d", n)
	}
	must(t, s.DetachDisk(2))
	count := func() int {
		t.Helper()
		paths, err := s.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
		must(t, err)
		return len(paths)
	}
	ports, err := s.DeviceInterfaces(t.Context(), win.InterfaceClassStoragePort)
	must(t, err)
	if len(ports) != 3 || count() != 1 {
		t.Fatalf("adapters %q, %d disks", ports, count())
	}
	must(t, s.ReenumerateDevice(t.Context(), ports[1]))
	if count() != 1 {
		t.Error("it arrived with the enumeration of another adapter")
	}
	must(t, s.ReenumerateDevice(t.Context(), strings.ToUpper(ports[2])))
	if count() != 2 || diskNumbers(s)["slow"] != 1 {
		t.Errorf("%d disks after the enumeration of its adapter: %v", count(), diskNumbers(s))
	}
	must(t, s.DetachDisk(1))
	if n, err := s.AttachDisk(spec); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	must(t, s.ReenumerateDevice(t.Context(), ""))
	if count() != 2 {
		t.Error("the enumeration of the root didn't find it")
	}
	wantErr(t, "enumerate an unknown adapter", s.ReenumerateDevice(t.Context(), disks.PortInterface(77)),
		winerr.ErrorNotFound)
}

func TestMultipathMember(t *testing.T) {
	s := newNode(t, Delays{})
	if n := attach(t, s, DiskSpec{MultipathMember: true}); n != win.NoNumber {
		t.Errorf("a path has the number %d", n)
	}
	if n := attach(t, s, DiskSpec{}); n != 1 {
		t.Errorf("the next disk has the number %d", n)
	}
	paths, err := s.DeviceInterfaces(t.Context(), win.InterfaceClassDisk)
	must(t, err)
	n, err := win.DecodeDeviceNumber(mustControl(t, s, paths[1], win.IoctlStorageGetDeviceNumber, nil))
	must(t, err)
	if want := (win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: win.NoNumber}); n != want {
		t.Errorf("device number %+v, want %+v", n, want)
	}
}

// TestGoneDisk: a handle outlives its disk, and says so.
func TestGoneDisk(t *testing.T) {
	s := newNode(t, Delays{})
	n, volume := newVolume(t, s, true)
	d := openDevice(t, s, drivePath(n), win.GenericRead)
	v := openDevice(t, s, device1(volume), win.GenericRead)
	f, err := s.OpenFile(t.Context(), volume, existing(win.FileListDirectory, 0))
	must(t, err)
	arrived, stop, err := s.NotifyArrivals(t.Context(), win.InterfaceClassDisk)
	must(t, err)
	defer stop()
	must(t, s.DetachDisk(n))
	select {
	case <-arrived:
	default:
		t.Error("no notice of the removal")
	}
	wantErr(t, "read the disk", errorOf(d.ReadAt(t.Context(), make([]byte, 512), 0)), winerr.ErrorDeviceNotConnected)
	_, err = v.Control(t.Context(), win.IoctlDiskGetLengthInfo, nil, make([]byte, 8))
	wantErr(t, "control of the volume", err, winerr.ErrorDeviceNotConnected)
	wantErr(t, "list the directory", errorOf(f.ReadDir(t.Context(), true)), winerr.ErrorDeviceNotConnected)
	_, err = f.OpenAt(t.Context(), "x", win.OpenOptions{Disposition: win.FileOpen})
	wantErr(t, "open below the directory", err, winerr.ErrorDeviceNotConnected)
	closeHandle(t, d)
	closeHandle(t, v)
	closeHandle(t, f)
}
