// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scope says what of a node is whose driver's, and lets a driver touch nothing else.
//
// The node's drivers, with what is theirs, are a table ([Table]) that doesn't change. A driver's operations
// get a [System] in place of the node's: it answers as if the disks, volumes, shares and targets of other
// drivers weren't there. So no operation knows of drivers. The doors are
//
//   - disks and volumes: what is opened is asked which disk it is, on the same handle
//   - paths: [github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy.Policy.Within]
//   - shares: by the name of the server
//   - the iSCSI initiator: by the address of the portal
//   - services: by name
//
// What must see the whole node keeps the node's own system: who uses a volume, which disks Windows runs
// from, the original of a clone. Queries of all disks ask each disk of the node whose it is, and don't wait for those
// that are known to be other drivers'.
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

// Driver is what of a node is one driver's.
type Driver struct {
	// Name is that of the CSI driver, such as ebs.csi.aws.com.
	Name string
	// Disks are the driver's: those that fit one of the patterns.
	Disks []DiskPattern
	// Servers are the names of the SMB servers whose shares the driver maps. One that begins with a dot stands
	// for all names that end with it.
	Servers []string
	// Portals are the iSCSI portals at which the driver's targets are. The disks of sessions through them are
	// the driver's without a pattern.
	Portals []csiproxy.ISCSIPortal
	// Services are the Windows services that the driver may query, start and stop.
	Services []string
}

// DiskPattern is what Windows says of a driver's disks. All fields that are set must fit. Texts compare
// without regard to case and to blanks around them; a * at the end stands for any rest. Where Windows has cut a
// vendor to 8 characters, or a product to 16, no more of the pattern count.
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
	several sync.Map // the disks that were logged as fitting several drivers, as texts
	// lastOwners are the drivers of the last disks that said what they are, by their numbers; "" for one that is no driver's.
	lastOwners sync.Map
}

// New returns the table of the drivers of the node sys. Drivers with a problem that [Check] finds are refused. The log gets
// the disks that fit several drivers.
func New(sys win.System, drivers []Driver, log *slog.Logger) (*Table, error) {
	for _, problem := range Check(drivers) {
		if !problem.IsWarning {
			return nil, &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Object: "driver " + quote.Text(drivers[problem.Driver].Name),
				Detail: problem.Field + ": " + problem.Text}
		}
	}
	return &Table{sys: sys, drivers: drivers, log: log}, nil
}

// OwnerOfDisk returns the name of the driver that has an open disk; "" if none has, or if the disk fits the
// patterns of several: it is given to none of them, since a wrong one could destroy its data.
func (t *Table) OwnerOfDisk(ctx context.Context, d *opendisk.Disk) (name string, _ error) {
	return t.ownerOfDisk(ctx, t.sys, d)
}

// LastingOwnerOf is OwnerOfDisk for as long as the disk is there. isKnown is false if the owner isn't known, or may change with the
// sessions of an iSCSI disk.
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

// ownerOfDisk is OwnerOfDisk by the calls of sys, which is the whole node. It notes the owner.
func (t *Table) ownerOfDisk(ctx context.Context, sys win.ISCSIInitiator, d *opendisk.Disk) (name string, _ error) {
	if t == nil || len(t.drivers) == 0 || d.Hardware.DescriptorErr != nil {
		return "", nil
	}
	disk, err := t.ask(ctx, sys, d)
	if err != nil {
		return "", err
	}
	if name, err = t.ownerOf(disk); err == nil && (name != "" || !t.lacksAddress(disk)) {
		t.lastOwners.Store(d.Number, name)
	}
	return name, err
}

// lacksAddress reports whether a disk hasn't said the address by which it may be a driver's. A sick one may do so later.
func (t *Table) lacksAddress(disk asked) bool {
	return !disk.hasAdapter && slices.ContainsFunc(t.drivers, needsAddress)
}

