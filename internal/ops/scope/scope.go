// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scope decides which driver owns what on a node, and limits each driver to its own
// resources.
//
// The node's drivers and their resources are a fixed table ([Table]). A driver's operations get a
// [System] in place of the node's: to the driver, the disks, volumes, shares and targets of other
// drivers are missing. The operations are unaware of drivers. System identifies the owners of
//
//   - disks and volumes: by the identity of the disk, on the opened handle
//   - paths: [github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy.Policy.Within]
//   - shares: by the name of the server
//   - the iSCSI initiator: by the address of the portal
//   - services: by name
//
// Some queries need the whole node, and keep the node's own system: the users of a volume, the
// disks of Windows, the original of a clone. Queries of all disks find the owner of each disk of
// the node, and do not wait for disks known to belong to other drivers.
package scope

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Driver is a driver with its resources on a node.
type Driver struct {
	// Name is the name of the CSI driver, such as ebs.csi.aws.com.
	Name string
	// Disks are patterns. A disk belongs to the driver if it matches at least one pattern.
	Disks []DiskPattern
	// Servers are the SMB servers whose shares the driver maps. A name that begins with a dot
	// stands for all names with this suffix.
	Servers []string
	// Portals are the iSCSI portals of the driver's targets. Disks of sessions through these
	// portals belong to the driver, even without a pattern.
	Portals []csiproxy.ISCSIPortal
	// Services are the Windows services that the driver may query, start and stop.
	Services []string
}

// DiskPattern describes a driver's disks as Windows reports them. A disk must match all non-zero
// fields. Texts compare without regard to case and to blanks around them; a * at the end stands for
// any rest. Where Windows has cut a vendor to 8 characters, or a product to 16, the rest of the
// pattern is ignored.
type DiskPattern struct {
	Bus             csiproxy.Bus
	Vendor, Product string
	SerialNumber    string
	// Adapter is the number of the SCSI adapter.
	Adapter *uint32
	// Target is the name of the disk's iSCSI target.
	Target string
}

// Table is the table of a node's drivers.
type Table struct {
	sys     win.System
	drivers []Driver
	log     *slog.Logger
	several sync.Map // logged lists of drivers that match the same disk
	// lastOwners are the drivers of the last disks that identified themselves, by disk number; ""
	// for a disk without a driver.
	lastOwners sync.Map
}

// New returns the table of the drivers of the node sys. Drivers with a problem found by [Check],
// other than a warning, are refused. The log gets the disks that match several drivers.
func New(sys win.System, drivers []Driver, log *slog.Logger) (*Table, error) {
	for _, problem := range Check(drivers) {
		if !problem.IsWarning {
			return nil, &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Object: "driver " + quote.Text(drivers[problem.Driver].Name),
				Detail: problem.Field + ": " + problem.Text}
		}
	}
	return &Table{sys: sys, drivers: drivers, log: log}, nil
}

// OwnerOfDisk returns the name of the driver that owns an open disk; "" if there is none. It asks
// sys, the system of the whole node, for the iSCSI sessions. A disk that matches the patterns of
// several drivers has no owner: a wrong owner could destroy its data.
func (t *Table) OwnerOfDisk(ctx context.Context, sys win.ISCSIInitiator, d *opendisk.Disk) (name string, _ error) {
	name, _, err := t.ownerOfDisk(ctx, sys, d)
	return name, err
}

// LastingOwnerOf is OwnerOfDisk for as long as the disk is there. isKnown is false if the owner is
// unknown, or may change with the sessions of an iSCSI disk.
func (t *Table) LastingOwnerOf(ctx context.Context, d *opendisk.Disk) (name string, isKnown bool) {
	if d.Hardware.DescriptorErr != nil || t.needsSessions(d) {
		return "", false
	}
	disk, err := t.ask(ctx, t.sys, d)
	if err != nil || t.lacksAddress(disk) {
		return "", false
	}
	name, err = t.ownerOf(disk)
	return name, err == nil
}

