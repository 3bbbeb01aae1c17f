// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// scenario is an operation on a node that was made ready for it.
type scenario struct {
	name    string
	prepare func(r *rig)
	run     func(ctx context.Context, r *rig, n *nodeops.Node) error
	// check says what isn't so though run has succeeded.
	check func(r *rig) error
	// gone is what a repeated run may answer once the first one has done all.
	gone error
	// offline is set if the disk ends offline, so that nothing on it can be read.
	offline bool
	// byNumber is set if the caller names the disk by its number: whatever disk has the
	// number when the operation begins is the one that is meant.
	byNumber bool
	// usedAt is where the disk is mounted by who uses it. Default: a path of its own.
	usedAt string
	// readOnly is set if nothing can be written to the disk in the end.
	readOnly bool
	// refused is set if the operation must not do what it is asked for: run succeeds if it is
	// refused, and check holds whatever it answers.
	refused bool
	// waits is set if a repeated run waits for Windows without a call under way.
	waits bool

	sample []int // the calls at which mishaps come in a sample; all if it is nil
}

// again returns the error of a repeated run that counts.
func (s scenario) again(err error) error {
	if s.gone != nil && errors.Is(err, s.gone) {
		return nil
	}
	return err
}

func want[T comparable](what string, got, want T, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return err
}

// precious checks that the file which mounted has written is what it was.
func precious(r *rig, path string) error {
	data, err := r.sim.ReadFile(path + file)
	return want("the file", string(data), "precious", err)
}

func mountVolume(ctx context.Context, r *rig, n *nodeops.Node) error {
	return n.Volume.MountVolume(ctx, r.volume, staging)
}

func isMounted(r *rig) error {
	id, err := r.process().Volume.GetVolumeIDFromTargetPath(context.Background(), staging)
	return want("the volume", id.Equal(r.volume), true, err)
}

func none(*rig) {}

var scenarios = slices.Concat(publishedScenarios, storageScenarios, shareScenarios)