// ask completes the description of a disk by its SCSI address and its iSCSI target, where an owner of the table is
// chosen by these.
func (t *Table) ask(ctx context.Context, sys win.ISCSIInitiator, d *opendisk.Disk) (disk asked, _ error) {
	disk = asked{Hardware: d.Hardware, isBesideTargets: t.needsSessions(d)}
	if slices.ContainsFunc(t.drivers, needsAddress) {
		address, err := d.SCSIAddress(ctx)
		switch {
		case err == nil:
			disk.adapter, disk.hasAdapter = uint32(address.PortNumber), true
		case !isAnswer(err):
			return disk, err
		}
	}
	var err error
	if disk.isBesideTargets {
		disk.target, disk.portals, err = t.targetOf(ctx, sys, d)
	}
	return disk, err
}

// needsSessions reports whether the iSCSI sessions decide whose a disk is.
func (t *Table) needsSessions(d *opendisk.Disk) bool {
	return d.Hardware.Descriptor.BusType == win.BusTypeISCSI && slices.ContainsFunc(t.drivers, needsTarget)
}

// ownerOf returns the driver that has a disk; "" if none has.
func (t *Table) ownerOf(disk asked) (name string, _ error) {
	var names []string
	for _, driver := range t.drivers {
		if disk.is(driver) {
			names = append(names, driver.Name)
		}
	}
	if disk.target != "" && len(disk.portals) == 0 && (len(names) == 0 || len(names) == 1 && t.hasPortalsBeside(names[0])) {
		// It may belong to any driver with portals.
		return "", csiproxy.Errorf(csiproxy.ErrUnavailable, "the session of the disk's iSCSI target has no connection now")
	}
	switch len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	descriptor := disk.Descriptor
	identity := fmt.Sprintf("%s %s %s", descriptor.VendorID, descriptor.ProductID, descriptor.SerialNumber)
	if _, logged := t.several.LoadOrStore(identity, true); !logged {
		t.log.Warn("a disk fits the patterns of several drivers, so it is none's", "disk", quote.Text(identity),
			"drivers", quote.List(names))
	}
	return "", nil
}

// hasPortalsBeside reports whether another driver has portals.
func (t *Table) hasPortalsBeside(name string) bool {
	return slices.ContainsFunc(t.drivers, func(driver Driver) bool { return driver.Name != name && len(driver.Portals) > 0 })
}

// OwnerOfNumber is OwnerOfDisk of the disk that has a number now.
func (t *Table) OwnerOfNumber(ctx context.Context, n csiproxy.DiskNumber) (name string, err error) {
	h, err := win.OpenDevice(ctx, t.sys, win.PhysicalDrive(n), win.AccessNone)
	if err != nil {
		return "", err
	}
	defer h.Close()
	hardware, err := opendisk.AskHardware(ctx, h)
	if err != nil {
		return "", err
	}
	return t.OwnerOfDisk(ctx, &opendisk.Disk{DeviceHandle: h, Number: n, Hardware: hardware})
}

// isAnswer reports whether an error is the disk's answer to a query that it doesn't know.
func isAnswer(err error) bool {
	return errors.As(err, new(winerr.Errno)) && !winerr.IsGone(err) && !errors.Is(err, winerr.ErrorNotReady)
}

func needsAddress(driver Driver) bool {
	return slices.ContainsFunc(driver.Disks, func(p DiskPattern) bool { return p.Adapter != nil })
}

func needsTarget(driver Driver) bool {
	return len(driver.Portals) > 0 || slices.ContainsFunc(driver.Disks, func(p DiskPattern) bool { return p.Target != "" })
}

// asked is what a disk has said of itself.
type asked struct {
	opendisk.Hardware
	adapter    uint32
	hasAdapter bool
	target     string // of an iSCSI disk
	portals    []win.ISCSIPortal
	// isBesideTargets is true of an iSCSI disk if drivers are told by portals or targets. Then only the session says whose the disk is, and
	// a pattern that names neither the bus nor the target doesn't fit: one driver's target may copy the texts of another's disks.
	isBesideTargets bool
}

// is reports whether the disk is a driver's.
func (a asked) is(driver Driver) bool {
	return slices.ContainsFunc(driver.Disks, a.fits) ||
		a.target != "" && slices.ContainsFunc(a.portals, driver.hasPortal)
}

