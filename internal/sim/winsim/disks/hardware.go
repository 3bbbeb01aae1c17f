// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/refusal"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// Records lists all disks in the order in which they came to the node, also the detached
// ones. The caller must not change what a Spec points to.
func (m *Manager) Records() []Record {
	var records []Record
	for d := range m.All() {
		records = append(records, d.Record)
	}
	return records
}

// Attach attaches a new disk or, if there is a detached one with the serial number,
// that one with its data. Of the spec for a detached disk only SCSI, Location, Number,
// Late and NeedsRescan count, and a SizeBytes that is greater than before.
//
// It returns the disk number, which a disk that Windows doesn't see yet will have, or
// win.NoNumber for a path below a multipath disk.
// A serial number that is attached already gives ErrorAlreadyExists.
func (m *Manager) Attach(spec hardware.Disk) (csiproxy.DiskNumber, error) {
	if spec.SCSI != nil && spec.SCSI.PortNumber == initiatorPort {
		return win.NoNumber, refusal.New(winerr.ErrorBusy,
			"attach disk%s: adapter %d is the iSCSI initiator, whose disks are the LUNs of its targets", quoted(spec.Serial),
			initiatorPort)
	}
	d, err := m.diskFor(spec)
	if err != nil {
		return win.NoNumber, fmt.Errorf("attach disk%s: %w", quoted(spec.Serial), err)
	}
	m.attach(d, true)
	return d.Number, nil
}

// attach attaches a disk. If its arrival takes no time, it may be there at once.
func (m *Manager) attach(d *Disk, atOnce bool) {
	m.inherit(d)
	d.State, d.Attributes, d.MountedReadOnly = Attached, d.Persistent, false
	m.giveNumber(d)
	if !d.Spec.NeedsRescan {
		m.arrivesLater(d, atOnce)
	}
}

// inherit gives a disk that is attached the attributes of the device instance that it is
// from now on: those that were persisted for it, or else those of its hardware.
func (m *Manager) inherit(d *Disk) {
	if !m.config.Settings.AttributesOfInstance {
		return
	}
	a, known := m.Instances[d.instance()]
	if !known {
		a = attributes(d.Spec)
	}
	if d.Persistent = a; d.Persistent&win.DiskOffline != 0 {
		d.OfflineReason = win.OfflinePolicy
	}
}

// giveNumber gives an attached disk the number that it will have.
func (m *Manager) giveNumber(d *Disk) {
	switch wanted := d.Spec.Number; {
	case d.Number != win.NoNumber || d.Spec.MultipathMember:
	case wanted != nil && !m.numbered(*wanted):
		d.Number = *wanted
		m.unused = max(m.unused, d.Number+1)
	default:
		d.Number = m.freeNumber(m.config.Settings.FreshNumbers)
	}
	d.touch()
}

// Clone attaches a new disk with the contents of another one as they are now, as a
// disk made from a snapshot has them: with the same ids in its partition table, and what
// was written to its files by then. The rest of the disk is as spec says; its SizeBytes is
// at least that of the other disk, and its SectorSize the same.
//
// While a disk with the same ids is online, Windows gives the clone new ids as soon as that is online and
// writable. One that is read-only it keeps offline.
func (m *Manager) Clone(of csiproxy.DiskNumber, spec hardware.Disk) (number csiproxy.DiskNumber, err error) {
	number = win.NoNumber
	err = m.on("clone", of, func(original *Disk) error {
		if _, exists := m.withSerial(spec.Serial); exists {
			return refusal.New(winerr.ErrorAlreadyExists, "there is a disk with the serial number %q already", spec.Serial)
		}
		spec.SizeBytes, spec.SectorSize = max(spec.SizeBytes, original.Size), original.Spec.SectorSize
		d, err := m.diskFor(spec)
		if err != nil {
			return err
		}
		if err := errors.Join(original.Image.Export(d.Image), m.Volumes.Copy(original, d)); err != nil {
			return err
		}
		m.attach(d, true)
		number = d.Number
		return nil
	})
	return number, err
}

// withSerial finds the disk with a serial number that was given to it.
func (m *Manager) withSerial(serial string) (*Disk, bool) {
	return m.Find(func(d *Disk) bool { return serial != "" && d.Spec.Serial == serial })
}

