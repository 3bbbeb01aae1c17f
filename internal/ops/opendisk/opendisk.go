// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package opendisk opens disks and keeps their identity. It verifies that a disk still is
// the one that an operation began with. It also finds the volumes of a disk, and waits for
// those that haven't arrived, and recognises by its signature what a raw disk or volume holds.
package opendisk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Disk is an open disk. Windows may give the number of a disk that has left to another disk.
// A handle stays with its disk: when the disk has left, calls on the handle fail. So an
// operation opens its disk before it waits for anything, and makes all calls on this handle.
type Disk struct {
	win.DeviceHandle
	Number csiproxy.DiskNumber
	// Hardware is what the disk said of itself when it was opened.
	Hardware Hardware
}

// Hardware is what a disk's hardware says of itself, by which disks are told apart. Contents
// and size aren't part of it, since they change. A virtual bus may refuse any query: then the
// refusal is part of the identity.
type Hardware struct {
	Descriptor    win.DeviceDescriptor // bus, vendor, product and serial number
	DescriptorErr error                // the disk's error instead of a descriptor

	// Identifiers are those of page 83. A disk with a serial number, which tells it apart
	// already, is asked for them only if a caller needs them.
	Identifiers      []win.Identifier
	IdentifiersErr   error // the disk's error instead of identifiers
	IdentifiersAsked bool
}

func (h Hardware) hasSerial() bool { return strings.TrimSpace(h.Descriptor.SerialNumber) != "" }

// identity is the text by which disks are told apart: the descriptor and, if that has no serial
// number, also the identifiers.
func (h Hardware) identity() string {
	descriptor := h.Descriptor
	descriptor.Revision = "" // that of the firmware, which may change while the disk is open
	s := fmt.Sprintf("%+v %v", descriptor, h.DescriptorErr)
	if !h.hasSerial() {
		s += fmt.Sprintf(" %+v %v", h.Identifiers, h.IdentifiersErr)
	}
	return s
}

// openTimeout is how long an open for writing is retried. Right after a disk's arrival Windows' own
// drivers and services have it open, and it may not be ready yet. Microsoft's WSL retries for 5
// seconds, too.
//
// Source: https://github.com/microsoft/WSL, disk.cpp
const (
	openTimeout  = 5 * time.Second
	openInterval = 100 * time.Millisecond
)

// Open opens the disk n and notes its identity. If there is no such disk, the error is
// csiproxy.ErrNotFound. If it is a container's scratch disk, and access is for more than queries, it is
// csiproxy.ErrFailedPrecondition.
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

// open opens the disk n for queries and notes its identity. With retry, it repeats an open that Windows refuses for a moment.
func open(ctx context.Context, sys win.DeviceOpener, n csiproxy.DiskNumber, retry bool) (*Disk, error) {
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

// openNumber opens the disk that has the number n now.
func openNumber(ctx context.Context, sys win.DeviceOpener, n csiproxy.DiskNumber, access win.Access, retry bool) (
	h win.DeviceHandle, _ error) {
	err := operation.Retry(ctx, openTimeout, openInterval, func(err error) bool {
		return retry && winerr.IsAny(err, winerr.ErrorAccessDenied, winerr.ErrorNotReady, winerr.ErrorSharingViolation)
	}, func() (err error) {
		h, err = win.OpenDevice(ctx, sys, win.PhysicalDrive(n), access)
		return err
	})
	return h, err
}

// askIdentity returns what the disk says of its hardware now, with the identifiers if it has no
// serial number. It returns an error if the disk doesn't have d.Number any more.
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
		return ErrChanged(fmt.Sprintf("it has the number %d", n.DeviceNumber))
	}
	return nil
}

// ErrChanged is the error of an operation that finds another disk, or other contents, than when
// it decided what to do.
func ErrChanged(how string) error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "the disk was changed by somebody else meanwhile: %s; try again", how)
}

// AskHardware asks a device for its hardware, without the identifiers.
func AskHardware(ctx context.Context, h win.DeviceHandle) (hardware Hardware, _ error) {
	hardware.Descriptor, hardware.DescriptorErr = h.Descriptor(ctx)
	return hardware, answered(hardware.DescriptorErr)
}

// AskIdentifiers asks the disk for its identifiers if it wasn't asked yet.
func (said *Hardware) AskIdentifiers(ctx context.Context, h win.DeviceHandle) error {
	if said.IdentifiersAsked {
		return nil
	}
	said.Identifiers, said.IdentifiersErr = h.Identifiers(ctx)
	said.IdentifiersAsked = true
	return answered(said.IdentifiersErr)
}

// answered returns nil if err is an answer of the disk that refuses the query, and err otherwise.
func answered(err error) error {
	if winerr.IsGone(err) || errors.Is(err, winerr.ErrorNotReady) || !errors.As(err, new(winerr.Errno)) {
		return err
	}
	return nil
}

// Verify returns an error unless the disk is still in the node, under its number and with
// its identity. If it is, all that Windows has said of the number since Open was about this
// disk. The identity is compared in case a handle can come to lead to another disk: the
// documentation doesn't say whether that happens.
func (d *Disk) Verify(ctx context.Context) error {
	identity, err := d.askIdentity(ctx)
	if err != nil {
		return hasLeft(err)
	}
	return d.checkIdentity(identity)
}

// checkIdentity returns an error unless hardware is that of the disk d.
func (d *Disk) checkIdentity(hardware Hardware) error {
	if hardware.identity() != d.Hardware.identity() {
		return ErrAnother("it has another identity", hardware)
	}
	return nil
}

// hasLeft returns err, and says so if it means that the disk has left.
func hasLeft(err error) error {
	if !winerr.IsGone(err) {
		return err
	}
	return &csiproxy.Error{Detail: "the disk has left the node during the call", Err: err}
}

// ErrAnother is ErrChanged for a disk whose hardware, now, isn't what it was. That may be an
// error instead of an answer.
func ErrAnother(how string, current Hardware) error {
	if refused := cmp.Or(current.DescriptorErr, current.IdentifiersErr); refused != nil {
		how = fmt.Sprintf("it no longer says which one it is: %v", refused)
	}
	return ErrChanged(how)
}

// reopen opens the same disk once more, and repeats that as Open does for writing. The new handle isn't asked for the disk's
// identity: d still has the number when the new handle is open, so both lead to one disk, and Verify compares the new
// handle's own answers before each change.
func (d *Disk) reopen(ctx context.Context, sys win.DeviceOpener, access win.Access) (*Disk, error) {
	h, err := openNumber(ctx, sys, d.Number, access, true)
	if err != nil {
		return nil, err
	}
	isSame := false
	defer func() { // also after a panic, which the daemon survives
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

// VerifyLayout returns an error unless the disk has the partition table that a decision was
// based on.
func (d *Disk) VerifyLayout(ctx context.Context, decided *win.DriveLayout) error {
	layout, err := d.Layout(ctx)
	if err == nil && !slices.Equal(layout.Encode(), decided.Encode()) {
		err = ErrChanged("it has another partition table")
	}
	return err
}