func (a asked) fits(p DiskPattern) bool {
	return (!a.isBesideTargets || p.Bus != "" || restricts(p.Target)) &&
		(p.Bus == "" || strings.EqualFold(string(opendisk.Bus(a.Descriptor.BusType)), string(p.Bus))) &&
		fitsInquiry(p.Vendor, a.Descriptor.VendorID, vendorRoom) && fitsInquiry(p.Product, a.Descriptor.ProductID, productRoom) &&
		fitsText(p.SerialNumber, a.Descriptor.SerialNumber) && fitsText(p.Target, a.target) &&
		(p.Adapter == nil || a.hasAdapter && *p.Adapter == a.adapter)
}

// The room that the SCSI inquiry has for texts, in characters.
const (
	vendorRoom  = 8
	productRoom = 16
)

// fitsInquiry is fitsText for a text of the SCSI inquiry, which has room for so many characters. Of NVMe disks,
// Windows may give more.
func fitsInquiry(pattern, text string, room int) bool {
	pattern, text = strings.TrimSpace(pattern), strings.TrimSpace(text)
	return fitsText(pattern, text) || len(pattern) > room && fitsText(strings.TrimSpace(pattern[:room]), text)
}

// fitsText reports whether a text fits a pattern, which fits all if it is empty.
func fitsText(pattern, text string) bool {
	pattern, text = win.LowerName(strings.TrimSpace(pattern)), win.LowerName(strings.TrimSpace(text))
	if beginning, any := strings.CutSuffix(pattern, "*"); any {
		return strings.HasPrefix(text, beginning)
	}
	return pattern == "" || text == pattern
}

// maxSilent is how many silent sessions of one driver may take up calls at the same time.
const maxSilent = 32

// targetOf returns the iSCSI target of a disk, and the portals of its sessions. target is "" if no session has the disk. Each
// session is asked apart, since one of another driver's may hang or fail. That is an error only if no other session has the disk.
func (t *Table) targetOf(ctx context.Context, sys win.ISCSIInitiator, d *opendisk.Disk) (target string, portals []win.ISCSIPortal, _ error) {
	sessions, err := sys.ISCSISessions(ctx)
	if err != nil {
		return "", nil, err
	}
	n, err := d.DeviceHandle.Number(ctx)
	if err != nil {
		return "", nil, err
	}
	left := slices.Clone(sessions) // those that haven't answered
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
		// A disk has one target, to which several sessions may lead.
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
	// The disk still has the number, so it had it when the sessions were asked for theirs.
	_, err = d.DeviceHandle.Number(ctx)
	return target, portals, err
}

// hasDisk returns the question whether a session has the disk with a number.
func hasDisk(sys win.ISCSIInitiator, n csiproxy.DiskNumber) func(ctx context.Context, s win.ISCSISession) (bool, error) {
	return func(ctx context.Context, s win.ISCSISession) (bool, error) {
		devices, err := sys.ISCSISessionDevices(ctx, s.ID)
		if errors.Is(err, winerr.ISDSCInvalidSessionID) { // it has ended meanwhile
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(devices, func(attached win.ISCSIDevice) bool { return attached.Device.DeviceNumber == n }), nil
	}
}

// hasServer reports whether an SMB server is the driver's.
func (d Driver) hasServer(server string) bool {
	return slices.ContainsFunc(d.Servers, func(own string) bool {
		own = win.LowerName(own)
		return own == server || strings.HasPrefix(own, ".") && strings.HasSuffix(server, own)
	})
}

// HasShare reports whether the share of a UNC path, by whatever name Windows takes it, is the driver's.
func (d Driver) HasShare(path string) bool {
	remote, err := win.ParseUNC(path)
	return err == nil && d.hasServer(remote.Server())
}

// OwnerOfShare returns the name of the driver that has the server of a UNC path; "" if none has.
func (t *Table) OwnerOfShare(path string) (name string) {
	if i := slices.IndexFunc(t.drivers, func(driver Driver) bool { return driver.HasShare(path) }); i >= 0 {
		name = t.drivers[i].Name
	}
	return name
}

// OwnerOfPortal returns the name of the driver that has an iSCSI portal; "" if none has. isKnown is false for a host name that
// no driver has, which may lead to any driver's portal, and for a driver's IPv6 address with another zone.
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
