// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// greenStaging is where a driver at the shared endpoints has staged its volume.
const greenStaging = simtest.Kubelet + `\plugins\kubernetes.io\csi\green.csi.example.com\1\globalmount`

// beginGreen has a driver at the shared endpoints stage a volume, and returns the volume's disk.
func (w *tenants) beginGreen(ctx context.Context) csiproxy.DiskNumber {
	n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "GREEN", ProductID: "Disk 1", Serial: "green"})
	w.must(second(w.node.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: "green"}, StagingPath: greenStaging})))
	return n
}

// The links of a driver take 512 KiB at most of lists at the shared endpoints, which answer with 4 MiB, and say so. Its own lists have all.
func TestListsBesideManyLinks(t *testing.T) {
	const links = 200
	beside(t, func(t *testing.T, w *tenants, _, other *tenant, dir string) {
		w.beginGreen(t.Context())
		for i := range links {
			w.must(w.sim.Symlink(fmt.Sprintf(`%s\link%03d`, dir, i), greenStaging+strings.Repeat(`\x`, 1800), true))
		}
		count := func(storage csiproxy.StorageOperations) (bytes, found int, hasGreen bool, reason string) {
			list, err := storage.ListVolumes(t.Context())
			w.must(err)
			for _, m := range list.Mounts {
				if hasGreen = hasGreen || m.Path == greenStaging; strings.HasPrefix(m.Path, dir+`\link`) {
					bytes, found = bytes+len(m.Path)+len(m.Target), found+1
				}
			}
			return bytes, found, hasGreen, list.IncompleteReason
		}
		bytes, found, hasGreen, reason := count(w.node.Storage)
		if bytes > 512<<10 || found == 0 || !hasGreen || !strings.HasSuffix(reason, "driver "+blue+" has too many links for a list") {
			t.Errorf("the shared list has %d links, of %d bytes, and green's volume: %v; %q", found, bytes, hasGreen, reason)
		}
		if leftovers, err := w.node.Storage.CleanUp(t.Context(), false); err != nil || leftovers.IncompleteReason != reason {
			t.Errorf("CleanUp: %q, %v", leftovers.IncompleteReason, err)
		}
		if _, found, _, reason := count(other.Storage); found != links || reason != "" {
			t.Errorf("the driver's own list has %d links; %q", found, reason)
		}
	})
}

// What a driver at the shared endpoints has left over is removed, whatever is in the attacker's directory and holds the locks of its
// shares.
func TestCleanUpBesideAnotherDriver(t *testing.T) {
	for name, prepare := range map[string]func(w *tenants, other *tenant, dir string){
		"nothing": func(*tenants, *tenant, string) {},
		"a directory that can't be read": func(w *tenants, _ *tenant, dir string) {
			w.must(w.sim.MkdirAll(dir + `\held`))
			w.must(w.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: dir + `\held`}, winerr.ErrorAccessDenied))
		},
		"a link to the leftover mount": func(w *tenants, _ *tenant, dir string) {
			w.must(w.sim.Symlink(dir+`\link`, greenStaging, true))
		},
		"a leftover share whose server hangs": func(w *tenants, other *tenant, dir string) {
			w.must(w.sim.Remove(other.shareStaging))
			w.must(w.sim.SMB().AddShare(smbserver.Share{Server: "other", Name: "hangs"}))
			w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallCreateSMBGlobalMapping, Object: `\\other`}, 24*time.Hour))
			go func() {
				_ = other.Storage.StageShare(context.Background(), csiproxy.StageShareRequest{RemotePath: `\\other\hangs`,
					StagingPath: dir + `\hangs`, Credentials: user})
			}()
			time.Sleep(time.Minute)
		},
		"an offline disk": func(w *tenants, other *tenant, _ string) {
			w.must(other.Disk.SetDiskState(context.Background(), other.raw, false))
		},
		"a hanging disk": func(w *tenants, other *tenant, _ string) {
			w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", other.raw)}, 24*time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			beside(t, func(t *testing.T, w *tenants, _, other *tenant, dir string) {
				n := w.beginGreen(t.Context())
				all, err := w.node.Storage.ListDisks(t.Context(), csiproxy.Selector{})
				w.must(err)
				for _, disk := range all {
					if !disk.Online {
						w.must(w.node.Disk.SetDiskState(t.Context(), disk.Number, true))
					}
				}
				prepare(w, other, dir)
				w.must(w.sim.DetachDisk(n))
				begun := time.Now()
				left, err := w.node.Storage.CleanUp(t.Context(), true)
				w.must(err)
				if link, _ := w.sim.ReadLink(greenStaging); link != "" {
					t.Errorf("the leftover mount stays: %+v", left)
				}
				if took := time.Since(begun); took > 6*time.Second {
					t.Errorf("CleanUp takes %v", took)
				}
			})
		})
	}
}

