// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// DiskInfo is what the control calls say of a disk.
type DiskInfo struct {
	Spec      DiskSpec
	State     DiskState
	Number    disk.Number // win.NoNumber if it has none
	SizeBytes int64       // of the hardware
	SeenBytes int64       // that Windows knows of
	System    bool

	Attributes    win.DiskAttributes
	OfflineReason win.OfflineReason // while it is offline
}

// Disks lists all disks in the order in which they came to the node, also the detached
// ones. The caller must not change what a Spec points to.
func (s *System) Disks() []DiskInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []DiskInfo
	for d := range s.disks.all() {
		infos = append(infos, DiskInfo{d.Spec, d.State, d.Number, d.Size, d.Seen, d.System, d.Attributes, d.OfflineReason})
	}
	return infos
}

// AttachDisk attaches a new disk or, if there is a detached one with the serial number,
// that one with its data. Of the spec for a detached disk only SCSI, Location, Number,
// Late and NeedsRescan count, and a SizeBytes that is greater than before.
//
// It returns the disk number, which a disk that Windows doesn't see yet will have, or
// win.NoNumber for a path below a multipath disk.
// A serial number that is attached already gives ErrorAlreadyExists.
func (s *System) AttachDisk(spec DiskSpec) (number disk.Number, err error) {
	number = win.NoNumber
	err = s.control(func() error {
		if spec.SCSI != nil && spec.SCSI.PortNumber == initiatorPort {
			return refuse(win.ErrorBusy, "attach disk%s: adapter %d is the iSCSI initiator, whose disks are the LUNs of its targets",
				quoted(spec.Serial), initiatorPort)
		}
		d, err := s.diskFor(spec)
		if err != nil {
			return fmt.Errorf("attach disk%s: %w", quoted(spec.Serial), err)
		}
		s.attach(d)
		number = d.Number
		return nil
	})
	return number, err
}

func (s *System) attach(d *drive) {
	s.inherit(d)
	d.State, d.Attributes = DiskAttached, d.Persistent
	s.giveNumber(d)
	if !d.Spec.NeedsRescan {
		s.diskArrivesLater(d)
	}
}

// inherit gives a disk that is attached the attributes of the device instance that it is
// from now on: those that were persisted for it, or else those of its hardware.
func (s *System) inherit(d *drive) {
	if !s.node.Settings.AttributesOfInstance {
		return
	}
	a, known := s.node.Instances[d.instance()]
	if !known {
		a = d.Spec.attributes()
	}
	if d.Persistent = a; d.Persistent&win.DiskOffline != 0 {
		d.OfflineReason = win.OfflinePolicy
	}
}

// giveNumber gives an attached disk the number that it will have.
func (s *System) giveNumber(d *drive) {
	switch wanted := d.Spec.Number; {
	case d.Number != win.NoNumber || d.Spec.MultipathMember:
	case wanted != nil && !s.disks.numbered(*wanted):
		d.Number = *wanted
		s.disks.unused = max(s.disks.unused, d.Number+1)
	default:
		d.Number = s.disks.freeNumber(s.node.Settings.FreshNumbers)
	}
	d.touch()
}

// CloneDisk attaches a new disk with the contents of another one as they are now, as a
// disk made from a snapshot has them: with the same ids in its partition table, and what
// was written to its files by then. The rest of the disk is as spec says; its SizeBytes is
// at least that of the other disk, and its SectorSize the same.
//
// While a disk with the same ids is online, Windows keeps the clone offline.
func (s *System) CloneDisk(of disk.Number, spec DiskSpec) (number disk.Number, err error) {
	number = win.NoNumber
	err = s.controlDisk("clone", of, func(original *drive) error {
		if _, exists := s.disks.find(func(d *drive) bool { return spec.Serial != "" && d.Spec.Serial == spec.Serial }); exists {
			return refuse(win.ErrorAlreadyExists, "there is a disk with the serial number %q already", spec.Serial)
		}
		spec.SizeBytes, spec.SectorSize = max(spec.SizeBytes, original.Size), original.Spec.SectorSize
		d, err := s.diskFor(spec)
		if err != nil {
			return err
		}
		if err := original.image.Export(d.image); err != nil {
			return err
		}
		for serial, t := range original.trees {
			fs, err := ntfs.Restore(t.fs.Records())
			if err != nil {
				return err
			}
			d.addTree(serial, &tree{treeRecord: t.treeRecord, fs: fs, changed: true})
			fs.Touch()
		}
		s.attach(d)
		number = d.Number
		return nil
	})
	return number, err
}

