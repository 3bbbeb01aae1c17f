// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// hangingNumber is a node on which the queries of a disk opened by its number hang until release is closed.
type hangingNumber struct {
	*winsim.System
	mu      sync.Mutex
	path    string // "" once the disk has left
	hanging atomic.Int64
	release chan struct{}
}

func (s *hangingNumber) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	d, err := s.System.OpenDevice(ctx, path, access)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || path != s.path {
		return d, err
	}
	return &hangingNumberDevice{d, s}, nil
}

// replace has the disk leave, and another one arrive, which gets the number.
func (s *hangingNumber) replace(w *tenants, n csiproxy.DiskNumber, by winsim.DiskSpec) {
	s.mu.Lock()
	s.path = ""
	s.mu.Unlock()
	w.must(s.DetachDisk(n))
	if got := w.attach(by); got != n {
		w.t.Fatalf("the new disk has the number %d, want %d", got, n)
	}
}

type hangingNumberDevice struct {
	win.Device
	sys *hangingNumber
}

func (d *hangingNumberDevice) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if code == win.IoctlStorageQueryProperty {
		d.sys.hanging.Add(1)
		<-d.sys.release
	}
	return d.Device.Control(ctx, code, in, out)
}

// Blue's disk hangs, and leaves. The next disk with the number can be staged after a minute, even while Windows still
// answers no call on blue's disk.
func TestNextDiskOfHangingNumber(t *testing.T) {
	const byRed = "met by red's call on the number"
	for name, meet := range map[string]func(ctx context.Context, node *nodeops.Node) error{
		"met by nobody": func(context.Context, *nodeops.Node) error { return nil },
		"met by ListVolumes": func(ctx context.Context, node *nodeops.Node) error {
			_, err := node.Storage.ListVolumes(ctx)
			return err
		},
		"met by a call on the number": func(ctx context.Context, node *nodeops.Node) error {
			return wantDeadline(node.Bounded().Disk.GetDiskState(ctx, 1))
		},
		byRed: func(ctx context.Context, node *nodeops.Node) error {
			return wantDeadline(node.Driver(red).Bounded().Disk.GetDiskState(ctx, 1))
		},
		"met by the metrics": func(ctx context.Context, node *nodeops.Node) error {
			_, _, err := node.VolumeUse(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				sys := &hangingNumber{System: w.sim, release: make(chan struct{})}
				node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
				w.must(err)
				other := w.own[blue]
				other.Operations = node.Driver(blue)
				w.begin(other)
				if other.number != 1 {
					t.Fatalf("blue's disk has the number %d", other.number)
				}
				sys.path = win.PhysicalDrive(other.number)
				short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				w.must(meet(short, node))
				isMet := name != "met by nobody" && name != "met by the metrics" // the metrics leave the number alone
				if hangs := sys.hanging.Load() > 0; hangs != isMet {
					t.Errorf("a call on the disk hangs: %v, want %v", hangs, isMet)
				}
				storage, vendor, path := node.Storage, "GREEN", greenStaging
				if name == byRed {
					storage, vendor, path = node.Driver(red).Storage, w.own[red].vendor, w.own[red].staging
				}
				sys.replace(w, other.number, winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: vendor, ProductID: "Disk 1", Serial: "next"})
				if isMet {
					time.Sleep(time.Minute)
				}
				_, err = storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
					Disk: csiproxy.Selector{SerialNumber: "next"}, StagingPath: path})
				w.must(err)
				close(sys.release)
				time.Sleep(48 * time.Hour)
			})
		})
	}
}

func wantDeadline(_ bool, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the call ends with %w, want the deadline", err)
	}
	return nil
}