// The attacker's shares are slow, but not yet overdue. A driver at the shared endpoints waits for them for 5 seconds at most, and
// gets all of its own.
func TestListsBesideSlowShares(t *testing.T) {
	const count = 100
	beside(t, func(t *testing.T, w *tenants, _, other *tenant, dir string) {
		w.beginGreen(t.Context())
		for i := range count {
			name := fmt.Sprintf("s%d", i)
			w.must(w.sim.SMB().AddShare(smbserver.Share{Server: "other", Name: name}))
			w.must(w.sim.SMB().AddShare(smbserver.Share{Server: "other", Name: "mapped-" + name}))
			w.must(w.sim.CreateSMBGlobalMapping(t.Context(), `\\other\mapped-`+name,
				win.SMBMappingOptions{Username: user.Username, Password: user.Password, RequirePrivacy: true}))
			w.must(other.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: `\\other\` + name,
				StagingPath: dir + `\` + name, Credentials: user}))
		}
		list := func() (silent, healthy int) {
			t.Helper()
			begun := time.Now()
			all, err := w.node.Storage.ListVolumes(t.Context())
			w.must(err)
			if took := time.Since(begun); took > 5*time.Second {
				t.Errorf("ListVolumes takes %v", took)
			}
			hasGreen := false
			for _, m := range all.Mounts {
				hasGreen = hasGreen || m.Path == greenStaging && m.Volume.SizeBytes > 0
				switch {
				case !strings.HasPrefix(m.Path, dir+`\s`) || m.Path == other.shareStaging:
				case m.Volume.Abnormal():
					silent++
				case m.Volume.SizeBytes > 0:
					healthy++
				}
			}
			if !hasGreen {
				t.Error("the volume of the driver at the shared endpoints isn't described")
			}
			begun = time.Now()
			w.must(second(w.node.Storage.CleanUp(t.Context(), true)))
			if took := time.Since(begun); took > 15*time.Second { // 5 for the mounts, the mappings and their removal
				t.Errorf("CleanUp takes %v", took)
			}
			return silent, healthy
		}
		if silent, healthy := list(); silent > 0 || healthy != count {
			t.Errorf("%d shares of %d are described before, %d don't answer", healthy, count, silent)
		}
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: `\\other\`}, 900*time.Millisecond))
		if silent, healthy := list(); silent == 0 || silent+healthy != count {
			t.Errorf("%d shares of %d are described, %d don't answer", healthy, count, silent)
		}
	})
}

// The attacker's StageShare hangs, and holds the locks of records whose mappings aren't made. Lists of a driver at the shared
// endpoints stay whole, and take no longer.
func TestListsBesideRecordsOfHangingShares(t *testing.T) {
	beside(t, func(t *testing.T, w *tenants, _, other *tenant, dir string) {
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallCreateSMBGlobalMapping, Object: `\\other`}, 24*time.Hour))
		for i := range 3 {
			name := fmt.Sprint("s", i)
			w.must(w.sim.SMB().AddShare(smbserver.Share{Server: "other", Name: name}))
			go func() {
				_ = other.Storage.StageShare(context.Background(), csiproxy.StageShareRequest{RemotePath: `\\other\` + name,
					StagingPath: dir + `\` + name, Credentials: user})
			}()
		}
		time.Sleep(time.Minute)
		for range 2 {
			begun := time.Now()
			all, err := w.node.Storage.ListVolumes(t.Context())
			w.must(err)
			if took := time.Since(begun); took > 100*time.Millisecond || all.IncompleteReason != "" {
				t.Errorf("the list takes %v, and is incomplete: %q", took, all.IncompleteReason)
			}
		}
	})
}

// The attacker asks all the time why its disk is offline, while the disk is slow. Another driver's question doesn't wait for the
// attacker's.
func TestOriginalIsSearchedApart(t *testing.T) {
	took := func(isBusy bool) (longest time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w := newTenants(t)
			d, other := w.own[red], w.own[blue]
			w.begin(d)
			w.begin(other)
			for _, one := range []*tenant{d, other} {
				w.must(one.Disk.PartitionDisk(t.Context(), one.raw))
				w.must(one.Disk.SetDiskState(t.Context(), one.raw, false))
			}
			w.must(second(d.Disk.ListDiskIDs(t.Context())))
			w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", other.number), Fires: winsim.MayFire}, 900*time.Millisecond))
			ctx, cancel := context.WithCancel(t.Context())
			if isBusy {
				go func() {
					for ctx.Err() == nil {
						_, _ = other.Storage.ListDisks(ctx, csiproxy.Selector{Number: &other.raw})
					}
				}()
			}
			for range 20 {
				time.Sleep(33 * time.Millisecond)
				begun := time.Now()
				_, err := d.Storage.ListDisks(t.Context(), csiproxy.Selector{Number: &d.raw})
				w.must(err)
				longest = max(longest, time.Since(begun))
			}
			cancel()
			w.sim.ResetRules()
			time.Sleep(24 * time.Hour)
		})
		return longest
	}
	alone, beside := took(false), took(true)
	if beside > alone+alone/5 {
		t.Errorf("ListDisks takes %v, and %v while the other driver asks, too", alone, beside)
	}
}

// hangingVolumes is a node on which opens of some volumes hang until release is closed.
type hangingVolumes struct {
	*winsim.System
	hangs   map[string]bool // by the path of the volume
	release chan struct{}
}

func (s *hangingVolumes) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	if s.hangs[path] {
		<-s.release
	}
	return s.System.OpenDevice(ctx, path, access)
}

// Hundreds of a driver's volumes hang, while another driver's volumes arrive late, which takes searches among all volumes of the node.
// The other driver's calls go on.
func TestManyVolumesOfAnotherThatHang(t *testing.T) {
	for _, isWaitRefused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			delays := winsim.RealisticDelays()
			delays.VolumeArrival = 2100 * time.Millisecond
			w := newSlowTenants(t, delays)
			sys := &hangingVolumes{w.sim, make(map[string]bool), make(chan struct{})}
			node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
			w.must(err)
			d, other := w.own[red], w.own[blue]
			d.Operations = node.Driver(red)
			w.begin(d)
			for i := range 5 {
				n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 40, VendorID: other.vendor, ProductID: "Disk 1", Serial: fmt.Sprint("many-", i)})
				time.Sleep(10 * time.Second)
				simtest.Partition(t, w.sim, n, 128)
				time.Sleep(10 * time.Second)
				for _, name := range w.sim.VolumesOfDisk(n) {
					sys.hangs[win.VolumePath(name)] = true
				}
			}
			if isWaitRefused {
				w.must(w.sim.Fail(winsim.Match{Call: win.IoctlDiskAreVolumesReady.String()}, winerr.ErrorNotSupported))
			}
			for i := range 4 {
				serial := fmt.Sprint("new-", i)
				w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: serial})
				var staging sync.WaitGroup
				staging.Go(func() {
					wantAtOnce(t, "StageVolume "+serial, func(ctx context.Context) error {
						return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: d.staging + serial, Disk: csiproxy.Selector{SerialNumber: serial}}))
					})
				})
				time.Sleep(1600 * time.Millisecond) // the search is under way
				begun := time.Now()
				w.must(second(d.Storage.GetVolume(t.Context(), d.staging)))
				if took := time.Since(begun); took > 100*time.Millisecond {
					t.Errorf("GetVolume takes %v", took)
				}
				staging.Wait()
			}
			if hanging := node.Load().Overdue; hanging < 100 || hanging > 128 {
				t.Errorf("%d calls hang", hanging)
			}
			wantAtOnce(t, "UnpublishVolume", func(ctx context.Context) error { return d.Storage.UnpublishVolume(ctx, d.target) })
			wantAtOnce(t, "UnstageVolume", unstagingOf(d))
			close(sys.release)
			time.Sleep(time.Hour)
		})
	}
}
