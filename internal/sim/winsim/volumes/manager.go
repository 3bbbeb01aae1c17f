// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumes is Windows' volume manager and mount manager on a simulated node: volumes
// that come and go with the partitions of its disks, what they are formatted with, and the
// memory of their names, drive letters and mount points.
//
// It does no locking: the owner holds one lock around every call, and around what it
// runs later.
package volumes

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Config is how a node's volumes are set up.
type Config struct {
	Settings *settings.Settings // which may change
	Disks    *disks.Manager
	Arrival  time.Duration // how long a volume takes to arrive
}

// Node is what the volumes need of the node that they are on.
type Node interface {
	// Later runs f after d, under the lock, unless the node is closed before.
	Later(d time.Duration, f func())
	// Notify is told that an interface of a class came or went.
	Notify(class winid.GUID)
	// InUse reports whether something of a volume, other than a handle, is open that keeps
	// others from having it for themselves: any file, or the volume for reading or writing.
	InUse(v *Volume, besides Handle) bool
	// Kill makes what is open on a volume give an error from now on: any file and, unless it
	// is to be only these, the volume.
	Kill(v *Volume, onlyFiles bool, e winerr.Errno)
}

// Manager is the volume manager, and the mount manager's memory.
type Manager struct {
	config Config
	node   Node

	known    map[string]*Record
	changed  map[string]struct{}    // records, since the last commit
	present  []*Volume              // in the order of their arrival
	byID     map[winid.GUID]*Volume // the same
	devices  uint32                 // how many were given a device since the node was opened
	arriving map[string]struct{}

	mounts        map[string]mount    // by key
	mountsChanged map[string]struct{} // keys, since the last Save

	stores  map[*disks.Disk]*store
	dirty   map[*store]struct{} // have changes for the next Save
	deleted []uint64            // ids of disks, since the last Save
}

// New returns a manager without volumes.
func New(config Config, node Node) *Manager {
	return &Manager{
		config: config, node: node, known: map[string]*Record{}, changed: map[string]struct{}{},
		byID: map[winid.GUID]*Volume{}, arriving: map[string]struct{}{},
		mounts: map[string]mount{}, mountsChanged: map[string]struct{}{},
		stores: map[*disks.Disk]*store{}, dirty: map[*store]struct{}{},
	}
}

func (m *Manager) touch(unique string) { m.changed[unique] = struct{}{} }

// record returns the record of a partition, and makes it for a new one.
func (m *Manager) record(unique string) *Record {
	r, ok := m.known[unique]
	if !ok {
		r = &Record{GUID: winid.NewGUID()}
		m.known[unique] = r
		m.touch(unique)
	}
	return r
}

// All are the volumes that are present, in the order of their arrival. The caller must not
// change the slice.
func (m *Manager) All() []*Volume { return m.present }

// Find returns the first present volume for which f holds.
func (m *Manager) Find(f func(*Volume) bool) (*Volume, bool) {
	if i := slices.IndexFunc(m.present, f); i >= 0 {
		return m.present[i], true
	}
	return nil, false
}

// WithID returns the present volume \\?\Volume{id}\.
func (m *Manager) WithID(id winid.GUID) (*Volume, bool) {
	v, ok := m.byID[id]
	return v, ok
}

// WithLetter returns the present volume with a drive letter.
func (m *Manager) WithLetter(letter string) (*Volume, bool) {
	return m.Find(func(v *Volume) bool { return v.Letter != "" && strings.EqualFold(v.Letter, letter) })
}

// SetLetter gives the volume a drive letter or, with "", takes it away.
func (m *Manager) SetLetter(v *Volume, letter string) {
	v.Letter = letter
	m.touch(v.Unique)
}

// freeLetter is the first letter that no volume has, present or not.
//
// Guess: automatic mounting begins at D: and leaves out the letters of volumes that aren't
// there.
func (m *Manager) freeLetter() string {
	for letter := 'D'; letter <= 'Z'; letter++ {
		taken := slices.ContainsFunc(slices.Collect(maps.Values(m.known)), func(r *Record) bool {
			return r.Letter == string(letter)
		})
		if !taken {
			return string(letter)
		}
	}
	return ""
}

// Scan makes the volumes of d agree with its partition table and state:
// those of vanished partitions go at once, those of new ones arrive later.
func (m *Manager) Scan(d *disks.Disk) {
	parts := d.DataPartitions()
	for _, v := range slices.Clone(m.present) {
		if v.Disk != d {
			continue
		}
		i := slices.IndexFunc(parts, func(p disks.DataPartition) bool { return p.Unique == v.Unique })
		if i < 0 {
			m.remove(v)
			continue
		}
		v.DataPartition = parts[i]
	}
	for _, p := range parts {
		_, present := m.Find(func(v *Volume) bool { return v.Unique == p.Unique })
		_, arriving := m.arriving[p.Unique]
		if present || arriving {
			continue
		}
		m.arriving[p.Unique] = struct{}{}
		m.node.Later(m.config.Arrival, func() { m.arrives(d, p.Unique) })
	}
}

// AreReady reports whether all volumes of a disk have arrived.
func (m *Manager) AreReady(d *disks.Disk) bool {
	return !slices.ContainsFunc(d.DataPartitions(), func(p disks.DataPartition) bool {
		_, isArriving := m.arriving[p.Unique]
		return isArriving
	})
}

