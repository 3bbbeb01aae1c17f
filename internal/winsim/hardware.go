// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"fmt"
	"os"
	"strconv"

	"github.com/csi-proxy/csi-proxy/disk"
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

	Attributes win.DiskAttributes
}

// Disks lists all disks in the order in which they came to the node, also the detached
// ones. The caller must not change what a Spec points to.
func (s *System) Disks() []DiskInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []DiskInfo
	for d := range s.disks.all() {
		infos = append(infos, DiskInfo{d.Spec, d.State, d.Number, d.Size, d.Seen, d.System, d.Attributes})
	}
	return infos
}

// AttachDisk attaches a new disk or, if there is a detached one with the serial number,
// that one with its data. Of the spec for a detached disk only SCSI, Location and
// NeedsRescan count, and a SizeBytes that is greater than before.
//
// It returns the disk number, win.NoNumber for a disk that doesn't have one yet.
// A serial number that is attached already gives ErrorAlreadyExists.
func (s *System) AttachDisk(spec DiskSpec) (number disk.Number, err error) {
	number = win.NoNumber
	err = s.control(func() error {
		if spec.SCSI != nil && spec.SCSI.PortNumber == initiatorPort {
			return fmt.Errorf("attach disk %q: adapter %d is the iSCSI initiator: %w", spec.Serial, initiatorPort, win.ErrorBusy)
		}
		d, err := s.diskFor(spec)
		if err != nil {
			return fmt.Errorf("attach disk %q: %w", spec.Serial, err)
		}
		d.State, d.Attributes = DiskAttached, d.Persistent
		d.touch()
		if !d.Spec.NeedsRescan {
			s.diskArrivesLater(d)
		}
		number = d.Number
		return nil
	})
	return number, err
}

// diskFor finds the detached disk of a spec, or makes a new one.
func (s *System) diskFor(spec DiskSpec) (*drive, error) {
	d, ok := s.disks.find(func(d *drive) bool { return spec.Serial != "" && d.Spec.Serial == spec.Serial })
	switch {
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
	case d.State != DiskDetached || d.Target != "":
		return nil, win.ErrorAlreadyExists
	}
	again := d.Spec
	again.SizeBytes = max(d.Size, spec.SizeBytes)
	again.SCSI, again.Location, again.NeedsRescan = spec.SCSI, spec.Location, spec.NeedsRescan
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
	if s.gate.delays.DiskArrival <= 0 {
		s.diskArrives(d)
		return
	}
	s.later(s.gate.delays.DiskArrival, func() {
		if d.Arriving {
			s.diskArrives(d)
		}
	})
}

// diskComes says that an attached disk will arrive.
func (s *System) diskComes(d *drive) {
	if d.Number == win.NoNumber && !d.Spec.MultipathMember {
		d.Number = s.disks.freeNumber(s.node.Settings.FreshNumbers)
	}
	d.Arriving = true
	d.touch()
}

func (s *System) diskArrives(d *drive) {
	d.State, d.Arriving, d.Seen, d.fresh = DiskPresent, false, d.Size, true
	d.touch()
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
			return fmt.Errorf("delete disk %q: it is attached: %w", serial, win.ErrorDeviceInUse)
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
			return win.ErrorInvalidParameter
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

func notFound(what, name string) error {
	return fmt.Errorf("no %s %s: %w", what, name, win.ErrorNotFound)
}