// SwapDisk puts another disk in the place of an attached one: with its number and its
// address, and with a copy of what is on it, but with the serial number, the identifiers and
// the texts of the spec. What of these the spec lacks is as before, so that an empty one
// makes a copy that nobody can tell from the original.
//
// What is open on the disk, or on a volume on it, dies, and all arrives anew. With
// keepHandles it leads to the other disk from now on: that isn't to be expected of Windows,
// but nothing that changes a disk may rely on it.
func (s *System) SwapDisk(number disk.Number, spec DiskSpec, keepHandles bool) error {
	return s.controlDisk("swap", number, func(d *drive) error {
		switch _, taken := s.disks.find(func(o *drive) bool { return o != d && spec.Serial != "" && o.Spec.Serial == spec.Serial }); {
		case taken:
			return refuse(win.ErrorAlreadyExists, "there is a disk with the serial number %q already", spec.Serial)
		case d.System, d.Target != "", !d.present():
			return refuse(win.ErrorNotSupported, "only a disk that Windows sees can be swapped, and neither its own nor a LUN")
		}
		if !keepHandles {
			s.withdrawDisk(d)
		}
		d.Spec.Serial, d.path = cmp.Or(spec.Serial, d.Spec.Serial), ""
		d.Spec.VendorID, d.Spec.ProductID = cmp.Or(spec.VendorID, d.Spec.VendorID), cmp.Or(spec.ProductID, d.Spec.ProductID)
		d.Spec.Revision = cmp.Or(spec.Revision, d.Spec.Revision)
		if spec.Page83 != nil {
			d.Spec.Page83 = spec.Page83
		}
		if !keepHandles {
			d.Spec.Number = &number
			s.attach(d)
		}
		d.touch()
		return nil
	})
}

// originalOf finds a disk that is online and has ids of d in its partition table.
func (s *System) originalOf(d *drive) (*drive, bool) {
	ids := d.tableIDs()
	if len(ids) == 0 {
		return nil, false
	}
	return s.disks.find(func(o *drive) bool {
		return o != d && o.present() && !o.is(win.DiskOffline) && o.Number != win.NoNumber &&
			slices.ContainsFunc(o.tableIDs(), func(id string) bool { return slices.Contains(ids, id) })
	})
}

// offlineIfClone takes a disk that is a clone offline, as the partition manager does.
func (s *System) offlineIfClone(d *drive) {
	if _, isClone := s.originalOf(d); !isClone || !d.present() || d.System || d.is(win.DiskOffline) {
		return
	}
	d.Attributes |= win.DiskOffline
	d.OfflineReason = win.OfflineCollision
	d.touch()
	s.scanVolumes(d)
}

// SetOfflineReason takes a disk offline as Windows does by itself, for a reason.
func (s *System) SetOfflineReason(number disk.Number, reason win.OfflineReason) error {
	return s.controlDisk("take offline", number, func(d *drive) error {
		if err := s.setAttributes(d, win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}); err != nil {
			return err
		}
		d.OfflineReason = reason
		return nil
	})
}

// OfflineReasons is a query for MSFT_Disk.OfflineReason.
func (s *System) OfflineReasons(ctx context.Context) (reasons map[disk.Number]win.OfflineReason, err error) {
	err = s.call(ctx, Call{win.CallOfflineReasons, ""}, func() error {
		reasons = map[disk.Number]win.OfflineReason{}
		for d := range s.disks.all() {
			if d.present() && d.Number != win.NoNumber && d.is(win.DiskOffline) && !s.node.Settings.NoOfflineReasons {
				reasons[d.Number] = d.OfflineReason
			}
		}
		return nil
	})
	return reasons, err
}