// arrives brings in the volume of a partition of d, if it is still there.
func (m *Manager) arrives(d *disks.Disk, unique string) {
	delete(m.arriving, unique)
	parts := d.DataPartitions()
	i := slices.IndexFunc(parts, func(p disks.DataPartition) bool { return p.Unique == unique })
	if _, present := m.Find(func(v *Volume) bool { return v.Unique == unique }); i < 0 || present {
		return
	}
	v := m.add(d, parts[i])
	if automount := !m.config.Settings.NoAutomount; automount && v.Letter == "" && !parts[i].NoDrive {
		m.SetLetter(v, m.freeLetter())
	}
	if m.config.Settings.NamedBeforeOnline {
		v.comesOnline = true
		m.node.Later(named, func() { v.comesOnline = false })
	}
	if m.config.Settings.LateStorageManagement {
		v.unmanaged = true
		m.node.Later(managed, func() { v.unmanaged = false })
	}
	if m.config.Settings.RefusedAtFirst != 0 {
		v.JustCame = true
		m.node.Later(settings.RefusedFor, func() { v.JustCame = false })
	}
}

// named is how long after its name a volume comes online, if it does so later.
const named = 500 * time.Millisecond

// managed is how long after a volume storage management learns of it, if it does so late.
const managed = 2 * time.Second

func (m *Manager) add(d *disks.Disk, p disks.DataPartition) *Volume {
	_, known := m.known[p.Unique]
	m.devices++
	v := &Volume{Record: m.record(p.Unique), DataPartition: p, Disk: d, stored: m.store(d), ntDevice: 1 + m.devices}
	if !known && m.config.Settings.NoAutomount {
		v.Offline = true
	}
	if !v.Present {
		v.Present = true
		m.touch(v.Unique)
	}
	m.present, m.byID[v.GUID] = append(m.present, v), v
	m.node.Notify(win.InterfaceClassVolume)
	return v
}

// remove takes a volume off the node: its open files die, its names stay in
// the mount manager's memory.
func (m *Manager) remove(v *Volume) {
	m.present = slices.DeleteFunc(m.present, func(o *Volume) bool { return o == v })
	delete(m.byID, v.GUID)
	v.Present = false
	m.touch(v.Unique)
	m.node.Kill(v, false, m.config.Settings.GoneError())
	m.node.Notify(win.InterfaceClassVolume)
}

// Resume brings in the volumes of a disk that were there when the state file was written.
func (m *Manager) Resume(d *disks.Disk) {
	for _, p := range d.DataPartitions() {
		if r, ok := m.known[p.Unique]; ok && r.Present {
			m.add(d, p)
		}
	}
}

// Boot brings in the volumes of a disk when Windows starts.
func (m *Manager) Boot(d *disks.Disk) {
	for _, p := range d.DataPartitions() {
		m.arrives(d, p.Unique)
	}
}

// End takes all volumes off the node, which ends. With a loss of power, what wasn't flushed
// is lost.
func (m *Manager) End(powerLoss bool) {
	for _, v := range slices.Clone(m.present) {
		m.remove(v)
	}
	for _, st := range m.stores {
		for _, t := range st.trees {
			if powerLoss {
				t.fs.DropUnflushed()
			} else {
				t.fs.Flush()
			}
		}
	}
}

// ByPath finds a present volume by its name without a backslash at the end, its drive
// letter, its interface path or its device.
func (m *Manager) ByPath(path string) (*Volume, error) {
	if v, ok := m.byDevice(path); ok {
		return v, nil
	}
	if id, ok := parseVolumeInterface(path); ok {
		if v, ok := m.WithID(id); ok && strings.EqualFold(path, v.InterfacePath()) {
			return v, nil
		}
		return nil, winerr.ErrorFileNotFound
	}
	dotted := disks.Dotted(path)
	if id, rest, ok := ParseName(`\\?\` + strings.TrimPrefix(dotted, `\\.\`)); ok {
		v, present := m.WithID(id)
		switch {
		case rest == "" && present:
			return v, nil
		case rest != "" && present:
			return nil, winerr.ErrorAccessDenied // the root directory: not without FILE_FLAG_BACKUP_SEMANTICS
		case rest != "":
			return nil, winerr.ErrorPathNotFound
		}
		return nil, winerr.ErrorFileNotFound
	}
	if letter, ok := strings.CutPrefix(dotted, `\\.\`); ok && len(letter) == 2 && letter[1] == ':' {
		if v, ok := m.WithLetter(letter[:1]); ok {
			return v, nil
		}
	}
	return nil, winerr.ErrorFileNotFound
}

// byDevice finds \\?\GLOBALROOT\Device\HarddiskVolumeN. 1 is the EFI system partition of
// the system disk, which isn't among the volumes. Those have the numbers after it, in the
// order of their arrival since the node was opened.
func (m *Manager) byDevice(path string) (*Volume, bool) {
	const prefix = `\\?\GLOBALROOT\Device\HarddiskVolume`
	if len(path) <= len(prefix) || !strings.EqualFold(path[:len(prefix)], prefix) {
		return nil, false
	}
	n, err := strconv.ParseUint(path[len(prefix):], 10, 32)
	if err != nil || n == 0 {
		return nil, false
	}
	if n > 1 {
		return m.Find(func(v *Volume) bool { return v.ntDevice == uint32(n) })
	}
	d, ok := m.config.Disks.System()
	if !ok {
		return nil, false
	}
	for _, p := range d.Layout().Partitions {
		if p.Type == win.PartitionTypeEFISystem {
			part := disks.DataPartition{Number: p.Number, Offset: p.StartingOffset, Length: p.Length}
			return &Volume{Record: &Record{}, DataPartition: part, Disk: d}, true
		}
	}
	return nil, false
}
