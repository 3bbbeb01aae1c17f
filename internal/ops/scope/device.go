// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/device"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

// ownDevice is an open disk or volume that is the driver's.
//
// The door's own questions are asked on the same handle right before those of the operation, which mostly asks the
// same. So the door's answers are its, once.
//
// While a disk is open, it also says whose the volumes are that were found on it: a handle names one disk for good,
// and a disk keeps its number while it is there, and its volumes while it is online. So if it says that it still is the same disk, they
// needn't be looked up again. Nothing is known longer than the handle is open.
type ownDevice struct {
	win.Device
	sys   *System
	disks []*ownDevice // on which the volume lies, open as long as the volume

	number     csiproxy.DiskNumber // of a disk, when it was opened
	descriptor win.DeviceDescriptor
	isSick     bool // the disk doesn't say what it is

	// The following are guarded by sys.mu.

	volumes map[string]bool // on the disk, by their names in lower case
	users   int             // who ask the disk whether it is there
	closed  bool            // the last of users closes the handle

	mu      sync.Mutex // guards the following
	asking  bool       // the door does
	answers []answer   // to the door
}

// answer is what a device answered to a control call.
type answer struct {
	code    win.IoctlCode
	in, out string
}

// Control is that of win.Device, and answers first what the door has asked.
func (o *ownDevice) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if known, ok := o.takeAnswer(code, in); ok && len(known) <= len(out) && ctx.Err() == nil {
		return copy(out, known), nil
	}
	n, err := o.Device.Control(ctx, code, in, out)
	switch code {
	case win.IoctlDiskSetDiskAttributes, win.IoctlDiskSetDriveLayoutEx, win.IoctlDiskCreateDisk:
		// A copy that is another driver's gets the volumes' names, if it is online while this disk isn't.
		o.sys.forgetVolumes()
	}
	if err == nil && n >= 0 && n <= len(out) {
		o.keepAnswer(answer{code, string(in), string(out[:n])})
	}
	return n, err
}

// takeAnswer returns the answer that the door got. Each is given once, and none after the operation has asked
// something else than the number: then time may have passed.
func (o *ownDevice) takeAnswer(code win.IoctlCode, in []byte) (out string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.asking {
		return "", false
	}
	for i, a := range o.answers {
		if a.code == code && a.in == string(in) {
			o.answers = slices.Delete(o.answers, i, i+1)
			return a.out, true
		}
	}
	if code != win.IoctlStorageGetDeviceNumber {
		o.answers = nil
	}
	return "", false
}

// keepAnswer keeps an answer to the door, the last one to the same question.
func (o *ownDevice) keepAnswer(got answer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.asking {
		return
	}
	o.answers = slices.DeleteFunc(o.answers, func(a answer) bool { return a.code == got.code && a.in == got.in })
	o.answers = append(o.answers, got)
}

// endAsking says that the door has asked all.
func (o *ownDevice) endAsking() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking = false
}

// Close is that of win.Device. Somebody who asks the disk closes it afterwards.
func (o *ownDevice) Close() error {
	for _, ownDisk := range o.disks {
		_ = ownDisk.Close()
	}
	o.sys.mu.Lock()
	o.sys.open = slices.DeleteFunc(o.sys.open, func(other *ownDevice) bool { return other == o })
	wasClosed := o.closed
	o.closed = true
	isUsed := o.users > 0
	o.sys.mu.Unlock()
	if isUsed || wasClosed {
		return nil
	}
	return o.Device.Close()
}

// askOpenDisk returns an open disk of which match is true, and whether it says that it still is there. match is called
// with s.mu locked.
func (s *System) askOpenDisk(ctx context.Context, match func(ownDisk *ownDevice) bool) (ownDisk *ownDevice, isThere bool) {
	s.mu.Lock()
	i := slices.IndexFunc(s.open, match)
	if i < 0 {
		s.mu.Unlock()
		return nil, false
	}
	ownDisk = s.open[i]
	ownDisk.users++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		ownDisk.users--
		closes := ownDisk.closed && ownDisk.users == 0
		s.mu.Unlock()
		if closes {
			_ = ownDisk.Device.Close()
		}
	}()
	h := device.Handle{Device: ownDisk.Device}
	if ownDisk.isSick {
		n, err := h.Number(ctx)
		return ownDisk, err == nil && n.DeviceNumber == ownDisk.number
	}
	descriptor, err := h.Descriptor(ctx)
	return ownDisk, err == nil && descriptor == ownDisk.descriptor
}

// noteVolume notes that a volume is on an open disk, or on none if ownDisk is nil.
func (s *System) noteVolume(name string, ownDisk *ownDevice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.open {
		delete(other.volumes, volumeKey(name))
	}
	if ownDisk != nil && !ownDisk.closed {
		ownDisk.volumes[volumeKey(name)] = true
	}
}

// forgetVolumes forgets which volumes are on the open disks, since they may have become other disks'.
func (s *System) forgetVolumes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ownDisk := range s.open {
		clear(ownDisk.volumes)
	}
}

// noteDisk notes an open disk.
func (s *System) noteDisk(ownDisk *ownDevice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ownDisk.volumes = make(map[string]bool)
	s.open = append(s.open, ownDisk)
}

// volumeKey is the name of a volume, or the path of its device, as a key.
func volumeKey(name string) string { return winname.Lower(strings.TrimSuffix(name, `\`)) }

// numberOf returns the number of a disk that is opened by it.
func numberOf(path string) csiproxy.DiskNumber {
	n, err := strconv.ParseUint(strings.TrimPrefix(path, strings.TrimSuffix(win.PhysicalDrive(0), "0")), 10, 32)
	if err != nil {
		return win.NoNumber
	}
	return csiproxy.DiskNumber(n)
}
