// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// volume is the volume of a data partition, while its disk is online.
type volume struct {
	*volumeRecord
	unique   string // key of the record
	disk     *drive
	number   uint32 // of the partition
	offset   int64  // bytes from the start of the disk
	length   int64
	readOnly bool    // by an attribute of the partition
	lock     *handle // which has locked it
	// dismounted is the handle that has dismounted its file system, until it is closed.
	dismounted *handle
	// ntDevice is the N of \Device\HarddiskVolumeN.
	ntDevice uint32
}

// volumeRecord is what the mount manager remembers of a partition: also while the
// partition isn't there.
type volumeRecord struct {
	GUID    win.GUID // of \\?\Volume{…}\
	Letter  string   // drive letter, "C", or ""
	Present bool     // the volume has arrived
	Offline bool     // it waits for IOCTL_VOLUME_ONLINE
	// Unmounted is set while it is offline because it was never seen before and automatic
	// mounting is off, and nobody has taken it offline since.
	Unmounted bool `json:",omitempty"`
	Locked    bool // by BitLocker
	// Extra are the extents of a dynamic volume beyond its partition.
	Extra []win.DiskExtent `json:",omitempty"`
}

// device is the name of the volume without the backslash at its end.
func (v *volume) device() string { return volumeDevice(v.GUID) }

func volumeDevice(id win.GUID) string { return `\\?\Volume{` + id.String() + `}` }

// name is the name of the volume: \\?\Volume{guid}\.
func (v *volume) name() string { return v.device() + `\` }

// interfacePath is the device interface of the volume.
func (v *volume) interfacePath() string {
	return fmt.Sprintf(`\\?\storage#volume#{%s}#%016x#{%s}`, v.GUID, v.offset, win.InterfaceClassVolume)
}

// parseVolumeName reads \\?\Volume{guid} and what follows it, which is empty or
// begins with a backslash.
func parseVolumeName(s string) (id win.GUID, rest string, ok bool) {
	const prefix, guidLen = `\\?\Volume{`, 36
	if len(s) < len(prefix)+guidLen+1 || !strings.EqualFold(s[:len(prefix)], prefix) || s[len(prefix)+guidLen] != '}' {
		return id, "", false
	}
	id, ok = win.ParseGUID(s[len(prefix) : len(prefix)+guidLen])
	rest = s[len(prefix)+guidLen+1:]
	return id, rest, ok && (rest == "" || rest[0] == '\\')
}

// parseVolumeInterface reads the id in a path that interfacePath may have made.
func parseVolumeInterface(s string) (id win.GUID, ok bool) {
	const prefix, guidLen = `\\?\storage#volume#{`, 36
	if len(s) < len(prefix)+guidLen || !strings.EqualFold(s[:len(prefix)], prefix) {
		return id, false
	}
	return win.ParseGUID(s[len(prefix) : len(prefix)+guidLen])
}

// volumes are the volume manager and the mount manager's memory of volumes.
type volumes struct {
	known    map[string]*volumeRecord
	changed  map[string]struct{}  // records, since the last commit
	present  []*volume            // in the order of their arrival
	byID     map[win.GUID]*volume // the same
	devices  uint32               // how many were given a device since the node was opened
	arriving map[string]struct{}
}

func (vs *volumes) touch(unique string) { vs.changed[unique] = struct{}{} }

// record returns the record of a partition, and makes it for a new one.
func (vs *volumes) record(unique string) *volumeRecord {
	r, ok := vs.known[unique]
	if !ok {
		r = &volumeRecord{GUID: win.NewGUID()}
		vs.known[unique] = r
		vs.touch(unique)
	}
	return r
}

func (vs *volumes) find(f func(*volume) bool) (*volume, bool) {
	if i := slices.IndexFunc(vs.present, f); i >= 0 {
		return vs.present[i], true
	}
	return nil, false
}

// withID returns the present volume \\?\Volume{id}\.
func (vs *volumes) withID(id win.GUID) (*volume, bool) {
	v, ok := vs.byID[id]
	return v, ok
}

// withLetter returns the present volume with a drive letter.
func (vs *volumes) withLetter(letter string) (*volume, bool) {
	return vs.find(func(v *volume) bool { return v.Letter != "" && strings.EqualFold(v.Letter, letter) })
}

