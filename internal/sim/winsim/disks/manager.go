// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package disks is the storage hardware of a simulated node, and Windows' disk driver and
// partition manager: disks on storage adapters with their identifiers, and partition tables
// that are read from and written to the bytes of the disks.
//
// It does no locking: the owner holds one lock around every call, and around what it
// runs later.
package disks

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Config is how a node's disks are set up.
type Config struct {
	Settings *settings.Settings // which may change
	// DiskArrival and VolumeArrival are how long a disk and its volumes take to arrive.
	DiskArrival, VolumeArrival time.Duration
}

// Node is what the disks need of the node that they are on.
type Node interface {
	// Later runs f after d, under the lock, unless the node is closed before.
	Later(d time.Duration, f func())
	// Notify is told that an interface of a class came or went.
	Notify(class winid.GUID)
	// KeptChanged is told that what is in Kept has changed.
	KeptChanged()
	// DiskGone is told that Windows has lost a disk: what is open on it dies.
	DiskGone(d *Disk)
}

// Volumes are what lies on the disks.
type Volumes interface {
	// Scan is told that the partition table or the state of a disk may have changed.
	Scan(d *Disk)
	// HasLocked reports whether a handle has locked a volume of a disk.
	HasLocked(d *Disk) bool
	// Copy is told that a new disk has the bytes of another one. It copies what the bytes only
	// stand for.
	Copy(from, to *Disk) error
	// Pack returns what lies on a disk that leaves the node, as far as it outlasts that; Unpack
	// puts it on the new disk of another node that has its bytes.
	Pack(d *Disk) ([]byte, error)
	Unpack(d *Disk, packed []byte) error
	// Forget is told that a disk has been deleted, or has left.
	Forget(d *Disk)
}

// Kept is what the state file has of the disks together.
type Kept struct {
	NextDisk uint64 // id
	// Instances are the attributes that were persisted with Settings.AttributesOfInstance,
	// by device instance.
	Instances map[string]win.DiskAttributes `json:",omitempty"`
}

// Manager has all disks of the node, also the detached ones.
type Manager struct {
	Kept
	Volumes Volumes // must be set before there is a disk

	config Config
	node   Node
	byID   map[uint64]*Disk
	list   []*Disk // in the order of their ids
	// unused is a number that no disk has had since the node started, as all above it.
	unused csiproxy.DiskNumber
	// dirty are the disks that have changes for the next commit, so that a call
	// doesn't cost more on a node with more disks.
	dirty map[*Disk]struct{}
	gone  []uint64 // ids of disks that were removed, since the last commit
}

// New returns a manager without disks.
func New(config Config, node Node) *Manager {
	return &Manager{config: config, node: node, byID: map[uint64]*Disk{}, dirty: map[*Disk]struct{}{}}
}

// add makes a disk, which has a greater id than all before, one of the node's.
func (m *Manager) add(d *Disk) {
	m.byID[d.ID] = d
	m.list = append(m.list, d)
	d.mark = func() { m.dirty[d] = struct{}{} }
	d.Image.OnChange = func() {
		d.read = nil
		d.mark()
	}
	if d.changed {
		d.mark()
	}
}

// remove makes a disk, which is detached, no longer one of the node's.
func (m *Manager) remove(d *Disk) {
	delete(m.byID, d.ID)
	m.list = slices.DeleteFunc(m.list, func(o *Disk) bool { return o == d })
	delete(m.dirty, d)
	m.gone = append(m.gone, d.ID)
	m.Volumes.Forget(d)
}

// All gives the disks in the order of their ids.
func (m *Manager) All() iter.Seq[*Disk] { return slices.Values(m.list) }

// Find returns the first disk for which f holds.
func (m *Manager) Find(f func(*Disk) bool) (*Disk, bool) {
	for d := range m.All() {
		if f(d) {
			return d, true
		}
	}
	return nil, false
}

// freeNumber is the number of the next disk: the lowest one that is free, or a fresh one,
// which no disk has had.
func (m *Manager) freeNumber(fresh bool) csiproxy.DiskNumber {
	n := csiproxy.DiskNumber(0)
	if fresh {
		n = m.unused
	}
	taken := map[csiproxy.DiskNumber]bool{} // a disk on its way in has its number already
	for d := range m.All() {
		taken[d.Number] = true
	}
	for taken[n] {
		n++
	}
	m.unused = max(m.unused, n+1)
	return n
}

