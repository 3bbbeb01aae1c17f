// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/gpt"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/sparse"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// DiskSpec is the hardware of a disk. Of the zero value only SizeBytes must be
// set; the rest has the defaults that stand at each field.
type DiskSpec struct {
	SizeBytes  int64  // a multiple of SectorSize, at least 1 MiB
	SectorSize uint32 // of a logical sector: 512 (default) or 4096
	Serial     string // default: made from a running number; unique on the node

	// Page83 are the designators of VPD page 0x83; default: one NAA designator made
	// from Serial.
	Page83 []win.Identifier
	// SCSI is the address; default: the next free LUN of adapter 1.
	SCSI *win.SCSIAddress
	// Location is the text of StorageDeviceLocationProperty; default: made from
	// SCSI, as Hyper-V has it.
	Location  string
	BusType   win.BusType // default: BusTypeSAS
	VendorID  string      // default: "Msft"
	ProductID string      // default: "Virtual Disk"
	Revision  string      // of the product; default: "1.0"

	// NVMe makes the disk a namespace of an NVMe controller. That changes the defaults of
	// Page83, SCSI, Location, BusType, VendorID and ProductID.
	NVMe *NVMe `json:",omitempty"`

	// What a driver does that doesn't know a query: 0 it answers; else the error,
	// which is ErrorInvalidFunction or ErrorNotSupported on real ones.
	Page83Error      win.Errno
	LocationError    win.Errno
	SCSIAddressError win.Errno
	// NVMeError is that of the query for an NVMe namespace. The driver of a disk that isn't
	// one gives ErrorInvalidFunction anyway.
	NVMeError win.Errno `json:",omitempty"`

	// Offline and ReadOnly are how the disk arrives, as under a SAN policy.
	Offline, ReadOnly bool
	// NeedsRescan keeps the disk from arriving before a re-enumeration.
	NeedsRescan bool
	// MultipathMember makes it a path below a multipath disk: it has an interface,
	// but the disk number win.NoNumber.
	MultipathMember bool
	// Number is the disk number that Windows gives to it, if that isn't taken when it
	// arrives. Default: the lowest one that is free.
	Number *disk.Number `json:",omitempty"`
	// Late is how much later it arrives than others, after it was attached or found.
	Late time.Duration `json:",omitempty"`
}

// NVMe is what an NVMe disk is besides its bytes.
type NVMe struct {
	// Controller is the serial number of the controller, of 20 characters at most. Default:
	// DiskSpec.Serial, which Windows doesn't show. Namespaces with the same are of one
	// controller.
	Controller string
	// Namespace is the id of the namespace; default: 1.
	Namespace uint32
	// The ids of the namespace; zero if the controller gives none.
	win.NVMeNamespace
}

const minDiskSize = 1 << 20

// serial is the serial number that Windows shows.
func (d DiskSpec) serial() string {
	if d.NVMe == nil {
		return d.Serial
	}
	return win.NVMeSerial(d.NVMe.Controller, d.NVMe.Namespace, d.NVMe.NVMeNamespace)
}

// What NVM Express, and Windows' driver for it, allow.
const (
	maxNVMeSerial    = 20
	maxNVMeNamespace = 255 // LUNs have one byte here
	nvmePCIVendor    = 0x1414
)

// completeNVMe fills the defaults of an NVMe disk. Windows presents the namespace n as
// LUN n-1.
//
// Guess: VPD page 83 of an NVMe disk has the EUI-64 and the NGUID, or, of a controller that
// gives neither, the SCSI name string of NVM Express 1.0, whose parts nvme.h has. The
// location is that of the controller alone.
func (ds *disks) completeNVMe(d *DiskSpec) error {
	n := *d.NVMe
	n.Controller, n.Namespace = cmp.Or(n.Controller, d.Serial), cmp.Or(n.Namespace, 1)
	if len(n.Controller) > maxNVMeSerial || n.Namespace > maxNVMeNamespace {
		return refuse(win.ErrorInvalidParameter, "namespace %d of the NVMe controller %q: a namespace is at most %d, and a controller has at most %d characters",
			n.Namespace, n.Controller, maxNVMeNamespace, maxNVMeSerial)
	}
	d.NVMe = &n
	d.BusType = cmp.Or(d.BusType, win.BusTypeNVMe)
	d.VendorID, d.ProductID = cmp.Or(d.VendorID, "NVMe"), cmp.Or(d.ProductID, "Simulated Disk")
	if d.SCSI == nil {
		d.SCSI = &win.SCSIAddress{PortNumber: ds.nvmePort(n.Controller), LUN: byte(n.Namespace - 1)}
	}
	if d.Location == "" {
		d.Location = fmt.Sprintf("Integrated : Bus 12606208 : Device 0 : Function 0 : Adapter %d", d.SCSI.PortNumber)
	}
	if d.Page83 == nil {
		d.Page83 = n.identifiers(d.ProductID)
	}
	return nil
}

