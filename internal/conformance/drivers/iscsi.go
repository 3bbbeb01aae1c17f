// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// LocalISCSI is the iSCSI driver of a system for local volumes. It insists on one disk
// and one volume, removes the target path without force, and passes over what fails
// when it unstages.
type LocalISCSI struct {
	Calls
	portal Fields
	iqn    string
}

// NewLocalISCSI returns the driver of a target. The driver always says the port.
func NewLocalISCSI(n Node, address string, port uint32, iqn string) LocalISCSI {
	return LocalISCSI{Calls{n}, Fields{"target_address": address, "target_port": port}, iqn}
}

func (d LocalISCSI) target() Fields { return Fields{"target_portal": d.portal, "iqn": d.iqn} }

func (d LocalISCSI) Stage(staging string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // kubelet's
	defer cancel()
	if err := d.ensurePortal(ctx); err != nil {
		return err
	}
	connectErr := d.do(ctx, "ConnectTarget", d.target())
	disks, err := get[[]string](ctx, d.Calls, "GetTargetDisks", d.target(), "diskIDs")
	if connectErr != nil && (err != nil || len(disks) == 0) {
		return connectErr
	}
	if err != nil {
		return err
	}
	if len(disks) != 1 {
		return fmt.Errorf("target %s has the disks %q", d.iqn, disks)
	}
	number, err := strconv.ParseUint(disks[0], 10, 32)
	if err != nil {
		return err
	}
	disk := uint32(number)
	if err := d.SetDiskState(ctx, disk, true); err != nil {
		return err
	}
	if err := d.PartitionDisk(ctx, disk); err != nil {
		return err
	}
	volumes, err := d.ListVolumesOnDisk(ctx, disk)
	if err != nil {
		return err
	}
	if len(volumes) != 1 {
		return fmt.Errorf("disk %d has %d volumes", disk, len(volumes))
	}
	volume := volumes[0]
	if err := d.Format(ctx, volume); err != nil {
		return err
	}
	if err := d.ensureDir(ctx, staging); err != nil {
		return err
	}
	return d.MountVolume(ctx, volume, staging)
}

// ensurePortal adds the portal if it doesn't tell of the target.
func (d LocalISCSI) ensurePortal(ctx context.Context) error {
	if found, err := d.discovers(ctx); err == nil && found {
		return nil
	}
	if err := d.do(ctx, "AddTargetPortal", Fields{"target_portal": d.portal}); err != nil {
		return err
	}
	found, err := d.discovers(ctx)
	if err == nil && !found {
		err = fmt.Errorf("the portal doesn't tell of %s", d.iqn)
	}
	return err
}

func (d LocalISCSI) discovers(ctx context.Context) (bool, error) {
	iqns, err := get[[]string](ctx, d.Calls, "DiscoverTargetPortal", Fields{"target_portal": d.portal}, "iqns")
	return slices.Contains(iqns, d.iqn), err
}

func (d LocalISCSI) Publish(staging, target string) error {
	ctx := context.Background()
	exists, err := d.PathExists(ctx, target)
	if err != nil {
		return err
	}
	if exists {
		if d.isMounted(ctx, target) {
			return nil
		}
		if err := d.Rmdir(ctx, target, false); err != nil {
			return err
		}
	}
	if err := d.ensureDir(ctx, parent(target)); err != nil {
		return err
	}
	if err := d.CreateSymlink(ctx, staging, target); err != nil && !d.isMounted(ctx, target) {
		return err
	}
	return nil
}

func (d LocalISCSI) Unpublish(target string) error {
	ctx := context.Background()
	if err := d.Rmdir(ctx, target, true); err != nil {
		if exists, existsErr := d.PathExists(ctx, target); existsErr != nil || exists {
			return err
		}
	}
	return nil
}

func (d LocalISCSI) Unstage(staging string) error {
	ctx := context.Background()
	if volume, err := d.VolumeAt(ctx, staging); err == nil {
		_ = d.UnmountVolume(ctx, volume, staging)
		if disk, err := d.DiskOf(ctx, volume); err == nil {
			_ = d.SetDiskState(ctx, disk, false)
		}
	}
	_ = d.do(ctx, "DisconnectTarget", d.target())
	return nil
}