// Swap puts another disk in the place of an attached one: with its number and its
// address, and with a copy of what is on it, but with the serial number, the identifiers and
// the texts of the spec. What of these the spec lacks is as before, so that an empty one
// makes a copy that nobody can tell from the original.
//
// What is open on the disk, or on a volume on it, dies, and all arrives anew. With
// keepHandles it leads to the other disk from now on: that isn't to be expected of Windows,
// but nothing that changes a disk may rely on it.
func (m *Manager) Swap(number csiproxy.DiskNumber, spec hardware.Disk, keepHandles bool) error {
	return m.on("swap", number, func(d *Disk) error {
		switch o, found := m.withSerial(spec.Serial); {
		case found && o != d:
			return refusal.New(winerr.ErrorAlreadyExists, "there is a disk with the serial number %q already", spec.Serial)
		case d.System, d.Target != "", !d.Present():
			return refusal.New(winerr.ErrorNotSupported,
				"only a disk that Windows sees can be swapped, and neither its own nor a LUN")
		}
		if !keepHandles {
			m.withdraw(d)
		}
		d.Spec.Serial, d.path = cmp.Or(spec.Serial, d.Spec.Serial), ""
		d.Spec.VendorID, d.Spec.ProductID = cmp.Or(spec.VendorID, d.Spec.VendorID), cmp.Or(spec.ProductID, d.Spec.ProductID)
		d.Spec.Revision = cmp.Or(spec.Revision, d.Spec.Revision)
		if spec.Page83 != nil {
			d.Spec.Page83 = spec.Page83
		}
		if !keepHandles {
			d.Spec.Number = &number
			m.attach(d, true)
		}
		d.touch()
		return nil
	})
}

// originalOf finds a disk that is online and has ids of d in its partition table.
func (m *Manager) originalOf(d *Disk) (*Disk, bool) {
	ids := d.tableIDs()
	if len(ids) == 0 {
		return nil, false
	}
	return m.Find(func(o *Disk) bool {
		return o != d && o.Present() && !o.Is(win.DiskOffline) && o.Number != win.NoNumber &&
			slices.ContainsFunc(o.tableIDs(), func(id string) bool { return slices.Contains(ids, id) })
	})
}

// isClone reports whether a disk is online with ids of another one that is online.
func (m *Manager) isClone(d *Disk) bool {
	_, found := m.originalOf(d)
	return found && d.Present() && !d.System && !d.Is(win.DiskOffline)
}

// giveNewIDs gives a clone new ids if it is writable, as Windows does: to the disk and, on a GPT disk, to
// its partitions. It returns false for a clone that keeps its ids.
//
// Guess: where Windows gives a clone new ids, the partitions get new ids, too.
//
// Source: https://github.com/hpe-storage/common-host-libs/issues/40
func (m *Manager) giveNewIDs(d *Disk) bool {
	switch {
	case !m.isClone(d):
		return true
	case m.config.Settings.ClonesStayOffline || !d.Writable():
		return false
	}
	l := d.Layout()
	l.DiskID = winid.NewGUID()
	for i := range l.Partitions {
		l.Partitions[i].ID = winid.NewGUID()
	}
	l.Signature = binary.LittleEndian.Uint32(l.DiskID[:]) | 1
	return d.SetLayout(l) == nil
}

// settleClone gives a clone new ids, or takes it offline, as the partition manager does.
func (m *Manager) settleClone(d *Disk) {
	if m.giveNewIDs(d) {
		return
	}
	d.Attributes |= win.DiskOffline
	d.OfflineReason = win.OfflineCollision
	d.touch()
	m.Volumes.Scan(d)
}

// SetOfflineReason takes a disk offline as Windows does by itself, for a reason.
func (m *Manager) SetOfflineReason(number csiproxy.DiskNumber, reason win.OfflineReason) error {
	return m.on("take offline", number, func(d *Disk) error {
		if err := m.setAttributes(d, win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}); err != nil {
			return err
		}
		d.OfflineReason = reason
		return nil
	})
}