func (n NVMe) identifiers(model string) []win.Identifier {
	if n.NVMeNamespace == (win.NVMeNamespace{}) {
		name := fmt.Sprintf("%04X%-40s%04X%-20s", nvmePCIVendor, model, n.Namespace, n.Controller)
		return []win.Identifier{{CodeSet: win.CodeSetUTF8, Type: win.IdentifierSCSIName, ID: []byte(name)}}
	}
	var ids []win.Identifier
	if n.NGUID != [16]byte{} {
		ids = append(ids, win.Identifier{CodeSet: win.CodeSetBinary, Type: win.IdentifierEUI64, ID: n.NGUID[:]})
	}
	if n.EUI64 != [8]byte{} {
		ids = append(ids, win.Identifier{CodeSet: win.CodeSetBinary, Type: win.IdentifierEUI64, ID: n.EUI64[:]})
	}
	return ids
}

// nvmePort is the SCSI port number of an NVMe controller: that of its other namespaces, or
// a free one.
func (ds *disks) nvmePort(controller string) byte {
	if d, ok := ds.find(func(d *drive) bool {
		return d.State != DiskDetached && d.Spec.NVMe != nil && d.Spec.NVMe.Controller == controller
	}); ok {
		return d.Spec.SCSI.PortNumber
	}
	port := byte(2)
	for taken := ds.ports(); slices.Contains(taken, port) && port < initiatorPort-1; {
		port++
	}
	return port
}

// numbered reports whether a disk has a number, or will have it.
func (ds *disks) numbered(n disk.Number) bool {
	_, taken := ds.find(func(d *drive) bool { return d.Number == n })
	return taken
}

// complete fills the defaults of a spec for the disk id and checks the rest.
func (ds *disks) complete(id uint64, d DiskSpec) (DiskSpec, error) {
	d.SectorSize = cmp.Or(d.SectorSize, 512)
	d.Serial = cmp.Or(d.Serial, fmt.Sprintf("SIM%08d", id))
	if d.NVMe != nil {
		if err := ds.completeNVMe(&d); err != nil {
			return d, err
		}
	}
	d.BusType = cmp.Or(d.BusType, win.BusTypeSAS)
	d.VendorID = cmp.Or(d.VendorID, "Msft")
	d.ProductID = cmp.Or(d.ProductID, "Virtual Disk")
	d.Revision = cmp.Or(d.Revision, "1.0")
	switch {
	case d.Number != nil && ds.numbered(*d.Number):
		return d, refuse(win.ErrorBusy, "another disk has the number %d", *d.Number)
	case d.Late < 0:
		return d, refuse(win.ErrorInvalidParameter, "it can't arrive %v late", d.Late)
	case d.SectorSize != 512 && d.SectorSize != 4096:
		return d, refuse(win.ErrorInvalidParameter, "the sector size is %d bytes; it must be 512 or 4096", d.SectorSize)
	case d.SizeBytes < minDiskSize || d.SizeBytes%int64(d.SectorSize) != 0:
		return d, refuse(win.ErrorInvalidParameter, "the size is %d bytes; it must be at least 1 MiB, in whole sectors of %d bytes",
			d.SizeBytes, d.SectorSize)
	}
	if d.Page83 == nil {
		sum := sha256.Sum256([]byte(d.Serial))
		naa := append([]byte{0x60, 0x02, 0x24, 0x80}, sum[:12]...) // NAA 6 with Microsoft's company id
		d.Page83 = []win.Identifier{{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA, ID: naa}}
	}
	if d.SCSI != nil {
		d.SCSI = new(*d.SCSI)
	} else {
		d.SCSI = &win.SCSIAddress{PortNumber: 1}
		for ds.taken(*d.SCSI) && *d.SCSI != (win.SCSIAddress{PortNumber: 1, TargetID: 255, LUN: 255}) {
			if d.SCSI.LUN++; d.SCSI.LUN == 0 {
				d.SCSI.TargetID++
			}
		}
	}
	if ds.taken(*d.SCSI) {
		return d, refuse(win.ErrorBusy, "another disk has the SCSI address %d:%d:%d:%d",
			d.SCSI.PortNumber, d.SCSI.PathID, d.SCSI.TargetID, d.SCSI.LUN)
	}
	if d.Location == "" {
		d.Location = fmt.Sprintf("Integrated : Adapter %d : Port %d : Target %d : LUN %d",
			d.SCSI.PortNumber, d.SCSI.PathID, d.SCSI.TargetID, d.SCSI.LUN)
	}
	return d, nil
}

