// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
	"github.com/csi-proxy/csi-proxy/internal/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/iscsi"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
	"github.com/csi-proxy/csi-proxy/storage"
	"github.com/csi-proxy/csi-proxy/volume"
)

const (
	staging = simtest.Kubelet + `\plugins\example\pv-1\globalmount`
	target  = simtest.Kubelet + `\pods\6a1c2d3e\volumes\pv-1\mount`
	file    = `\data.txt`
)

var (
	user   = smb.Credentials{Username: "user", Password: secret.New("password")}
	portal = iscsi.Portal{Address: "10.0.0.1", Port: 3260}
	iqn    = iscsi.IQN("iqn.2026-01.com.example:vol-1")
)

// rig is a node that a scenario works on.
type rig struct {
	t   testing.TB
	sim *winsim.System

	number disk.Number // of the disk that the scenario is about
	volume volume.ID   // of its data partition, if it has one
}

// newRig returns a node with everything that scenarios need beside their own object: a
// share, a target, a service.
func newRig(t testing.TB) *rig { return newSlowRig(t, winsim.Delays{}) }

// newSlowRig is newRig of a node whose calls and arrivals take time.
func newSlowRig(t testing.TB, delays winsim.Delays) *rig {
	r := &rig{t: t, sim: simtest.Open(t, delays)}
	r.must(r.sim.MkdirAll(simtest.Kubelet))
	for _, server := range []string{"server", "other"} {
		r.must(r.sim.SMB().AddShare(smbserver.Share{Server: server, Name: "data"}))
		r.must(r.sim.SMB().SetUser(server, user.Username, user.Password))
	}
	r.must(r.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: string(iqn), Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)}},
		winsim.DiskSpec{SizeBytes: 1 << 30}))
	r.must(r.sim.Services().Add(services.Spec{Name: "example"}))
	r.must(r.sim.Services().Add(services.Spec{Name: "needs-example", DependsOn: []string{"example"}}))
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	simtest.Must(r.t, err)
}

// process returns the operations of a process that has just started.
func (r *rig) process() *nodeops.Node {
	r.t.Helper()
	n, err := nodeops.New(r.sim, nodeops.Options{})
	r.must(err)
	return n
}

func (r *rig) attach(spec winsim.DiskSpec) disk.Number {
	r.t.Helper()
	return simtest.Attach(r.t, r.sim, spec)
}

// raw makes the scenario's disk one without content.
func (r *rig) raw(offline bool) {
	r.number = r.attach(winsim.DiskSpec{Serial: "vol-1", Offline: offline})
	r.sim.Settle()
}

// partitioned makes it a disk with one raw volume.
func (r *rig) partitioned() {
	r.raw(false)
	r.must(r.process().Disk.PartitionDisk(context.Background(), r.number))
	ids, err := r.process().Volume.ListVolumesOnDisk(context.Background(), r.number, 0)
	r.must(err)
	if len(ids) != 1 {
		r.t.Fatalf("the disk has the volumes %q", ids)
	}
	r.volume = ids[0]
}

// formatted makes it a disk with an NTFS volume.
func (r *rig) formatted() {
	r.partitioned()
	r.must(r.process().Volume.FormatVolume(context.Background(), r.volume))
}

// mounted mounts the volume at the staging path, with a file on it.
func (r *rig) mounted() {
	r.formatted()
	r.must(r.process().Volume.MountVolume(context.Background(), r.volume, staging))
	r.must(r.sim.WriteFile(staging+file, []byte("precious")))
	r.must(r.sim.FlushFile(staging + file))
}

func (r *rig) connected() {
	n := r.process()
	r.must(n.ISCSI.AddTargetPortal(context.Background(), portal))
	r.must(n.ISCSI.ConnectTarget(context.Background(), portal, iqn, iscsi.Authentication{}))
}

func (r *rig) mapped() {
	r.must(r.process().SMB.NewSMBGlobalMapping(context.Background(), `\\server\data`, "", user))
}

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
	// waits is set if a repeated run waits for Windows without a call under way.
	waits bool
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

func none(*rig) {}