// diskFor finds the detached disk of a spec, or makes a new one.
func (m *Manager) diskFor(spec hardware.Disk) (*Disk, error) {
	d, ok := m.withSerial(spec.Serial)
	switch {
	case !ok && spec.SizeBytes == 0:
		return nil, refusal.New(winerr.ErrorInvalidParameter,
			"no detached disk has the serial number, and a new disk needs a size")
	case !ok:
		spec, err := m.complete(m.NextDisk, spec)
		if err != nil {
			return nil, err
		}
		d := newDisk(m.NextDisk, spec)
		m.add(d)
		m.NextDisk++
		m.node.KeptChanged()
		return d, nil
	case d.Target != "":
		return nil, refusal.New(winerr.ErrorAlreadyExists, "the serial number is that of a LUN of the iSCSI target %s", d.Target)
	case d.State != Detached:
		return nil, refusal.New(winerr.ErrorAlreadyExists,
			"disk %s has the serial number and is attached; detach it first, or choose another serial number", d.Number)
	}
	again := d.Spec
	again.SizeBytes = max(d.Size, spec.SizeBytes)
	again.SCSI, again.Location, again.NeedsRescan = spec.SCSI, spec.Location, spec.NeedsRescan
	again.Number, again.Late = spec.Number, spec.Late
	again, err := m.complete(d.ID, again)
	if err != nil {
		return nil, err
	}
	d.Spec, d.path = again, ""
	d.grow(again.SizeBytes)
	return d, nil
}

// arrivesLater gives an attached disk its number and lets it arrive: if that takes no time and
// it may be, at once, else never before the present call is over.
func (m *Manager) arrivesLater(d *Disk, atOnce bool) {
	m.giveNumber(d)
	d.Arriving = true
	d.touch()
	delay := m.config.DiskArrival + d.Spec.Late
	if atOnce && delay <= 0 {
		m.arrives(d)
		return
	}
	m.node.Later(delay, func() {
		if d.Arriving {
			m.arrives(d)
		}
	})
}

func (m *Manager) arrives(d *Disk) {
	d.State, d.Arriving, d.Seen, d.fresh = Present, false, d.Size, true
	if m.config.Settings.RefusedAtFirst != 0 {
		d.justCame = true
		m.node.Later(settings.RefusedFor, func() { d.justCame = false })
	}
	d.touch()
	m.settleClone(d)
	m.node.Notify(win.InterfaceClassDisk)
	m.Volumes.Scan(d)
}

// Detach pulls a disk out, even while it is in use. It is a detached disk then, with
// its data.
func (m *Manager) Detach(number csiproxy.DiskNumber) error {
	return m.on("detach", number, func(d *Disk) error {
		switch {
		case d.System:
			return refusal.New(winerr.ErrorAccessDenied, "Windows runs from it")
		case d.Target != "": // it comes and goes with the session
			return fmt.Errorf("it is a LUN of the iSCSI target %s: %w", d.Target, winerr.ErrorNotSupported)
		}
		m.withdraw(d)
		return nil
	})
}

// Delete deletes a detached disk with its data: a disk with its serial number is a
// new one then. What Windows remembers of its volumes stays. No such disk
// gives ErrorNotFound, one that is attached ErrorDeviceInUse.
func (m *Manager) Delete(serial string) error {
	d, err := m.detached("delete", serial)
	if err != nil {
		return err
	}
	m.remove(d)
	return nil
}

// detached finds the detached disk with a serial number, for what is to be done to it.
func (m *Manager) detached(what, serial string) (*Disk, error) {
	d, ok := m.Find(func(d *Disk) bool { return d.Spec.Serial == serial })
	switch {
	case !ok:
		return nil, refusal.NotFound("disk", strconv.Quote(serial))
	case d.Target != "":
		return nil, fmt.Errorf("%s disk %q: it is a LUN of the iSCSI target %s: %w", what, serial, d.Target,
			winerr.ErrorNotSupported)
	case d.State != Detached:
		return nil, refusal.New(winerr.ErrorDeviceInUse, "%s disk %q: it is attached as disk %s; detach it first", what,
			serial, d.Number)
	}
	return d, nil
}