// DiskState is where a disk is on its way into the node.
type DiskState string

// Disk states.
const (
	DiskDetached DiskState = "detached" // not in the node; its data are kept
	DiskAttached DiskState = "attached" // but not seen by Windows yet
	DiskPresent  DiskState = "present"
)

// drive is one disk with everything that lies on it.
type drive struct {
	id uint64 // never given twice
	diskRecord
	changed bool // the record, since the last commit
	fresh   bool // it has arrived, and nobody has changed its attributes since

	image   *sparse.Image
	trees   map[uint64]*tree // file systems by serial
	dropped []uint64         // serials of trees that are gone, since the last commit

	mark func() // puts the disk on the list for the next commit
	path string // interfacePath, once it was asked for
}

// diskRecord is what the state file has of a disk apart from its contents.
type diskRecord struct {
	Spec   DiskSpec // complete
	System bool     // Windows runs from it
	Target string   `json:",omitempty"` // IQN of the iSCSI target whose LUN it is
	State  DiskState
	// Number is the disk number, win.NoNumber while there is none.
	Number   disk.Number
	Arriving bool // attached and seen by the adapter; its interface comes
	// Size is the capacity in bytes; Seen the one that the disk driver has read.
	Size, Seen int64
	Attributes win.DiskAttributes
	Persistent win.DiskAttributes // what Attributes are after a restart
	// OfflineReason is why it is offline, if it is.
	OfflineReason win.OfflineReason `json:",omitempty"`
}

func (d *drive) present() bool { return d.State == DiskPresent }

func (d *drive) is(a win.DiskAttributes) bool { return d.Attributes&a != 0 }

// writable reports whether Windows writes to the disk.
func (d *drive) writable() bool { return !d.is(win.DiskOffline | win.DiskReadOnly) }

func (d *drive) sector() int64 { return int64(d.Spec.SectorSize) }

// media is the disk as the disk driver sees it.
func (d *drive) media() gpt.Disk {
	return gpt.Disk{Image: d.image, Size: d.Seen, SectorSize: d.sector()}
}

// object names the disk for hooks and rules.
func (d *drive) object() string {
	if d.Number == win.NoNumber {
		return d.interfacePath()
	}
	return fmt.Sprintf(`\\.\PhysicalDrive%d %s`, d.Number, d.interfacePath())
}

// interfacePath is the device interface of the disk. The last part of the
// instance holds path, target and LUN, as Windows writes them.
func (d *drive) interfacePath() string {
	if d.path != "" {
		return d.path
	}
	a := d.Spec.SCSI
	d.path = fmt.Sprintf(`\\?\scsi#disk&ven_%s&prod_%s#5&%08x&%x&%02x%02x%02x#{%s}`,
		idPart(d.Spec.VendorID), idPart(d.Spec.ProductID), d.id, a.PortNumber, a.PathID, a.TargetID, a.LUN, win.InterfaceClassDisk)
	return d.path
}

// diskOfInterface reads the id of the disk in a path that interfacePath may have made.
func diskOfInterface(path string) (id uint64, ok bool) {
	parts := strings.Split(path, "#")
	if len(parts) != 4 || !strings.EqualFold(parts[0], `\\?\scsi`) {
		return 0, false
	}
	instance := strings.Split(parts[2], "&")
	if len(instance) < 2 {
		return 0, false
	}
	id, err := strconv.ParseUint(instance[1], 16, 64)
	return id, err == nil
}

// instance names the device instance: what is attached in the same place, and says that it
// is the same product, is the same instance.
func (d *drive) instance() string {
	a := d.Spec.SCSI
	return fmt.Sprintf(`SCSI\Disk&Ven_%s&Prod_%s\%02x%02x%02x%02x`,
		idPart(d.Spec.VendorID), idPart(d.Spec.ProductID), a.PortNumber, a.PathID, a.TargetID, a.LUN)
}