// ownerOfDisk is OwnerOfDisk. isKnown is false if the disk has withheld what identifies its owner.
// ownerOfDisk records a known owner.
func (t *Table) ownerOfDisk(ctx context.Context, sys win.ISCSIInitiator, d *opendisk.Disk) (name string, isKnown bool, _ error) {
	if t == nil || len(t.drivers) == 0 || d.Hardware.DescriptorErr != nil {
		return "", false, nil
	}
	disk, err := t.ask(ctx, sys, d)
	if err != nil {
		return "", false, err
	}
	name, err = t.ownerOf(disk)
	isKnown = err == nil && (name != "" || !t.lacksAddress(disk))
	if isKnown {
		t.noteOwner(ctx, d, name)
	}
	return name, isKnown, err
}

// noteOwner notes the owner of a disk that still has its number. If another call notes another owner meanwhile, the
// number may have gone to another disk: then the owner is unknown until that disk is next opened.
func (t *Table) noteOwner(ctx context.Context, d *opendisk.Disk, name string) {
	before, isKnown := t.lastOwners.Load(d.Number)
	if isKnown && before == name {
		return
	}
	if current, err := d.DeviceHandle.Number(ctx); err != nil || current.DeviceNumber != d.Number {
		return
	}
	now, isStored := t.lastOwners.LoadOrStore(d.Number, name)
	if isStored && now != name && !(isKnown && t.lastOwners.CompareAndSwap(d.Number, before, name)) {
		t.lastOwners.Delete(d.Number)
	}
}

// lacksAddress reports whether a disk has withheld the address by which it may belong to a driver.
// A sick disk may give the address later.
func (t *Table) lacksAddress(disk asked) bool {
	return !disk.hasAdapter && !disk.isWithoutAddress && slices.ContainsFunc(t.drivers, needsAddress)
}

// ask adds the SCSI address and the iSCSI target to the description of a disk, if the drivers in
// the table need them.
func (t *Table) ask(ctx context.Context, sys win.ISCSIInitiator, d *opendisk.Disk) (disk asked, _ error) {
	disk = asked{Hardware: d.Hardware, isBesideTargets: t.needsSessions(d)}
	if slices.ContainsFunc(t.drivers, needsAddress) {
		address, err := d.SCSIAddress(ctx)
		switch {
		case err == nil:
			disk.adapter, disk.hasAdapter = uint32(address.PortNumber), true
		case winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotSupported):
			disk.isWithoutAddress = true
		case !winerr.IsAnswer(err):
			return disk, err
		}
	}
	var err error
	if disk.isBesideTargets {
		disk.target, disk.portals, err = t.targetOf(ctx, sys, d)
	}
	return disk, err
}

// needsSessions reports whether the iSCSI sessions decide who owns a disk.
func (t *Table) needsSessions(d *opendisk.Disk) bool {
	return d.Hardware.Descriptor.BusType == win.BusTypeISCSI && slices.ContainsFunc(t.drivers, needsTarget)
}

// ownerOf returns the driver that owns a disk; "" if there is none.
func (t *Table) ownerOf(disk asked) (name string, _ error) {
	var names []string
	for _, driver := range t.drivers {
		if disk.is(driver) {
			names = append(names, driver.Name)
		}
	}
	if disk.target != "" && len(disk.portals) == 0 && (len(names) == 0 || len(names) == 1 && t.hasPortalsBeside(names[0])) {
		// Any driver with portals may own the disk.
		return "", csiproxy.Errorf(csiproxy.ErrUnavailable, "the session of the disk's iSCSI target has no connection now")
	}
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	list := quote.List(names)
	if _, logged := t.several.LoadOrStore(list, true); !logged {
		descriptor := disk.Descriptor
		identity := fmt.Sprintf("%s %s %s", descriptor.VendorID, descriptor.ProductID, descriptor.SerialNumber)
		t.log.Warn("disks fit the patterns of several drivers, so they are none's", "drivers", list, "first", quote.Text(identity))
	}
	return "", nil
}

// hasPortalsBeside reports whether another driver has portals.
func (t *Table) hasPortalsBeside(name string) bool {
	return slices.ContainsFunc(t.drivers, func(driver Driver) bool { return driver.Name != name && len(driver.Portals) > 0 })
}

