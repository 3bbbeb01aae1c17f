// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package library tests each method of the packages below pkg on a simulated node, by what a driver
// sees and by what the node has afterwards.
package library

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/simnode"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/disk"
	diskapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/disk/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem"
	filesystemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/iscsi"
	iscsiapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/iscsi/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/smb"
	smbapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/smb/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/system"
	systemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/system/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/volume"
	volumeapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/volume/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/wmi"
)

const (
	pods       = `C:\var\lib\kubelet\pods\4567\volumes\kubernetes.io~csi`
	staging    = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\example.com\0123\globalmount`
	unreadable = 1117 // ERROR_IO_DEVICE
)

// start starts a simulated node, which the packages work on until the test ends.
func start(t *testing.T) *simnode.Node {
	t.Helper()
	sim := simnode.New(t)
	before := host.Node
	host.Node = func() (*node.Node, error) { return sim.Operations(), nil }
	t.Cleanup(func() { host.Node = before })
	return sim
}

func must[T any](t *testing.T) func(value T, err error) T {
	t.Helper()
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func succeed(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is checks an error's class.
func is(t *testing.T, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("the error is %v, want %v", err, class)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

func stateOf(t *testing.T, sim *simnode.Node, number uint32) simnode.DiskInfo {
	t.Helper()
	for _, d := range sim.Disks() {
		if uint32(d.Number) == number && d.State == simnode.DiskPresent {
			return d
		}
	}
	t.Fatalf("there is no disk %d", number)
	return simnode.DiskInfo{}
}

// attach attaches two disks that differ in everything that a method may return.
func attach(t *testing.T, sim *simnode.Node) (first, second uint32) {
	t.Helper()
	return uint32(sim.AttachDisk(simnode.Disk{
			SizeBytes: 10 << 30, Serial: "serial-a", SCSI: &simnode.SCSIAddress{PortNumber: 2, TargetID: 3, LUN: 4},
			Page83: []simnode.Designator{simnode.NAADesignator([]byte("\x60\x01\x02\x03\x04\x05\x06\x07"))},
		})), uint32(sim.AttachDisk(simnode.Disk{
			SizeBytes: 20 << 30, Serial: "serial-b", SCSI: &simnode.SCSIAddress{PortNumber: 2, TargetID: 5, LUN: 6},
			Page83: []simnode.Designator{simnode.NAADesignator([]byte("\x60\x09\x08\x07\x06\x05\x04\x03"))},
		}))
}

const page83A, page83B = "6001020304050607", "6009080706050403"

func TestDisksAreFound(t *testing.T) {
	sim := start(t)
	disks := must[*disk.Disk](t)(disk.New(diskapi.New()))
	first, second := attach(t, sim)

	ids := must[*disk.ListDiskIDsResponse](t)(disks.ListDiskIDs(t.Context(), &disk.ListDiskIDsRequest{})).DiskIDs
	equal(t, "the number of disks", len(ids), 3) // with the one that Windows runs from
	equal(t, "what the first disk says", *ids[first], disk.DiskIDs{Page83: page83A, SerialNumber: "serial-a"})
	equal(t, "what the second disk says", *ids[second], disk.DiskIDs{Page83: page83B, SerialNumber: "serial-b"})

	locations := must[*disk.ListDiskLocationsResponse](t)(
		disks.ListDiskLocations(t.Context(), &disk.ListDiskLocationsRequest{})).DiskLocations
	if got := slices.Sorted(maps.Keys(locations)); !slices.Equal(got, []uint32{first, second}) {
		t.Errorf("the disks with a location are %v", got)
	}
	for number, want := range map[uint32]disk.DiskLocation{
		first: {Adapter: "2", Target: "3", LUNID: "4"}, second: {Adapter: "2", Target: "5", LUNID: "6"},
	} {
		got := *locations[number]
		got.Bus = "" // the adapter's
		equal(t, "where a disk is", got, want)
	}

	for page83, want := range map[string]uint32{page83A: first, page83B: second} {
		equal(t, "the disk with "+page83, must[uint32](t)(diskapi.New().GetDiskNumberWithID(page83)), want)
	}
	_, err := diskapi.New().GetDiskNumberWithID("6001")
	is(t, err, wmi.ErrNotFound)
	if !wmi.IsNotFound(err) || wmi.IgnoreNotFound(err) != nil || wmi.IgnoreNotFound(csiproxy.ErrUnavailable) == nil {
		t.Errorf("IsNotFound or IgnoreNotFound is wrong about %v", err)
	}

	for number, want := range map[uint32]int64{first: 10 << 30, second: 20 << 30} {
		stats := must[*disk.GetDiskStatsResponse](t)(disks.GetDiskStats(t.Context(), &disk.GetDiskStatsRequest{DiskNumber: number}))
		equal(t, "a disk's size", stats.TotalBytes, want)
	}
	_, err = disks.GetDiskStats(t.Context(), &disk.GetDiskStatsRequest{DiskNumber: 9})
	is(t, err, csiproxy.ErrNotFound)

	sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "late", NeedsRescan: true})
	must[*disk.RescanResponse](t)(disks.Rescan(t.Context(), &disk.RescanRequest{}))
	ids = must[*disk.ListDiskIDsResponse](t)(disks.ListDiskIDs(t.Context(), &disk.ListDiskIDsRequest{})).DiskIDs
	equal(t, "the number of disks after the rescan", len(ids), 4)
}

// A disk is what the host side says of it, at each step of PartitionDisk.
func TestDiskIsPartitioned(t *testing.T) {
	sim := start(t)
	hostAPI := diskapi.New()
	first, second := attach(t, sim)
	check := func(number uint32, initialized, partitioned bool) {
		t.Helper()
		equal(t, "IsDiskInitialized", must[bool](t)(hostAPI.IsDiskInitialized(number)), initialized)
		equal(t, "BasicPartitionsExist", must[bool](t)(hostAPI.BasicPartitionsExist(number)), partitioned)
	}
	check(first, false, false)

	// What a disk doesn't tell isn't guessed: a driver partitions a disk that it takes for raw.
	sim.Fail("IOCTL_DISK_GET_DRIVE_LAYOUT_EX", unreadable, 0)
	_, err := hostAPI.IsDiskInitialized(first)
	is(t, err, csiproxy.ErrUnavailable)
	_, err = hostAPI.BasicPartitionsExist(first)
	is(t, err, csiproxy.ErrUnavailable)
	sim.ClearFaults()
	_, err = hostAPI.BasicPartitionsExist(9)
	is(t, err, csiproxy.ErrNotFound)

	disks := must[*disk.Disk](t)(disk.New(hostAPI))
	writes := sim.Calls()["IOCTL_DISK_SET_DRIVE_LAYOUT_EX"]
	for range 2 {
		must[*disk.PartitionDiskResponse](t)(disks.PartitionDisk(t.Context(), &disk.PartitionDiskRequest{DiskNumber: first}))
	}
	check(first, true, true)
	check(second, false, false)
	equal(t, "how often the table was written", sim.Calls()["IOCTL_DISK_SET_DRIVE_LAYOUT_EX"]-writes, 1)

	succeed(t, hostAPI.InitializeDisk(second))
	check(second, true, true)
	succeed(t, hostAPI.CreateBasicPartition(second)) // stays as it is
	check(second, true, true)
	third := uint32(sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30}))
	succeed(t, hostAPI.CreateBasicPartition(third))
	check(third, true, true)

	foreign := uint32(sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30}))
	sim.WriteDisk(4, []byte("XFSB"), 0)
	equal(t, "the number of the foreign disk", foreign, 4)
	_, err = disks.PartitionDisk(t.Context(), &disk.PartitionDiskRequest{DiskNumber: foreign})
	is(t, err, csiproxy.ErrFailedPrecondition)
	check(foreign, false, false)
}

// published is a driver's own HostAPI, as its tests have one: the methods are called in the
// published order, and no other.
type published struct {
	diskapi.HostAPI
	initialized, partitioned bool
	calls                    []string
}

func (p *published) BasicPartitionsExist(uint32) (bool, error) { return p.partitioned, nil }
func (p *published) IsDiskInitialized(uint32) (bool, error)    { return p.initialized, nil }
func (p *published) InitializeDisk(uint32) error {
	p.calls = append(p.calls, "InitializeDisk")
	return nil
}
func (p *published) CreateBasicPartition(uint32) error {
	p.calls = append(p.calls, "CreateBasicPartition")
	return nil
}

func TestPartitionDiskOfAnotherHostAPI(t *testing.T) {
	for _, test := range []struct {
		published
		want string
	}{
		{published{}, "InitializeDisk CreateBasicPartition"},
		{published{initialized: true}, "CreateBasicPartition"},
		{published{initialized: true, partitioned: true}, ""},
	} {
		disks := must[*disk.Disk](t)(disk.New(&test.published))
		must[*disk.PartitionDiskResponse](t)(disks.PartitionDisk(t.Context(), &disk.PartitionDiskRequest{}))
		equal(t, "what is called", strings.Join(test.calls, " "), test.want)
	}
}

func TestDiskGoesOnlineAndOffline(t *testing.T) {
	sim := start(t)
	disks := must[*disk.Disk](t)(disk.New(diskapi.New()))
	first, second := attach(t, sim)
	for _, online := range []bool{false, true, false} {
		must[*disk.SetDiskStateResponse](t)(
			disks.SetDiskState(t.Context(), &disk.SetDiskStateRequest{DiskNumber: first, IsOnline: online}))
		equal(t, "the disk is offline", stateOf(t, sim, first).Offline, !online)
		equal(t, "the other disk is offline", stateOf(t, sim, second).Offline, false)
		got := must[*disk.GetDiskStateResponse](t)(disks.GetDiskState(t.Context(), &disk.GetDiskStateRequest{DiskNumber: first}))
		equal(t, "GetDiskState", got.IsOnline, online)
	}
	_, err := disks.SetDiskState(t.Context(), &disk.SetDiskStateRequest{}) // Windows runs from disk 0
	is(t, err, csiproxy.ErrFailedPrecondition)
}

// A disk that comes read-only, as behind a controller that doesn't say that it is writable, is made
// writable: https://github.com/kubernetes-csi/csi-proxy/issues/437.
func TestReadOnlyDisk(t *testing.T) {
	sim := start(t)
	disks := must[*disk.Disk](t)(disk.New(diskapi.New()))
	readOnly := func(number uint32) bool {
		t.Helper()
		r := must[*disk.GetDiskReadOnlyResponse](t)(
			disks.GetDiskReadOnly(t.Context(), &disk.GetDiskReadOnlyRequest{DiskNumber: number}))
		equal(t, "GetDiskReadOnly", r.IsReadOnly, stateOf(t, sim, number).ReadOnly)
		return r.IsReadOnly
	}
	set := func(number uint32, isReadOnly bool) error {
		_, err := disks.SetDiskReadOnly(t.Context(),
			&disk.SetDiskReadOnlyRequest{DiskNumber: number, IsReadOnly: isReadOnly})
		return err
	}
	for _, offline := range []bool{false, true} {
		number := uint32(sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, ReadOnly: true, Offline: offline}))
		equal(t, "a disk that came read-only is so", readOnly(number), true)
		succeed(t, set(number, true)) // it is already
		equal(t, "a disk that is to stay read-only is so", readOnly(number), true)
		for range 2 {
			succeed(t, set(number, false))
			equal(t, "a disk that was made writable is read-only", readOnly(number), false)
		}
		is(t, set(number, true), csiproxy.ErrUnimplemented)
		equal(t, "a disk that can't be made read-only is so", readOnly(number), false)
	}
	_, err := disks.GetDiskReadOnly(t.Context(), &disk.GetDiskReadOnlyRequest{DiskNumber: 9})
	is(t, err, csiproxy.ErrNotFound)
	is(t, set(9, false), csiproxy.ErrNotFound)
	is(t, set(0, true), csiproxy.ErrUnimplemented) // Windows runs from it
}

// A volume that is staged read-only isn't made writable under its pods.
func TestDiskThatIsStagedReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a refused format is repeated for 30 seconds
		sim := start(t)
		number, _ := attach(t, sim)
		stageReadOnly(t, sim, number)
		err := diskapi.New().SetDiskReadOnly(number, false)
		is(t, err, csiproxy.ErrFailedPrecondition)
		equal(t, "the disk is read-only", stateOf(t, sim, number).ReadOnly, true)

		// What can't be written to it has the error of a disk that is read-only.
		raw := uint32(sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30}))
		id := partitioned(t, raw)
		for windowsError, want := range map[uint32]bool{19: true, unreadable: false} {
			sim.Fail("MSFT_Volume.Format", windowsError, 0)
			err := volumeapi.New().FormatVolume(id)
			equal(t, "IsDiskReadOnlyError of "+err.Error(), wmi.IsDiskReadOnlyError(err), want)
			sim.ClearFaults()
		}
	})
}

// partitioned partitions a disk and returns its volume.
func partitioned(t *testing.T, number uint32) (volumeID string) {
	t.Helper()
	succeed(t, diskapi.New().CreateBasicPartition(number))
	volumes := must[*volume.Volume](t)(volume.New(volumeapi.New()))
	list := must[*volume.ListVolumesOnDiskResponse](t)(
		volumes.ListVolumesOnDisk(t.Context(), &volume.ListVolumesOnDiskRequest{DiskNumber: number}))
	if len(list.VolumeIDs) != 1 {
		t.Fatalf("disk %d has the volumes %q", number, list.VolumeIDs)
	}
	return list.VolumeIDs[0]
}

// A caller that has ended ends each call, though the published host side has no contexts.
func TestCallEndsWithItsCaller(t *testing.T) {
	start(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, diskErr := must[*disk.Disk](t)(disk.New(diskapi.New())).Rescan(ended, &disk.RescanRequest{})
	_, volumeErr := must[*volume.Volume](t)(volume.New(volumeapi.New())).ListVolumesOnDisk(ended,
		&volume.ListVolumesOnDiskRequest{})
	_, fileErr := must[*filesystem.Filesystem](t)(filesystem.New(filesystemapi.New())).Mkdir(ended,
		&filesystem.MkdirRequest{Path: staging})
	_, shareErr := must[*smb.SMB](t)(smb.New(smbapi.New(), nil)).RemoveSMBGlobalMapping(ended,
		&smb.RemoveSMBGlobalMappingRequest{RemotePath: `\\filer\data`})
	_, targetErr := must[*iscsi.ISCSI](t)(iscsi.New(iscsiapi.New())).ListTargetPortals(ended, &iscsi.ListTargetPortalsRequest{})
	_, serviceErr := must[*system.System](t)(system.New(systemapi.New())).GetService(ended, &system.GetServiceRequest{Name: "kubelet"})
	for group, err := range map[string]error{
		"disk": diskErr, "volume": volumeErr, "filesystem": fileErr, "smb": shareErr, "iscsi": targetErr, "system": serviceErr,
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", group, err)
		}
	}
}
