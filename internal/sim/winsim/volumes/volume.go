// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"fmt"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Handle is what has a volume open.
type Handle interface {
	// Need fails unless the handle was opened with the access.
	Need(a win.Access) error
}

// Volume is the volume of a data partition, while its disk is online.
type Volume struct {
	*Record
	disks.DataPartition
	Disk *disks.Disk

	stored      *store // the file systems on the disk
	lock        Handle // which has locked it
	dismounted  Handle // which has dismounted its file system, until it is closed
	comesOnline bool   // a moment after its name
	unmanaged   bool   // storage management doesn't know it yet
	JustCame    bool   // for settings.RefusedFor
	ntDevice    uint32 // the N of \Device\HarddiskVolumeN
}

// Record is what the mount manager remembers of a partition: also while the
// partition isn't there.
type Record struct {
	GUID    winid.GUID // of \\?\Volume{…}\
	Letter  string     // drive letter, "C", or ""
	Present bool       // the volume has arrived
	Offline bool       // it waits for IOCTL_VOLUME_ONLINE
	Locked  bool       // by BitLocker
}

// Device is the name of the volume without the backslash at its end.
func (v *Volume) Device() string { return device(v.GUID) }

func device(id winid.GUID) string { return `\\?\Volume{` + id.String() + `}` }

// Name is the name of the volume: \\?\Volume{guid}\.
func (v *Volume) Name() string { return v.Device() + `\` }

// InterfacePath is the device interface of the volume.
func (v *Volume) InterfacePath() string {
	return fmt.Sprintf(`\\?\storage#volume#{%s}#%016x#{%s}`, v.GUID, v.Offset, win.InterfaceClassVolume)
}

// ParseName reads \\?\Volume{guid} and what follows it, which is empty or
// begins with a backslash.
func ParseName(s string) (id winid.GUID, rest string, ok bool) {
	const prefix, guidLen = `\\?\Volume{`, 36
	if len(s) < len(prefix)+guidLen+1 || !strings.EqualFold(s[:len(prefix)], prefix) || s[len(prefix)+guidLen] != '}' {
		return id, "", false
	}
	id, ok = winid.ParseGUID(s[len(prefix) : len(prefix)+guidLen])
	rest = s[len(prefix)+guidLen+1:]
	return id, rest, ok && (rest == "" || rest[0] == '\\')
}

// parseVolumeInterface reads the id in a path that InterfacePath may have made.
func parseVolumeInterface(s string) (id winid.GUID, ok bool) {
	const prefix, guidLen = `\\?\storage#volume#{`, 36
	if len(s) < len(prefix)+guidLen || !strings.EqualFold(s[:len(prefix)], prefix) {
		return id, false
	}
	return winid.ParseGUID(s[len(prefix) : len(prefix)+guidLen])
}

// Named reports whether the volume has a name of its own. The EFI system partition has
// none.
func (v *Volume) Named() bool { return v.Unique != "" }

// Writable reports whether Windows writes to the volume.
func (v *Volume) Writable() bool { return v.hasWritableDisk() && !v.Disk.MountedReadOnly }

// hasWritableDisk is Writable without regard to the file system that is mounted.
func (v *Volume) hasWritableDisk() bool { return v.Disk.Writable() && !v.ReadOnly }
