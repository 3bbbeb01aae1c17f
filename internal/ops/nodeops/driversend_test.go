// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// A driver ends what it has on a disk that doesn't say any more whose it is, also if Windows lists a mount point of its volume in
// another driver's directory, or in its volume.
func TestDriverEndsUseOfSickDisk(t *testing.T) {
	for name, end := range map[string]func(ctx context.Context, d *tenant) error{
		"UnstageVolume": func(ctx context.Context, d *tenant) error {
			return second(d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: d.staging}))
		},
		"UnmountVolume": func(ctx context.Context, d *tenant) error { return d.Volume.UnmountVolume(ctx, d.volume, d.staging) },
		"Rmdir":         func(ctx context.Context, d *tenant) error { return d.Filesystem.Rmdir(ctx, d.staging, true) },
	} {
		for i, refusal := range []winerr.Errno{winerr.ErrorIODevice, winerr.ErrorAccessDenied, winerr.ErrorNotReady, winerr.ErrorIODevice} {
			isLink := i == 3
			if name == "UnstageVolume" && refusal == winerr.ErrorNotReady {
				continue // it is tried again, as by the node's own operations
			}
			t.Run(fmt.Sprint(name, refusal, ", kubelet's directory is a link: ", isLink), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newTenants(t)
					d, other := w.own[red], w.own[blue]
					if isLink {
						w.must(w.sim.Rename(simtest.Kubelet, `C:\real`, false))
						w.must(w.sim.Junction(simtest.Kubelet, `C:\real`))
					}
					w.begin(d)
					w.begin(other)
					w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
					planted := simtest.Kubelet + `\plugins\` + other.name + `\planted`
					w.must(w.sim.SetVolumeLetter(string(other.volume), "X:"))
					for _, mountPoint := range []string{planted, `X:\planted`} {
						w.must(w.sim.MkdirAll(mountPoint))
						w.must(w.sim.SetVolumeMountPoint(t.Context(), mountPoint+`\`, string(d.volume)))
					}
					w.must(w.sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String(),
						Object: fmt.Sprintf("PhysicalDrive%d ", d.number)}, refusal))
					before := w.state()
					for what, err := range map[string]error{
						"UnmountVolume":    other.Volume.UnmountVolume(t.Context(), d.volume, d.staging),
						"MountVolume":      other.Volume.MountVolume(t.Context(), d.volume, other.staging+"-new"),
						"FormatVolume":     other.Volume.FormatVolume(t.Context(), d.volume),
						"WriteVolumeCache": other.Volume.WriteVolumeCache(t.Context(), d.volume),
						"SetDiskState":     other.Disk.SetDiskState(t.Context(), d.number, false),
					} {
						if err == nil {
							t.Errorf("the other driver's %s succeeds", what)
						}
					}
					simtest.Want(t, "what the other driver changed", w.state(), before)
					w.must(end(t.Context(), d))
					simtest.Want(t, "the volume that is mounted", w.volumeAt(d.staging), "")
				})
			})
		}
	}
}

// One driver's sick disk costs another driver nothing.
func TestSickDiskOfAnotherDriver(t *testing.T) {
	for _, refusal := range []winerr.Errno{winerr.ErrorIODevice, winerr.ErrorAccessDenied, winerr.ErrorNotReady} {
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				d, other := w.own[red], w.own[blue]
				w.begin(d)
				w.begin(other)
				w.must(w.sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String(),
					Object: fmt.Sprintf("PhysicalDrive%d ", d.number)}, refusal))
				if stats, err := other.Volume.GetVolumeStats(t.Context(), d.volume); err == nil {
					t.Errorf("the volume has %+v", stats)
				}
				list, err := other.Storage.ListVolumes(t.Context())
				w.must(err)
				if text := fmt.Sprintf("%+v", list); strings.Contains(text, string(d.volume)) {
					t.Errorf("it sees the volume: %s", text)
				}
				w.must(second(other.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
					Disk: csiproxy.Selector{Number: &other.raw}, StagingPath: other.staging + "-raw"})))
				w.must(second(other.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: other.staging + "-raw"})))
				w.end(other)
			})
		})
	}
}

// sessions is a node whose iSCSI sessions are as broken makes them; as they are if it is nil.
type sessions struct {
	*winsim.System
	broken func(all []win.ISCSISession) ([]win.ISCSISession, error)
}

func (s *sessions) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	all, err := s.System.ISCSISessions(ctx)
	if s.broken != nil && err == nil {
		return s.broken(all)
	}
	return all, err
}

// A driver ends what it has on a disk whose iSCSI session, by which the disk is the driver's, has no connection, or isn't
// known.
func TestDriverEndsUseOfDisconnectedDisk(t *testing.T) {
	for name, broken := range map[string]func(all []win.ISCSISession) ([]win.ISCSISession, error){
		"no connection": func(all []win.ISCSISession) ([]win.ISCSISession, error) {
			for i := range all {
				all[i].Portals = nil
			}
			return all, nil
		},
		"not known": func([]win.ISCSISession) ([]win.ISCSISession, error) { return nil, winerr.Errno(0xEFFF003F) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenants(t)
			sys := &sessions{System: w.sim}
			d := w.own[red]
			node, err := nodeops.New(sys, nodeops.Options{},
				nodeops.Driver{Driver: scope.Driver{Name: red, Portals: []csiproxy.ISCSIPortal{d.portal}}},
				nodeops.Driver{Driver: scope.Driver{Name: blue, Portals: []csiproxy.ISCSIPortal{w.own[blue].portal}}})
			w.must(err)
			ops := node.Driver(red)
			w.must(second(ops.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{StagingPath: d.staging,
				Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: d.portal, IQN: d.iqn}}})))
			sys.broken = broken
			w.must(ops.Volume.UnmountVolume(t.Context(), csiproxy.VolumeID(w.volumeAt(d.staging)), d.staging))
			simtest.Want(t, "the volume that is mounted", w.volumeAt(d.staging), "")
		})
	}
}

// A mount point of another driver's volume, which Windows lists, opens no data of that volume while the disk doesn't say whose it is: it
// doesn't say what it is, or its session has no connection. The volume is missing, as it was before the trouble.
func TestMountPointOfAnothersSickDisk(t *testing.T) {
	for _, trouble := range []string{"sick", "disconnected"} {
		t.Run(trouble, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				sys := &sessions{System: w.sim}
				var drivers []nodeops.Driver
				for _, name := range []string{red, blue} {
					drivers = append(drivers, nodeops.Driver{Driver: scope.Driver{Name: name, Portals: []csiproxy.ISCSIPortal{w.own[name].portal}}})
				}
				node, err := nodeops.New(sys, nodeops.Options{}, drivers...)
				w.must(err)
				d, ops, other := w.own[red], node.Driver(red), node.Driver(blue)
				staged, err := ops.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{StagingPath: d.staging,
					Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: d.portal, IQN: d.iqn}}})
				w.must(err)
				w.must(w.sim.WriteFile(d.staging+file, []byte("precious")))
				w.must(ops.Volume.UnmountVolume(t.Context(), staged.VolumeID, d.staging)) // the disk stays online
				planted := simtest.Kubelet + `\plugins\` + blue + `\planted`
				w.must(w.sim.MkdirAll(planted))
				w.must(w.sim.SetVolumeMountPoint(t.Context(), planted+`\`, string(staged.VolumeID)))
				if trouble == "sick" {
					w.must(w.sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String(),
						Object: fmt.Sprintf("PhysicalDrive%d ", staged.Disk)}, winerr.ErrorIODevice))
				} else {
					sys.broken = func(all []win.ISCSISession) ([]win.ISCSISession, error) {
						for i := range all {
							all[i].Portals = nil
						}
						return all, nil
					}
				}
				elsewhere := simtest.Kubelet + `\plugins\` + blue + `\elsewhere`
				w.must(w.sim.MkdirAll(elsewhere))
				before := w.state()
				for what, err := range map[string]error{
					"Mkdir":             other.Filesystem.Mkdir(t.Context(), planted+`\made`),
					"MountVolume":       other.Volume.MountVolume(t.Context(), staged.VolumeID, elsewhere),
					"FormatVolume":      other.Volume.FormatVolume(t.Context(), staged.VolumeID),
					"ResizeVolume":      other.Volume.ResizeVolume(t.Context(), staged.VolumeID, 0),
					"PartitionDisk":     other.Disk.PartitionDisk(t.Context(), staged.Disk),
					"GetVolumeStats":    second(other.Volume.GetVolumeStats(t.Context(), staged.VolumeID)),
					"IsVolumeFormatted": second(other.Volume.IsVolumeFormatted(t.Context(), staged.VolumeID)),
				} {
					if err == nil {
						t.Errorf("the other driver's %s succeeds", what)
					}
				}
				w.must(other.Filesystem.Rmdir(t.Context(), planted+file, true)) // there is no such file
				isThere, err := other.Filesystem.PathExists(t.Context(), planted+file)
				simtest.Want(t, "the file is there to the other driver", isThere, false)
				w.must(err)
				simtest.Want(t, "what the other driver changed", w.state(), before)
			})
		})
	}
}

// volumeAt returns the volume that is mounted at a path; "" if none is.
func (w *tenants) volumeAt(path string) string {
	name, err := w.sim.VolumeNameForMountPoint(context.Background(), path+`\`)
	if err != nil {
		return ""
	}
	return name
}

// A sick disk stays in its driver's list.
func TestSickDiskStaysInDriversList(t *testing.T) {
	w := newTenants(t)
	d := w.own[red]
	w.begin(d)
	lists := func(ops nodeops.Operations) bool {
		numbers, err := ops.Disk.ListDiskIDs(t.Context())
		w.must(err)
		disks, err := ops.Storage.ListDisks(t.Context(), csiproxy.Selector{})
		w.must(err)
		_, ok := numbers[d.number]
		return ok && slices.ContainsFunc(disks, func(one csiproxy.Disk) bool { return one.Number == d.number })
	}
	simtest.Want(t, "its driver lists it", lists(d.Operations), true)
	w.must(w.sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String(),
		Object: fmt.Sprintf("PhysicalDrive%d ", d.number)}, winerr.ErrorIODevice))
	simtest.Want(t, "its driver lists it when it is sick", lists(d.Operations), true)
	simtest.Want(t, "another driver lists it then", lists(w.own[blue].Operations), false)
}