// addresses are the SCSI addresses of the attached disks.
func (m *Manager) addresses() map[win.SCSIAddress]bool {
	taken := make(map[win.SCSIAddress]bool)
	for d := range m.All() {
		if d.State != Detached {
			taken[*d.Spec.SCSI] = true
		}
	}
	return taken
}

// Ports lists the port numbers of the storage adapters: those of the system disk
// and of attached data disks are always there.
func (m *Manager) Ports() []byte {
	ports := []byte{0, 1}
	for d := range m.All() {
		if d.State != Detached {
			ports = append(ports, d.Spec.SCSI.PortNumber)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// numbered reports whether a disk has a number, or will have it.
func (m *Manager) numbered(n csiproxy.DiskNumber) bool {
	_, taken := m.Find(func(d *Disk) bool { return d.Number == n })
	return taken
}

// ByPath finds a present disk by \\.\PhysicalDriveN or its interface path.
func (m *Manager) ByPath(path string) (*Disk, bool) {
	if number, numbered := physicalDrive(path); numbered {
		return m.Find(func(d *Disk) bool { return d.Present() && d.Number == number })
	}
	id, ok := diskOfInterface(path)
	d := m.byID[id]
	return d, ok && d != nil && d.Present() && strings.EqualFold(d.InterfacePath(), path)
}

// physicalDrive reads \\.\PhysicalDriveN.
func physicalDrive(path string) (number csiproxy.DiskNumber, ok bool) {
	const prefix = "PhysicalDrive"
	name, ok := strings.CutPrefix(path, `\\.\`)
	if !ok {
		name, ok = strings.CutPrefix(path, `\\?\`)
	}
	if !ok || len(name) <= len(prefix) || !strings.EqualFold(name[:len(prefix)], prefix) {
		return 0, false
	}
	digits := name[len(prefix):]
	n, err := strconv.ParseUint(digits, 10, 32)
	return csiproxy.DiskNumber(n), err == nil && n != win.NoNumber && digits == strconv.FormatUint(n, 10)
}

// Dotted gives a device path the prefix \\.\, which means the same as \\?\.
func Dotted(path string) string {
	if rest, ok := strings.CutPrefix(path, `\\?\`); ok {
		return `\\.\` + rest
	}
	return path
}

// diskOfInterface reads the id of the disk in a path that InterfacePath may have made.
func diskOfInterface(path string) (id uint64, ok bool) {
	_, path, _ = strings.Cut(path, "#") // after \\?\scsi
	_, path, _ = strings.Cut(path, "#") // after the device
	_, path, _ = strings.Cut(path, "&")
	digits, _, ok := strings.Cut(path, "&")
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return id, err == nil
}

// System is the disk that Windows runs from.
func (m *Manager) System() (*Disk, bool) { return m.Find(func(d *Disk) bool { return d.System }) }

// Reenumerate is what CM_Reenumerate_DevNode(SYNCHRONOUS) does to the device behind an
// interface, or to the root with "": adapters find disks that need it, and disks read their
// capacity again.
func (m *Manager) Reenumerate(interfacePath string) error {
	below := func(d *Disk) bool {
		return interfacePath == "" || strings.EqualFold(interfacePath, d.InterfacePath()) ||
			strings.EqualFold(interfacePath, PortInterface(d.Spec.SCSI.PortNumber))
	}
	isPort := slices.ContainsFunc(m.Ports(), func(port byte) bool {
		return strings.EqualFold(interfacePath, PortInterface(port))
	})
	if _, isDisk := m.ByPath(interfacePath); interfacePath != "" && !isPort && !isDisk {
		return winerr.ErrorNotFound
	}
	for d := range m.All() {
		switch {
		case !below(d):
		case d.State == Attached && !d.Arriving:
			m.arrivesLater(d, true)
		case d.Present() && d.Seen != d.Size && !m.config.Settings.GrownUnseen:
			d.Seen = d.Size
			d.touch()
		}
	}
	return nil
}