// publishedScenarios are those of the published groups.
var publishedScenarios = []scenario{
	{
		name: "PartitionDisk", byNumber: true, prepare: func(r *rig) { r.raw(true) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Disk.PartitionDisk(ctx, r.number)
		},
		check: func(r *rig) error {
			ids, err := r.process().Volume.ListVolumesOnDisk(context.Background(), r.number, 0)
			return want("the number of volumes", len(ids), 1, err)
		},
	},
	{
		name: "SetDiskState online", byNumber: true, prepare: func(r *rig) {
			r.formatted()
			r.must(r.process().Disk.SetDiskState(context.Background(), r.number, false))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Disk.SetDiskState(ctx, r.number, true)
		},
		check: func(r *rig) error {
			online, err := r.process().Disk.GetDiskState(context.Background(), r.number)
			return want("online", online, true, err)
		},
	},
	{
		name: "SetDiskState offline", byNumber: true, prepare: (*rig).formatted, offline: true,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Disk.SetDiskState(ctx, r.number, false)
		},
		check: func(r *rig) error {
			online, err := r.process().Disk.GetDiskState(context.Background(), r.number)
			return want("online", online, false, err)
		},
	},
	{
		name: "GetDiskState", byNumber: true, prepare: func(r *rig) { r.raw(false) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			online, err := n.Disk.GetDiskState(ctx, r.number)
			return want("online", online, true, err)
		},
	},
	{
		name: "GetDiskStats", byNumber: true, prepare: func(r *rig) { r.raw(false) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			stats, err := n.Disk.GetDiskStats(ctx, r.number)
			return want("the size", stats.SizeBytes, 10<<30, err)
		},
	},
	{
		name: "ListDiskIDs", prepare: func(r *rig) { r.raw(false) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Disk.ListDiskIDs(ctx)
			return err
		},
	},
	{
		name: "ListDiskLocations", prepare: func(r *rig) { r.raw(false) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Disk.ListDiskLocations(ctx)
			return err
		},
	},
	{
		name: "Rescan", prepare: func(r *rig) {
			_, err := r.sim.AttachDisk(winsim.DiskSpec{SizeBytes: 1 << 30, Serial: "new", NeedsRescan: true})
			r.must(err)
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error { return n.Disk.Rescan(ctx) },
	},
	{
		name: "ListVolumesOnDisk", byNumber: true, prepare: (*rig).formatted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			ids, err := n.Volume.ListVolumesOnDisk(ctx, r.number, 0)
			if err == nil && len(ids) == 1 && !ids[0].Equal(r.volume) {
				return fmt.Errorf("it is volume %s of another disk", ids[0])
			}
			return want("the number of volumes", len(ids), 1, err)
		},
	},
	{
		name: "IsVolumeFormatted", prepare: (*rig).formatted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			formatted, err := n.Volume.IsVolumeFormatted(ctx, r.volume)
			return want("formatted", formatted, true, err)
		},
	},
	{
		// Formatting a formatted volume is refused.
		name: "FormatVolume", prepare: (*rig).partitioned, gone: csiproxy.ErrFailedPrecondition,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Volume.FormatVolume(ctx, r.volume)
		},
		check: func(r *rig) error {
			formatted, err := r.process().Volume.IsVolumeFormatted(context.Background(), r.volume)
			return want("formatted", formatted, true, err)
		},
	},
	{
		// A driver that has died after its format never formats again.
		name: "FormatVolume and MountVolume with writers", prepare: func(r *rig) {
			r.partitioned()
			r.writers = []string{"Users"}
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			formatted, err := n.Volume.IsVolumeFormatted(ctx, r.volume)
			if err == nil && !formatted {
				err = n.Volume.FormatVolume(ctx, r.volume)
			}
			if err != nil {
				return err
			}
			return n.Volume.MountVolume(ctx, r.volume, staging)
		},
		check: containerUserWrites,
	},
	{
		name: "MountVolume", prepare: (*rig).formatted, run: mountVolume, check: isMounted,
	},
	{
		name: "MountVolume of a node whose paths have obstacles", prepare: func(r *rig) {
			r.must(r.sim.SetSettings(winsim.Settings{MountManagerExclusive: true, BindFilter: true}))
			r.formatted()
		},
		run: mountVolume, check: isMounted,
	},
	{
		name: "UnmountVolume", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Volume.UnmountVolume(ctx, r.volume, staging)
		},
		check: func(r *rig) error {
			_, err := r.process().Volume.GetVolumeIDFromTargetPath(context.Background(), staging)
			return want("not mounted", errors.Is(err, csiproxy.ErrNotFound), true, nil)
		},
	},
	{
		name: "ResizeVolume", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.GrowDisk(r.number, 20<<30))
			r.must(r.process().Disk.Rescan(context.Background()))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Volume.ResizeVolume(ctx, r.volume, 0)
		},
		check: func(r *rig) error {
			stats, err := r.process().Volume.GetVolumeStats(context.Background(), r.volume)
			return errors.Join(want("grown", stats.SizeBytes > 19<<30, true, err), precious(r, staging))
		},
	},
	{
		name: "GetVolumeStats", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			stats, err := n.Volume.GetVolumeStats(ctx, r.volume)
			return want("large enough", stats.SizeBytes > 9<<30, true, err)
		},
	},
	{
		name: "WriteVolumeCache", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Volume.WriteVolumeCache(ctx, r.volume)
		},
	},
	{
		name: "GetDiskNumberFromVolumeID", prepare: (*rig).formatted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			number, err := n.Volume.GetDiskNumberFromVolumeID(ctx, r.volume)
			return want("the disk", number, r.number, err)
		},
	},
	{
		name: "GetVolumeIDFromTargetPath", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			id, err := n.Volume.GetVolumeIDFromTargetPath(ctx, staging)
			return want("the volume", id.Equal(r.volume), true, err)
		},
	},
	{
		name: "GetClosestVolumeIDFromTargetPath", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			id, err := n.Volume.GetClosestVolumeIDFromTargetPath(ctx, staging+file)
			return want("the volume", id.Equal(r.volume), true, err)
		},
	},
	{
		name: "PathExists", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			exists, err := n.Filesystem.PathExists(ctx, staging)
			return want("there", exists, true, err)
		},
	},
	{
		name: "Mkdir", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Filesystem.Mkdir(ctx, target)
		},
		check: func(r *rig) error { _, err := r.sim.ReadDir(target); return err },
	},
	{
		name: "Rmdir", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.MkdirAll(target + `\a\b`))
			r.must(r.sim.WriteFile(target+`\a\b`+file, nil))
			r.must(r.sim.Symlink(target+`\a\link`, staging, true))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Filesystem.Rmdir(ctx, target, true)
		},
		check: func(r *rig) error {
			exists, err := r.process().Filesystem.PathExists(context.Background(), target)
			return errors.Join(want("there", exists, false, err), precious(r, staging))
		},
	},
	{
		name: "CreateSymlink", prepare: func(r *rig) {
			r.mounted()
			r.must(r.process().Filesystem.Mkdir(context.Background(), simtest.Kubelet+`\pods\6a1c2d3e\volumes\pv-1`))
		},
		// What a process leaves that dies half-way is removed first, as drivers do.
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			if err := n.Filesystem.Rmdir(ctx, target, false); err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
				return err
			}
			return n.Filesystem.CreateSymlink(ctx, staging, target)
		},
		check: func(r *rig) error { return precious(r, target) },
	},
	{
		name: "IsSymlink", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.MkdirAll(simtest.Kubelet + `\pods`))
			r.must(r.sim.Symlink(simtest.Kubelet+`\pods\link`, staging, true))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			is, err := n.Filesystem.IsSymlink(ctx, simtest.Kubelet+`\pods\link`)
			return want("a link", is, true, err)
		},
	},
	{
		name: "NewSMBGlobalMapping", prepare: func(r *rig) { r.must(r.sim.MkdirAll(simtest.Kubelet + `\plugins\smb`)) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			if err := n.Filesystem.Rmdir(ctx, simtest.Kubelet+`\plugins\smb\pv`, true); err != nil {
				return err
			}
			return n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, simtest.Kubelet+`\plugins\smb\pv`, user)
		},
		check: func(r *rig) error {
			return r.sim.WriteFile(simtest.Kubelet+`\plugins\smb\pv`+file, []byte("x"))
		},
	},
	{
		name: "NewSMBGlobalMapping with a changed password", prepare: func(r *rig) {
			r.mapped()
			r.must(r.sim.SMB().AddShare(smbserver.Share{Server: "server", Name: "logs"}))
			r.must(r.process().SMB.NewSMBGlobalMapping(context.Background(), `\\server\logs`, "", user))
			r.must(r.sim.SMB().SetUser("server", user.Username, csiproxy.NewSecret("changed")))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, "", csiproxy.SMBCredentials{Username: user.Username, Password: csiproxy.NewSecret("changed")})
		},
		check: func(r *rig) error { return r.sim.WriteFile(`\\server\data`+file, nil) },
	},
	{
		name: "RemoveSMBGlobalMapping", prepare: (*rig).mapped, gone: csiproxy.ErrNotFound,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.SMB.RemoveSMBGlobalMapping(ctx, `\\server\data`)
		},
	},
	{
		name: "AddTargetPortal", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.ISCSI.AddTargetPortal(ctx, portal)
		},
	},
	{
		name: "DiscoverTargetPortal", prepare: (*rig).connected,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			iqns, err := n.ISCSI.DiscoverTargetPortal(ctx, portal)
			return want("the number of targets", len(iqns), 1, err)
		},
	},
	{
		name: "ConnectTarget", prepare: func(
			r *rig) {
			r.must(r.process().ISCSI.AddTargetPortal(context.Background(), portal))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.ISCSI.ConnectTarget(ctx, portal, iqn, csiproxy.ISCSIAuthentication{})
		},
		check: func(r *rig) error {
			disks, err := r.process().ISCSI.GetTargetDisks(context.Background(), portal, iqn)
			return want("the number of disks", len(disks), 1, err)
		},
	},
	{
		name: "GetTargetDisks", prepare: (*rig).connected,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			disks, err := n.ISCSI.GetTargetDisks(ctx, portal, iqn)
			return want("the number of disks", len(disks), 1, err)
		},
	},
	{
		name: "DisconnectTarget", prepare: func(r *rig) {
			r.connected()
			r.must(r.sim.ISCSI().SetPersistentLogin(win.ISCSILogin{Target: string(iqn), Portal: win.ISCSIPortal(portal)}))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.ISCSI.DisconnectTarget(ctx, portal, iqn)
		},
		check: func(r *rig) error {
			disks, err := r.process().ISCSI.GetTargetDisks(context.Background(), portal, iqn)
			return want("the number of disks", len(disks), 0, err)
		},
	},
	{
		name: "RemoveTargetPortal", prepare: (*rig).connected, gone: csiproxy.ErrNotFound,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.ISCSI.RemoveTargetPortal(ctx, portal)
		},
	},
	{
		name: "SetMutualCHAPSecret", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.ISCSI.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("twelve bytes"))
		},
	},
	{
		name: "StartService", waits: true, prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.System.StartService(ctx, "needs-example")
		},
		check: func(r *rig) error {
			s, err := r.process().System.GetService(context.Background(), "example")
			return want("the state", s.Status, 4, err)
		},
	},
	{
		name: "StopService", waits: true, prepare: func(r *rig) {
			r.must(r.process().System.StartService(context.Background(), "needs-example"))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.System.StopService(ctx, "example", true)
		},
		check: func(r *rig) error {
			s, err := r.process().System.GetService(context.Background(), "needs-example")
			return want("the state", s.Status, 1, err)
		},
	},
	{
		name: "GetBIOSSerialNumber", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.System.GetBIOSSerialNumber(ctx)
			return err
		},
	},
}
