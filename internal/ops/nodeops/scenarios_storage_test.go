// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// copied is where the copy of a disk is staged.
const copied = simtest.Kubelet + `\plugins\example\copy\globalmount`

// storageScenarios are those of the storage group.
var storageScenarios = []scenario{
	{
		name: "ListDisks", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.ListDisks(ctx, csiproxy.Selector{})
			return err
		},
	},
	{
		name: "WatchDisks", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			for changes, err := range n.Storage.WatchDisks(ctx, csiproxy.Selector{Number: &r.number}) {
				return want("the number of disks", len(changes.Added), 1, err)
			}
			return nil
		},
	},
	{
		name: "StageVolume of a raw disk", prepare: func(r *rig) { r.raw(true) }, usedAt: staging,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.StageVolume(ctx, stageRequest)
			return err
		},
		check: isStaged,
	},
	{
		name: "StageVolume with writers", prepare: func(r *rig) { r.raw(true) }, usedAt: staging,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := stageRequest
			request.Format.Writers = []string{"Users"}
			_, err := n.Storage.StageVolume(ctx, request)
			return err
		},
		check: containerUserWrites,
	},
	{
		name: "StageVolume with writers of a disk with data", prepare: (*rig).unstaged, usedAt: staging,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := stageRequest
			request.Format.Writers = []string{"Users"}
			_, err := n.Storage.StageVolume(ctx, request)
			return err
		},
		check: func(r *rig) error {
			if err := containerUserWrites(r); !errors.Is(err, winerr.ErrorAccessDenied) {
				return fmt.Errorf("writing gives %w", err)
			}
			return precious(r, staging)
		},
	},
	{
		name: "StageVolume of a disk with data, that has grown", usedAt: staging, prepare: func(r *rig) {
			r.unstaged()
			r.must(r.sim.GrowDisk(r.number, 20<<30))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.StageVolume(ctx, stageRequest)
			return err
		},
		check: func(r *rig) error {
			stats, err := r.process().Volume.GetVolumeStats(context.Background(), r.volume)
			return errors.Join(want("grown", stats.SizeBytes > 19<<30, true, err), precious(r, staging))
		},
	},
	{
		name: "StageVolume read-only", prepare: (*rig).unstaged, readOnly: true,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := stageRequest
			request.ReadOnly, request.Grow = true, false
			_, err := n.Storage.StageVolume(ctx, request)
			return err
		},
		check: func(r *rig) error {
			if err := r.sim.WriteFile(staging+file, []byte("changed")); !errors.Is(err, winerr.ErrorWriteProtect) {
				return fmt.Errorf("writing gives %w", err)
			}
			return precious(r, staging)
		},
	},
	{
		name: "StageVolume of a copy", usedAt: copied, waits: true, prepare: func(r *rig) {
			r.mounted()
			var err error
			r.number, err = r.sim.CloneDisk(r.number, winsim.DiskSpec{Serial: "copy", Offline: true})
			r.must(err)
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
				Disk: csiproxy.Selector{SerialNumber: "copy"}, StagingPath: copied,
			})
			return err
		},
		check: func(r *rig) error { return errors.Join(precious(r, staging), precious(r, copied)) },
	},
	{
		name: "StageVolume of a disk of others", refused: true, offline: true, prepare: func(r *rig) {
			r.raw(true)
			r.must(r.sim.WriteImage(r.number, []byte(twoPartitions), 0))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.StageVolume(ctx, stageRequest)
			return refusal(err)
		},
		check: func(r *rig) error {
			b := make([]byte, len(twoPartitions))
			r.must(r.sim.ReadImage(r.number, b, 0))
			return want("what is written to it", string(b), twoPartitions, nil)
		},
	},
	{
		name: "StageVolume of a target", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.StageVolume(ctx, targetRequest)
			return err
		},
		check: isStaged,
	},
	{
		name: "StageVolume of a target with mutual CHAP", prepare: func(r *rig) {
			r.must(r.sim.ISCSI().AddTarget(iscsitarget.Target{
				IQN: mutualIQN, Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)},
				CHAPUser: "node", CHAPSecret: csiproxy.NewSecret("twelve bytes"), MutualSecret: csiproxy.NewSecret("other 12 byte"),
			}, winsim.DiskSpec{SizeBytes: 1 << 30}))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := targetRequest
			request.Disk.ISCSI = &csiproxy.ISCSISelector{Portal: portal, IQN: mutualIQN}
			request.Login.Type, request.Login.Username = csiproxy.ISCSIMutualCHAP, "node"
			request.Login.Secret, request.Login.MutualSecret = csiproxy.NewSecret("twelve bytes"), csiproxy.NewSecret("other 12 byte")
			_, err := n.Storage.StageVolume(ctx, request)
			return err
		},
		check: isStaged,
	},
	{
		name: "UnstageVolume", prepare: (*rig).mounted, offline: true,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk})
			return err
		},
		check: isUnstaged,
	},
	{
		name: "UnstageVolume beside another volume", prepare: (*rig).mountedBeside, offline: true,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk})
			return err
		},
		check: isUnstaged,
	},
	{
		name: "UnstageVolume where the lock is in the way", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.SetSettings(winsim.Settings{LockedMountPoint: winerr.ErrorAccessDenied}))
		}, offline: true,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk})
			return err
		},
		check: isUnstaged,
	},
	{
		name: "UnstageVolume read-only", offline: true, prepare: func(r *rig) {
			r.unstaged()
			request := stageRequest
			request.ReadOnly, request.Grow = true, false
			_, err := r.process().Storage.StageVolume(context.Background(), request)
			r.must(err)
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk})
			return err
		},
		check: isOffline,
	},
	{
		name: "UnstageVolume of a read-only disk that isn't staged", offline: true, prepare: func(r *rig) {
			r.raw(true)
			r.must(r.sim.SetDiskAttributes(r.number,
				win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk})
			return err
		},
		check: isOffline,
	},
	{
		name: "UnstageVolume of a target", prepare: func(r *rig) {
			_, err := r.process().Storage.StageVolume(context.Background(), targetRequest)
			r.must(err)
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging, Disk: targetRequest.Disk})
			return err
		},
		check: func(r *rig) error {
			sessions, err := r.sim.ISCSISessions(context.Background())
			return want("the number of sessions", len(sessions), 0, err)
		},
	},
	{
		name: "PublishVolume", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Storage.PublishVolume(ctx, staging, target)
		},
		check: func(r *rig) error { return precious(r, target) },
	},
	{
		name: "UnpublishVolume", prepare: func(r *rig) {
			r.mounted()
			r.must(r.process().Storage.PublishVolume(context.Background(), staging, target))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Storage.UnpublishVolume(ctx, target)
		},
		check: func(r *rig) error {
			exists, err := r.process().Filesystem.PathExists(context.Background(), target)
			return errors.Join(want("there", exists, false, err), precious(r, staging))
		},
	},
	{
		name: "ExpandVolume", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.GrowDisk(r.number, 20<<30))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.ExpandVolume(ctx,
				csiproxy.ExpandVolumeRequest{StagingPath: staging, DiskSizeBytes: 20 << 30, Wait: time.Second})
			return err
		},
		check: func(r *rig) error {
			stats, err := r.process().Volume.GetVolumeStats(context.Background(), r.volume)
			return errors.Join(want("grown", stats.SizeBytes > 19<<30, true, err), precious(r, staging))
		},
	},
	{
		name: "GetVolume", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.GetVolume(ctx, staging)
			return err
		},
	},
	{
		name: "GetVolume of a share", prepare: (*rig).sharedTwice,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.GetVolume(ctx, share)
			return err
		},
	},
	{
		name: "ListVolumes", prepare: func(r *rig) {
			r.mounted()
			r.sharedTwice()
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.ListVolumes(ctx)
			return err
		},
	},
	{
		name: "CleanUp", prepare: func(r *rig) {
			r.must(r.process().Storage.StageShare(context.Background(), shareRequest(share)))
			r.must(r.process().SMB.NewSMBGlobalMapping(context.Background(), `\\server\data`, "", user))
			r.must(r.sim.MkdirAll(simtest.Kubelet + `\pods`))
			r.must(r.sim.Symlink(simtest.Kubelet+`\pods\dangling`, simtest.Kubelet+`\none`, true))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			leftovers, err := n.Storage.CleanUp(ctx, true)
			for _, one := range leftovers.Mounts {
				if one.Error != "" {
					err = csiproxy.Errorf(csiproxy.ErrUnavailable, "%s", one.Error)
				}
			}
			return err
		},
		check: func(r *rig) error { return r.sim.WriteFile(share+file, nil) },
	},
	{
		name: "UnstageVolume of a volume in use", refused: true, prepare: func(r *rig) {
			r.mounted()
			id, err := r.sim.StartProcess(`C:\app.exe`, staging+file)
			r.must(err)
			r.t.Cleanup(func() { _ = r.sim.EndProcess(id) }) // what it has open may have gone
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			ctx, cancel := context.WithTimeout(ctx, 12*time.Second) // for a few attempts
			defer cancel()
			_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
			return refusal(err)
		},
		check: func(r *rig) error { return precious(r, staging) },
	},
	{
		name: "UnstageVolume of another disk", refused: true, prepare: func(r *rig) {
			r.mounted()
			r.attach(winsim.DiskSpec{Serial: "vol-2", Offline: true})
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			done, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{
				StagingPath: staging, Disk: csiproxy.Selector{SerialNumber: "vol-2"},
			})
			return want("unmounted", done.Unmounted, false, err)
		},
		check: func(r *rig) error { return precious(r, staging) },
	},
	{
		name: "CheckVolume of a published volume", refused: true, prepare: func(r *rig) {
			r.published()
			r.must(r.sim.SetVolumeDamage(staging, volumes.SpotDamage))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: staging, SpotFix: true})
			return refusal(err)
		},
		check: func(r *rig) error {
			i := slices.IndexFunc(r.sim.Volumes(), func(v volumes.Info) bool { return v.Damage == volumes.SpotDamage })
			return want("still damaged", i >= 0, true, nil)
		},
	},
	{
		name: "CleanUp of what is used", refused: true, prepare: func(r *rig) {
			r.published()
			r.publishedShare()
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.CleanUp(ctx, true)
			return err
		},
		check: func(r *rig) error { return errors.Join(precious(r, target), r.sim.WriteFile(podShare+file, nil)) },
	},
	{
		name: "CheckVolume", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.SetVolumeDamage(staging, volumes.SpotDamage))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: staging, SpotFix: true})
			return err
		},
		check: func(r *rig) error { return precious(r, staging) },
	},
}

