// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// The main sequences of drivers pass however Windows decides what nobody has documented.

// sequence is what a driver does on a node, as it does it: one call after the other.
type sequence struct {
	name    string
	prepare func(r *rig)
	run     func(ctx context.Context, r *rig, n *nodeops.Node) error
}

// steps are calls with their names; the first that fails ends them.
type steps []struct {
	name string
	do   func() error
}

func (s steps) run() error {
	for _, step := range s {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

var sequences = []sequence{
	{
		name: "stage a disk", prepare: func(r *rig) { r.raw(true) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return steps{
				{"PartitionDisk", func() error { return n.Disk.PartitionDisk(ctx, r.number) }},
				{"SetDiskState", func() error { return n.Disk.SetDiskState(ctx, r.number, true) }},
				{"ListVolumesOnDisk", func() error { return r.findVolume(ctx, n) }},
				{"IsVolumeFormatted", func() error {
					formatted, err := n.Volume.IsVolumeFormatted(ctx, r.volume)
					return want("formatted", formatted, false, err)
				}},
				{"FormatVolume", func() error { return n.Volume.FormatVolume(ctx, r.volume) }},
				{"MountVolume", func() error { return n.Volume.MountVolume(ctx, r.volume, staging) }},
				{"write", func() error { return r.sim.WriteFile(staging+file, []byte("precious")) }},
				{"grow", func() error { return r.sim.GrowDisk(r.number, 20<<30) }},
				{"Rescan", func() error { return n.Disk.Rescan(ctx) }},
				{"ResizeVolume", func() error { return n.Volume.ResizeVolume(ctx, r.volume, 0) }},
				{"GetVolumeStats", func() error {
					stats, err := n.Volume.GetVolumeStats(ctx, r.volume)
					return want("grown", stats.SizeBytes > 19<<30, true, err)
				}},
				{"CreateSymlink", func() error {
					r.must(r.sim.MkdirAll(simtest.Kubelet + `\pods\6a1c2d3e\volumes\pv-1`))
					return n.Filesystem.CreateSymlink(ctx, staging, target)
				}},
				{"read", func() error { return precious(r, target) }},
				{"Rmdir of the link", func() error { return n.Filesystem.Rmdir(ctx, target, false) }},
				{"UnmountVolume", func() error { return n.Volume.UnmountVolume(ctx, r.volume, staging) }},
				{"Rmdir", func() error { return n.Filesystem.Rmdir(ctx, staging, false) }},
				{"SetDiskState offline", func() error { return n.Disk.SetDiskState(ctx, r.number, false) }},
			}.run()
		},
	},
	{
		name: "format a volume that is in use", prepare: (*rig).partitioned,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			scanner, err := r.sim.OpenDevice(ctx, r.volumeDevice(), win.GenericRead)
			r.must(err)
			time.AfterFunc(time.Second, func() { scanner.Close() })
			return n.Volume.FormatVolume(ctx, r.volume)
		},
	},
	{
		name: "grow a disk without a rescan", prepare: (*rig).mounted,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.must(r.sim.GrowDisk(r.number, 20<<30))
			if err := n.Volume.ResizeVolume(ctx, r.volume, 0); err != nil {
				return err
			}
			stats, err := n.Volume.GetVolumeStats(ctx, r.volume)
			return errors.Join(want("grown", stats.SizeBytes > 19<<30, true, err), precious(r, staging))
		},
	},
	{
		name: "keep what is on an offline disk", prepare: func(r *rig) {
			r.mounted()
			offline := win.SetDiskAttributes{Persist: true, Attributes: win.DiskOffline, Mask: win.DiskOffline}
			r.must(r.sim.SetDiskAttributes(r.number, offline)) // as Windows does after errors
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return steps{
				{"PartitionDisk", func() error { return n.Disk.PartitionDisk(ctx, r.number) }},
				{"SetDiskState", func() error { return n.Disk.SetDiskState(ctx, r.number, true) }},
				{"ListVolumesOnDisk", func() error { return r.findVolume(ctx, n) }},
				{"read", func() error { return precious(r, staging) }},
			}.run()
		},
	},
	{
		name: "lose a disk while it is partitioned", prepare: func(r *rig) { r.raw(true) },
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.sim.OnCall(func(c winsim.Call) {
				if c.Name == win.IoctlDiskSetDiskAttributes.String() {
					r.sim.OnCall(nil)
					r.must(r.sim.DetachDisk(r.number))
				}
			})
			return steps{
				{"PartitionDisk", func() error { return lost(n.Disk.PartitionDisk(ctx, r.number)) }},
				{"PartitionDisk again", func() error { return lost(n.Disk.PartitionDisk(ctx, r.number)) }},
				{"Rescan", func() error { return n.Disk.Rescan(ctx) }},
				{"ListDiskIDs", func() error { return listed(ctx, r, n, false) }},
				{"attach", func() error { r.raw(false); return nil }}, // it may get another number
				{"ListDiskIDs", func() error { return listed(ctx, r, n, true) }},
				{"PartitionDisk", func() error { return n.Disk.PartitionDisk(ctx, r.number) }},
				{"ListVolumesOnDisk", func() error { return r.findVolume(ctx, n) }},
			}.run()
		},
	},
	{
		name: "lose a disk while its volume is formatted", prepare: (*rig).partitioned,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			r.sim.OnCall(func(c winsim.Call) {
				if c.Name == win.CallRead {
					r.sim.OnCall(nil)
					r.must(r.sim.DetachDisk(r.number))
				}
			})
			return lost(n.Volume.FormatVolume(ctx, r.volume))
		},
	},
	{
		name: "clean up after a disk that has gone", prepare: func(r *rig) {
			r.mounted()
			r.must(r.sim.DetachDisk(r.number))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			if err := n.Volume.UnmountVolume(ctx, r.volume, staging); err != nil && !errors.Is(err, csiproxy.ErrNotFound) {
				return fmt.Errorf("UnmountVolume: %w", err)
			}
			if err := n.Filesystem.Rmdir(ctx, staging, false); err != nil {
				return fmt.Errorf("Rmdir: %w", err)
			}
			exists, err := n.Filesystem.PathExists(ctx, staging)
			return want("there", exists, false, err)
		},
	},
	{
		name: "map a share", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			link := simtest.Kubelet + `\plugins\smb`
			return steps{
				{"NewSMBGlobalMapping", func() error { return n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, link, user) }},
				{"write", func() error { return r.sim.WriteFile(link+file, []byte("precious")) }},
				{"Rmdir", func() error { return n.Filesystem.Rmdir(ctx, link, false) }},
				{"read", func() error { return precious(r, `\\server\data`) }},
				{"RemoveSMBGlobalMapping", func() error { return n.SMB.RemoveSMBGlobalMapping(ctx, `\\server\data`) }},
			}.run()
		},
	},
	{
		name: "refuse a server that can't encrypt", prepare: func(r *rig) {
			r.must(r.sim.SMB().SetState("server", smbserver.State{NoEncryption: true}))
		},
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			if err := n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, "", user); err == nil {
				return errors.New("it is mapped")
			}
			mappings, err := r.sim.SMBGlobalMappings(ctx)
			return want("the number of mappings", len(mappings), 0, err)
		},
	},
	{
		name: "connect a target", prepare: none,
		run: func(ctx context.Context, r *rig, n *nodeops.Node) error {
			return steps{
				{"AddTargetPortal", func() error { return n.ISCSI.AddTargetPortal(ctx, portal) }},
				{"DiscoverTargetPortal", func() error {
					targets, err := n.ISCSI.DiscoverTargetPortal(ctx, portal)
					return want("the number of targets", len(targets), 1, err)
				}},
				{"ConnectTarget", func() error { return n.ISCSI.ConnectTarget(ctx, portal, iqn, csiproxy.ISCSIAuthentication{}) }},
				{"GetTargetDisks", func() error {
					disks, err := n.ISCSI.GetTargetDisks(ctx, portal, iqn)
					if err == nil && len(disks) == 1 {
						r.number = disks[0]
					}
					return want("the number of disks", len(disks), 1, err)
				}},
				{"PartitionDisk", func() error { return n.Disk.PartitionDisk(ctx, r.number) }},
				{"ListVolumesOnDisk", func() error { return r.findVolume(ctx, n) }},
				{"FormatVolume", func() error { return n.Volume.FormatVolume(ctx, r.volume) }},
				{"MountVolume", func() error { return n.Volume.MountVolume(ctx, r.volume, staging) }},
				{"UnmountVolume", func() error { return n.Volume.UnmountVolume(ctx, r.volume, staging) }},
				{"DisconnectTarget", func() error { return n.ISCSI.DisconnectTarget(ctx, portal, iqn) }},
				{"RemoveTargetPortal", func() error { return n.ISCSI.RemoveTargetPortal(ctx, portal) }},
			}.run()
		},
	},
}

