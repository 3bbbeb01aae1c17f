// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// life is that of one volume.
func (m *model) life(v *pv) {
	staging := simtest.Kubelet + `\plugins\example\` + v.name + `\globalmount`
	pod := simtest.Kubelet + `\pods\` + v.name
	if _, err := m.sim.AttachDisk(winsim.DiskSpec{SizeBytes: v.size, Serial: v.name, Offline: true,
		NeedsRescan: m.intn(2) == 0}); err != nil {
		m.t.Error(err)
		return
	}
	for round := range 2 {
		m.step(v, "stage", func(ctx context.Context, n *nodeops.Node) error { return m.stage(ctx, n, v, staging) })
		m.step(v, "publish", func(ctx context.Context, n *nodeops.Node) error {
			if err := n.Filesystem.Rmdir(ctx, pod, true); err != nil {
				return err
			}
			return n.Filesystem.CreateSymlink(ctx, staging, pod)
		})
		m.read(v, pod)
		m.write(v, pod, fmt.Sprintf("%s in round %d", v.name, round))
		m.grow(v)
		m.step(v, "expand", func(ctx context.Context, n *nodeops.Node) error { return m.expand(ctx, n, v, staging) })
		m.read(v, pod)
		m.step(v, "unpublish", func(ctx context.Context, n *nodeops.Node) error { return n.Filesystem.Rmdir(ctx, pod, true) })
		m.step(v, "unstage", func(ctx context.Context, n *nodeops.Node) error { return m.unstage(ctx, n, v, staging) })
	}
}

func (m *model) find(ctx context.Context, n *nodeops.Node, v *pv) (csiproxy.DiskNumber, error) {
	if err := n.Disk.Rescan(ctx); err != nil {
		return 0, err
	}
	disks, err := n.Disk.ListDiskIDs(ctx)
	if err != nil {
		return 0, err
	}
	for number, ids := range disks {
		if ids.SerialNumber == v.name {
			return number, nil
		}
	}
	return 0, csiproxy.Errorf(csiproxy.ErrNotFound, "the disk of %s is missing", v.name)
}

func (m *model) stage(ctx context.Context, n *nodeops.Node, v *pv, staging string) error {
	number, err := m.find(ctx, n, v)
	if err != nil {
		return err
	}
	if err := n.Disk.PartitionDisk(ctx, number); err != nil {
		return err
	}
	if err := n.Disk.SetDiskState(ctx, number, true); err != nil {
		return err
	}
	id, err := n.Volume.DataVolumeOfDisk(ctx, number)
	if err != nil {
		return err
	}
	formatted, err := n.Volume.IsVolumeFormatted(ctx, id)
	if err != nil {
		return err
	}
	if !formatted {
		if v.written != "" {
			m.t.Errorf("the volume of %s isn't formatted any more", v.name)
		}
		if err := n.Volume.FormatVolume(ctx, id); err != nil {
			return err
		}
		m.mu.Lock()
		m.formats[v.name]++
		m.mu.Unlock()
	}
	if err := n.Volume.MountVolume(ctx, id, staging); err != nil {
		return err
	}
	return n.Volume.ResizeVolume(ctx, id, 0)
}

func (m *model) expand(ctx context.Context, n *nodeops.Node, v *pv, staging string) error {
	if err := n.Disk.Rescan(ctx); err != nil {
		return err
	}
	id, err := n.Volume.GetVolumeIDFromTargetPath(ctx, staging)
	if err != nil {
		return err
	}
	if err := n.Volume.ResizeVolume(ctx, id, 0); err != nil {
		return err
	}
	stats, err := n.Volume.GetVolumeStats(ctx, id)
	if err == nil && stats.SizeBytes < v.size-64<<20 {
		err = fmt.Errorf("it has %d bytes of %d", stats.SizeBytes, v.size)
	}
	return err
}

func (m *model) unstage(ctx context.Context, n *nodeops.Node, v *pv, staging string) error {
	id, err := n.Volume.GetVolumeIDFromTargetPath(ctx, staging)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := n.Volume.UnmountVolume(ctx, id, staging); err != nil {
			return err
		}
	}
	if err := n.Filesystem.Rmdir(ctx, staging, true); err != nil {
		return err
	}
	number, err := m.find(ctx, n, v)
	if err != nil {
		return err
	}
	return n.Disk.SetDiskState(ctx, number, false)
}

// grow is what the cloud does.
func (m *model) grow(v *pv) {
	v.size += 1 << 30
	m.power <- struct{}{}
	defer func() { <-m.power }()
	for _, info := range m.sim.Disks() {
		if info.Spec.Serial == v.name {
			simtest.WantErrorOf(m.t, fmt.Sprintf("grow %s", v.name), m.sim.GrowDisk(info.Number, v.size), nil)
		}
	}
}

// write and read are what the pod does, which starts again after a power loss.
func (m *model) write(v *pv, pod, text string) {
	m.pod(v, "write", func() error {
		if err := m.sim.WriteFile(pod+file, []byte(text)); err != nil {
			return err
		}
		return m.flush(pod + file)
	})
	v.written = text
}

func (m *model) read(v *pv, pod string) {
	if v.written == "" {
		return
	}
	var got string
	m.pod(v, "read", func() error {
		data, err := m.sim.ReadFile(pod + file)
		got = string(data)
		return err
	})
	simtest.Want(m.t, "the file of "+v.name, got, v.written)
}

// pod makes a pod's access, again while the node comes up.
func (m *model) pod(v *pv, name string, f func() error) {
	var err error
	for range 20 {
		m.power <- struct{}{}
		err = f()
		<-m.power
		if err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	m.t.Errorf("the pod of %s can't %s: %v", v.name, name, err)
}
