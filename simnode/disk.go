// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode

import (
	"fmt"
	"math"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
)

// Disk is the hardware of a disk. Only SizeBytes must be set.
type Disk struct {
	SizeBytes  int64
	SectorSize int    // in bytes: 512, the default, or 4096
	Serial     string // default: a running number
	Page83     string // ASCII identifier of VPD page 0x83; default: a binary identifier
	// Adapter, Target and LUN are the SCSI address; default: the next free LUN
	// of adapter 1.
	Adapter, Target, LUN int
	// Offline and ReadOnly are the state in which the disk arrives, as under a SAN
	// policy.
	Offline, ReadOnly bool
	// NeedsRescan means that Windows sees the disk only after a Rescan.
	NeedsRescan bool
}

// AttachDisk attaches a disk. It returns the disk's number, which a disk that needs a
// rescan has as soon as Windows sees it. If d has the serial number of a detached disk,
// that disk is attached again, with its data.
func (n *Node) AttachDisk(d Disk) disk.Number {
	n.helper()
	n.must(d.check())
	number, err := n.sys.AttachDisk(d.spec())
	n.must(err)
	return number
}

// check refuses an address that SCSI doesn't have.
func (d Disk) check() error {
	for name, part := range map[string]int{"Adapter": d.Adapter, "Target": d.Target, "LUN": d.LUN} {
		if part < 0 || part > math.MaxUint8 {
			return fmt.Errorf("attach a disk: its %s is %d; it must be between 0 and %d", name, part, math.MaxUint8)
		}
	}
	return nil
}

func (d Disk) spec() winsim.DiskSpec {
	spec := winsim.DiskSpec{
		SizeBytes: d.SizeBytes, SectorSize: uint32(d.SectorSize), Serial: d.Serial,
		Offline: d.Offline, ReadOnly: d.ReadOnly, NeedsRescan: d.NeedsRescan,
	}
	if d.Page83 != "" {
		spec.Page83 = []win.Identifier{{CodeSet: win.CodeSetASCII, Type: 1, ID: []byte(d.Page83)}}
	}
	if d.Adapter != 0 || d.Target != 0 || d.LUN != 0 {
		spec.SCSI = &win.SCSIAddress{PortNumber: byte(d.Adapter), TargetID: byte(d.Target), LUN: byte(d.LUN)}
	}
	return spec
}

// DiskState says whether a disk is attached, and whether Windows sees it.
type DiskState string

// States of disks.
const (
	DiskDetached DiskState = "detached" // its data are kept
	DiskAttached DiskState = "attached" // Windows doesn't see it yet
	DiskPresent  DiskState = "present"  // Windows sees it
)

var diskStates = map[winsim.DiskState]DiskState{
	winsim.DiskDetached: DiskDetached,
	winsim.DiskAttached: DiskAttached,
	winsim.DiskPresent:  DiskPresent,
}

// DiskInfo is the state of a disk.
type DiskInfo struct {
	Number    disk.Number // unless State is DiskDetached; Windows knows it while it is DiskPresent
	State     DiskState
	Serial    string
	SizeBytes int64 // of the hardware; if it has grown, Windows may not know yet
	// Offline and ReadOnly are Windows' attributes.
	Offline, ReadOnly bool
}

// Disks returns all disks, in the order in which they were first attached. The first
// is the one that Windows runs from.
func (n *Node) Disks() []DiskInfo {
	var infos []DiskInfo
	for _, d := range n.sys.Disks() {
		infos = append(infos, DiskInfo{
			Number: d.Number, State: diskStates[d.State], Serial: d.Spec.Serial, SizeBytes: d.SizeBytes,
			Offline: d.Attributes&win.DiskOffline != 0, ReadOnly: d.Attributes&win.DiskReadOnly != 0,
		})
	}
	return infos
}

// SetDiskAttributes takes a disk offline or online and makes it read-only or writable,
// as an administrator does. The attributes survive a restart of the node, and a
// detach.
func (n *Node) SetDiskAttributes(number disk.Number, offline, readOnly bool) {
	n.helper()
	change := win.SetDiskAttributes{Persist: true, Mask: win.DiskOffline | win.DiskReadOnly}
	if offline {
		change.Attributes |= win.DiskOffline
	}
	if readOnly {
		change.Attributes |= win.DiskReadOnly
	}
	n.must(n.sys.SetDiskAttributes(number, change))
}

// DetachDisk detaches a disk without warning. Its data are kept: AttachDisk with its
// serial number attaches it again.
func (n *Node) DetachDisk(number disk.Number) {
	n.helper()
	n.must(n.sys.DetachDisk(number))
}

// DeleteDisk deletes a detached disk with its data. After that, AttachDisk with its
// serial number attaches a new disk.
func (n *Node) DeleteDisk(serial string) {
	n.helper()
	n.must(n.sys.DeleteDisk(serial))
}

// GrowDisk makes a disk larger. Windows sees it after a Rescan, or when a volume on
// it is resized.
func (n *Node) GrowDisk(number disk.Number, sizeBytes int64) {
	n.helper()
	n.must(n.sys.GrowDisk(number, sizeBytes))
}

// WriteDisk writes raw bytes to a disk, such as data of another system.
func (n *Node) WriteDisk(number disk.Number, data []byte, offset int64) {
	n.helper()
	n.must(n.sys.WriteImage(number, data, offset))
}

// ExportDisk writes a disk as a sparse raw image to a file, for tools such as
// sgdisk.
func (n *Node) ExportDisk(number disk.Number, file string) {
	n.helper()
	n.must(n.sys.ExportImage(number, file))
}