// touch says that the record has changed.
func (d *drive) touch() {
	d.changed = true
	d.mark()
}

// portInterface is the interface of the storage adapter with a SCSI port number.
func portInterface(port byte) string {
	return fmt.Sprintf(`\\?\root#storage&port#%04d#{%s}`, port, win.InterfaceClassStoragePort)
}

// idPart spells a text as a part of a device instance id.
func idPart(s string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(s))
}

// compareAddress orders disks by their SCSI addresses.
func (d *drive) compareAddress(o *drive) int {
	a, b := d.Spec.SCSI, o.Spec.SCSI
	return cmp.Or(
		cmp.Compare(a.PortNumber, b.PortNumber), cmp.Compare(a.PathID, b.PathID),
		cmp.Compare(a.TargetID, b.TargetID), cmp.Compare(a.LUN, b.LUN),
	)
}

// disks are all disks of the node, also the detached ones.
type disks struct {
	byID map[uint64]*drive
	list []*drive // in the order of their ids
	next uint64   // id
	// unused is a number that no disk has had since the node started, as all above it.
	unused disk.Number
	// dirty are the disks that have changes for the next commit, so that a call
	// doesn't cost more on a node with more disks.
	dirty map[*drive]struct{}
	gone  []uint64 // ids of disks that were removed, since the last commit
}

// add makes a disk, which has a greater id than all before, one of the node's.
func (ds *disks) add(d *drive) {
	ds.byID[d.id] = d
	ds.list = append(ds.list, d)
	d.mark = func() { ds.dirty[d] = struct{}{} }
	d.image.OnChange = d.mark
	if d.changed {
		d.mark()
	}
}

// remove makes a disk, which is detached, no longer one of the node's.
func (ds *disks) remove(d *drive) {
	delete(ds.byID, d.id)
	ds.list = slices.DeleteFunc(ds.list, func(o *drive) bool { return o == d })
	delete(ds.dirty, d)
	ds.gone = append(ds.gone, d.id)
}

// all gives the disks in the order of their ids.
func (ds *disks) all() iter.Seq[*drive] {
	return func(yield func(*drive) bool) {
		for _, d := range ds.list {
			if !yield(d) {
				return
			}
		}
	}
}

// find returns the first disk for which f holds.
func (ds *disks) find(f func(*drive) bool) (*drive, bool) {
	for d := range ds.all() {
		if f(d) {
			return d, true
		}
	}
	return nil, false
}

// freeNumber is the number of the next disk: the lowest one that is free, or a fresh one,
// which no disk has had.
func (ds *disks) freeNumber(fresh bool) disk.Number {
	n := disk.Number(0)
	if fresh {
		n = ds.unused
	}
	for ; ; n++ {
		// A disk on its way in has its number already.
		if !ds.numbered(n) {
			ds.unused = max(ds.unused, n+1)
			return n
		}
	}
}

// taken reports whether an attached disk has a SCSI address.
func (ds *disks) taken(a win.SCSIAddress) bool {
	_, taken := ds.find(func(d *drive) bool { return d.State != DiskDetached && *d.Spec.SCSI == a })
	return taken
}

// ports lists the port numbers of the storage adapters: those of the system disk
// and of attached data disks are always there.
func (ds *disks) ports() []byte {
	ports := []byte{0, 1}
	for d := range ds.all() {
		if d.State != DiskDetached {
			ports = append(ports, d.Spec.SCSI.PortNumber)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func newDisk(id uint64, spec DiskSpec) *drive {
	d := &drive{
		id: id,
		diskRecord: diskRecord{
			Spec: spec, State: DiskDetached, Number: win.NoNumber, Size: spec.SizeBytes,
		},
		changed: true,
		image:   sparse.New(spec.SizeBytes),
		trees:   map[uint64]*tree{},
	}
	if spec.Offline {
		d.OfflineReason = win.OfflinePolicy
	}
	d.Persistent = spec.attributes()
	d.Attributes = d.Persistent
	return d
}

// attributes are those with which the disk arrives for the first time.
func (d DiskSpec) attributes() (a win.DiskAttributes) {
	if d.Offline {
		a |= win.DiskOffline
	}
	if d.ReadOnly {
		a |= win.DiskReadOnly
	}
	return a
}
