// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"maps"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// ProtectedDisks returns the disks of the administrator's protected volumes, and of C:.
func (f *Finder) ProtectedDisks(ctx context.Context) (map[csiproxy.DiskNumber]bool, error) {
	protected := make(map[csiproxy.DiskNumber]bool)
	for _, name := range append([]string{"C:"}, f.SharedFinder.paths.ProtectedByName()...) {
		extents, err := f.protectedExtents(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, e := range extents {
			protected[e.DiskNumber] = true
		}
	}
	return protected, nil
}

// MissingVolumes reports, for each volume that the administrator protects by name, whether the
// volume is missing from the node's disks. The name then protects nothing. The volume's disk may
// still arrive, or another program may still create the volume on a disk.
func (f *Finder) MissingVolumes(ctx context.Context) (map[string]bool, error) {
	missing := make(map[string]bool)
	for _, name := range f.SharedFinder.paths.ProtectedByName() {
		extents, err := f.protectedExtents(ctx, name)
		if err != nil {
			return nil, err
		}
		missing[name] = len(extents) == 0
	}
	return missing, nil
}

// protectedExtents returns the parts of disks under a protected volume: none for a missing volume,
// and for a DVD. On Azure machines without a temporary disk, the DVD drive mostly is D:.
func (f *Finder) protectedExtents(ctx context.Context, name string) ([]win.DiskExtent, error) {
	node := f.ofNode()
	id, err := node.paths.VolumeNamed(ctx, node.sys, name)
	if err != nil || id == "" {
		return nil, err
	}
	extents, err := node.extentsIfThere(ctx, csiproxy.VolumeID(id))
	if winerr.IsAny(err, winerr.ErrorInvalidFunction, winerr.ErrorNotReady) {
		return nil, nil
	}
	if err != nil {
		return nil, &csiproxy.Error{Object: "protected volume " + quote.Text(name), Err: err}
	}
	return extents, nil
}

// MissingNames returns the names of the missing volumes in MissingVolumes, in order.
func (f *Finder) MissingNames(ctx context.Context) (names []string, _ error) {
	missing, err := f.MissingVolumes(ctx)
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if missing[name] {
			names = append(names, name)
		}
	}
	return names, err
}

// CheckEmptyDisk returns csiproxy.ErrFailedPrecondition, with the reason, if a disk without data
// must not be partitioned or formatted. The disk may be reserved for another program, which will
// format it: Azure's temporary disk or, while a protected volume is missing, the disk for the
// protected volume. While a protected volume is missing, only disks known as Azure's data disks may
// be written to.
func (f *Finder) CheckEmptyDisk(ctx context.Context, disk *opendisk.Disk) error {
	text, err := disk.LocationText(ctx)
	if err != nil {
		return err
	}
	if opendisk.IsAzureLocal(disk.Hardware.Descriptor, text) {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"it is attached as the disk of Windows and the temporary disk are on machines of Azure, and Azure's agent formats "+
				"that one; name the disk of a volume instead")
	}
	missing, err := f.MissingNames(ctx)
	if err != nil || len(missing) == 0 {
		return err
	}
	scsiAddress, err := disk.SCSIAddress(ctx)
	address := &scsiAddress
	if err != nil {
		if !winerr.IsAnswer(err) {
			return err
		}
		address = nil
	}
	if opendisk.IsAzureData(disk.Hardware.Descriptor, text, address) {
		return nil
	}
	return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
		"it may be the disk of %s, which -protected-volume names and which isn't there: until it is, only data disks of "+
			"Azure are partitioned and formatted; wait for it, or start the daemon without that if this machine has none",
		quote.Text(strings.Join(missing, ", ")))
}
