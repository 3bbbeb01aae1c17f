// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Limits on the calls under way: each call keeps a thread. Four calls on one object are enough: an
// operation makes one call on an object at a time, and operations that change an object exclude
// each other.
const (
	maxCalls    = 512
	maxOfShares = maxCalls / 2
	maxOfObject = 4
	// maxOfOther limits the calls on the objects of each other owner: see AskSome. Objects may hang
	// and be replaced by others that hang, again and again.
	maxOfOther = maxCalls / 4
	// maxWaiting is enough for all lists of 500 disks at the same time. A waiting call keeps a
	// goroutine with its stack.
	maxWaiting = 16 * maxCalls
)

// overdueAfter returns how long a call may take before it counts as overdue. Windows answers most
// calls in milliseconds. Calls that write out caches, wait for hardware or ask another machine may
// take longer on a healthy node. The limits are choices: nothing was measured on Windows. With too
// short a limit, some calls are refused that Windows would have answered, and their callers retry.
// With too long a limit, callers wait behind a hung call.
func overdueAfter(call string) time.Duration {
	if call == win.CallRepairVolume {
		return repairTimeout
	}
	if call == win.IoctlDiskAreVolumesReady.String() { // a call that waits by design
		return time.Minute
	}
	if mayTakeLonger[call] {
		return 10 * time.Second
	}
	return time.Second
}

// repairTimeout is long: a scan of a large volume takes hours, and is no sign of a hung volume.
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

// oneAtATime are the calls limited to one under way for each object. The next call waits, even
// while the current call is overdue.
var oneAtATime = map[string]bool{win.CallFormatVolume: true, win.CallRepairVolume: true}

// object is what a call is about.
type object struct {
	name  string
	share bool // the call may wait for an SMB server
}

// Objects of the calls about all shares.
var (
	mappings    = object{"the list of SMB mappings", true}
	connections = object{"the list of SMB connections", true}
)

// pathObject is the object of a call on a path: the server for a path on a share, and the volume
// for a path that begins with a volume name, such as the paths of pods. A hung server or volume
// hangs on each of its paths. For all other paths the object is the path itself.
func pathObject(path string) object {
	rest, ok := strings.CutPrefix(path, `\\`)
	if !ok || strings.HasPrefix(rest, `.\`) {
		return object{name: path}
	}
	if !strings.HasPrefix(rest, `?\`) {
		server, _, _ := strings.Cut(rest, `\`)
		return object{`\\` + strings.ToLower(server), true}
	}
	if len(rest) > 9 && strings.EqualFold(rest[:9], `?\Volume{`) {
		volume, _, _ := strings.Cut(rest[2:], `\`)
		return object{name: `\\?\` + volume}
	}
	return object{name: path}
}

func serviceObject(name string) object { return object{name: "service " + name} }