// moved is a disk on its way from one node to another.
type moved struct {
	Spec   hardware.Disk
	Blocks map[int64][]byte // by offset
	Packed []byte           // of Volumes
}

// WriteAt implements [io.WriterAt], for Export.
func (d *moved) WriteAt(p []byte, off int64) (int, error) {
	d.Blocks[off] = slices.Clone(p)
	return len(p), nil
}

// Take moves a detached disk from the node to a new file. What wasn't flushed is lost.
func (m *Manager) Take(serial, file string) error {
	d, err := m.detached("take", serial)
	if err != nil {
		return err
	}
	leaves := moved{Spec: d.Spec, Blocks: map[int64][]byte{}}
	if leaves.Packed, err = m.Volumes.Pack(d); err != nil {
		return err
	}
	if err := d.Image.Export(&leaves); err != nil {
		return err
	}
	data, err := json.Marshal(leaves)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	m.remove(d)
	return nil
}

// Give makes the disk in a file of Take a detached one of the node. Its attributes are those of its
// hardware: another Windows has kept the others.
func (m *Manager) Give(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var comes moved
	if err := json.Unmarshal(data, &comes); err != nil {
		return refusal.New(winerr.ErrorInvalidParameter, "%s has no disk: %v", file, err)
	}
	if _, exists := m.withSerial(comes.Spec.Serial); exists {
		return refusal.New(winerr.ErrorAlreadyExists, "there is a disk with the serial number %q already", comes.Spec.Serial)
	}
	d, err := m.diskFor(comes.Spec)
	if err != nil {
		return err
	}
	for offset, block := range comes.Blocks {
		_, writeErr := d.Image.WriteAt(block, offset)
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, m.Volumes.Unpack(d, comes.Packed)); err != nil {
		m.remove(d)
		return refusal.New(winerr.ErrorInvalidParameter, "the disk in %s: %v", file, err)
	}
	return nil
}

// withdraw takes a disk off the node: what is open on it dies.
func (m *Manager) withdraw(d *Disk) {
	d.State, d.Number, d.Arriving = Detached, win.NoNumber, false
	d.touch()
	m.Volumes.Scan(d)
	m.node.DiskGone(d)
	m.node.Notify(win.InterfaceClassDisk)
}

// Grow gives a disk more capacity. Windows sees it when it next asks for it.
func (m *Manager) Grow(number csiproxy.DiskNumber, sizeBytes int64) error {
	return m.on("grow", number, func(d *Disk) error {
		if sizeBytes < d.Size || sizeBytes%d.SectorSize() != 0 {
			return refusal.New(winerr.ErrorInvalidParameter,
				"the new size is %d bytes; it must be at least %d, in whole sectors of %d bytes",
				sizeBytes, d.Size, d.SectorSize())
		}
		d.grow(sizeBytes)
		if m.config.Settings.GrownAtOnce && d.Present() {
			d.Seen = d.Size
		}
		return nil
	})
}

func (d *Disk) grow(size int64) {
	d.Size, d.Spec.SizeBytes = size, size
	d.touch()
	d.Image.Grow(size)
}

// SetAttributes changes attributes of a disk as an administrator does.
func (m *Manager) SetAttributes(number csiproxy.DiskNumber, a win.SetDiskAttributes) error {
	return m.on("set attributes of", number, func(d *Disk) error { return m.setAttributes(d, a) })
}

// ReadImage reads bytes of a disk below Windows.
func (m *Manager) ReadImage(number csiproxy.DiskNumber, p []byte, off int64) error {
	return m.on("read image of", number, func(d *Disk) error {
		if _, err := d.Image.ReadAt(p, off); err != nil {
			return fmt.Errorf("%w: %w", err, winerr.ErrorInvalidParameter)
		}
		return nil
	})
}

// WriteImage writes bytes of a disk below Windows, as another machine would: it
// plants foreign data. Windows takes notice of a changed partition table.
func (m *Manager) WriteImage(number csiproxy.DiskNumber, p []byte, off int64) error {
	return m.on("write image of", number, func(d *Disk) error {
		if _, err := d.Image.WriteAt(p, off); err != nil {
			return fmt.Errorf("%w: %w", err, winerr.ErrorInvalidParameter)
		}
		m.Volumes.Scan(d)
		return nil
	})
}

