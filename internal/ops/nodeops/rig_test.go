// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"sync/atomic"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const (
	staging = simtest.Kubelet + `\plugins\example\pv-1\globalmount`
	target  = simtest.Kubelet + `\pods\6a1c2d3e\volumes\pv-1\mount`
	file    = `\data.txt`
)

var (
	user   = csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}
	portal = csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	iqn    = csiproxy.IQN("iqn.2026-01.com.example:vol-1")
)

// rig is a node that a scenario works on.
type rig struct {
	t   testing.TB
	sim *winsim.System

	number csiproxy.DiskNumber // of the disk that the scenario is about
	volume csiproxy.VolumeID   // of its data partition, if it has one

	writers []string // at the roots of volumes, by the processes' options

	identified atomic.Bool // a disk was asked what it is
}

// newRig returns a node with everything that scenarios need beside their own object: a
// share, a target, a service.
func newRig(t testing.TB) *rig { return newSlowRig(t, winsim.Delays{}) }

// newSlowRig is newRig of a node whose calls and arrivals take time.
func newSlowRig(t testing.TB, delays winsim.Delays) *rig {
	return newRigOf(t, winsim.Config{Delays: delays})
}

func newRigOf(t testing.TB, c winsim.Config) *rig {
	r := &rig{t: t, sim: simtest.OpenNode(t, c)}
	r.must(r.sim.MkdirAll(simtest.Kubelet))
	for _, server := range []string{"server", "other"} {
		r.must(r.sim.SMB().AddShare(smbserver.Share{Server: server, Name: "data"}))
		r.must(r.sim.SMB().SetUser(server, user.Username, user.Password))
	}
	r.must(r.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: string(iqn),
		Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)}},
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
	n, err := nodeops.New(r.sim, nodeops.Options{VolumeWriters: r.writers})
	r.must(err)
	return n
}

func (r *rig) attach(spec winsim.DiskSpec) csiproxy.DiskNumber {
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
	r.mount()
}

// mountedBeside is mounted for the first of two volumes. The other one isn't used.
func (r *rig) mountedBeside() {
	r.raw(false)
	simtest.Partition(r.t, r.sim, r.number, 2)
	r.sim.Settle()
	r.volume = csiproxy.VolumeID(r.sim.VolumesOfDisk(r.number)[0])
	r.must(r.process().Volume.FormatVolume(context.Background(), r.volume))
	r.mount()
}

func (r *rig) mount() {
	r.must(r.process().Volume.MountVolume(context.Background(), r.volume, staging))
	r.must(r.sim.WriteFile(staging+file, []byte("precious")))
	r.must(r.sim.FlushFile(staging + file))
}

func (r *rig) connected() {
	n := r.process()
	r.must(n.ISCSI.AddTargetPortal(context.Background(), portal))
	r.must(n.ISCSI.ConnectTarget(context.Background(), portal, iqn, csiproxy.ISCSIAuthentication{}))
}

func (r *rig) mapped() {
	r.must(r.process().SMB.NewSMBGlobalMapping(context.Background(), `\\server\data`, "", user))
}
