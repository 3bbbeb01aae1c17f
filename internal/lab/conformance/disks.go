// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// disk is one that the caller allows to erase.
type disk struct {
	id         string // by which the caller names it
	number     string // decimal
	page83     string
	wasOffline bool // before the run
	volume     string
	state      diskState
}

// diskState is how far a disk has got: each check needs one in some state, and raw ones
// are used up.
type diskState int

const (
	raw diskState = iota
	partitioned
	formatted
)

// findDisks finds the disks that may be erased by their ids, and refuses what isn't
// exactly one disk, or is in use by kubelet.
func (s *session) findDisks(ctx context.Context) error {
	if len(s.Disks) == 0 {
		return nil
	}
	t := s.newTrial(ctx, selected{})
	var problem error
	outcome, why := t.guarded(func() {
		all := t.diskIDs()
		own := t.kubeletDisk()
		for _, id := range s.Disks {
			matches := slices.Collect(maps.Keys(all))
			matches = slices.DeleteFunc(matches, func(n string) bool { return all[n].serial != id && all[n].page83 != id })
			switch {
			case id == "" || len(matches) != 1:
				problem = fmt.Errorf("%d disks have the serial number or page 83 identifier %q: name exactly one", len(matches), id)
			case matches[0] == own:
				problem = fmt.Errorf("disk %s, which %q names, holds the kubelet directory: name another", own, id)
			case !s.Erase:
				problem = fmt.Errorf("disk %s, which %q names, would be erased: confirm that with --erase-disks", matches[0], id)
			default:
				s.disks = append(s.disks, &disk{id: id, number: matches[0], page83: all[matches[0]].page83})
				continue
			}
			return
		}
		for _, d := range s.disks {
			t.inspect(d)
		}
	})
	if outcome != Passed {
		return fmt.Errorf("find the disks that may be erased: %s", why)
	}
	return problem
}

// inspect brings a disk online and finds out what is on it.
func (t *trial) inspect(d *disk) {
	d.wasOffline = !t.do("GetDiskState", fields{"disk": d.number}).is("online")
	t.do("SetDiskState", fields{"disk": d.number, "online": true})
	a, err := t.call("ListVolumesOnDisk", fields{"disk": d.number})
	if err != nil || len(a.texts("volumes")) == 0 {
		return // not partitioned
	}
	d.state, d.volume = partitioned, a.texts("volumes")[0]
	if t.do("IsVolumeFormatted", fields{"volume": d.volume}).is("formatted") {
		d.state = formatted
	}
}

// kubeletDisk returns the number of the disk that the kubelet directory is on; "" if the
// daemon can't say.
func (t *trial) kubeletDisk() string {
	a, err := t.call("GetClosestVolumeIDFromTargetPath", fields{"path": t.KubeletPath})
	if err != nil {
		return ""
	}
	if a, err = t.call("GetDiskNumberFromVolumeID", fields{"volume": a.text("volume")}); err != nil {
		return ""
	}
	return fmt.Sprint(a.number("disk"))
}

// diskID is how a disk identifies itself.
type diskID struct{ page83, serial string }

// diskIDs returns those of all disks by number.
func (t *trial) diskIDs() map[string]diskID {
	all := make(map[string]diskID)
	for number, ids := range t.byDisk("ListDiskIDs", "disks") {
		if old := fieldOf(ids.Descriptor(), "identifiers"); old != nil {
			texts := make(map[string]string)
			for key, value := range ids.Get(old).Map().Range {
				texts[key.String()] = value.String()
			}
			all[number] = diskID{texts["page83"], texts["serialNumber"]}
			continue
		}
		all[number] = diskID{ids.text("page83"), ids.text("serial_number")}
	}
	return all
}

// anyDisk returns a disk that may be erased, in the latest state there is.
func (t *trial) anyDisk() *disk {
	if len(t.disks) == 0 {
		t.notApplicable("it needs a disk that may be erased: name one with --disk")
	}
	return slices.MaxFunc(t.disks, func(a, b *disk) int { return int(a.state) - int(b.state) })
}

// diskIn returns a disk in exactly a state.
func (t *trial) diskIn(state diskState, what string) *disk {
	t.anyDisk()
	for _, d := range t.disks {
		if d.state == state {
			return d
		}
	}
	t.notApplicable("it needs %s, which each version uses up: name another with --disk", what)
	return nil
}

// rawDisk returns a disk without partitions.
func (t *trial) rawDisk() *disk { return t.diskIn(raw, "a disk without partitions") }

// partition partitions a disk that isn't.
func (t *trial) partition(d *disk) *disk {
	if d.state == raw {
		t.do("PartitionDisk", fields{"disk": d.number})
		t.do("SetDiskState", fields{"disk": d.number, "online": true})
		volumes := t.do("ListVolumesOnDisk", fields{"disk": d.number}).texts("volumes")
		t.want(len(volumes) > 0, "disk %s has no volume after PartitionDisk", d.number)
		d.state, d.volume = partitioned, volumes[0]
	}
	return d
}

// rawVolume returns a disk whose volume has no file system.
func (t *trial) rawVolume() *disk {
	for _, d := range t.disks {
		if d.state == partitioned {
			return d
		}
	}
	return t.partition(t.diskIn(raw, "a disk without a file system"))
}

// volumeDisk returns a disk whose volume has a file system.
func (t *trial) volumeDisk() *disk { return t.format(t.anyDisk()) }

func (t *trial) format(d *disk) *disk {
	if t.partition(d).state == partitioned {
		t.do("FormatVolume", fields{"volume": d.volume})
		d.state = formatted
	}
	return d
}

// twoVolumes returns two disks whose volumes have file systems.
func (t *trial) twoVolumes() (one, other *disk) {
	one = t.volumeDisk()
	for _, d := range t.disks {
		if d != one {
			return one, t.format(d)
		}
	}
	t.notApplicable("it needs two disks that may be erased: name another with --disk")
	return nil, nil
}

// mount mounts a volume at a new directory until the end of the trial.
func (t *trial) mount(d *disk) (path string) {
	path = t.dir()
	t.mountAt(d, path)
	return path
}

func (t *trial) mountAt(d *disk, path string) {
	t.unmountLater(d.volume, path)
	t.do("MountVolume", fields{"volume": d.volume, "path": path})
}

// unmountLater has the clean-up unmount a volume if it may be at a path then. If that can't
// be done, this run deletes nothing any more: a daemon that follows mount points would
// delete what is on the volume.
func (t *trial) unmountLater(volume, path string) {
	t.later(func() {
		a, err := t.call("GetVolumeIDFromTargetPath", fields{"path": path})
		code := status.Code(err)
		if code == codes.NotFound || t.Published && code == codes.Unknown || err == nil &&
			!strings.EqualFold(a.text("volume"), volume) {
			return
		}
		if _, err := t.call("UnmountVolume", fields{"volume": volume, "path": path}); err != nil {
			t.stuck = path
			t.failf("%s may still be mounted at %s, so the run deletes nothing any more: %v", volume, path, err)
		}
	})
}

// volumeAt returns the volume that is mounted at a path.
func (t *trial) volumeAt(path string) string {
	return t.do("GetVolumeIDFromTargetPath", fields{"path": path}).text("volume")
}
