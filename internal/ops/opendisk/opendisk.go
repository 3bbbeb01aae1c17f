// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package opendisk opens disks and remembers their identity. It verifies during an operation that
// the disk is still the same. It also finds the volumes of a disk, waits for volumes to arrive, and
// recognises the contents of a raw disk or volume by their signatures.
package opendisk

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Disk is an open disk. When a disk leaves, Windows may give its number to another disk. A handle
// stays with its disk: after the disk has left, calls on the handle fail. Operations therefore open
// the disk before they wait for anything, and make all calls on the same handle.
type Disk struct {
	win.DeviceHandle
	Number csiproxy.DiskNumber
	// Hardware is the disk's description of itself at the time of the open.
	Hardware Hardware
}

// Hardware is the self-description of a disk's hardware, and identifies the disk. Contents and size
// are left out because they change. A virtual bus may refuse any query: then the refusal is part of
// the identity.
type Hardware struct {
	Descriptor    win.DeviceDescriptor // bus, vendor, product and serial number
	DescriptorErr error                // the disk's error instead of a descriptor

	// Identifiers are the identifiers of page 83. A disk with a serial number is already
	// identified, and is asked for them only on demand.
	Identifiers      []win.Identifier
	IdentifiersErr   error // the disk's error instead of identifiers
	IdentifiersAsked bool
}

func (h Hardware) hasSerial() bool { return strings.TrimSpace(h.Descriptor.SerialNumber) != "" }

// identity is the text that identifies a disk: the descriptor and, without a serial number, also
// the identifiers.
func (h Hardware) identity() string {
	descriptor := h.Descriptor
	descriptor.Revision = "" // the firmware may change while the disk is open
	s := fmt.Sprintf("%+v %v", descriptor, h.DescriptorErr)
	if !h.hasSerial() {
		s += fmt.Sprintf(" %+v %v", h.Identifiers, h.IdentifiersErr)
	}
	return s
}

// openTimeout is how long an open for writing is retried. Right after a disk's arrival, Windows'
// own drivers and services have the disk open, and it may need time to get ready. Microsoft's WSL
// also retries for 5 seconds.
//
// Source: https://github.com/microsoft/WSL, disk.cpp
const (
	openTimeout  = 5 * time.Second
	openInterval = 100 * time.Millisecond
)

// Open opens the disk n and records its identity. If there is no such disk, the error is
// csiproxy.ErrNotFound. For a container's scratch disk, with access for more than queries, the
// error is csiproxy.ErrFailedPrecondition.
func Open(ctx context.Context, sys win.DeviceOpener, n csiproxy.DiskNumber, access win.Access) (*Disk, error) {
	d, err := open(ctx, sys, n, access != win.AccessNone)
	if err != nil || access == win.AccessNone {
		return d, err
	}
	defer d.Close()
	scratch, err := IsScratch(ctx, d.DeviceHandle, d.Hardware.Descriptor)
	if err != nil {
		return nil, err
	}
	if scratch {
		return nil, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"it is the scratch disk of a container; name the disk of a volume instead")
	}
	return d.reopen(ctx, sys, access)
}

// open opens the disk n for queries and records its identity. With retry, open repeats an open that
// Windows refuses for a moment. Calls that hang on the number's earlier disk are repeated now and then.
func open(ctx context.Context, sys win.DeviceOpener, n csiproxy.DiskNumber, retry bool) (*Disk, error) {
	ctx = operation.RepeatHanging(ctx)
	h, err := openNumber(ctx, sys, n, win.AccessNone, retry)
	if err != nil {
		return nil, err
	}
	d := &Disk{DeviceHandle: h, Number: n}
	known := false
	defer func() {
		if !known {
			h.Close()
		}
	}()
	if d.Hardware, err = d.askIdentity(ctx); err != nil {
		return nil, err
	}
	known = true
	return d, nil
}

// openNumber opens the disk with the number n now.
func openNumber(ctx context.Context, sys win.DeviceOpener, n csiproxy.DiskNumber, access win.Access, retry bool) (
	h win.DeviceHandle, _ error) {
	if !retry {
		return win.OpenDevice(ctx, sys, win.PhysicalDrive(n), access)
	}
	transient := []winerr.Errno{winerr.ErrorAccessDenied, winerr.ErrorNotReady, winerr.ErrorSharingViolation}
	err := operation.Retry(ctx, openTimeout, openInterval, transient, func() (err error) {
		h, err = win.OpenDevice(ctx, sys, win.PhysicalDrive(n), access)
		return err
	})
	return h, err
}

