// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/disk"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/device"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// ListDiskIDs implements [disk.Operations].
func (d *Disks) ListDiskIDs(ctx context.Context) (map[disk.Number]disk.IDs, error) {
	return operation.Get(ctx, d.options.Runner, "ListDiskIDs", "", func(ctx context.Context) (map[disk.Number]disk.IDs, error) {
		return d.listIDs(ctx)
	})
}

func (d *Disks) listIDs(ctx context.Context) (map[disk.Number]disk.IDs, error) {
	ids := make(map[disk.Number]disk.IDs)
	err := d.each(ctx, func(n disk.Number, h device.Handle) error {
		page83, err := page83(ctx, h)
		if err := d.tolerate(n, "page 83", err); err != nil {
			return err
		}
		descriptor, err := h.Descriptor(ctx)
		if err := d.tolerate(n, "serial number", err); err != nil {
			return err
		}
		ids[n] = disk.IDs{Page83: page83, SerialNumber: strings.Trim(descriptor.SerialNumber, " ")}
		return nil
	})
	return ids, err
}

// FindDiskByPage83 implements [disk.Operations].
func (d *Disks) FindDiskByPage83(ctx context.Context, page83 string) (disk.Number, error) {
	return operation.Get(ctx, d.options.Runner, "FindDiskByPage83", strconv.Quote(page83), func(ctx context.Context) (disk.Number, error) {
		if page83 == "" {
			return 0, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the identifier is empty")
		}
		all, err := d.listIDs(ctx)
		if err != nil {
			return 0, err
		}
		for _, n := range slices.Sorted(maps.Keys(all)) {
			if all[n].Page83 == page83 {
				return n, nil
			}
		}
		return 0, csiproxy.Errorf(csiproxy.ErrNotFound, "no disk has this page 83 identifier")
	})
}

// ListDiskLocations implements [disk.Operations].
func (d *Disks) ListDiskLocations(ctx context.Context) (map[disk.Number]disk.Location, error) {
	return operation.Get(ctx, d.options.Runner, "ListDiskLocations", "", func(ctx context.Context) (map[disk.Number]disk.Location, error) {
		locations := make(map[disk.Number]disk.Location)
		err := d.each(ctx, func(n disk.Number, h device.Handle) error {
			location, ok, err := d.location(ctx, n, h)
			if ok {
				locations[n] = location
			}
			return err
		})
		return locations, err
	})
}

// each calls f for every disk that is there, in no particular order. A disk
// that leaves meanwhile is passed over.
func (d *Disks) each(ctx context.Context, f func(disk.Number, device.Handle) error) error {
	paths, err := d.sys.DeviceInterfaces(ctx, win.InterfaceClassDisk)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := d.visit(ctx, path, f); err != nil && !isGone(err) {
			return err
		}
	}
	return nil
}

func (d *Disks) visit(ctx context.Context, path string, f func(disk.Number, device.Handle) error) error {
	h, err := device.Open(ctx, d.sys, path, win.AccessNone)
	if err != nil {
		return err
	}
	defer h.Close()
	number, err := h.Number(ctx)
	if err != nil {
		return err
	}
	// A path below a multipath disk has no number of its own.
	if number.DeviceType != win.FileDeviceDisk || number.DeviceNumber == win.NoNumber {
		return nil
	}
	return f(disk.Number(number.DeviceNumber), h)
}

// isGone reports whether err says that the device has left or isn't ready yet.
func isGone(err error) bool {
	var errno win.Errno
	return errors.As(err, &errno) && (errno.Gone() || errno == win.ErrorNotReady)
}

// tolerate passes over an answer that one disk can't give, unless the disk or
// the caller is gone: a virtual bus may refuse any query, and that must not hide
// the other disks.
func (d *Disks) tolerate(n disk.Number, what string, err error) error {
	if err == nil || isGone(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	d.options.Logger.Debug("a disk doesn't answer", "disk", n, "query", what, "err", err)
	return nil
}

// page83 returns the first device-associated identifier with a code set that
// drivers can compare. Type isn't looked at: drivers have compared this very
// choice since the first version of the API.
func page83(ctx context.Context, h device.Handle) (string, error) {
	ids, err := h.Identifiers(ctx)
	if err != nil {
		return "", err
	}
	for _, id := range ids {
		if id.Association != win.AssociationDevice {
			continue
		}
		switch id.CodeSet {
		case win.CodeSetASCII:
			return string(id.ID), nil
		case win.CodeSetBinary:
			return hex.EncodeToString(id.ID), nil
		}
	}
	return "", nil
}

// location asks for the text that Windows shows for a disk and, where there is
// none of use, for the SCSI address. ok is false if the disk has neither.
func (d *Disks) location(ctx context.Context, n disk.Number, h device.Handle) (_ disk.Location, ok bool, _ error) {
	described, err := h.Location(ctx)
	if err := d.tolerate(n, "location", err); err != nil {
		return disk.Location{}, false, err
	}
	if location, ok := parseLocation(described.Text); ok {
		return location, true, nil
	}
	address, err := h.SCSIAddress(ctx)
	if err != nil {
		return disk.Location{}, false, d.tolerate(n, "SCSI address", err)
	}
	return disk.Location{
		Adapter: decimal(address.PortNumber),
		Target:  decimal(address.TargetID),
		LUNID:   decimal(address.LUN),
		// Bus is the PCI bus in a location text, which an address doesn't have.
	}, true, nil
}

func decimal(b byte) string { return strconv.Itoa(int(b)) }

// parseLocation reads a text such as
// "Integrated : Bus 0 : Device 63667 : Function 30747 : Adapter 1 : Port 0 : Target 0 : LUN 1".
// Texts of fewer than five parts, such as the path of a virtual disk's file,
// tell no location.
func parseLocation(text string) (_ disk.Location, ok bool) {
	parts := strings.Split(text, ":")
	if len(parts) < 5 {
		return disk.Location{}, false
	}
	var l disk.Location
	fields := map[string]*string{"Adapter": &l.Adapter, "Bus": &l.Bus, "Target": &l.Target, "LUN": &l.LUNID}
	for _, part := range parts {
		words := strings.Fields(part)
		if len(words) != 2 {
			continue // "Integrated", "PCI Slot 3"
		}
		if field, known := fields[words[0]]; known {
			*field = words[1]
			ok = true
		}
	}
	return l, ok
}
