// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wincalls stands between the operations and the seam. It bounds the calls to
// Windows that are under way, so that a call which Windows never answers holds up only
// calls on the same object, and it reports each call.
//
// Windows can't be made to give a call up. Until it answers, the call keeps an operating
// system thread, and a driver that isn't answered calls again. Therefore:
//
//   - One object (a disk, a volume, a path, an SMB server, an iSCSI target, a service) has
//     at most a few calls under way. The next ones wait for these. When the oldest has not
//     been answered for longer than such a call takes (see [Patience]), those that wait, and
//     those that come, are refused with csiproxy.ErrUnavailable and a text that says which
//     call has been under way since when.
//   - Each kind of object has a pool of threads of its own, in which a call that is overdue
//     no longer counts. So neither many calls on one object nor some objects that hang keep
//     the others waiting.
//   - An object that was overdue lately, or took long to say that it is unavailable as an
//     SMB server does that can't be reached, is suspect: it may use a small part of its
//     pool only, until it answers in time again.
//   - A pool has several times its size of threads for calls that are overdue. The last of
//     them are for objects that aren't suspect and have no call under way.
//   - Clients (see [WithClient]) share each pool, and what is below each directory. So one
//     client whose calls all hang, on whatever objects, leaves room for the others.
package wincalls

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Options configure the calls. The zero value is the default.
type Options struct {
	// Observe is told of every call that was answered: its name, how long it took, and
	// its error. Default: nobody is told.
	Observe func(call string, took time.Duration, err error)
	// Logger is told of calls that Windows doesn't answer in time, and at slog.LevelDebug
	// of every call. Default: none.
	Logger *slog.Logger
}

// Bounds of the calls under way.
const (
	maxOfObject    = 16   // on one object
	maxBelowObject = 32   // of one client, on what is directly below one directory
	maxSuspect     = 16   // of a pool, on objects that are suspect
	maxWaiting     = 4096 // of a pool; the server admits fewer calls at one time
	fewCalls       = 8    // of one client, in a pool of which half is taken
	// maxOverdue times its size is what a pool has of threads in all.
	maxOverdue = 4
	// suspicion is how long an object stays suspect.
	suspicion = 5 * time.Minute
	// maxSuspects bounds how many such objects are remembered.
	maxSuspects = 4096
)

type clientKey struct{}

// WithClient returns a context whose calls are made for a client, which may be any value
// that can be compared. Calls without a client, such as those of a driver that uses the
// operations in process, have nobody to share with.
func WithClient(ctx context.Context, client any) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

// pool is the kind of an object. Calls of one kind wait only for each other.
type pool int

const (
	files pool = iota
	disks
	volumes
	servers // of SMB shares
	mappings
	targets // and portals
	services
	machine // the device tree, firmware, registry
	repairs // of volumes: they take from seconds to hours
	pools
)

var poolNames = [pools]string{"files", "disks", "volumes", "smb-servers", "smb-mappings", "iscsi", "services", "machine", "repairs"}

var poolSizes = [pools]int{64, 64, 64, 128, 16, 32, 32, 32, 8}

// Patience returns how long a call may take before it counts as overdue. Most calls are
// answered in milliseconds. Those that write out caches, wait for hardware or ask another
// machine may take longer on a healthy node.
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
	win.CallFlush: true, win.CallFormatVolume: true, win.CallSetVolumeMountPoint: true, win.CallDeleteVolumeMountPoint: true,
	win.CallReenumerateDevice: true,

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
	pool  pool
	name  string
	above string // the directory that a file is in; "" for anything else
}

// deviceObject is the object of a call on a disk or volume.
func (s *System) deviceObject(path string) object {
	if len(path) > 11 && strings.EqualFold(path[4:11], "Volume{") {
		return object{pool: volumes, name: path}
	}
	return object{pool: disks, name: s.names.of(path)}
}

// diskNames knows under which path a disk is known by its number, for the paths of
// interfaces whose disks have told it: both are the same object. A number that has become
// another disk's is corrected when the disk next tells it; until then two disks share one
// bound.
type diskNames struct {
	mu     sync.Mutex
	byPath map[string]string
}

// maxDiskNames bounds how many paths are remembered.
const maxDiskNames = 4096

func (n *diskNames) of(path string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.byPath[path]; ok {
		return name
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
	if n.byPath == nil || len(n.byPath) >= maxDiskNames {
		n.byPath = make(map[string]string)
	}
	n.byPath[path] = win.PhysicalDrive(number.DeviceNumber)
}

// pathObject is the object of a call on a path: a server for what is on a share.
func pathObject(path string) object {
	if rest, ok := strings.CutPrefix(path, `\\`); ok && !strings.HasPrefix(rest, `?\`) && !strings.HasPrefix(rest, `.\`) {
		server, _, _ := strings.Cut(rest, `\`)
		return object{pool: servers, name: server}
	}
	return object{pool: files, name: path}
}

// mountPointObject is the object of a call on a drive, a mount point, a volume or the
// device of a partition.
func mountPointObject(path string) object {
	if strings.HasPrefix(path, `\\?\`) && !strings.Contains(path, `:\`) {
		return object{pool: volumes, name: path}
	}
	return object{pool: files, name: path}
}