// OwnerOfNumber is OwnerOfDisk for the disk with the number now.
func (t *Table) OwnerOfNumber(ctx context.Context, n csiproxy.DiskNumber) (name string, _ error) {
	h, err := win.OpenDevice(ctx, t.sys, win.PhysicalDrive(n), win.AccessNone)
	if err != nil {
		return "", err
	}
	defer h.Close()
	hardware, err := opendisk.AskHardware(ctx, h)
	if err != nil {
		return "", err
	}
	return t.OwnerOfDisk(ctx, t.sys, &opendisk.Disk{DeviceHandle: h, Number: n, Hardware: hardware})
}

func needsAddress(driver Driver) bool {
	return slices.ContainsFunc(driver.Disks, func(p DiskPattern) bool { return p.Adapter != nil })
}

func needsTarget(driver Driver) bool {
	return len(driver.Portals) > 0 || slices.ContainsFunc(driver.Disks, func(p DiskPattern) bool { return p.Target != "" })
}

// asked is a disk's description of itself.
type asked struct {
	opendisk.Hardware
	adapter    uint32
	hasAdapter bool
	// isWithoutAddress is true if the disk's bus has no SCSI addresses.
	isWithoutAddress bool
	target           string // of an iSCSI disk
	portals          []win.ISCSIPortal
	// isBesideTargets is true for an iSCSI disk if portals or targets identify drivers. Then only
	// the session identifies the disk's owner, and a pattern needs the bus or the target to match:
	// one driver's target may copy the texts of another driver's disks.
	isBesideTargets bool
}

// is reports whether the disk belongs to a driver.
func (a asked) is(driver Driver) bool {
	return slices.ContainsFunc(driver.Disks, a.fits) ||
		a.target != "" && slices.ContainsFunc(a.portals, driver.hasPortal)
}

func (a asked) fits(p DiskPattern) bool {
	return (!a.isBesideTargets || p.Bus != "" || restricts(p.Target)) &&
		(p.Bus == "" || win.SameName(string(opendisk.Bus(a.Descriptor.BusType)), string(p.Bus))) &&
		fitsInquiry(p.Vendor, a.Descriptor.VendorID, vendorRoom) && fitsInquiry(p.Product, a.Descriptor.ProductID, productRoom) &&
		fitsText(p.SerialNumber, a.Descriptor.SerialNumber) && fitsText(p.Target, a.target) &&
		(p.Adapter == nil || a.hasAdapter && *p.Adapter == a.adapter)
}

// Room for texts in the SCSI inquiry, in characters.
const (
	vendorRoom  = 8
	productRoom = 16
)

// fitsInquiry is fitsText for a text of the SCSI inquiry with room characters. For NVMe disks,
// Windows may return longer texts.
func fitsInquiry(pattern, text string, room int) bool {
	pattern, text = strings.TrimSpace(pattern), strings.TrimSpace(text)
	return fitsText(pattern, text) || len(pattern) > room && fitsText(strings.TrimSpace(pattern[:room]), text)
}

// fitsText reports whether a text matches a pattern. An empty pattern matches every text.
func fitsText(pattern, text string) bool {
	pattern, text = win.LowerName(strings.TrimSpace(pattern)), win.LowerName(strings.TrimSpace(text))
	if beginning, hasStar := strings.CutSuffix(pattern, "*"); hasStar {
		return strings.HasPrefix(text, beginning)
	}
	return pattern == "" || text == pattern
}

// maxSilent is how many silent sessions of a driver may take up calls at the same time.
const maxSilent = 32