// diskFor finds the detached disk of a spec, or makes a new one.
func (s *System) diskFor(spec DiskSpec) (*drive, error) {
	d, ok := s.disks.find(func(d *drive) bool { return spec.Serial != "" && d.Spec.Serial == spec.Serial })
	switch {
	case !ok && spec.SizeBytes == 0:
		return nil, refuse(win.ErrorInvalidParameter, "no detached disk has the serial number, and a new disk needs a size")
	case !ok:
		spec, err := s.disks.complete(s.disks.next, spec)
		if err != nil {
			return nil, err
		}
		d := newDisk(s.disks.next, spec)
		s.disks.add(d)
		s.disks.next++
		s.changed = true
		return d, nil
	case d.Target != "":
		return nil, refuse(win.ErrorAlreadyExists, "the serial number is that of a LUN of the iSCSI target %s", d.Target)
	case d.State != DiskDetached:
		return nil, refuse(win.ErrorAlreadyExists,
			"disk %s has the serial number and is attached; detach it first, or choose another serial number", d.Number)
	}
	again := d.Spec
	again.SizeBytes = max(d.Size, spec.SizeBytes)
	again.SCSI, again.Location, again.NeedsRescan = spec.SCSI, spec.Location, spec.NeedsRescan
	again.Number, again.Late = spec.Number, spec.Late
	again, err := s.disks.complete(d.id, again)
	if err != nil {
		return nil, err
	}
	d.Spec, d.path = again, ""
	d.grow(again.SizeBytes)
	return d, nil
}

// diskArrivesLater gives an attached disk its number and lets it arrive: at once,
// if arrival takes no time.
func (s *System) diskArrivesLater(d *drive) {
	s.diskComes(d)
	delay := s.gate.delays.DiskArrival + d.Spec.Late
	if delay <= 0 {
		s.diskArrives(d)
		return
	}
	s.later(delay, func() {
		if d.Arriving {
			s.diskArrives(d)
		}
	})
}

// diskComes says that an attached disk will arrive.
func (s *System) diskComes(d *drive) {
	s.giveNumber(d)
	d.Arriving = true
	d.touch()
}

func (s *System) diskArrives(d *drive) {
	d.State, d.Arriving, d.Seen, d.fresh = DiskPresent, false, d.Size, true
	d.touch()
	s.offlineIfClone(d)
	s.notify(win.InterfaceClassDisk)
	s.scanVolumes(d)
}

// DetachDisk pulls a disk out, even while it is in use. It is a detached disk then, with
// its data.
func (s *System) DetachDisk(number disk.Number) error {
	return s.controlDisk("detach", number, func(d *drive) error {
		switch {
		case d.System:
			return win.ErrorAccessDenied
		case d.Target != "": // it comes and goes with the session
			return fmt.Errorf("it is a LUN of the iSCSI target %s: %w", d.Target, win.ErrorNotSupported)
		}
		s.withdrawDisk(d)
		return nil
	})
}

// DeleteDisk deletes a detached disk with its data: a disk with its serial number is a
// new one then. What Windows remembers of its volumes stays. No such disk
// gives ErrorNotFound, one that is attached ErrorDeviceInUse.
func (s *System) DeleteDisk(serial string) error {
	return s.control(func() error {
		d, ok := s.disks.find(func(d *drive) bool { return d.Spec.Serial == serial })
		switch {
		case !ok:
			return notFound("disk", strconv.Quote(serial))
		case d.Target != "":
			return fmt.Errorf("delete disk %q: it is a LUN of the iSCSI target %s: %w", serial, d.Target, win.ErrorNotSupported)
		case d.State != DiskDetached:
			return refuse(win.ErrorDeviceInUse, "delete disk %q: it is attached as disk %s; detach it first", serial, d.Number)
		}
		s.disks.remove(d)
		return nil
	})
}

