// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	iscsiv1alpha2 "github.com/kubernetes-csi/csi-proxy/client/api/iscsi/v1alpha2"
	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"
)

// lun is a target with one disk, which a storage appliance makes for a volume. All
// are at one portal.
type lun struct{ iqn, serial string }

func newLUN(n *node, i int) storage {
	l := lun{fmt.Sprintf("iqn.2014-09.io.example:pvc-%d", i), fmt.Sprintf("lun-%d", i)}
	addTarget(n, l.iqn, nil, "", "")
	addLUN(n, l.iqn, fields{"size_bytes": int64(4 * gib), "serial_number": l.serial, "sector_size": uint32(4096), "offline": true})
	return l
}

func (l lun) driver(c clients) driver { return localISCSI{c, l.iqn} }

func (l lun) grow(n *node, size int64) {
	n.t.Helper()
	n.grow(*n.diskBySerial(l.serial).Number, size)
}

func (l lun) wantReleased(n *node) {
	n.t.Helper()
	if number := n.diskBySerial(l.serial).Number; number != nil {
		n.t.Errorf("after unstaging the target's disk is there, as number %d", *number)
	}
}

func (l lun) remove(n *node) {
	n.t.Helper()
	n.simCall("RemoveIscsiTarget", fields{"iqn": l.iqn})
}

// localISCSI is the iSCSI driver of a system for local volumes. It insists on one disk
// and one volume, removes the target path without force, and passes over what fails
// when it unstages.
type localISCSI struct {
	clients
	iqn string
}

// at is the portal of all targets. The driver always says the port.
func (d localISCSI) at() *iscsiv1alpha2.TargetPortal {
	return &iscsiv1alpha2.TargetPortal{TargetAddress: portal["target_address"].(string), TargetPort: 3260}
}

func (d localISCSI) stage(staging string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // kubelet's
	defer cancel()
	if err := d.ensurePortal(ctx); err != nil {
		return err
	}
	_, connectErr := d.iscsi.ConnectTarget(ctx, &iscsiv1alpha2.ConnectTargetRequest{TargetPortal: d.at(), Iqn: d.iqn})
	disks, err := d.disks(ctx)
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
	if err := d.setOnline(ctx, disk, true); err != nil {
		return err
	}
	if err := d.partition(ctx, disk); err != nil {
		return err
	}
	resp, err := d.volume.ListVolumesOnDisk(ctx, &volumev1.ListVolumesOnDiskRequest{DiskNumber: disk})
	if err != nil {
		return err
	}
	if len(resp.VolumeIds) != 1 {
		return fmt.Errorf("disk %d has %d volumes", disk, len(resp.VolumeIds))
	}
	volume := resp.VolumeIds[0]
	if err := d.format(ctx, volume); err != nil {
		return err
	}
	if err := d.ensureDir(ctx, staging); err != nil {
		return err
	}
	return d.mount(ctx, volume, staging)
}

// ensurePortal adds the portal if it doesn't tell of the target.
func (d localISCSI) ensurePortal(ctx context.Context) error {
	if found, err := d.discovers(ctx); err == nil && found {
		return nil
	}
	if _, err := d.iscsi.AddTargetPortal(ctx, &iscsiv1alpha2.AddTargetPortalRequest{TargetPortal: d.at()}); err != nil {
		return err
	}
	found, err := d.discovers(ctx)
	if err == nil && !found {
		err = fmt.Errorf("the portal doesn't tell of %s", d.iqn)
	}
	return err
}

func (d localISCSI) discovers(ctx context.Context) (bool, error) {
	resp, err := d.iscsi.DiscoverTargetPortal(ctx, &iscsiv1alpha2.DiscoverTargetPortalRequest{TargetPortal: d.at()})
	return slices.Contains(resp.GetIqns(), d.iqn), err
}

func (d localISCSI) disks(ctx context.Context) ([]string, error) {
	resp, err := d.iscsi.GetTargetDisks(ctx, &iscsiv1alpha2.GetTargetDisksRequest{TargetPortal: d.at(), Iqn: d.iqn})
	return resp.GetDiskIDs(), err
}

func (d localISCSI) publish(staging, target string) error {
	ctx := context.Background()
	exists, err := d.pathExists(ctx, target)
	if err != nil {
		return err
	}
	if exists {
		if d.isMounted(ctx, target) {
			return nil
		}
		if err := d.removeDir(ctx, target, false); err != nil {
			return err
		}
	}
	if err := d.ensureDir(ctx, parent(target)); err != nil {
		return err
	}
	if err := d.createSymlink(ctx, staging, target); err != nil && !d.isMounted(ctx, target) {
		return err
	}
	return nil
}

func (d localISCSI) unpublish(target string) error {
	ctx := context.Background()
	if err := d.removeDir(ctx, target, true); err != nil {
		if exists, existsErr := d.pathExists(ctx, target); existsErr != nil || exists {
			return err
		}
	}
	return nil
}

func (d localISCSI) unstage(staging string) error {
	ctx := context.Background()
	if volume, err := d.volumeAt(ctx, staging); err == nil {
		_ = d.unmount(ctx, volume, staging)
		if disk, err := d.diskOf(ctx, volume); err == nil {
			_ = d.setOnline(ctx, disk, false)
		}
	}
	_, _ = d.iscsi.DisconnectTarget(ctx, &iscsiv1alpha2.DisconnectTargetRequest{TargetPortal: d.at(), Iqn: d.iqn})
	return nil
}