// setLetter gives the volume a drive letter or, with "", takes it away.
func (vs *volumes) setLetter(v *volume, letter string) {
	v.Letter = letter
	vs.touch(v.unique)
}

// freeLetter is the first letter that no volume has, present or not.
//
// Guess: automatic mounting begins at D: and leaves out the letters of volumes that aren't
// there.
func (vs *volumes) freeLetter() string {
	for letter := 'D'; letter <= 'Z'; letter++ {
		taken := slices.ContainsFunc(slices.Collect(maps.Values(vs.known)), func(r *volumeRecord) bool { return r.Letter == string(letter) })
		if !taken {
			return string(letter)
		}
	}
	return ""
}

// scanVolumes makes the volumes of d agree with its partition table and state:
// those of vanished partitions go at once, those of new ones arrive later.
func (s *System) scanVolumes(d *drive) {
	parts := d.dataPartitions()
	for _, v := range slices.Clone(s.volumes.present) {
		if v.disk != d {
			continue
		}
		i := slices.IndexFunc(parts, func(p dataPartition) bool { return p.unique == v.unique })
		if i < 0 {
			s.removeVolume(v)
			continue
		}
		v.number, v.offset, v.length, v.readOnly = parts[i].number, parts[i].offset, parts[i].length, parts[i].readOnly
	}
	for _, p := range parts {
		_, present := s.volumes.find(func(v *volume) bool { return v.unique == p.unique })
		_, arriving := s.volumes.arriving[p.unique]
		if present || arriving {
			continue
		}
		s.volumes.arriving[p.unique] = struct{}{}
		s.later(s.gate.delays.VolumeArrival, func() { s.volumeArrives(d, p.unique) })
	}
}

// volumeArrives brings in the volume of a partition of d, if it is still there.
func (s *System) volumeArrives(d *drive, unique string) {
	delete(s.volumes.arriving, unique)
	parts := d.dataPartitions()
	i := slices.IndexFunc(parts, func(p dataPartition) bool { return p.unique == unique })
	if _, present := s.volumes.find(func(v *volume) bool { return v.unique == unique }); i < 0 || present {
		return
	}
	v := s.addVolume(d, parts[i])
	if automount := !s.node.Settings.NoAutomount; automount && v.Letter == "" && !parts[i].noDrive {
		s.volumes.setLetter(v, s.volumes.freeLetter())
	}
}

func (s *System) addVolume(d *drive, p dataPartition) *volume {
	_, known := s.volumes.known[p.unique]
	s.volumes.devices++
	v := &volume{ntDevice: 1 + s.volumes.devices, volumeRecord: s.volumes.record(p.unique), unique: p.unique, disk: d, number: p.number, offset: p.offset, length: p.length, readOnly: p.readOnly}
	if !known && s.node.Settings.NoAutomount {
		v.Offline, v.Unmounted = true, true
	}
	if !v.Present {
		v.Present = true
		s.volumes.touch(v.unique)
	}
	s.volumes.present, s.volumes.byID[v.GUID] = append(s.volumes.present, v), v
	s.notify(win.InterfaceClassVolume)
	return v
}

// removeVolume takes a volume off the node: its open files die, its names stay in
// the mount manager's memory.
func (s *System) removeVolume(v *volume) {
	s.volumes.present = slices.DeleteFunc(s.volumes.present, func(o *volume) bool { return o == v })
	delete(s.volumes.byID, v.GUID)
	v.Present = false
	s.volumes.touch(v.unique)
	s.handles.kill(s.goneDisk(), func(h *handle) bool { return h.on(v) })
	s.notify(win.InterfaceClassVolume)
}

// inUse reports whether something of the volume is open that keeps others from
// having it for themselves: any file, or the volume for reading or writing.
func (s *System) inUse(v *volume) bool { return s.inUseBesides(v, nil) }

// inUseBesides is inUse, but for a handle.
func (s *System) inUseBesides(v *volume, except *handle) bool {
	return s.handles.any(func(h *handle) bool {
		return h != except && h.on(v) && (h.file != nil || h.generic()&(win.GenericRead|win.GenericWrite) != 0)
	})
}