// ExportImage writes the bytes of a disk to a new sparse file. The contents of the
// simulated file systems' files are not among them.
func (m *Manager) ExportImage(number csiproxy.DiskNumber, file string) error {
	return m.on("export image of", number, func(d *Disk) (err error) {
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
		return d.Image.Export(f)
	})
}

// on runs f on the disk with a number. Detached disks have none.
func (m *Manager) on(what string, number csiproxy.DiskNumber, f func(*Disk) error) error {
	d, ok := m.WithNumber(number)
	if !ok {
		return refusal.NotFound("disk", number.String())
	}
	if err := f(d); err != nil {
		return fmt.Errorf("%s disk %d: %w", what, number, err)
	}
	return nil
}

// WithNumber finds the disk that has a number, or will have it.
func (m *Manager) WithNumber(number csiproxy.DiskNumber) (*Disk, bool) {
	return m.Find(func(d *Disk) bool { return d.Number == number && number != win.NoNumber })
}

// quoted is a name in the text of an error, with a blank before it; nothing if it is empty.
func quoted(name string) string {
	if name == "" {
		return ""
	}
	return " " + strconv.Quote(name)
}

// Boot is the start of Windows: it finds all attached disks and numbers them in the order
// of their addresses, of which the system disk has the first. It returns them in that order.
//
// Guess: a restart numbers disks in the order of their SCSI addresses.
func (m *Manager) Boot() []*Disk {
	attached := slices.DeleteFunc(slices.Collect(m.All()), func(d *Disk) bool { return d.State == Detached })
	slices.SortFunc(attached, (*Disk).compareAddress)
	number := csiproxy.DiskNumber(0)
	for _, d := range attached {
		d.State, d.Number, d.Arriving = Present, win.NoNumber, false
		d.touch()
		d.Seen, d.Attributes, d.MountedReadOnly = d.Size, d.Persistent, false
		if !d.Is(win.DiskOffline) {
			d.OfflineReason = win.OfflineUnknown
		}
		m.settleClone(d)
		if !d.Spec.MultipathMember {
			d.Number = number
			number++
		}
	}
	return attached
}

// Resume lets the disks arrive that were on their way when the state file was written.
func (m *Manager) Resume() {
	for d := range m.All() {
		m.Volumes.Scan(d)
		if d.Arriving {
			m.arrivesLater(d, true)
		}
	}
}

// Install makes the disk that Windows runs from, with its partitions.
func (m *Manager) Install() (*Disk, error) {
	spec := hardware.Disk{
		SizeBytes: 64 << 30, Serial: "SIMSYSTEM", VendorID: "Msft", ProductID: "Virtual Disk",
		SCSI: &win.SCSIAddress{}, Location: "PCI Slot 0 : Adapter 0 : Port 0 : Target 0 : LUN 0",
	}
	d, err := m.diskFor(spec)
	if err != nil {
		return nil, err
	}
	const efiEnd = mib + 100*mib
	d.State, d.Number, d.Seen = Present, 0, d.Size
	if err := d.createTable(win.CreateDisk{Style: win.StyleGPT, DiskID: winid.NewGUID()}, false); err != nil {
		return nil, err
	}
	l := d.Layout()
	end := (l.StartingUsableOffset + l.UsableLength) / mib * mib
	for _, p := range []win.Partition{
		{Type: win.PartitionTypeEFISystem, StartingOffset: mib, Length: 100 * mib, Name: "EFI system partition"},
		{Type: win.PartitionTypeMicrosoftReserved, StartingOffset: efiEnd, Length: 16 * mib, Name: reservedPartitionName},
		{Type: win.PartitionTypeBasicData, StartingOffset: efiEnd + 16*mib, Length: end - efiEnd - 16*mib,
			Name: "Basic data partition"},
	} {
		p.Style, p.ID = win.StyleGPT, winid.NewGUID()
		l.Partitions = append(l.Partitions, p)
	}
	if err := d.SetLayout(l); err != nil {
		return nil, err
	}
	d.System = true
	return d, nil
}
