// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// node is a node with a disk of each of two drivers. Each disk has a mounted volume with a file and a directory.
type node struct {
	*winsim.System
	disks   map[string]csiproxy.DiskNumber // by the driver's name
	volumes map[string]string

	listedErr error // of the question in whose directories volumes are mounted
}

const ownDir, otherDir = simtest.Kubelet + `\plugins\own`, simtest.Kubelet + `\plugins\other`

func newNode(t testing.TB) *node {
	n := &node{System: simtest.OpenNode(t, winsim.Config{}), disks: make(map[string]csiproxy.DiskNumber),
		volumes: make(map[string]string)}
	for name, dir := range map[string]string{"own": ownDir, "other": otherDir} {
		number := simtest.Attach(t, n.System, winsim.DiskSpec{VendorID: name, Serial: name})
		simtest.Partition(t, n.System, number, 1)
		n.Settle()
		volume := n.VolumesOfDisk(number)[0]
		simtest.Must(t, n.FormatVolume(t.Context(), volume, win.FormatOptions{FileSystem: "NTFS"}))
		simtest.Mount(t, n.System, dir, volume)
		simtest.Must(t, n.WriteFile(dir+`\file`, []byte("data")))
		simtest.Must(t, n.MkdirAll(dir+`\directory`))
		simtest.Must(t, n.FlushFile(dir+`\file`))
		n.disks[name], n.volumes[name] = number, volume
	}
	return n
}