// askIdentity queries the disk's hardware, with the identifiers if it has no serial number. If the
// disk no longer has d.Number, askIdentity returns an error.
func (d *Disk) askIdentity(ctx context.Context) (hardware Hardware, _ error) {
	if err := d.checkNumber(ctx); err != nil {
		return hardware, err
	}
	hardware, err := AskHardware(ctx, d.DeviceHandle)
	if err == nil && !hardware.hasSerial() {
		err = hardware.AskIdentifiers(ctx, d.DeviceHandle)
	}
	return hardware, err
}

// checkNumber returns an error unless the disk has d.Number now.
func (d *Disk) checkNumber(ctx context.Context) error {
	n, err := d.DeviceHandle.Number(ctx)
	if err != nil {
		return err
	}
	if n.DeviceType != win.FileDeviceDisk {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the device with this number isn't a disk: its type is %d", n.DeviceType)
	}
	if n.DeviceNumber != d.Number {
		return ChangedError(fmt.Sprintf("it has the number %d", n.DeviceNumber))
	}
	return nil
}

// ChangedError is the error of an operation that finds another disk, or different contents, after its
// decision.
func ChangedError(how string) error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "the disk changed during the call: %s; try again", how)
}

// AskHardware queries a device's hardware, without the identifiers.
func AskHardware(ctx context.Context, h win.DeviceHandle) (hardware Hardware, _ error) {
	hardware.Descriptor, hardware.DescriptorErr = h.Descriptor(ctx)
	return hardware, ignoreRefusal(hardware.DescriptorErr)
}

// AskIdentifiers queries the disk's identifiers, once.
func (hardware *Hardware) AskIdentifiers(ctx context.Context, h win.DeviceHandle) error {
	if hardware.IdentifiersAsked {
		return nil
	}
	hardware.Identifiers, hardware.IdentifiersErr = h.Identifiers(ctx)
	hardware.IdentifiersAsked = true
	return ignoreRefusal(hardware.IdentifiersErr)
}

// ignoreRefusal returns nil if err is the disk's refusal of a query, and err otherwise.
func ignoreRefusal(err error) error {
	if winerr.IsAnswer(err) {
		return nil
	}
	return err
}

// Verify returns an error unless the disk is still in the node, under its number and with its
// identity. After success, all answers of Windows about the number since Open were about this disk.
// Verify also compares the identity: whether a handle can come to lead to another disk is
// undocumented.
func (d *Disk) Verify(ctx context.Context) error {
	identity, err := d.askIdentity(ctx)
	if err != nil {
		return hasLeft(err)
	}
	return d.checkIdentity(identity)
}

// checkIdentity returns an error unless hardware matches the disk d.
func (d *Disk) checkIdentity(hardware Hardware) error {
	if hardware.identity() != d.Hardware.identity() {
		return OtherDiskError("it has another identity", hardware)
	}
	return nil
}

// hasLeft returns err, with a detail if err means the disk has left.
func hasLeft(err error) error {
	if !winerr.IsGone(err) {
		return err
	}
	return &csiproxy.Error{Detail: "the disk has left the node during the call", Err: err}
}

// OtherDiskError is ChangedError for a disk with a changed identity. current may hold an error instead of
// an answer.
func OtherDiskError(how string, current Hardware) error {
	if refused := cmp.Or(current.DescriptorErr, current.IdentifiersErr); refused != nil {
		how = fmt.Sprintf("its identity can't be read any more: %v", refused)
	}
	return ChangedError(how)
}

// reopen opens the same disk once more, with the retries of Open for writing. reopen skips the
// identity of the new handle: d still has the number once the new handle is open, both lead to the
// same disk, and Verify compares the new handle's own answers before each change.
func (d *Disk) reopen(ctx context.Context, sys win.DeviceOpener, access win.Access) (*Disk, error) {
	h, err := openNumber(ctx, sys, d.Number, access, true)
	if err != nil {
		return nil, err
	}
	isSame := false
	defer func() { // even after a panic: the daemon survives panics
		if !isSame {
			h.Close()
		}
	}()
	if err := d.checkNumber(ctx); err != nil {
		return nil, hasLeft(err)
	}
	isSame = true
	return &Disk{h, d.Number, d.Hardware}, nil
}

// VerifyLayout returns an error unless the disk's partition table still equals decided, the basis
// of a decision.
func (d *Disk) VerifyLayout(ctx context.Context, decided *win.DriveLayout) error {
	layout, err := d.Layout(ctx)
	if err == nil && !slices.Equal(layout.Encode(), decided.Encode()) {
		err = ChangedError("it has another partition table")
	}
	return err
}