// refusal wants an operation to be refused.
func refusal(err error) error {
	if errors.Is(err, csiproxy.ErrFailedPrecondition) || errors.Is(err, csiproxy.ErrUnauthenticated) {
		return nil
	}
	return cmp.Or(err, errors.New("it isn't refused"))
}

const mutualIQN = "iqn.2026-01.com.example:mutual"

var (
	stageRequest = csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: "vol-1"}, StagingPath: staging,
		Grow: true, Wait: time.Second}
	targetRequest = csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal,
		IQN: iqn}}, StagingPath: staging, Wait: time.Second}
)

// unstaged makes it a disk with a file on its volume, that is offline.
func (r *rig) unstaged() {
	r.mounted()
	_, err := r.process().Storage.UnstageVolume(context.Background(), csiproxy.UnstageVolumeRequest{StagingPath: staging})
	r.must(err)
}

// isStaged checks that a volume with a file system is mounted at the staging path.
func isStaged(r *rig) error { return r.sim.WriteFile(staging+"\\used.txt", nil) }

// containerUserWrites checks that a pod that isn't an administrator can write to the staged volume.
func containerUserWrites(r *rig) error {
	return r.sim.As(winsim.ContainerUser).WriteFile(staging+"\\used.txt", nil)
}

// isOffline checks that the disk is offline, and no longer read-only.
func isOffline(r *rig) error {
	for _, d := range r.sim.Disks() {
		if d.Number == r.number {
			return want("the disk's state", d.Attributes, win.DiskOffline, nil)
		}
	}
	return errors.New("the disk has left")
}

// isUnstaged checks that the volume is unmounted, and its disk offline with all that was on it.
func isUnstaged(r *rig) error {
	online, err := r.process().Disk.GetDiskState(context.Background(), r.number)
	if err := want("online", online, false, err); err != nil {
		return err
	}
	exists, err := r.process().Filesystem.PathExists(context.Background(), staging)
	if err := want("there", exists, false, err); err != nil {
		return err
	}
	r.must(r.process().Disk.SetDiskState(context.Background(), r.number, true))
	r.must(r.process().Volume.MountVolume(context.Background(), r.volume, staging))
	return precious(r, staging)
}

// twoPartitions is a master boot record with two partitions for Windows, each of 1 MiB.
var twoPartitions = strings.Repeat("\x00", 440) + "\x11\x22\x33\x44\x00\x00" +
	"\x00\x00\x00\x00\x07\x00\x00\x00\x00\x08\x00\x00\x00\x08\x00\x00" +
	"\x00\x00\x00\x00\x07\x00\x00\x00\x00\x10\x00\x00\x00\x08\x00\x00" +
	strings.Repeat("\x00", 32) + "\x55\xaa"
