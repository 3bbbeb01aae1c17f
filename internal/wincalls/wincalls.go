// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wincalls stands between the operations and the seam. It bounds the calls to
// Windows that are under way, so that a call which Windows never answers holds up only
// calls on the same object, and it reports each call.
//
// Windows can't be made to give a call up. Until it answers, the call keeps an operating
// system thread, and a driver that isn't answered calls again. Therefore:
//
//   - A call that takes longer than calls of its name do (see [Patience]) is overdue. The
//     same call on the same object isn't made again until it is answered, but refused with
//     csiproxy.ErrUnavailable and a text that says which call has been under way since when.
//   - One object (a disk, a volume, a path, an SMB server, an iSCSI target, a service) has a
//     few calls under way at most. The next ones wait, and are refused when one of these is
//     overdue.
//   - Each kind of object has a pool of threads of its own, which clients (see [WithClient])
//     share as package fairshare says. So one client whose calls all hang, on whatever
//     objects, leaves room for the others. When overdue calls have half of what a client may
//     have, its further calls are refused; else they wait.
package wincalls

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Options configure the calls. The zero value is the default.
type Options struct {
	// Observe is called after each call that was answered, with its name, how long it took,
	// and its error. Default: none.
	Observe func(call string, took time.Duration, err error)
	// Logger gets the calls that Windows doesn't answer in time, and at slog.LevelDebug
	// every call. Default: none.
	Logger *slog.Logger
}

// Bounds of the calls of one kind. 64 disks or SMB servers that don't answer leave a quarter of
// a pool to others: see TestManyHangingObjects. An operation has one call under way on an object,
// and operations that change it exclude each other, so four at one time are enough.
const (
	maxOfPool   = 256  // under way: each keeps a thread
	maxOfObject = 4    // of these on one object
	maxWaiting  = 4096 // the server admits no more calls at one time
)

// lookInterval is the time between two looks for calls that are overdue. A look at a full
// pool takes about ten microseconds: see BenchmarkLook.
const lookInterval = 100 * time.Millisecond

type clientKey struct{}

// WithClient returns a context whose calls are made for a client, which may be any value
// that can be compared. Calls without a client, such as those of a driver that uses the
// operations in process, aren't limited per client.
func WithClient(ctx context.Context, client any) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// kind is the kind of an object. Calls of one kind wait only for each other.
type kind int

const (
	files kind = iota
	disks
	volumes
	servers // of SMB shares
	mappings
	targets // and portals
	services
	machine  // the device tree, firmware, registry
	repairs  // of volumes: they take from seconds to hours
	arrivals // of volumes: calls that wait for them take no places of those that do something
)

var kinds = []string{"files", "disks", "volumes", "smb-servers", "smb-mappings", "iscsi", "services", "machine",
	"repairs", "volume-arrivals"}

// Patience returns how long a call may take before it counts as overdue. Most calls are
// answered in milliseconds. Those that write out caches, wait for hardware or ask another
// machine may take longer on a healthy node. The bounds are choices: nothing was measured on
// Windows. If one is too short, callers are refused who would have got an answer, and try
// again. If it is too long, callers wait behind a call that hangs.
func Patience(call string) time.Duration {
	switch {
	case call == win.CallRepairVolume:
		return repairPatience
	case mayTakeLonger[call]:
		return 10 * time.Second
	}
	return time.Second
}

// repairPatience is long, since a scan of a large volume takes hours and is no sign of a
// volume that doesn't answer.
const repairPatience = 24 * time.Hour

var mayTakeLonger = map[string]bool{
	win.CallFlush: true, win.CallFormatVolume: true, win.CallSetVolumeMountPoint: true,
	win.CallDeleteVolumeMountPoint: true,
	win.CallReenumerateDevice:      true,

	win.IoctlDiskAreVolumesReady.String(): true, // it waits as long as package opendisk lets it

	win.IoctlDiskSetDiskAttributes.String(): true, win.IoctlDiskCreateDisk.String(): true,
	win.IoctlDiskSetDriveLayoutEx.String(): true, win.IoctlDiskUpdateProperties.String(): true,
	win.IoctlDiskUpdateDriveSize.String(): true, win.IoctlDiskGrowPartition.String(): true,
	win.FsctlLockVolume.String(): true, win.FsctlDismountVolume.String(): true, // they write out caches
	win.CallOfflineReasons: true, win.CallSMBConnections: true,

	win.FsctlExtendVolume.String(): true, win.IoctlVolumeOnline.String(): true, win.IoctlVolumeOffline.String(): true,

	win.CallSMBGlobalMappings: true, win.CallCreateSMBGlobalMapping: true, win.CallRemoveSMBGlobalMapping: true,
	win.CallAddISCSIPortal: true, win.CallRefreshISCSIPortal: true, win.CallRemoveISCSIPortal: true,
	win.CallLoginISCSITarget: true, win.CallLogoutISCSITarget: true,
	win.CallStartService: true, win.CallStopService: true,
}

// object is what a call is about.
type object struct {
	kind kind
	name string
}

// deviceObject is the object of a call on a disk or volume.
func (s *System) deviceObject(path string) object {
	if len(path) > 11 && strings.EqualFold(path[4:11], "Volume{") {
		return object{volumes, path}
	}
	return object{disks, s.names.of(path)}
}

// diskNames knows the disks whose interfaces have told their number by that: they are the
// same objects under both paths. A number that has become another disk's is corrected when
// the disk next tells it; until then two disks share one bound.
type diskNames struct {
	mu     sync.Mutex
	byPath map[string]diskName // of the interface; at most maxDiskNames
}

type diskName struct {
	number disk.Number
	name   string
}

// maxDiskNames is far more than a node has disks. The paths of disks that have left stay until
// there are so many; then all are forgotten, and learnt again when a disk next tells its number.
const maxDiskNames = 4096

func (n *diskNames) of(path string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.byPath[path]; ok {
		return known.name
	}
	return path
}

// learn takes the answer of IOCTL_STORAGE_GET_DEVICE_NUMBER through a handle.
func (n *diskNames) learn(path string, answer []byte) {
	number, err := win.DecodeDeviceNumber(answer)
	if err != nil || number.DeviceType != win.FileDeviceDisk || number.DeviceNumber == win.NoNumber {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.byPath[path]; ok && known.number == number.DeviceNumber {
		return
	}
	if n.byPath == nil || len(n.byPath) >= maxDiskNames {
		n.byPath = make(map[string]diskName)
	}
	n.byPath[path] = diskName{number.DeviceNumber, win.PhysicalDrive(number.DeviceNumber)}
}

// pathObject is the object of a call on a path: a server for what is on a share.
func pathObject(path string) object {
	if rest, ok := strings.CutPrefix(path, `\\`); ok && !strings.HasPrefix(rest, `?\`) && !strings.HasPrefix(rest, `.\`) {
		server, _, _ := strings.Cut(rest, `\`)
		return object{kind: servers, name: server}
	}
	return object{kind: files, name: path}
}

// mountPointObject is the object of a call on a drive, a mount point, a volume or the
// device of a partition.
func mountPointObject(path string) object {
	if strings.HasPrefix(path, `\\?\`) && !strings.Contains(path, `:\`) {
		return object{kind: volumes, name: path}
	}
	return object{kind: files, name: path}
}