// targetOf returns the iSCSI target of a disk, and the portals of its sessions. target is "" if no
// session has the disk. Each session is queried separately, since another driver's session may hang
// or fail. The failure is an error only if no other session has the disk.
func (t *Table) targetOf(ctx context.Context, sys win.ISCSIInitiator, d *opendisk.Disk) (target string, portals []win.ISCSIPortal, _ error) {
	sessions, err := sys.ISCSISessions(ctx)
	if err != nil {
		return "", nil, err
	}
	n, err := d.DeviceHandle.Number(ctx)
	if err != nil {
		return "", nil, err
	}
	left := slices.Clone(sessions) // the silent sessions
	ownerOf := func(s win.ISCSISession) (driver string) {
		if len(s.Portals) > 0 {
			driver, _ = t.OwnerOfPortal(s.Portals[0])
		}
		return driver
	}
	for asked, outcome := range operation.AskSome(ctx, sessions, ownerOf, maxSilent, silentTimeout, hasDisk(sys, n.DeviceNumber)) {
		isOfSession, askErr := outcome.Get()
		err = cmp.Or(err, askErr)
		left = slices.DeleteFunc(left, func(s win.ISCSISession) bool { return s.ID == asked.ID })
		if isOfSession {
			target, portals = asked.Target, append(portals, asked.Portals...)
		}
		// A disk has one target, possibly with several sessions.
		if target != "" && !slices.ContainsFunc(left, func(s win.ISCSISession) bool { return strings.EqualFold(s.Target, target) }) {
			break
		}
	}
	if ctx.Err() != nil {
		return "", nil, ctx.Err()
	}
	if target == "" && err != nil {
		return "", nil, err
	}
	if target == "" && len(left) > 0 {
		return "", nil, csiproxy.Errorf(csiproxy.ErrUnavailable, "an iSCSI session doesn't say which disks it has")
	}
	// The disk still has the number, and therefore had it during the queries of the sessions.
	_, err = d.DeviceHandle.Number(ctx)
	return target, portals, err
}

// hasDisk returns a query of whether a session has the disk with a number.
func hasDisk(sys win.ISCSIInitiator, n csiproxy.DiskNumber) func(ctx context.Context, s win.ISCSISession) (bool, error) {
	return func(ctx context.Context, s win.ISCSISession) (bool, error) {
		devices, err := sys.ISCSISessionDevices(ctx, s.ID)
		if errors.Is(err, winerr.ISDSCInvalidSessionID) { // the session has ended meanwhile
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(devices, func(attached win.ISCSIDevice) bool { return attached.Device.DeviceNumber == n }), nil
	}
}

// hasServer reports whether an SMB server belongs to the driver.
func (d Driver) hasServer(server string) bool {
	return slices.ContainsFunc(d.Servers, func(own string) bool {
		own = win.LowerName(own)
		return own == server || strings.HasPrefix(own, ".") && strings.HasSuffix(server, own)
	})
}

// HasShare reports whether the share of a UNC path belongs to the driver, under any name that
// Windows accepts.
func (d Driver) HasShare(path string) bool {
	remote, err := win.ParseUNC(path)
	return err == nil && d.hasServer(remote.Server())
}

// OwnerOfShare returns the name of the driver that owns the server of a UNC path; "" if there is
// none.
func (t *Table) OwnerOfShare(path string) (name string) {
	if i := slices.IndexFunc(t.drivers, func(driver Driver) bool { return driver.HasShare(path) }); i >= 0 {
		name = t.drivers[i].Name
	}
	return name
}

// OwnerOfPortal returns the name of the driver that owns an iSCSI portal; "" if there is none.
// isKnown is false for a host name without a driver, which may lead to any driver's portal, and for
// a driver's IPv6 address with another zone.
func (t *Table) OwnerOfPortal(p win.ISCSIPortal) (name string, isKnown bool) {
	isKnown = win.IsIP(p.Address)
	for _, driver := range t.drivers {
		if driver.hasPortal(p) {
			return driver.Name, true
		}
		isKnown = isKnown && !slices.ContainsFunc(driver.Portals, func(own csiproxy.ISCSIPortal) bool {
			parsed, err := win.ParsePortal(own)
			return err == nil && win.SamePortal(withoutZone(parsed), withoutZone(p))
		})
	}
	return "", isKnown
}

// withoutZone returns a portal without the zone of its IPv6 address.
func withoutZone(p win.ISCSIPortal) win.ISCSIPortal {
	p.Address, _, _ = strings.Cut(p.Address, "%")
	return p
}

// hasPortal reports whether an iSCSI portal belongs to the driver.
func (d Driver) hasPortal(p win.ISCSIPortal) bool {
	return slices.ContainsFunc(d.Portals, func(own csiproxy.ISCSIPortal) bool {
		parsed, err := win.ParsePortal(own)
		return err == nil && win.SamePortal(parsed, p)
	})
}