// of returns the system of the driver "own" on sys, which is the node or has it.
func (n *node) of(t testing.TB, sys win.System) *System {
	drivers := []Driver{{Name: "own", Disks: []DiskPattern{{Vendor: "own"}}, Servers: []string{"own.example.com"}},
		{Name: "other", Disks: []DiskPattern{{Vendor: "other"}}, Servers: []string{"other.example.com"}}}
	table, err := New(sys, drivers, slog.New(slog.DiscardHandler))
	simtest.Must(t, err)
	return NewSystem(sys, table, drivers[0], func(_ context.Context, listed []string) (map[string]bool, error) {
		found := make(map[string]bool)
		for _, path := range listed {
			switch {
			case strings.HasPrefix(path, ownDir):
				found["own"] = true
			case strings.HasPrefix(path, otherDir):
				found["other"] = true
			case len(path) > len(`C:\`):
				found[""] = true
			}
		}
		return found, n.listedErr
	})
}

// calls are all calls that take a volume's name or a path in it. Those of changes leave nothing to undo.
var calls = map[string]func(ctx context.Context, s *System, volume string) error{
	"open to ask": func(ctx context.Context, s *System, volume string) error {
		return closed(s.OpenDevice(ctx, win.VolumePath(volume), win.AccessNone))
	},
	"open for writing": func(ctx context.Context, s *System, volume string) error {
		return closed(s.OpenDevice(ctx, win.VolumePath(volume), win.GenericRead|win.GenericWrite))
	},
	"VolumePathNames": func(ctx context.Context, s *System, volume string) error {
		return second(s.VolumePathNames(ctx, volume))
	},
	"VolumeNameForMountPoint": func(ctx context.Context, s *System, volume string) error {
		return second(s.VolumeNameForMountPoint(ctx, volume))
	},
	"VolumeInformation": func(ctx context.Context, s *System, volume string) error {
		return second(s.VolumeInformation(ctx, volume))
	},
	"DiskFreeSpace": func(ctx context.Context, s *System, volume string) error { return second(s.DiskFreeSpace(ctx, volume)) },
	"FileAttributes": func(ctx context.Context, s *System, volume string) error {
		return second(s.FileAttributes(ctx, volume+"file"))
	},
	"FormatVolume": func(ctx context.Context, s *System, volume string) error {
		return s.FormatVolume(ctx, volume, win.FormatOptions{FileSystem: "NTFS"})
	},
	"RepairVolume": func(ctx context.Context, s *System, volume string) error {
		return second(s.RepairVolume(ctx, volume, win.RepairScan))
	},
	"SetVolumeMountPoint": func(ctx context.Context, s *System, volume string) error {
		return s.SetVolumeMountPoint(ctx, mountPoint, volume)
	},
	"SetVolumeMountPoint in it": func(ctx context.Context, s *System, volume string) error {
		return s.SetVolumeMountPoint(ctx, volume+`directory\`, volume)
	},
	"open its root": func(ctx context.Context, s *System, volume string) error {
		return closed(s.OpenFile(ctx, volume, win.OpenOptions{Access: win.FileListDirectory | win.Synchronize, Disposition: win.FileOpenIf,
			Share: win.ShareRead | win.ShareWrite, Options: win.FileDirectoryFile}))
	},
	"make a file": func(ctx context.Context, s *System, volume string) error {
		return closed(s.OpenFile(ctx, volume+`directory\made`, win.OpenOptions{Access: win.Delete | win.Synchronize,
			Disposition: win.FileCreate, Options: win.FileNonDirectoryFile}))
	},
	"delete a file": func(ctx context.Context, s *System, volume string) error {
		return closed(s.OpenFile(ctx, volume+`file`, win.OpenOptions{Access: win.Delete | win.Synchronize, Disposition: win.FileOpen,
			Options: win.FileNonDirectoryFile | win.FileDeleteOnClose}))
	},
}

const mountPoint = simtest.Kubelet + `\plugins\new\`

func second[T any](_ T, err error) error { return err }

func closed[T interface{ Close() error }](opened T, err error) error {
	if err == nil {
		err = opened.Close()
	}
	return err
}

// A volume of another driver is missing: each call has the error of a volume that doesn't exist, and makes no call of its own.
func TestAnothersVolumeIsMissing(t *testing.T) {
	for name, call := range calls {
		n := newNode(t)
		s := n.of(t, n.System)
		simtest.Must(t, n.MkdirAll(mountPoint))
		made := 0
		n.OnCall(func(c winsim.Call) {
			if c.Name != win.IoctlVolumeGetVolumeDiskExtents.String() && c.Name != win.IoctlStorageQueryProperty.String() &&
				c.Name != win.IoctlStorageGetDeviceNumber.String() && (c.Name != win.CallOpen || strings.HasSuffix(c.Object, `\`)) {
				made++
			}
		})
		err := call(t.Context(), s, n.volumes["other"])
		missing := call(t.Context(), s, `\\?\Volume{00000000-0000-0000-0000-000000000001}\`)
		n.OnCall(nil)
		simtest.WantErrorOf(t, name, err, winerr.ErrorFileNotFound)
		simtest.Want(t, name+": the error of another driver's volume", fmt.Sprint(err), fmt.Sprint(missing))
		simtest.Want(t, name+": calls beside those of the door", made, 0)
		if err := call(t.Context(), s, n.volumes["own"]); err != nil && !errors.Is(err, winerr.ErrorDirNotEmpty) &&
			!strings.Contains(name, "FormatVolume") { // which is mounted already, and in use
			t.Errorf("%s of its own: %v", name, err)
		}
	}
	n := newNode(t)
	s := n.of(t, n.System)
	simtest.WantErrorOf(t, "its own volume mounted in the other one",
		s.SetVolumeMountPoint(t.Context(), n.volumes["other"]+`directory\`, n.volumes["own"]), winerr.ErrorFileNotFound)
	simtest.WantErrorOf(t, "a mount point removed in the other one",
		s.DeleteVolumeMountPoint(t.Context(), n.volumes["other"]+`directory\`), winerr.ErrorFileNotFound)
	root := func(o win.OpenOptions) error { return closed(s.OpenFile(t.Context(), n.volumes["own"], o)) }
	simtest.WantErrorOf(t, "a root made", root(win.OpenOptions{Disposition: win.FileCreate}), winerr.ErrorAlreadyExists)
	simtest.WantErrorOf(t, "a root deleted", root(win.OpenOptions{Disposition: win.FileOpen, Options: win.FileDeleteOnClose}), winerr.ErrorAccessDenied)
	formatted := simtest.Counted(n.System, win.CallFormatVolume)
	_ = s.FormatVolume(t.Context(), n.volumes["own"], win.FormatOptions{FileSystem: "NTFS"})
	simtest.Want(t, "formats", formatted()[0], 1)
	simtest.WantError(t, closed(s.OpenDevice(t.Context(), win.PhysicalDrive(n.disks["other"]), win.AccessNone)), csiproxy.ErrNotFound,
		fmt.Sprintf("driver own has no disk %d", n.disks["other"]))
	simtest.WantError(t, closed(s.OpenDevice(t.Context(), win.PhysicalDrive(77), win.AccessNone)), csiproxy.ErrNotFound,
		"driver own has no disk 77")
	for id, want := range map[string]bool{n.volumes["own"]: true, n.volumes["other"]: false,
		`\\?\Volume{00000000-0000-0000-0000-000000000001}\`: false} {
		has, err := s.HasVolume(t.Context(), csiproxy.VolumeID(id))
		simtest.Must(t, err)
		simtest.Want(t, "it has the volume "+id, has, want)
	}
}

// When a volume changes places with another driver's clone in the middle of a call, that call fails, and changes nothing of it.
func TestCloneTakesThePlace(t *testing.T) {
	for name, call := range calls {
		if name == "FormatVolume" || name == "RepairVolume" { // Windows makes these by no handle
			continue
		}
		simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
			n := newNode(t)
			s := n.of(t, n.System)
			simtest.Must(t, n.MkdirAll(mountPoint))
			clone, err := n.CloneDisk(n.disks["own"], winsim.DiskSpec{VendorID: "other", Serial: "clone", Offline: true})
			simtest.Must(t, err)
			n.Settle()
			happened := false
			before(n.System, func(c winsim.Call) {
				happened = c.Name != win.CallOpenAt // a file in the volume that has left
				simtest.Must(t, n.DetachDisk(n.disks["own"]))
				simtest.Must(t, n.SetDiskAttributes(clone, win.SetDiskAttributes{Mask: win.DiskOffline}))
				n.Settle()
			})
			err = call(t.Context(), s, n.volumes["own"])
			n.OnCall(nil)
			if happened && err == nil {
				t.Errorf("%s succeeds", name)
			}
			if !happened {
				return
			}
			data, err := n.ReadFile(ownDir + `\file`)
			simtest.Must(t, err)
			simtest.Want(t, name+": the clone's file", string(data), "data")
			entries, err := n.ReadDir(ownDir + `\directory`)
			simtest.Must(t, err)
			simtest.Want(t, name+": what is in the clone's directory", len(entries), 0)
			if link, _ := n.ReadLink(ownDir + `\directory`); link != "" {
				t.Errorf("%s: the clone's directory leads to %s", name, link)
			}
			for _, mount := range n.MountPoints() { // the record of one in the volume that has left may stay
				if isLeft := strings.HasPrefix(mount.Path, `\\?\`); !isLeft && mount.Path != ownDir && mount.Path != otherDir && len(mount.Path) > 3 {
					t.Errorf("%s: mounted at %s", name, mount.Path)
				}
			}
		})
	}
}

// A volume belongs to a driver if all disks that it lies on do.
func TestExtentsOfVolume(t *testing.T) {
	n := newNode(t)
	own, other := n.disks["own"], n.disks["other"]
	part := func(disk csiproxy.DiskNumber, at int64) win.DiskExtent {
		return win.DiskExtent{DiskNumber: disk, StartingOffset: at, Length: 1}
	}
	for name, test := range map[string]struct {
		before, after []win.DiskExtent
		want          error
	}{
		"two parts of its disk":       {[]win.DiskExtent{part(own, 1), part(own, 2)}, []win.DiskExtent{part(own, 1), part(own, 2)}, nil},
		"its disk and another's":      {[]win.DiskExtent{part(own, 1), part(other, 2)}, []win.DiskExtent{part(own, 1), part(other, 2)}, csiproxy.ErrNotFound},
		"another's disk and its own":  {[]win.DiskExtent{part(other, 1), part(own, 2)}, []win.DiskExtent{part(other, 1), part(own, 2)}, csiproxy.ErrNotFound},
		"no disk":                     {nil, nil, csiproxy.ErrNotFound},
		"its disk, and then another":  {[]win.DiskExtent{part(own, 1)}, []win.DiskExtent{part(other, 1)}, csiproxy.ErrUnavailable},
		"its disk, and then no other": {[]win.DiskExtent{part(own, 1)}, nil, csiproxy.ErrUnavailable},
	} {
		asked := 0
		s := n.of(t, simtest.Controlled{System: n.System, Answer: func(_ string, code win.IoctlCode, out []byte, do func() (int, error)) (int, error) {
			if code != win.IoctlVolumeGetVolumeDiskExtents {
				return do()
			}
			if asked++; asked == 1 {
				return copy(out, win.EncodeDiskExtents(test.before)), nil
			}
			return copy(out, win.EncodeDiskExtents(test.after)), nil
		}})
		simtest.WantErrorOf(t, name, closed(s.OpenDevice(t.Context(), strings.TrimSuffix(n.volumes["own"], `\`), win.AccessNone)), test.want)
	}
}

// A disk that doesn't say what it is belongs to the driver that has its volume mounted in its own directories, and nowhere else.
func TestSickDisk(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(n *node) error
		last    []string                       // the owner that the last disk with the number has said, if any
		extents func(n *node) []win.DiskExtent // nil as they are
		gone    bool                           // the disk has left by the second question
		isOwn   bool
	}{
		"mounted":               {isOwn: true},
		"mounted with a letter": {isOwn: true, prepare: func(n *node) error { return n.SetVolumeLetter(n.volumes["own"], "X:") }},
		"not mounted":           {prepare: func(n *node) error { return n.DeleteVolumeMountPoint(context.Background(), ownDir+`\`) }},
		"mounted elsewhere, too": {prepare: func(n *node) error {
			return errors.Join(n.MkdirAll(mountPoint), n.SetVolumeMountPoint(context.Background(), mountPoint, n.volumes["own"]))
		}},
		"mounted in another's directory, too": {prepare: mountInOtherDir},
		"it was the driver's":                 {last: []string{"own"}, isOwn: true, prepare: mountInOtherDir},
		"it was the driver's, and is mounted elsewhere": {last: []string{"own"}, isOwn: true, prepare: func(n *node) error {
			return errors.Join(n.MkdirAll(mountPoint), n.SetVolumeMountPoint(context.Background(), mountPoint, n.volumes["own"]))
		}},
		"it was the driver's, and isn't mounted": {last: []string{"own"},
			prepare: func(n *node) error { return n.DeleteVolumeMountPoint(context.Background(), ownDir+`\`) }},
		"mounted at too many places":                        {prepare: mountAtMany},
		"it was the driver's, and is mounted at too many":   {last: []string{"own"}, isOwn: true, prepare: mountAtMany},
		"whose directories it is mounted in can't be asked": {prepare: func(n *node) error { n.listedErr = winerr.ErrorIODevice; return nil }},
		"it was another driver's":                           {last: []string{"other"}},
		"it was nobody's":                                   {last: []string{""}},
		"on two disks": {extents: func(n *node) []win.DiskExtent {
			return []win.DiskExtent{{DiskNumber: n.disks["own"]}, {DiskNumber: n.disks["other"]}}
		}},
		"on another disk": {extents: func(n *node) []win.DiskExtent { return []win.DiskExtent{{DiskNumber: n.disks["other"]}} }},
		"gone meanwhile":  {gone: true},
	} {
		n := newNode(t)
		if test.prepare != nil {
			simtest.Must(t, test.prepare(n))
		}
		s := n.of(t, simtest.Controlled{System: n.System, Answer: func(_ string, code win.IoctlCode, out []byte, do func() (int, error)) (int, error) {
			switch {
			case code == win.IoctlStorageQueryProperty: // of all disks
				return 0, winerr.ErrorIODevice
			case code == win.IoctlStorageGetDeviceNumber && test.gone:
				return 0, winerr.ErrorNoSuchDevice
			case code == win.IoctlVolumeGetVolumeDiskExtents && test.extents != nil:
				return copy(out, win.EncodeDiskExtents(test.extents(n))), nil
			}
			return do()
		}})
		for _, last := range test.last {
			s.table.lastOwners.Store(n.disks["own"], last)
		}
		open := func() (win.Device, error) {
			return s.OpenDevice(t.Context(), win.PhysicalDrive(n.disks["own"]), win.GenericRead|win.GenericWrite)
		}
		disk, err := open()
		simtest.Want(t, name+": it is the driver's", err == nil, test.isOwn)
		simtest.Want(t, name+": it is missing", errors.Is(err, ErrNotOwn), slices.ContainsFunc(test.last, func(last string) bool { return last != "own" }))
		if err != nil {
			continue
		}
		_, isKnown := s.OwnerOf(t.Context(), &opendisk.Disk{DeviceHandle: win.DeviceHandle{Device: disk}})
		simtest.Want(t, name+": that is known", isKnown, false)
		// That is presumed only, so nothing of its data is reached.
		for _, code := range []win.IoctlCode{win.IoctlDiskCreateDisk, win.IoctlDiskSetDriveLayoutEx, win.IoctlDiskGrowPartition} {
			_, err := disk.Control(t.Context(), code, nil, nil)
			simtest.WantErrorOf(t, name+": "+code.String(), err, winerr.ErrorAccessDenied)
		}
		for what, call := range calls {
			var want error = winerr.ErrorIODevice
			if slices.Contains([]string{"open to ask", "open for writing", "VolumePathNames"}, what) { // to end the use
				want = nil
			}
			simtest.WantErrorOf(t, name+": "+what, call(t.Context(), s, n.volumes["own"]), want)
		}
		simtest.Must(t, n.DeleteVolumeMountPoint(t.Context(), ownDir+`\`))
		again, err := open()
		simtest.Must(t, err) // while it is open
		_, err = s.OpenDevice(t.Context(), win.PhysicalDrive(n.disks["other"]), win.AccessNone)
		simtest.WantErrorOf(t, name+": another's sick disk", err, winerr.ErrorIODevice)
		simtest.Must(t, errors.Join(disk.Close(), again.Close()))
		_, err = open()
		simtest.WantErrorOf(t, name+": once it is closed", err, winerr.ErrorIODevice)
	}
}

const planted = otherDir + `-planted` // in a directory of the other driver's, too

// mountInOtherDir mounts the driver's volume in the other driver's directory.
func mountInOtherDir(n *node) error {
	return errors.Join(n.MkdirAll(planted), n.SetVolumeMountPoint(context.Background(), planted+`\`, n.volumes["own"]))
}

// mountAtMany has Windows find too many mount points of the driver's volume to list them, once.
func mountAtMany(n *node) error {
	return n.Fail(winsim.Match{Call: win.CallVolumePathNames, Object: n.volumes["own"], Count: 1}, winerr.ErrorMoreData)
}

// What a disk has said of its owner counts until the next disk with the number says whose it is.
func TestLastOwner(t *testing.T) {
	n := newNode(t)
	s := n.of(t, n.System)
	number := n.disks["own"]
	for _, vendor := range []string{"own", "other", "nobody"} {
		if vendor != "own" {
			simtest.Must(t, n.DetachDisk(number))
			simtest.Attach(t, n.System, winsim.DiskSpec{VendorID: vendor, Number: &number})
			n.Settle()
		}
		err := closed(s.OpenDevice(t.Context(), win.PhysicalDrive(number), win.AccessNone))
		simtest.Want(t, vendor+": it is the driver's", err == nil, vendor == "own")
		last, _ := s.table.lastOwners.Load(number)
		simtest.Want[any](t, "the last owner", last, strings.TrimPrefix(vendor, "nobody"))
	}
}

// A disk that has left says its owner late, after the next disk with the number: the late answer doesn't count. If both
// say it at the same time, nothing counts until the disk is opened again.
func TestLateOwner(t *testing.T) {
	var table *Table
	number := csiproxy.DiskNumber(5)
	for name, test := range map[string]struct {
		numbers []csiproxy.DiskNumber // of the disk that has left
		want    any
	}{
		"late":             {nil, "other"},
		"another number":   {[]csiproxy.DiskNumber{6}, "other"},
		"at the same time": {[]csiproxy.DiskNumber{5}, nil},
	} {
		left, came := disk{descriptor: win.DeviceDescriptor{VendorID: "own"}, numbers: test.numbers},
			disk{descriptor: win.DeviceDescriptor{VendorID: "other"}, numbers: []csiproxy.DiskNumber{number}}
		tell := func(d win.Device, vendor string) {
			simtest.Must(t, second(table.OwnerOfDisk(t.Context(), nil, &opendisk.Disk{DeviceHandle: win.DeviceHandle{Device: d},
				Number: number, Hardware: opendisk.Hardware{Descriptor: win.DeviceDescriptor{VendorID: vendor}}})))
		}
		var err error
		table, err = New(nil, []Driver{{Name: "own", Disks: []DiskPattern{{Vendor: "own"}}}, {Name: "other", Disks: []DiskPattern{{Vendor: "other"}}}},
			slog.New(slog.DiscardHandler))
		simtest.Must(t, err)
		tell(&whileAsked{disk: &left, first: func() { tell(&came, "other") }}, "own")
		last, _ := table.lastOwners.Load(number)
		simtest.Want(t, name+": the last owner", last, test.want)
	}
}

// whileAsked is a disk that calls first before it answers.
type whileAsked struct {
	*disk
	first func()
}

func (d *whileAsked) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	d.first()
	return d.disk.Control(ctx, code, in, out)
}

// A sick disk that doesn't say the address by which it is a driver's isn't noted as nobody's.
func TestLastOwnerWithoutAddress(t *testing.T) {
	adapter := uint32(3)
	byAdapter, byVendor := Driver{Name: "own", Disks: []DiskPattern{{Adapter: &adapter}}}, Driver{Name: "other", Disks: []DiskPattern{{Vendor: "other"}}}
	for vendor, want := range map[string]string{"own": "own", "other": "other"} {
		d := disk{numbers: []csiproxy.DiskNumber{5}, descriptor: win.DeviceDescriptor{VendorID: vendor}, address: winerr.ErrorIODevice}
		table, err := New(diskOf{nil, &d, nil, nil}, []Driver{byAdapter, byVendor}, slog.New(slog.DiscardHandler))
		simtest.Must(t, err)
		table.lastOwners.Store(csiproxy.DiskNumber(5), "own")
		_, err = table.OwnerOfDisk(t.Context(), nil, &opendisk.Disk{DeviceHandle: win.DeviceHandle{Device: &d}, Number: 5, Hardware: opendisk.Hardware{Descriptor: d.descriptor}})
		simtest.Must(t, err)
		last, _ := table.lastOwners.Load(csiproxy.DiskNumber(5))
		simtest.Want[any](t, vendor+": the last owner", last, want)
	}
}

// A disk whose bus has no SCSI addresses is known to be nobody's: its volume is a missing one.
func TestOwnerOnBusWithoutAddresses(t *testing.T) {
	adapter := uint32(3)
	for _, refusal := range []winerr.Errno{winerr.ErrorInvalidFunction, winerr.ErrorNotSupported} {
		d := disk{descriptor: win.DeviceDescriptor{VendorID: "nobody"}, address: refusal}
		table, err := New(diskOf{nil, &d, nil, nil}, []Driver{{Name: "own", Disks: []DiskPattern{{Adapter: &adapter}}}}, slog.New(slog.DiscardHandler))
		simtest.Must(t, err)
		owner, isKnown, err := table.ownerOfDisk(t.Context(), nil, &opendisk.Disk{DeviceHandle: win.DeviceHandle{Device: &d}, Number: 5, Hardware: opendisk.Hardware{Descriptor: d.descriptor}})
		simtest.Must(t, err)
		simtest.Want(t, "owner", owner, "")
		simtest.Want(t, "the owner is known", isKnown, true)
	}
}

// A volume that hangs doesn't keep a driver from its sick disk.
func TestSickDiskBesideVolumeThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		s := n.of(t, simtest.Controlled{System: n.System, Answer: func(_ string, code win.IoctlCode, _ []byte, do func() (int, error)) (int, error) {
			if code == win.IoctlStorageQueryProperty {
				return 0, winerr.ErrorIODevice
			}
			return do()
		}})
		for _, name := range n.volumes {
			if name != n.volumes["own"] {
				simtest.Must(t, n.DelayUncancellable(winsim.Match{Call: win.CallVolumePathNames, Object: name}, time.Hour))
			}
		}
		begun := time.Now()
		for own, want := range map[string]error{"own": nil, "other": winerr.ErrorIODevice} {
			err := closed(s.OpenDevice(t.Context(), win.PhysicalDrive(n.disks[own]), win.AccessNone))
			simtest.WantErrorOf(t, own, err, want)
		}
		simtest.Want(t, "it took", time.Since(begun), 200*time.Millisecond) // for the other's
		time.Sleep(2 * time.Hour)
	})
}

// silentVolumes is a node with many volumes, which don't answer.
type silentVolumes struct {
	win.System
	asked atomic.Int32
}

func (s *silentVolumes) FindVolumes(context.Context) ([]string, error) {
	return make([]string, 1000), nil
}

func (s *silentVolumes) VolumePathNames(context.Context, string) ([]string, error) {
	s.asked.Add(1)
	time.Sleep(time.Hour)
	return nil, nil
}

// However many calls are about a sick disk, and however many volumes the node has, few volumes are asked at the same time.
func TestManyCallsOnSickDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		sys := &silentVolumes{System: simtest.Controlled{System: n.System, Answer: func(_ string, code win.IoctlCode, _ []byte, do func() (int, error)) (int, error) {
			if code == win.IoctlStorageQueryProperty {
				return 0, winerr.ErrorIODevice
			}
			return do()
		}}}
		s := n.of(t, sys)
		for range 50 {
			go func() { _ = closed(s.OpenDevice(t.Context(), win.PhysicalDrive(n.disks["own"]), win.AccessNone)) }()
		}
		synctest.Wait()
		simtest.Want(t, "volumes that are asked", sys.asked.Load(), maxSilentOfAll)
		time.Sleep(2 * time.Hour)
	})
}

// disk is one that answers questions for its number one after the other, and for what it is by descriptor or error.
type disk struct {
	win.Device
	numbers    []csiproxy.DiskNumber
	descriptor win.DeviceDescriptor
	refusal    error // of the descriptor
	address    error // of the SCSI address; it has none if nil
}

func (d *disk) Control(_ context.Context, code win.IoctlCode, _, out []byte) (int, error) {
	switch {
	case code == win.IoctlScsiGetAddress:
		return 0, cmp.Or[error](d.address, winerr.ErrorInvalidFunction)
	case code != win.IoctlStorageGetDeviceNumber && d.refusal != nil:
		return 0, d.refusal
	case code != win.IoctlStorageGetDeviceNumber:
		return copy(out, d.descriptor.Encode()), nil
	case len(d.numbers) == 0:
		return 0, winerr.ErrorNoSuchDevice
	}
	n := d.numbers[0]
	d.numbers = d.numbers[1:]
	return copy(out, win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: n}.Encode()), nil
}

func (d *disk) Close() error { return nil }

// diskOf is a node with one disk, and sessions at portals that have disk 5.
type diskOf struct {
	*winsim.System
	disk    *disk
	portals []win.ISCSIPortal
	devices error // of the question for the disks of a session
}

func (d diskOf) OpenDevice(context.Context, string, win.Access) (win.Device, error) {
	return d.disk, nil
}

func (d diskOf) ISCSISessions(context.Context) ([]win.ISCSISession, error) {
	return []win.ISCSISession{{Target: "iqn.example:1", Portals: d.portals}}, nil
}

func (d diskOf) ISCSISessionDevices(context.Context, win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	return []win.ISCSIDevice{{Device: win.DeviceNumber{DeviceNumber: 5}}}, d.devices
}

func (d diskOf) FindVolumes(context.Context) ([]string, error) { return nil, nil }

func (d diskOf) LoginISCSITarget(context.Context, win.ISCSILogin) (id win.ISCSISessionID, _ error) {
	return id, winerr.ISDSCNotFound
}

// A disk belongs to the one driver that it fits, and to the driver of its session's portal if it has the number that the session
// gives it before and after.
func TestOwnerOfDisk(t *testing.T) {
	portal := win.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	ofISCSI, adapter := win.DeviceDescriptor{BusType: win.BusTypeISCSI}, uint32(3)
	for name, test := range map[string]struct {
		disk    disk
		portals []win.ISCSIPortal
		devices error
		want    error
	}{
		"its session":         {disk{numbers: []csiproxy.DiskNumber{5, 5}, descriptor: ofISCSI}, []win.ISCSIPortal{portal}, nil, nil},
		"another's session":   {disk{numbers: []csiproxy.DiskNumber{5, 5}, descriptor: ofISCSI}, []win.ISCSIPortal{{Address: "10.0.0.2", Port: 3260}}, nil, csiproxy.ErrNotFound},
		"no session":          {disk{numbers: []csiproxy.DiskNumber{6, 6}, descriptor: ofISCSI}, []win.ISCSIPortal{portal}, nil, csiproxy.ErrNotFound},
		"a lost connection":   {disk{numbers: []csiproxy.DiskNumber{5, 5}, descriptor: ofISCSI}, nil, nil, csiproxy.ErrUnavailable},
		"a session that ends": {disk{numbers: []csiproxy.DiskNumber{5, 5}, descriptor: ofISCSI}, []win.ISCSIPortal{portal}, winerr.ISDSCInvalidSessionID, csiproxy.ErrNotFound},
		"a session without an answer": {disk{numbers: []csiproxy.DiskNumber{5, 5}, descriptor: ofISCSI}, []win.ISCSIPortal{portal}, winerr.ErrorIODevice,
			winerr.ErrorIODevice},
		"it leaves meanwhile":      {disk{numbers: []csiproxy.DiskNumber{5}, descriptor: ofISCSI}, []win.ISCSIPortal{portal}, nil, winerr.ErrorNoSuchDevice},
		"its vendor":               {disk{descriptor: win.DeviceDescriptor{VendorID: "own"}}, nil, nil, nil},
		"its vendor and another's": {disk{descriptor: win.DeviceDescriptor{VendorID: "own", SerialNumber: "shared"}}, nil, nil, csiproxy.ErrNotFound},
		"no address yet":           {disk{descriptor: win.DeviceDescriptor{VendorID: "own"}, address: winerr.ErrorNotReady}, nil, nil, winerr.ErrorNotReady},
		"gone at the address":      {disk{descriptor: win.DeviceDescriptor{VendorID: "own"}, address: winerr.ErrorNoSuchDevice}, nil, nil, winerr.ErrorNoSuchDevice},
		"no descriptor":            {disk{refusal: winerr.ErrorIODevice}, nil, nil, winerr.ErrorIODevice},
	} {
		sys := diskOf{nil, &test.disk, test.portals, test.devices}
		drivers := []Driver{{Name: "own", Portals: []csiproxy.ISCSIPortal{{Address: "10.0.0.1"}}, Disks: []DiskPattern{{Vendor: "own"}}},
			{Name: "other", Disks: []DiskPattern{{SerialNumber: "shared"}, {Adapter: &adapter}}}}
		table, err := New(sys, drivers, slog.New(slog.DiscardHandler))
		simtest.Must(t, err)
		s := NewSystem(sys, table, drivers[0], nil)
		simtest.WantErrorOf(t, name, closed(s.OpenDevice(t.Context(), win.PhysicalDrive(5), win.AccessNone)), test.want)
		if test.portals == nil {
			continue
		}
		_, err = s.LoginISCSITarget(t.Context(), win.ISCSILogin{Portal: portal, Target: "IQN.example:1"})
		simtest.WantErrorOf(t, name+": a login", err, winerr.ISDSCTargetNotFound)
	}
}

// The owner of a disk is known for as long as the disk is there, unless a session decides it, or the disk doesn't say enough.
func TestLastingOwner(t *testing.T) {
	adapter := uint32(3)
	byVendor, byPortal := Driver{Name: "own", Disks: []DiskPattern{{Vendor: "own"}}}, Driver{Name: "other", Portals: []csiproxy.ISCSIPortal{{Address: "10.0.0.1"}}}
	byAdapter := Driver{Name: "third", Disks: []DiskPattern{{Adapter: &adapter}}}
	ofISCSI := win.DeviceDescriptor{BusType: win.BusTypeISCSI, VendorID: "own"}
	type known struct {
		name    string
		isKnown bool
	}
	for name, test := range map[string]struct {
		drivers []Driver
		disk    disk
		want    known
	}{
		"its vendor":                {[]Driver{byVendor, byPortal}, disk{descriptor: win.DeviceDescriptor{VendorID: "own"}}, known{"own", true}},
		"nobody's":                  {[]Driver{byVendor, byPortal}, disk{descriptor: win.DeviceDescriptor{VendorID: "third"}}, known{"", true}},
		"no drivers":                {nil, disk{descriptor: ofISCSI}, known{"", true}},
		"no portals":                {[]Driver{byVendor}, disk{descriptor: ofISCSI}, known{"own", true}},
		"a session":                 {[]Driver{byVendor, byPortal}, disk{numbers: []csiproxy.DiskNumber{5, 5}, descriptor: ofISCSI}, known{}},
		"no descriptor":             {[]Driver{byVendor}, disk{refusal: winerr.ErrorIODevice}, known{}},
		"no address":                {[]Driver{byVendor, byAdapter}, disk{descriptor: win.DeviceDescriptor{VendorID: "own"}, address: winerr.ErrorIODevice}, known{}},
		"a bus without addresses":   {[]Driver{byVendor, byAdapter}, disk{descriptor: win.DeviceDescriptor{VendorID: "own"}}, known{"own", true}},
		"an address that isn't yet": {[]Driver{byVendor, byAdapter}, disk{descriptor: win.DeviceDescriptor{VendorID: "own"}, address: winerr.ErrorNotReady}, known{}},
	} {
		table, err := New(diskOf{nil, &test.disk, []win.ISCSIPortal{{Address: "10.0.0.1", Port: 3260}}, nil}, test.drivers, slog.New(slog.DiscardHandler))
		simtest.Must(t, err)
		h := win.DeviceHandle{Device: &test.disk}
		owner, isKnown := table.LastingOwnerOf(t.Context(), &opendisk.Disk{DeviceHandle: h, Number: 5,
			Hardware: opendisk.Hardware{Descriptor: test.disk.descriptor, DescriptorErr: test.disk.refusal}})
		simtest.Want(t, name, fmt.Sprint(known{owner, isKnown}), fmt.Sprint(test.want))
	}
}

// session is a session with a target, through portals with the port 3260, and what Windows answers about its disks.
type session struct {
	target  string
	portals []string
	disks   []csiproxy.DiskNumber
	err     error
	takes   time.Duration
}

// initiatorOf is a node with an iSCSI disk and sessions. It notes logins.
type initiatorOf struct {
	*winsim.System
	disk       *disk
	sessions   []session
	mechanisms map[string][]string // the portals at which a target was found
	logins     []string            // the targets
}

func (n *initiatorOf) OpenDevice(context.Context, string, win.Access) (win.Device, error) {
	return n.disk, nil
}

func (n *initiatorOf) ISCSISessions(context.Context) (all []win.ISCSISession, _ error) {
	for i, s := range n.sessions {
		one := win.ISCSISession{ID: win.ISCSISessionID{AdapterUnique: uint64(i)}, Target: s.target}
		for _, portal := range s.portals {
			one.Portals = append(one.Portals, win.ISCSIPortal{Address: portal, Port: 3260})
		}
		all = append(all, one)
	}
	return all, nil
}

func (n *initiatorOf) ISCSISessionDevices(_ context.Context, id win.ISCSISessionID) (devices []win.ISCSIDevice, _ error) {
	s := n.sessions[id.AdapterUnique]
	time.Sleep(s.takes)
	for _, number := range s.disks {
		devices = append(devices, win.ISCSIDevice{Device: win.DeviceNumber{DeviceNumber: number}})
	}
	return devices, s.err
}

func (n *initiatorOf) FindVolumes(context.Context) ([]string, error) { return nil, nil }

func (n *initiatorOf) LoginISCSITarget(_ context.Context, l win.ISCSILogin) (id win.ISCSISessionID, _ error) {
	if n.logins = append(n.logins, l.Target); l.Target != "iqn.example:1" {
		return id, winerr.ISDSCTargetNotFound
	}
	return id, nil
}

func (n *initiatorOf) ISCSIDiscoveryMechanisms(_ context.Context, target string) (texts []string, _ error) {
	portals, ok := n.mechanisms[target]
	if !ok {
		return nil, winerr.ISDSCTargetNotFound
	}
	for _, portal := range portals {
		texts = append(texts, "SendTargets:*"+portal+` 0003260 Root\ISCSIPRT\0000_0`)
	}
	return append(texts, "iSNSServer:10.0.0.1 0003205"), nil
}

// ofDriver returns the system of the driver "own", whose portals are 10.0.0.1 and 10.0.0.2. 10.0.0.3 is another driver's.
func (n *initiatorOf) ofDriver(t *testing.T) *System {
	drivers := []Driver{{Name: "own", Portals: []csiproxy.ISCSIPortal{{Address: "10.0.0.1"}, {Address: "10.0.0.2"}}},
		{Name: "other", Portals: []csiproxy.ISCSIPortal{{Address: "10.0.0.3"}}}}
	table, err := New(nil, drivers, slog.New(slog.DiscardHandler)) // all is asked by the driver's own calls
	simtest.Must(t, err)
	return NewSystem(n, table, drivers[0], nil)
}

// A session of another driver's that hangs or fails doesn't keep a driver from its own disk. A disk to which sessions of two
// drivers lead is neither's.
func TestOwnerBesideOtherSessions(t *testing.T) {
	const first, second, others = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	five := []csiproxy.DiskNumber{4, 5}
	own := session{target: "iqn.example:1", portals: []string{first}, disks: five}
	for name, test := range map[string]struct {
		sessions []session
		want     error
		took     time.Duration
	}{
		"alone":                       {[]session{own}, nil, 0},
		"another fails":               {[]session{{"iqn.example:2", []string{others}, nil, winerr.ErrorIODevice, 0}, own}, nil, 0},
		"another hangs":               {[]session{{"iqn.example:2", []string{others}, nil, nil, time.Hour}, own}, nil, 0},
		"another has ended":           {[]session{{"iqn.example:2", []string{others}, nil, winerr.ISDSCInvalidSessionID, 0}, own}, nil, 0},
		"two paths":                   {[]session{own, {"IQN.example:1", []string{second}, five, nil, time.Millisecond}}, nil, time.Millisecond},
		"two paths, one hangs":        {[]session{own, {"IQN.example:1", []string{second}, five, nil, time.Hour}}, nil, 200 * time.Millisecond},
		"a path of another driver":    {[]session{own, {"IQN.example:1", []string{others}, five, nil, time.Millisecond}}, csiproxy.ErrNotFound, time.Millisecond},
		"its own fails":               {[]session{{"iqn.example:1", []string{first}, five, winerr.ErrorIODevice, 0}}, winerr.ErrorIODevice, 0},
		"its own hangs":               {[]session{{"iqn.example:1", []string{first}, five, nil, time.Hour}}, csiproxy.ErrUnavailable, 200 * time.Millisecond},
		"another's, and one fails":    {[]session{{"iqn.example:2", []string{others}, five, nil, 0}, {"iqn.example:1", []string{first}, nil, winerr.ErrorIODevice, 0}}, csiproxy.ErrNotFound, 0},
		"no session's, and one fails": {[]session{{"iqn.example:2", []string{others}, nil, winerr.ErrorIODevice, 0}}, winerr.ErrorIODevice, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &initiatorOf{sessions: test.sessions, disk: &disk{numbers: []csiproxy.DiskNumber{5, 5},
				descriptor: win.DeviceDescriptor{BusType: win.BusTypeISCSI}}}
			s, begun := n.ofDriver(t), time.Now()
			err := closed(s.OpenDevice(t.Context(), win.PhysicalDrive(5), win.AccessNone))
			simtest.WantErrorOf(t, name, err, test.want)
			simtest.Want(t, name+": it took", time.Since(begun), test.took)
			time.Sleep(2 * time.Hour)
		})
	}
}

// A driver learns of a target only the driver's own portals at which the target was found. Without any, the target is missing.
func TestMechanismsOfDriver(t *testing.T) {
	n := &initiatorOf{mechanisms: map[string][]string{
		"iqn.example:both": {"10.0.0.3", "10.0.0.1"}, "iqn.example:others": {"10.0.0.3"}, "iqn.example:none": {},
	}}
	s := n.ofDriver(t)
	found, err := s.ISCSIDiscoveryMechanisms(t.Context(), "iqn.example:both")
	simtest.Must(t, err)
	simtest.Want(t, "where its target was found", found, []string{`SendTargets:*10.0.0.1 0003260 Root\ISCSIPRT\0000_0`})
	for _, target := range []string{"iqn.example:others", "iqn.example:none", "iqn.example:missing"} {
		simtest.WantErrorOf(t, target, second(s.ISCSIDiscoveryMechanisms(t.Context(), target)), winerr.ISDSCTargetNotFound)
	}
}

// A driver doesn't log in to a target that only another driver has connected: that login would count as a success. In its place
// Windows is asked for a missing target, so that both take as long. A session without a portal is one that reconnects, and may be its own.
func TestLoginBesideAnother(t *testing.T) {
	for name, test := range map[string]struct {
		session session
		portal  string
		want    error
	}{
		"none":                {session{}, "10.0.0.1", nil},
		"another driver's":    {session{target: "IQN.example:1", portals: []string{"10.0.0.3"}}, "10.0.0.1", winerr.ISDSCTargetNotFound},
		"its own":             {session{target: "iqn.example:1", portals: []string{"10.0.0.2"}}, "10.0.0.1", nil},
		"of both":             {session{target: "iqn.example:1", portals: []string{"10.0.0.3", "10.0.0.2"}}, "10.0.0.1", nil},
		"one that reconnects": {session{target: "iqn.example:1"}, "10.0.0.1", nil},
		"with another target": {session{target: "iqn.example:2", portals: []string{"10.0.0.3"}}, "10.0.0.1", nil},
		"at another's portal": {session{}, "10.0.0.3", csiproxy.ErrPermissionDenied},
	} {
		n := &initiatorOf{sessions: []session{test.session}}
		_, err := n.ofDriver(t).LoginISCSITarget(t.Context(), win.ISCSILogin{Target: "iqn.example:1", Portal: win.ISCSIPortal{Address: test.portal, Port: 3260}})
		simtest.WantErrorOf(t, name, err, test.want)
		simtest.Want(t, name+": logins to the target", slices.Contains(n.logins, "iqn.example:1"), test.want == nil)
		simtest.Want(t, name+": logins", len(n.logins) == 1, test.want != csiproxy.ErrPermissionDenied)
	}
}

// Paths on another driver's server are missing, in all calls that take paths.
func TestAnothersServer(t *testing.T) {
	n := newNode(t)
	s := n.of(t, n.System)
	for name, call := range map[string]func(path string) error{
		"DiskFreeSpace":  func(path string) error { return second(s.DiskFreeSpace(t.Context(), path)) },
		"FileAttributes": func(path string) error { return second(s.FileAttributes(t.Context(), path)) },
		"OpenFile": func(path string) error {
			return closed(s.OpenFile(t.Context(), path, win.OpenOptions{Disposition: win.FileOpen}))
		},
	} {
		for server, own := range map[string]bool{"own.example.com": true, "other.example.com": false, "evilown.example.com": false} {
			made := 0
			n.OnCall(func(winsim.Call) { made++ })
			err := call(`\\` + server + `\share\`)
			n.OnCall(nil)
			simtest.Want(t, name+" on "+server+": calls to Windows", made > 0, own)
			if err == nil || !own && !strings.Contains(err.Error(), "driver own has no such share") {
				t.Errorf("%s on %s: %v", name, server, err)
			}
		}
	}
}

// Servers compare without regard to case, and only names that begin with a dot stand for others.
func TestHasServer(t *testing.T) {
	d := Driver{Servers: []string{"Files.Example.com", ".corp.example.com"}}
	for server, own := range map[string]bool{
		"files.example.com": true, "evilfiles.example.com": false, "a.files.example.com": false, "example.com": false,
		"a.corp.example.com": true, "a.b.corp.example.com": true, "corp.example.com": false, "evilcorp.example.com": false,
	} {
		simtest.Want(t, server, d.HasShare(`\\`+server+`\share`), own)
	}
	simtest.Want(t, "another spelling", d.HasShare(`\\FILES.example.COM\share`), true)
}

func TestServices(t *testing.T) {
	n := newNode(t)
	s := n.of(t, n.System)
	s.driver.Services, s.driver.Portals = []string{"Own", "\u212Aubelet"}, []csiproxy.ISCSIPortal{{Address: "10.0.0.1"}}
	refused := func(err error) bool { return errors.Is(err, csiproxy.ErrPermissionDenied) }
	var got []string
	for _, service := range []string{"OWN", "other", "msiscsi", "kubelet"} {
		got = append(got, fmt.Sprint(service, ": ", refused(second(s.QueryService(t.Context(), service))), refused(s.StartService(t.Context(), service)),
			refused(s.StopService(t.Context(), service))))
	}
	simtest.Want(t, "refused are the query, the start and the stop", got,
		[]string{"OWN: false false false", "other: true true true", "msiscsi: false false true", "kubelet: true true true"})
	if s.driver.Portals = nil; !refused(second(s.QueryService(t.Context(), "msiscsi"))) {
		t.Error("a driver without portals asks for the initiator's service")
	}
}

// The mapping of a drive letter belongs to the driver that has its server.
func TestMappingOfALetter(t *testing.T) {
	n := newNode(t)
	password := csiproxy.NewSecret("password")
	for letter, server := range map[string]string{"Y:": "own.example.com", "Z:": "other.example.com"} {
		simtest.Must(t, n.SMB().AddShare(smbserver.Share{Server: server, Name: "data"}))
		simtest.Must(t, n.SMB().SetUser(server, "user", password))
		simtest.Must(t, n.SMB().Map(smbserver.Mapping{RemotePath: `\\` + server + `\data\dir`, LocalPath: letter,
			SMBMappingOptions: win.SMBMappingOptions{Username: "user", Password: password}}))
	}
	own := n.of(t, n)
	mapped, err := own.SMBGlobalMappings(t.Context())
	if err != nil || len(mapped) != 1 || mapped[0].Name() != "Y:" {
		t.Errorf("%v, %v", mapped, err)
	}
	for _, name := range []string{"Z:", "X:"} {
		simtest.WantErrorOf(t, name, own.RemoveSMBGlobalMapping(t.Context(), name), winerr.ErrorNotConnected)
	}
	simtest.Must(t, own.RemoveSMBGlobalMapping(t.Context(), "y:"))
	simtest.WantErrorOf(t, "a directory", own.RemoveSMBGlobalMapping(t.Context(), `\\other.example.com\data\dir`),
		csiproxy.ErrPermissionDenied)
}
