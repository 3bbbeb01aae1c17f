// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Bounds of the calls that are under way, since each keeps a thread. Four on one object are enough:
// an operation makes one call on it at a time, and operations that change it exclude each other.
const (
	maxCalls    = 512
	maxOfShares = maxCalls / 2
	maxOfObject = 4
)

// overdueAfter returns how long a call may take before it counts as overdue. Most calls are
// answered in milliseconds. Those that write out caches, wait for hardware or ask another
// machine may take longer on a healthy node. The bounds are choices: nothing was measured on
// Windows. If a bound is too short, some calls are refused that would have been answered, and
// their callers try again. If it is too long, callers wait behind a call that hangs.
func overdueAfter(call string) time.Duration {
	if call == win.CallRepairVolume {
		return repairTimeout
	}
	if call == win.IoctlDiskAreVolumesReady.String() { // it is there to wait
		return time.Minute
	}
	if mayTakeLonger[call] {
		return 10 * time.Second
	}
	return time.Second
}

// repairTimeout is long, since a scan of a large volume takes hours and is no sign of a
// volume that doesn't answer.
const repairTimeout = 24 * time.Hour

var mayTakeLonger = map[string]bool{
	win.CallFlush: true, win.CallFormatVolume: true, win.CallSetVolumeMountPoint: true,
	win.CallDeleteVolumeMountPoint: true,
	win.CallReenumerateDevice:      true,

	win.IoctlDiskSetDiskAttributes.String(): true, win.IoctlDiskCreateDisk.String(): true,
	win.IoctlDiskSetDriveLayoutEx.String(): true, win.IoctlDiskUpdateProperties.String(): true,
	win.IoctlDiskUpdateDriveSize.String(): true, win.IoctlDiskGrowPartition.String(): true,
	win.FsctlLockVolume.String(): true, win.FsctlDismountVolume.String(): true, // they write out caches
	win.CallStorageProvider: true, win.CallSMBConnections: true,

	win.FsctlExtendVolume.String(): true, win.IoctlVolumeOnline.String(): true, win.IoctlVolumeOffline.String(): true,

	win.CallSMBGlobalMappings: true, win.CallCreateSMBGlobalMapping: true, win.CallRemoveSMBGlobalMapping: true,
	win.CallAddISCSIPortal: true, win.CallRefreshISCSIPortal: true, win.CallRemoveISCSIPortal: true,
	win.CallLoginISCSITarget: true, win.CallLogoutISCSITarget: true,
	win.CallStartService: true, win.CallStopService: true,
}

// oneAtATime are the calls of which an object has one under way at most. The next one waits,
// even if that is overdue.
var oneAtATime = map[string]bool{win.CallFormatVolume: true, win.CallRepairVolume: true}

// object is what a call is about.
type object struct {
	name  string
	share bool // the call may wait for an SMB server
}

// The objects of the calls that are about all shares.
var (
	mappings    = object{"the list of SMB mappings", true}
	connections = object{"the list of SMB connections", true}
)

// pathObject is the object of a call on a path: the server for a path on a share, and the volume for
// a path that begins with a volume name, as those of pods do. If one of these hangs, it hangs on
// each of its paths. For any other path the object is the path itself.
func pathObject(path string) object {
	rest, ok := strings.CutPrefix(path, `\\`)
	switch {
	case !ok, strings.HasPrefix(rest, `.\`):
	case !strings.HasPrefix(rest, `?\`):
		server, _, _ := strings.Cut(rest, `\`)
		return object{`\\` + strings.ToLower(server), true}
	case len(rest) > 9 && strings.EqualFold(rest[:9], `?\Volume{`):
		volume, _, _ := strings.Cut(rest[2:], `\`)
		return object{name: `\\?\` + volume}
	}
	return object{name: path}
}

func serviceObject(name string) object { return object{name: "service " + name} }
