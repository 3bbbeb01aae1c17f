// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package opendisk has open disks that are known to be certain ones. It decides whether a
// disk still is the one that an operation began with, and it finds the volumes of a disk,
// and waits for those that haven't arrived.
package opendisk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Disk is an open disk that is known to be a certain one: the disk that had its number
// when it was opened. A disk number names a disk only until that leaves. A handle names
// one for good: calls on it fail once its disk has left, whatever disk has the number
// then. So an operation opens its disk before it waits for anything, and makes all its
// calls on this handle.
type Disk struct {
	device.Handle
	Number disk.Number
	// Hardware is what the disk said of itself when it was opened.
	Hardware Hardware
}

// Hardware is what a disk's hardware says of itself, which tells it apart from others. What
// the disk holds is no part of it, nor is its size, which may grow. A virtual bus may refuse
// any query; that it does is part of the identity then.
type Hardware struct {
	Descriptor    win.DeviceDescriptor // bus, vendor, product and serial number
	DescriptorErr error                // that the disk has answered instead

	// Identifiers are of page 83. A disk with a serial number is asked for them only if
	// somebody wants them: the serial number tells it apart.
	Identifiers      []win.Identifier
	IdentifiersErr   error // that the disk has answered instead
	IdentifiersAsked bool
}

func (h Hardware) hasSerial() bool { return strings.TrimSpace(h.Descriptor.SerialNumber) != "" }

// identity is what tells a disk apart: its serial number with all else of its descriptor, or its
// identifiers, too, if it has none.
func (h Hardware) identity() string {
	s := fmt.Sprintf("%+v %v", h.Descriptor, h.DescriptorErr)
	if !h.hasSerial() {
		s += fmt.Sprintf(" %+v %v", h.Identifiers, h.IdentifiersErr)
	}
	return s
}

// Open opens the disk n and takes its identity. A disk that isn't there is
// csiproxy.ErrNotFound.
func Open(ctx context.Context, sys win.DeviceOpener, n disk.Number, access win.Access) (*Disk, error) {
	h, err := device.Open(ctx, sys, win.PhysicalDrive(n), access)
	if err != nil {
		return nil, err
	}
	d := &Disk{Handle: h, Number: n}
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

// askIdentity returns what the disk says of its hardware now, with the identifiers if it has no
// serial number. It returns an error unless the disk has its number.
func (d *Disk) askIdentity(ctx context.Context) (said Hardware, _ error) {
	n, err := d.Handle.Number(ctx)
	switch {
	case err != nil:
		return said, err
	case n.DeviceType != win.FileDeviceDisk:
		return said, csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the device with this number isn't a disk: its type is %d", n.DeviceType)
	case n.DeviceNumber != d.Number:
		return said, ErrChanged(fmt.Sprintf("it has the number %d", n.DeviceNumber))
	}
	said, err = AskHardware(ctx, d.Handle)
	if err == nil && !said.hasSerial() {
		err = said.AskIdentifiers(ctx, d.Handle)
	}
	return said, err
}

// ErrChanged is what an operation returns that finds another disk, or other contents,
// than those that it has decided by.
func ErrChanged(how string) error {
	return csiproxy.Errorf(csiproxy.ErrUnavailable, "the disk was changed by somebody else meanwhile: %s; try again", how)
}

// AskHardware asks a device what its hardware is, but for the identifiers.
func AskHardware(ctx context.Context, h device.Handle) (said Hardware, _ error) {
	said.Descriptor, said.DescriptorErr = h.Descriptor(ctx)
	return said, answered(said.DescriptorErr)
}

// AskIdentifiers asks the disk for its identifiers if it wasn't asked yet.
func (said *Hardware) AskIdentifiers(ctx context.Context, h device.Handle) error {
	if said.IdentifiersAsked {
		return nil
	}
	said.Identifiers, said.IdentifiersErr = h.Identifiers(ctx)
	said.IdentifiersAsked = true
	return answered(said.IdentifiersErr)
}

// answered returns nil if the disk has answered, be it by refusing the query; else err.
func answered(err error) error {
	if win.IsGone(err) || errors.Is(err, win.ErrorNotReady) || !errors.As(err, new(win.Errno)) {
		return err
	}
	return nil
}

// Verify returns an error unless the disk is still in the node, under its number and with
// its identity. If it is, all that Windows has said of the number since Open was about this
// disk. No documentation says that a handle can come to lead to another disk; if it did, the
// serial number would show it.
func (d *Disk) Verify(ctx context.Context) error {
	now, err := d.askIdentity(ctx)
	if win.IsGone(err) {
		err = &csiproxy.Error{Detail: "the disk has left the node during the call", Err: err}
	}
	if err == nil && now.identity() != d.Hardware.identity() {
		err = ErrAnother("it has another identity", now)
	}
	return err
}

// ErrAnother is ErrChanged for a disk that says something else of its hardware than before, or
// nothing.
func ErrAnother(how string, now Hardware) error {
	if refused := cmp.Or(now.DescriptorErr, now.IdentifiersErr); refused != nil {
		how = fmt.Sprintf("it doesn't tell any more which one it is: %v", refused)
	}
	return ErrChanged(how)
}

// Reopen opens the same disk once more.
func (d *Disk) Reopen(ctx context.Context, sys win.DeviceOpener, access win.Access) (*Disk, error) {
	again, err := Open(ctx, sys, d.Number, access)
	if err != nil {
		return nil, err
	}
	same := false
	defer func() {
		if !same {
			again.Close()
		}
	}()
	if err := d.Verify(ctx); err != nil { // so the number was d's when again was opened
		return nil, err
	}
	if again.Hardware.identity() != d.Hardware.identity() {
		return nil, ErrAnother("it has another identity", again.Hardware)
	}
	same = true
	return again, nil
}

// VerifyLayout returns an error unless the disk has the partition table that a decision was
// based on.
func (d *Disk) VerifyLayout(ctx context.Context, decided *win.DriveLayout) error {
	now, err := d.Layout(ctx)
	if err == nil && !slices.Equal(now.Encode(), decided.Encode()) {
		err = ErrChanged("it has another partition table")
	}
	return err
}