// withdrawDisk takes a disk off the node: what is open on it dies.
func (s *System) withdrawDisk(d *drive) {
	d.State, d.Number, d.Arriving = DiskDetached, win.NoNumber, false
	d.touch()
	s.scanVolumes(d)
	s.handles.kill(s.goneDisk(), func(h *handle) bool { return h.disk == d })
	s.notify(win.InterfaceClassDisk)
}

// goneDisk is the error of what is open on a disk that has left.
func (s *System) goneDisk() win.Errno {
	return cmp.Or(s.node.Settings.GoneDisk, win.ErrorDeviceNotConnected)
}

// GrowDisk gives a disk more capacity. Windows sees it when it next asks for it.
func (s *System) GrowDisk(number disk.Number, sizeBytes int64) error {
	return s.controlDisk("grow", number, func(d *drive) error {
		if sizeBytes < d.Size || sizeBytes%d.sector() != 0 {
			return refuse(win.ErrorInvalidParameter, "the new size is %d bytes; it must be at least %d, in whole sectors of %d bytes",
				sizeBytes, d.Size, d.sector())
		}
		d.grow(sizeBytes)
		if s.node.Settings.GrownAtOnce && d.present() {
			d.Seen = d.Size
		}
		return nil
	})
}

func (d *drive) grow(size int64) {
	d.Size, d.Spec.SizeBytes = size, size
	d.touch()
	d.image.Grow(size)
}

// SetDiskAttributes changes attributes of a disk as an administrator does.
func (s *System) SetDiskAttributes(number disk.Number, a win.SetDiskAttributes) error {
	return s.controlDisk("set attributes of", number, func(d *drive) error { return s.setAttributes(d, a) })
}

// ReadImage reads bytes of a disk below Windows.
func (s *System) ReadImage(number disk.Number, p []byte, off int64) error {
	return s.controlDisk("read image of", number, func(d *drive) error {
		if _, err := d.image.ReadAt(p, off); err != nil {
			return fmt.Errorf("%w: %w", err, win.ErrorInvalidParameter)
		}
		return nil
	})
}

// WriteImage writes bytes of a disk below Windows, as another machine would: it
// plants foreign data. Windows takes notice of a changed partition table.
func (s *System) WriteImage(number disk.Number, p []byte, off int64) error {
	return s.controlDisk("write image of", number, func(d *drive) error {
		if _, err := d.image.WriteAt(p, off); err != nil {
			return fmt.Errorf("%w: %w", err, win.ErrorInvalidParameter)
		}
		s.scanVolumes(d)
		return nil
	})
}

// ExportImage writes the bytes of a disk to a new sparse file. The contents of the
// simulated file systems' files are not among them.
func (s *System) ExportImage(number disk.Number, file string) error {
	return s.controlDisk("export image of", number, func(d *drive) (err error) {
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		defer func() {
			if closeErr := f.Close(); err == nil {
				err = closeErr
			}
		}()
		if err := f.Truncate(d.Size); err != nil {
			return err
		}
		return d.image.Export(f)
	})
}

// controlDisk runs a control call on the disk with a number. Detached disks have none.
func (s *System) controlDisk(what string, number disk.Number, f func(*drive) error) error {
	return s.control(func() error {
		d, ok := s.disks.find(func(d *drive) bool { return d.Number == number && number != win.NoNumber })
		if !ok {
			return notFound("disk", number.String())
		}
		if err := f(d); err != nil {
			return fmt.Errorf("%s disk %d: %w", what, number, err)
		}
		return nil
	})
}

// refusal is why a control call isn't done, in words. The number tells its class.
type refusal struct {
	text  string
	errno win.Errno
}

func refuse(errno win.Errno, format string, a ...any) error {
	return refusal{fmt.Sprintf(format, a...), errno}
}

func (r refusal) Error() string { return r.text }

func (r refusal) Unwrap() error { return r.errno }

func notFound(what, name string) error {
	return refuse(win.ErrorNotFound, "there is no %s %s", what, name)
}

// quoted is a name in the text of an error, with a blank before it; nothing if it is empty.
func quoted(name string) string {
	if name == "" {
		return ""
	}
	return " " + strconv.Quote(name)
}
