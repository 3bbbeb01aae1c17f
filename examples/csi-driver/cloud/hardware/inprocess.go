// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package hardware

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node/disk"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// InProcess is the hardware of a simulated node in this process.
type InProcess struct{ Node *simnode.Node }

// Attach implements cloud.Hardware, but for read-only disks.
func (h InProcess) Attach(ctx context.Context, serial string, sizeBytes int64, readOnly bool) error {
	if readOnly {
		return &csiproxy.Error{
			Op: "attach", Object: "disk " + serial, Kind: csiproxy.ErrFailedPrecondition,
			Detail: "in process, a simulated disk can't be read-only that has been there before",
		}
	}
	_, attached, err := h.find(ctx, serial)
	if err == nil && !attached {
		h.Node.AttachDisk(simnode.Disk{Serial: serial, SizeBytes: sizeBytes})
	}
	return err
}

// Detach implements cloud.Hardware.
func (h InProcess) Detach(ctx context.Context, serial string) error {
	number, attached, err := h.find(ctx, serial)
	if err == nil && attached {
		h.Node.DetachDisk(number)
	}
	return err
}

// Grow implements cloud.Hardware.
func (h InProcess) Grow(ctx context.Context, serial string, sizeBytes int64) error {
	number, attached, err := h.find(ctx, serial)
	if err == nil && attached {
		h.Node.GrowDisk(number, sizeBytes)
	}
	return err
}

// find looks for a disk. It comes before each change, since a simulated node takes a
// mistake, such as attaching a disk twice, as one of the program.
func (h InProcess) find(ctx context.Context, serial string) (number disk.Number, attached bool, err error) {
	disks, err := h.Node.Operations().Disk.ListDiskIDs(ctx)
	for n, ids := range disks {
		if ids.SerialNumber == serial {
			return n, true, err
		}
	}
	return 0, false, err
}