var scenarios = []scenario{
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
		name: "GetDiskState", prepare: func(r *rig) { r.raw(false) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			online, err := n.Disk.GetDiskState(ctx, r.number)
			return want("online", online, true, err)
		},
	},
	{
		name: "GetDiskStats", prepare: func(r *rig) { r.raw(false) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			stats, err := n.Disk.GetDiskStats(ctx, r.number)
			return want("the size", stats.TotalBytes, 10<<30, err)
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
		name: "ListVolumesOnDisk", prepare: (*rig).formatted,
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
		name: "MountVolume", prepare: (*rig).formatted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Volume.MountVolume(ctx, r.volume, staging)
		},
		check: func(r *rig) error {
			id, err := r.process().Volume.GetVolumeIDFromTargetPath(context.Background(), staging)
			return want("the volume", id.Equal(r.volume), true, err)
		},
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
			return errors.Join(want("grown", stats.TotalBytes > 19<<30, true, err), precious(r, staging))
		},
	},
	{
		name: "GetVolumeStats", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			stats, err := n.Volume.GetVolumeStats(ctx, r.volume)
			return want("large enough", stats.TotalBytes > 9<<30, true, err)
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
			r.must(r.sim.SMB().SetUser("server", user.Username, secret.New("changed")))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, "", smb.Credentials{Username: user.Username, Password: secret.New("changed")})
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
		name: "ConnectTarget", prepare: func(r *rig) { r.must(r.process().ISCSI.AddTargetPortal(context.Background(), portal)) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.ISCSI.ConnectTarget(ctx, portal, iqn, iscsi.Authentication{})
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
		name: "DisconnectTarget", prepare: (*rig).connected,
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
			return n.ISCSI.SetMutualCHAPSecret(ctx, secret.New("twelve bytes"))
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
	{
		name: "ListDisks", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.ListDisks(ctx, storage.Selector{})
			return err
		},
	},
	{
		name: "WatchDisks", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			for changes, err := range n.Storage.WatchDisks(ctx, storage.Selector{Number: &r.number}) {
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
			return errors.Join(want("grown", stats.TotalBytes > 19<<30, true, err), precious(r, staging))
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
			if err := r.sim.WriteFile(staging+file, []byte("changed")); !errors.Is(err, win.ErrorWriteProtect) {
				return fmt.Errorf("writing gives %w", err)
			}
			return precious(r, staging)
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
				CHAPUser: "node", CHAPSecret: secret.New("twelve bytes"), MutualSecret: secret.New("other 12 byte"),
			}, winsim.DiskSpec{SizeBytes: 1 << 30}))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := targetRequest
			request.Disk.ISCSI = &storage.ISCSISelector{Portal: portal, IQN: mutualIQN}
			request.Login.Type, request.Login.Username = iscsi.MutualCHAP, "node"
			request.Login.Secret, request.Login.MutualSecret = secret.New("twelve bytes"), secret.New("other 12 byte")
			_, err := n.Storage.StageVolume(ctx, request)
			return err
		},
		check: isStaged,
	},
	{
		name: "UnstageVolume", prepare: (*rig).mounted, offline: true,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging, Disk: stageRequest.Disk})
			return err
		},
		check: func(r *rig) error {
			online, err := r.process().Disk.GetDiskState(context.Background(), r.number)
			if err := want("online", online, false, err); err != nil {
				return err
			}
			r.must(r.process().Disk.SetDiskState(context.Background(), r.number, true))
			r.must(r.process().Volume.MountVolume(context.Background(), r.volume, staging))
			return precious(r, staging)
		},
	},
	{
		name: "UnstageVolume of a target", prepare: func(r *rig) {
			_, err := r.process().Storage.StageVolume(context.Background(), targetRequest)
			r.must(err)
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: staging, Disk: targetRequest.Disk})
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
			_, err := n.Storage.ExpandVolume(ctx, storage.ExpandVolumeRequest{Path: staging, DiskBytes: 20 << 30, Wait: time.Second})
			return err
		},
		check: func(r *rig) error {
			stats, err := r.process().Volume.GetVolumeStats(context.Background(), r.volume)
			return errors.Join(want("grown", stats.TotalBytes > 19<<30, true, err), precious(r, staging))
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
		name: "StageShare", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Storage.StageShare(ctx, shareRequest(share))
		},
		check: func(r *rig) error { return r.sim.WriteFile(share+file, nil) },
	},
	{
		name: "StageShare of a mapped share", prepare: (*rig).mapped,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return n.Storage.StageShare(ctx, shareRequest(share))
		},
		check: func(r *rig) error { return r.sim.WriteFile(share+file, nil) },
	},
	{
		// It is refused, since the share has no such directory. A process that dies after it
		// has made the mapping leaves that to CleanUp.
		name: "StageShare that is refused", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			request := shareRequest(share)
			request.RemotePath += `\none`
			err := n.Storage.StageShare(ctx, request)
			if errors.Is(err, csiproxy.ErrNotFound) {
				return nil
			}
			return cmp.Or(err, errors.New("a directory that is missing is staged"))
		},
		check: func(r *rig) error {
			_, err := r.process().Storage.CleanUp(context.Background(), true)
			return errors.Join(err, want("mapped", r.isMapped(), false, nil))
		},
	},
	{
		name: "UnstageShare of one whose staging has died", prepare: (*rig).mapped,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: share, RemotePath: `\\server\data`})
			return err
		},
		check: func(r *rig) error { return want("mapped", r.isMapped(), false, nil) },
	},
	{
		name: "UnstageShare of one of two", prepare: (*rig).sharedTwice,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: share})
			return err
		},
		check: func(r *rig) error {
			exists, err := r.process().Filesystem.PathExists(context.Background(), share)
			return errors.Join(want("there", exists, false, err), r.sim.WriteFile(share+"2"+file, nil))
		},
	},
	{
		name: "UnstageShare of the last", prepare: (*rig).shared,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: share})
			return err
		},
		check: (*rig).unshared,
	},
	{
		name: "UnstageShare of an empty directory", prepare: func(r *rig) { r.must(r.sim.MkdirAll(share)) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, storage.UnstageShareRequest{StagingPath: share})
			return err
		},
		check: func(r *rig) error {
			exists, err := r.process().Filesystem.PathExists(context.Background(), share)
			return want("there", exists, true, err)
		},
	},
	{
		name: "UnstageVolume of a share", prepare: (*rig).shared,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.UnstageVolume(ctx, storage.UnstageVolumeRequest{StagingPath: share})
			return err
		},
		check: (*rig).unshared,
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
		name: "CheckVolume", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.SetVolumeDamage(staging, winsim.SpotDamage))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			_, err := n.Storage.CheckVolume(ctx, storage.CheckVolumeRequest{Path: staging, SpotFix: true})
			return err
		},
		check: func(r *rig) error { return precious(r, staging) },
	},
}

