// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"cmp"
	"fmt"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/gpt"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/sparse"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/simnode/hardware"
)

// State is where a disk is on its way into the node.
type State string

// Disk states.
const (
	Detached State = "detached" // not in the node; its data are kept
	Attached State = "attached" // but not seen by Windows yet
	Present  State = "present"
)

// Disk is one disk with its bytes.
type Disk struct {
	ID uint64 // never given twice
	Record
	Image *sparse.Image // its bytes

	changed  bool   // the record, since the last commit
	fresh    bool   // it has arrived, and nobody has changed its attributes since
	justCame bool   // for settings.RefusedFor
	mark     func() // puts the disk on the list for the next commit
	path     string // InterfacePath, once it was asked for

	read     *win.DriveLayout // Layout, as it was read since the last write
	readSize int64            // Seen at that time
}

// Record is what the state file has of a disk apart from its contents, and what the control calls
// say of it.
type Record struct {
	Spec   hardware.Disk // complete
	System bool          // Windows runs from it
	Target string        `json:",omitempty"` // IQN of the iSCSI target whose LUN it is
	State  State
	// Number is the disk number, win.NoNumber while there is none.
	Number   csiproxy.DiskNumber
	Arriving bool // attached and seen by the adapter; its interface comes
	// Size is the capacity in bytes; Seen the one that the disk driver has read.
	Size, Seen int64
	Attributes win.DiskAttributes
	Persistent win.DiskAttributes // what Attributes are after a restart
	// MountedReadOnly: its file systems were mounted when it was read-only, and still are so.
	MountedReadOnly bool `json:",omitempty"`
	// OfflineReason is why it is offline, if it is.
	OfflineReason win.OfflineReason `json:",omitempty"`
}

// Present reports whether Windows sees the disk.
func (d *Disk) Present() bool { return d.State == Present }

// Is reports whether the disk has one of the attributes.
func (d *Disk) Is(a win.DiskAttributes) bool { return d.Attributes&a != 0 }

// Writable reports whether Windows writes to the disk.
func (d *Disk) Writable() bool { return !d.Is(win.DiskOffline | win.DiskReadOnly) }

// SectorSize is the size of a logical sector in bytes.
func (d *Disk) SectorSize() int64 { return int64(d.Spec.SectorSize) }

// media is the disk as the disk driver sees it.
func (d *Disk) media() gpt.Disk {
	return gpt.Disk{Image: d.Image, Size: d.Seen, SectorSize: d.SectorSize()}
}

// Object names the disk for hooks and rules.
func (d *Disk) Object() string {
	if d.Number == win.NoNumber {
		return d.InterfacePath()
	}
	return win.PhysicalDrive(d.Number) + " " + d.InterfacePath()
}

// InterfacePath is the device interface of the disk. The last part of the
// instance holds path, target and LUN, as Windows writes them.
func (d *Disk) InterfacePath() string {
	if d.path != "" {
		return d.path
	}
	a := d.Spec.SCSI
	d.path = fmt.Sprintf(`\\?\scsi#disk&ven_%s&prod_%s#5&%08x&%x&%02x%02x%02x#{%s}`,
		idPart(d.Spec.VendorID), idPart(d.Spec.ProductID), d.ID, a.PortNumber, a.PathID, a.TargetID, a.LUN,
		win.InterfaceClassDisk)
	return d.path
}

// instance names the device instance: what is attached in the same place, and says that it
// is the same product, is the same instance.
func (d *Disk) instance() string {
	a := d.Spec.SCSI
	return fmt.Sprintf(`SCSI\Disk&Ven_%s&Prod_%s\%02x%02x%02x%02x`,
		idPart(d.Spec.VendorID), idPart(d.Spec.ProductID), a.PortNumber, a.PathID, a.TargetID, a.LUN)
}

// touch says that the record has changed.
func (d *Disk) touch() {
	d.changed = true
	d.mark()
}

// PortInterface is the interface of the storage adapter with a SCSI port number.
func PortInterface(port byte) string {
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
func (d *Disk) compareAddress(o *Disk) int {
	a, b := d.Spec.SCSI, o.Spec.SCSI
	return cmp.Or(
		cmp.Compare(a.PortNumber, b.PortNumber), cmp.Compare(a.PathID, b.PathID),
		cmp.Compare(a.TargetID, b.TargetID), cmp.Compare(a.LUN, b.LUN),
	)
}

func newDisk(id uint64, spec hardware.Disk) *Disk {
	d := &Disk{
		ID: id,
		Record: Record{
			Spec: spec, State: Detached, Number: win.NoNumber, Size: spec.SizeBytes,
		},
		changed: true,
		Image:   sparse.New(spec.SizeBytes),
	}
	if spec.Offline {
		d.OfflineReason = win.OfflinePolicy
	}
	d.Persistent = attributes(spec)
	d.Attributes = d.Persistent
	return d
}