// lost wants the error of a call whose disk leaves: it isn't there, or the caller is to
// look again.
func lost(err error) error {
	if kind := csiproxy.KindOf(err); kind != csiproxy.ErrNotFound && kind != csiproxy.ErrUnavailable {
		return fmt.Errorf("without its disk: %w", errors.Join(errors.New("another error is wanted"), err))
	}
	return nil
}

// listed wants the disk with the serial number vol-1 in the list of disks, or not.
func listed(ctx context.Context, r *rig, n *nodeops.Node, there bool) error {
	ids, err := n.Disk.ListDiskIDs(ctx)
	got := false
	for number, id := range ids {
		got = got || number == r.number && id.SerialNumber == "vol-1"
	}
	return want("in the list", got, there, err)
}

// findVolume makes the disk's only volume the scenario's.
func (r *rig) findVolume(ctx context.Context, n *nodeops.Node) error {
	ids, err := n.Volume.ListVolumesOnDisk(ctx, r.number, 0)
	if err == nil && len(ids) == 1 {
		r.volume = ids[0]
	}
	return want("the number of volumes", len(ids), 1, err)
}

func (r *rig) volumeDevice() string { return string(r.volume[:len(r.volume)-1]) }

func TestSequencesWithEachSetting(t *testing.T) {
	simtest.EachSetting(t, func(t *testing.T, set winsim.Settings) {
		for _, s := range sequences {
			t.Run(s.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					delays := winsim.RealisticDelays()
					delays.VolumeArrival = time.Second // so that Windows is asked whether volumes are ready
					r := newSlowRig(t, delays)
					s.prepare(r)
					r.sim.Settle()
					r.must(r.sim.SetSettings(set))
					simtest.WantError(t, s.run(t.Context(), r, r.process()), nil)
					r.sim.Settle()
				})
			})
		}
	})
}