const mutualIQN = "iqn.2026-01.com.example:mutual"

// share is where a share is staged.
const share = simtest.Kubelet + `\plugins\smb\pv-1`

func shareRequest(path string) storage.StageShareRequest {
	return storage.StageShareRequest{RemotePath: `\\server\data`, StagingPath: path, Credentials: user}
}

// isMapped reports whether the scenarios' share is mapped.
func (r *rig) isMapped() bool {
	r.t.Helper()
	mappings, err := r.sim.SMBGlobalMappings(context.Background())
	r.must(err)
	return slices.ContainsFunc(mappings, func(m win.SMBMapping) bool { return m.RemotePath == `\\server\data` })
}

// shared stages a share.
func (r *rig) shared() {
	r.must(r.process().Storage.StageShare(context.Background(), shareRequest(share)))
}

// unshared checks that the share is staged nowhere any more.
func (r *rig) unshared() error {
	exists, err := r.process().Filesystem.PathExists(context.Background(), share)
	return errors.Join(want("there", exists, false, err), want("mapped", r.isMapped(), false, nil))
}

// sharedTwice stages a share at two paths.
func (r *rig) sharedTwice() {
	for _, path := range []string{share, share + "2"} {
		r.must(r.process().Storage.StageShare(context.Background(), shareRequest(path)))
	}
}

var (
	stageRequest  = storage.StageVolumeRequest{Disk: storage.Selector{SerialNumber: "vol-1"}, StagingPath: staging, Grow: true, Wait: time.Second}
	targetRequest = storage.StageVolumeRequest{Disk: storage.Selector{ISCSI: &storage.ISCSISelector{Portal: portal, IQN: iqn}}, StagingPath: staging, Wait: time.Second}
)

// unstaged makes it a disk with a file on its volume, that is offline.
func (r *rig) unstaged() {
	r.mounted()
	_, err := r.process().Storage.UnstageVolume(context.Background(), storage.UnstageVolumeRequest{StagingPath: staging})
	r.must(err)
}

// isStaged checks that a volume with a file system is mounted at the staging path.
func isStaged(r *rig) error { return r.sim.WriteFile(staging+"\\used.txt", nil) }
