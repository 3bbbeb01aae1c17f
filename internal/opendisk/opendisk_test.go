// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk_test

import (
	"bytes"
	"context"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// twoFaced is a node on which a handle answers one query as another disk, from some time on.
type twoFaced struct {
	*winsim.System
	other   win.Device
	code    win.IoctlCode
	query   []byte
	swapped bool
}

func (s *twoFaced) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := s.System.OpenDevice(ctx, path, access)
	return twoFacedDevice{d, s}, err
}

type twoFacedDevice struct {
	win.Device
	sys *twoFaced
}

func (d twoFacedDevice) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if d.sys.swapped && code == d.sys.code && bytes.Equal(in, d.sys.query) {
		return d.sys.other.Control(ctx, code, in, out)
	}
	return d.Device.Control(ctx, code, in, out)
}

// A disk is told from another one by its number, and by its serial number, or page 83 if it has
// none.
func TestVerify(t *testing.T) {
	naa := func(last byte) []win.Identifier {
		id := []byte{0x60, 1, 2, 3, 4, 5, 6, last}
		return []win.Identifier{{CodeSet: win.CodeSetBinary, Type: win.IdentifierNAA, ID: id}}
	}
	for name, c := range map[string]struct {
		serial string
		code   win.IoctlCode
		query  []byte
	}{
		"by the number":        {"a", win.IoctlStorageGetDeviceNumber, nil},
		"by the serial number": {"a", win.IoctlStorageQueryProperty, win.EncodePropertyQuery(win.PropertyDevice)},
		"by page 83":           {" ", win.IoctlStorageQueryProperty, win.EncodePropertyQuery(win.PropertyDeviceID)},
	} {
		t.Run(name, func(t *testing.T) {
			sim := simtest.Open(t, winsim.Delays{})
			number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: c.serial, Page83: naa(1)})
			otherNumber := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "other", Page83: naa(2)})
			other, err := sim.OpenDevice(t.Context(), win.PhysicalDrive(otherNumber), win.AccessNone)
			simtest.Must(t, err)
			defer other.Close()
			sys := &twoFaced{System: sim, other: other, code: c.code, query: c.query}
			d, err := opendisk.Open(t.Context(), sys, number, win.AccessNone)
			simtest.Must(t, err)
			defer d.Close()
			simtest.Must(t, d.Verify(t.Context()))
			sys.swapped = true
			simtest.WantKind(t, d.Verify(t.Context()), csiproxy.ErrUnavailable)
			sys.swapped = false
			simtest.Must(t, d.Verify(t.Context()))
			simtest.Must(t, sim.DetachDisk(number))
			if err := d.Verify(t.Context()); err == nil {
				t.Error("a disk that has left is still there")
			}
		})
	}
}
