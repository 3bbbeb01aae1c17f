// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// ownCall is a call of a driver about what it owns.
type ownCall struct {
	name string
	call func(ctx context.Context, d *tenant) error
	want error         // its class; nil for success
	more time.Duration // how much longer it may take beside a disk or target that doesn't answer
}

// ownCalls are all calls of a driver, in the order of a life, which ends as it began.
func ownCalls() []ownCall {
	var all []ownCall
	add := func(name string, call func(ctx context.Context, d *tenant) error) {
		all = append(all, ownCall{name: name, call: call})
	}
	rawStaging := func(d *tenant) string { return d.staging + "-raw" }
	rawTarget := func(d *tenant) string { return strings.Replace(d.target, "pv-1", "raw", 1) }
	byNumber := func(n csiproxy.DiskNumber) csiproxy.Selector { return csiproxy.Selector{Number: &n} }
	target := func(d *tenant) csiproxy.Selector {
		return csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: d.portal, IQN: d.iqn}}
	}

	add("ListDiskIDs", func(ctx context.Context, d *tenant) error { return second(d.Disk.ListDiskIDs(ctx)) })
	add("ListDiskLocations", func(ctx context.Context, d *tenant) error { return second(d.Disk.ListDiskLocations(ctx)) })
	add("FindDiskByPage83", func(ctx context.Context, d *tenant) error { return second(d.Disk.FindDiskByPage83(ctx, d.page83)) })
	add("GetDiskStats", func(ctx context.Context, d *tenant) error { return second(d.Disk.GetDiskStats(ctx, d.number)) })
	add("GetDiskState", func(ctx context.Context, d *tenant) error { return second(d.Disk.GetDiskState(ctx, d.number)) })
	add("Rescan", func(ctx context.Context, d *tenant) error { return d.Disk.Rescan(ctx) })
	add("PartitionDisk", func(ctx context.Context, d *tenant) error { return d.Disk.PartitionDisk(ctx, d.raw) })
	add("ListVolumesOnDisk", func(ctx context.Context, d *tenant) error {
		return second(d.Volume.ListVolumesOnDisk(ctx, d.raw, 0))
	})
	add("DataVolumeOfDisk", func(ctx context.Context, d *tenant) (err error) {
		d.rawVolume, err = d.Volume.DataVolumeOfDisk(ctx, d.raw)
		return err
	})
	add("IsVolumeFormatted", func(ctx context.Context, d *tenant) error {
		return second(d.Volume.IsVolumeFormatted(ctx, d.rawVolume))
	})
	add("FormatVolume", func(ctx context.Context, d *tenant) error { return d.Volume.FormatVolume(ctx, d.rawVolume) })
	add("MountVolume", func(ctx context.Context, d *tenant) error {
		return d.Volume.MountVolume(ctx, d.rawVolume, rawStaging(d))
	})
	add("GetVolumeStats", func(ctx context.Context, d *tenant) error { return second(d.Volume.GetVolumeStats(ctx, d.rawVolume)) })
	add("GetDiskNumberFromVolumeID", func(ctx context.Context, d *tenant) error {
		return second(d.Volume.GetDiskNumberFromVolumeID(ctx, d.rawVolume))
	})
	add("GetVolumeIDFromTargetPath", func(ctx context.Context, d *tenant) error {
		return second(d.Volume.GetVolumeIDFromTargetPath(ctx, rawStaging(d)))
	})
	add("GetClosestVolumeIDFromTargetPath", func(ctx context.Context, d *tenant) error {
		return second(d.Volume.GetClosestVolumeIDFromTargetPath(ctx, rawStaging(d)))
	})
	add("WriteVolumeCache", func(ctx context.Context, d *tenant) error { return d.Volume.WriteVolumeCache(ctx, d.rawVolume) })
	add("ResizeVolume", func(ctx context.Context, d *tenant) error { return d.Volume.ResizeVolume(ctx, d.rawVolume, 0) })
	add("UnmountVolume", func(ctx context.Context, d *tenant) error {
		return d.Volume.UnmountVolume(ctx, d.rawVolume, rawStaging(d))
	})
	add("SetDiskState offline", func(ctx context.Context, d *tenant) error { return d.Disk.SetDiskState(ctx, d.raw, false) })
	add("ListDisks", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.ListDisks(ctx, csiproxy.Selector{}))
	})
	add("ListDisks of one", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.ListDisks(ctx, csiproxy.Selector{SerialNumber: d.serial}))
	})
	add("ListDisks of an offline one", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.ListDisks(ctx, byNumber(d.raw)))
	})
	all[len(all)-1].more = 200 * time.Millisecond // a copy of it may be any disk of the node
	add("WatchDisks", func(ctx context.Context, d *tenant) error {
		for _, err := range d.Storage.WatchDisks(ctx, csiproxy.Selector{}) {
			return err
		}
		return errors.New("no disks")
	})
	add("SetDiskState online", func(ctx context.Context, d *tenant) error { return d.Disk.SetDiskState(ctx, d.raw, true) })
	add("StageVolume", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: byNumber(d.raw), StagingPath: rawStaging(d)}))
	})
	add("StageVolume again", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: byNumber(d.raw), StagingPath: rawStaging(d)}))
	})
	add("StageVolume of a missing disk", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: d.staging + "-none",
			Disk: csiproxy.Selector{SerialNumber: "none"}, Wait: 3 * time.Second}))
	})
	all[len(all)-1].want = csiproxy.ErrNotFound
	add("PublishVolume", func(ctx context.Context, d *tenant) error {
		return d.Storage.PublishVolume(ctx, rawStaging(d), rawTarget(d))
	})
	add("GetVolume", func(ctx context.Context, d *tenant) error { return second(d.Storage.GetVolume(ctx, rawTarget(d))) })
	add("ExpandVolume", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: rawTarget(d)}))
	})
	add("CheckVolume", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: rawTarget(d)}))
	})
	add("ListVolumes", func(ctx context.Context, d *tenant) error { return second(d.Storage.ListVolumes(ctx)) })
	add("CleanUp", func(ctx context.Context, d *tenant) error { return second(d.Storage.CleanUp(ctx, true)) })
	add("UnpublishVolume", func(ctx context.Context, d *tenant) error { return d.Storage.UnpublishVolume(ctx, rawTarget(d)) })
	add("UnstageVolume", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: rawStaging(d)}))
	})
	add("UnstageVolume again", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{Disk: byNumber(d.raw), StagingPath: rawStaging(d)}))
	})
	dir := func(d *tenant) string { return simtest.Kubelet + `\plugins\` + d.name + `\made` }
	add("Mkdir", func(ctx context.Context, d *tenant) error { return d.Filesystem.Mkdir(ctx, dir(d)) })
	add("PathExists", func(ctx context.Context, d *tenant) error { return second(d.Filesystem.PathExists(ctx, dir(d))) })
	add("CreateSymlink", func(ctx context.Context, d *tenant) error {
		return d.Filesystem.CreateSymlink(ctx, d.staging, dir(d)+`\link`)
	})
	add("IsSymlink", func(ctx context.Context, d *tenant) error {
		return second(d.Filesystem.IsSymlink(ctx, dir(d)+`\link`))
	})
	add("RmdirContents", func(ctx context.Context, d *tenant) error { return d.Filesystem.RmdirContents(ctx, dir(d)) })
	add("Rmdir", func(ctx context.Context, d *tenant) error { return d.Filesystem.Rmdir(ctx, dir(d), false) })
	add("StageShare", func(ctx context.Context, d *tenant) error {
		return d.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: d.share, StagingPath: d.shareStaging + "-new",
			Credentials: user})
	})
	add("UnstageShare", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: d.shareStaging + "-new"}))
	})
	add("NewSMBGlobalMapping", func(ctx context.Context, d *tenant) error {
		return d.SMB.NewSMBGlobalMapping(ctx, d.share, d.shareStaging+"-new", user)
	})
	add("RemoveSMBGlobalMapping", func(ctx context.Context, d *tenant) error { return d.SMB.RemoveSMBGlobalMapping(ctx, d.share) })
	add("StageVolume of a target", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: d.staging + "-iscsi", Disk: target(d)}))
	})
	add("UnstageVolume of a target", func(ctx context.Context, d *tenant) error {
		return second(d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: d.staging + "-iscsi", Disk: target(d)}))
	})
	add("GetTargetDisks", func(ctx context.Context, d *tenant) error {
		return second(d.ISCSI.GetTargetDisks(ctx, d.portal, d.iqn))
	})
	add("DisconnectTarget", func(ctx context.Context, d *tenant) error { return d.ISCSI.DisconnectTarget(ctx, d.portal, d.iqn) })
	add("ListTargetPortals", func(ctx context.Context, d *tenant) error { return second(d.ISCSI.ListTargetPortals(ctx)) })
	add("RemoveTargetPortal", func(ctx context.Context, d *tenant) error { return d.ISCSI.RemoveTargetPortal(ctx, d.portal) })
	add("AddTargetPortal", func(ctx context.Context, d *tenant) error { return d.ISCSI.AddTargetPortal(ctx, d.portal) })
	add("DiscoverTargetPortal", func(ctx context.Context, d *tenant) error {
		return second(d.ISCSI.DiscoverTargetPortal(ctx, d.portal))
	})
	all[len(all)-1].more = 200 * time.Millisecond // a target that is silent may be its own
	add("ConnectTarget", func(ctx context.Context, d *tenant) error {
		return d.ISCSI.ConnectTarget(ctx, d.portal, d.iqn, csiproxy.ISCSIAuthentication{})
	})
	add("SetMutualCHAPSecret", func(ctx context.Context, d *tenant) error {
		return d.ISCSI.SetMutualCHAPSecret(ctx, csiproxy.NewSecret("0123456789abcdef"))
	})
	add("GetBIOSSerialNumber", func(ctx context.Context, d *tenant) error { return second(d.System.GetBIOSSerialNumber(ctx)) })
	add("GetService", func(ctx context.Context, d *tenant) error { return second(d.System.GetService(ctx, d.service)) })
	add("StartService", func(ctx context.Context, d *tenant) error { return d.System.StartService(ctx, d.service) })
	add("StopService", func(ctx context.Context, d *tenant) error { return d.System.StopService(ctx, d.service, true) })
	return all
}

// The list of calls is whole.
func TestOwnCallsAreAll(t *testing.T) {
	all := ownCalls()
	groups := reflect.TypeFor[nodeops.Operations]()
	for i := range groups.NumField() {
		group := groups.Field(i).Type
		for j := range group.NumMethod() {
			name := group.Method(j).Name
			isOf := func(c ownCall) bool { return c.name == name || strings.HasPrefix(c.name, name+" ") }
			if !slices.ContainsFunc(all, isOf) {
				t.Errorf("%s isn't called", name)
			}
		}
	}
}

// diskTroubles are what can be wrong with a disk or volume that all calls on an object reach.
var diskTroubles = map[string]func(sys *winsim.System, m winsim.Match) error{
	"hangs":       func(sys *winsim.System, m winsim.Match) error { return sys.DelayUncancellable(m, 24*time.Hour) },
	"is slow":     func(sys *winsim.System, m winsim.Match) error { return sys.DelayUncancellable(m, 900*time.Millisecond) },
	"fails":       func(sys *winsim.System, m winsim.Match) error { return sys.Fail(m, winerr.ErrorIODevice) },
	"is refused":  func(sys *winsim.System, m winsim.Match) error { return sys.Fail(m, winerr.ErrorAccessDenied) },
	"isn't ready": func(sys *winsim.System, m winsim.Match) error { return sys.Fail(m, winerr.ErrorNotReady) },
	"has left":    func(sys *winsim.System, m winsim.Match) error { return sys.Fail(m, winerr.ErrorFileNotFound) },
}

// begin lets the trouble begin at calls on an object: at all of them, or at one.
func beginTrouble(sys *winsim.System, trouble func(*winsim.System, winsim.Match) error, call, object string) error {
	// Where all is well, no call is about the other driver's object.
	return trouble(sys, winsim.Match{Call: cmp.Or(call, winsim.EachCall), Object: object, Fires: winsim.MayFire})
}

// waitingNode is a node on which a driver's calls may wait for another driver's.
type waitingNode struct {
	volumeArrival time.Duration // 0 stands for that of winsim.RealisticDelays
	settings      winsim.Settings
	isShared      bool // the driver is at the shared endpoints
}

// timesOfOwnCalls returns how long each of a driver's calls takes while another driver is in trouble.
func timesOfOwnCalls(t *testing.T, node waitingNode, trouble func(w *tenants, other *tenant)) (times []time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		delays := winsim.RealisticDelays()
		delays.VolumeArrival = cmp.Or(node.volumeArrival, delays.VolumeArrival)
		w := newSlowTenants(t, delays)
		w.must(w.sim.SetSettings(node.settings))
		d, other := w.own[red], w.own[blue]
		if node.isShared {
			beside, err := nodeops.New(w.sim, nodeops.Options{}, w.drivers[1]) // without red
			w.must(err)
			d.Operations, other.Operations = beside.Operations, beside.Driver(blue)
		}
		w.begin(d)
		w.begin(other)
		w.must(d.have(w.sim, simtest.Kubelet+`\pods\red\volumes\kubernetes.io~csi\raw\mount`))
		w.must(second(d.Disk.ListDiskIDs(t.Context())))
		if trouble != nil {
			trouble(w, other)
		}
		for _, c := range ownCalls() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			begun := time.Now()
			err := c.call(ctx, d)
			times = append(times, time.Since(begun))
			if cancel(); csiproxy.KindOf(err) != c.want {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		w.sim.ResetRules()
		time.Sleep(24 * time.Hour)
	})
	return times
}

// Whatever is wrong with another driver's disk, volume, target or adapter, each of a driver's calls takes at most a fifth longer. What
// explains why a disk is offline looks at all disks of the node for the disk's original.
func TestNoWaitForAnothersObject(t *testing.T) { testNoWait(t, waitingNode{}) }

// At the shared endpoints, which have the disks of all drivers, each list of disks waits a fifth of a second at most for a disk known to be a
// driver's, and a call makes one or two. Lists of mounts wait longer for its volume, as TestListsBesideSlowShares tells of shares.
func TestSharedEndpointsBesideDiskOfDriver(t *testing.T) {
	node := waitingNode{isShared: true}
	healthy := timesOfOwnCalls(t, node, nil)
	for object, of := range map[string]func(other *tenant) string{
		"disk":       func(other *tenant) string { return fmt.Sprintf("PhysicalDrive%d ", other.number) },
		"blank disk": func(other *tenant) string { return fmt.Sprintf("PhysicalDrive%d ", other.raw) },
		"volume":     func(other *tenant) string { return strings.TrimSuffix(string(other.volume), `\`) },
	} {
		for trouble, begin := range diskTroubles {
			t.Run(object+" "+trouble, func(t *testing.T) {
				times := timesOfOwnCalls(t, node, func(w *tenants, other *tenant) {
					w.must(beginTrouble(w.sim, begin, "", of(other)))
				})
				for i, c := range ownCalls() {
					most := healthy[i] + healthy[i]/5 + 400*time.Millisecond
					if times[i] > most && c.name != "ListVolumes" && c.name != "CleanUp" {
						t.Errorf("%s takes %v, and %v without the trouble", c.name, times[i], healthy[i])
					}
				}
			})
		}
	}
}

// CleanUp at the shared endpoints leaves the mount point of a driver's volume whose disk is offline, although no call there waits for that.
func TestCleanUpBesideOfflineDiskOfDriver(t *testing.T) {
	w := newTenants(t)
	d := w.own[blue]
	w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: d.serial})
	staged, err := d.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{StagingPath: d.staging, Disk: csiproxy.Selector{SerialNumber: d.serial}})
	w.must(err)
	w.must(second(w.node.Disk.ListDiskIDs(t.Context()))) // which tells whose the disk is
	w.must(w.sim.SetDiskAttributes(staged.Disk, win.SetDiskAttributes{Mask: win.DiskOffline, Attributes: win.DiskOffline}))
	did, err := w.node.Storage.CleanUp(t.Context(), true)
	w.must(err)
	simtest.Want(t, "what is cleaned up", len(did.Mounts), 0)
}

// A driver's disk that hangs counts as skipped, although no call at the shared endpoints waits until it is silent.
func TestHangingDiskOfDriverIsSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		var counts []int
		node, err := nodeops.New(w.sim, nodeops.Options{SilentDiskTimeout: time.Second, OnSkippedDisks: func(count int) { counts = append(counts, count) }},
			w.drivers...)
		w.must(err)
		n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: w.own[blue].vendor, ProductID: "Disk 1"})
		list := func() time.Duration {
			begun := time.Now()
			ids, err := node.Disk.ListDiskIDs(t.Context())
			w.must(err)
			if _, isListed := ids[n]; !isListed {
				t.Error("the disk isn't listed")
			}
			return time.Since(begun)
		}
		list()
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: fmt.Sprintf("PhysicalDrive%d ", n)}, time.Hour))
		simtest.Want(t, "time of a list", list(), 200*time.Millisecond)
		simtest.Want(t, "skipped at first", len(counts), 0)
		time.Sleep(10 * time.Second)
		simtest.Want(t, "time of a later list", list(), 0)
		simtest.Want(t, "skipped", counts, []int{1})
		time.Sleep(24 * time.Hour)
	})
}

// Disks of another driver that come and go all the time delay a search for new disks by a second at most.
func TestRescanBesideComingDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowTenants(t, winsim.RealisticDelays())
		rescan := func() time.Duration {
			begun := time.Now()
			w.must(w.own[red].Disk.Rescan(t.Context()))
			return time.Since(begun)
		}
		rescan() // waits for the disks whose owners are unknown
		alone := rescan()
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ctx.Err() == nil; i++ {
				n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: w.own[blue].vendor, ProductID: "Disk 1", Serial: fmt.Sprint(i)})
				time.AfterFunc(330*time.Millisecond, func() { w.must(w.sim.DetachDisk(n)) })
				time.Sleep(20 * time.Millisecond)
			}
		}()
		time.Sleep(time.Second)
		if took := rescan(); took < time.Second || took > alone+time.Second {
			t.Errorf("it takes %v, and %v beside disks that come and go", alone, took)
		}
		stop()
		<-stopped
		time.Sleep(time.Second)
	})
}

// Nor does a driver wait for another driver's volume while its own are late, or Windows knows no devices of partitions: in
// both cases all volumes of the node are searched.
func TestNoWaitForAnothersVolume(t *testing.T) {
	for name, node := range map[string]waitingNode{
		"volumes come late":          {volumeArrival: 2100 * time.Millisecond},
		"partitions have no devices": {settings: winsim.Settings{NoPartitionDevices: true}},
	} {
		t.Run(name, func(t *testing.T) { testNoWait(t, node) })
	}
}

// adapter is the adapter of another driver's disks among the objects of testNoWait.
const adapter = "adapter"

// testNoWait is TestNoWaitForAnothersObject on a node of one kind.
func testNoWait(t *testing.T, node waitingNode) {
	healthy := timesOfOwnCalls(t, node, nil)
	objects := map[string]func(w *tenants, other *tenant) string{
		"disk":       func(_ *tenants, other *tenant) string { return fmt.Sprintf("PhysicalDrive%d ", other.number) },
		"blank disk": func(_ *tenants, other *tenant) string { return fmt.Sprintf("PhysicalDrive%d ", other.raw) },
		"volume":     func(_ *tenants, other *tenant) string { return strings.TrimSuffix(string(other.volume), `\`) },
		"target":     func(_ *tenants, other *tenant) string { return string(other.iqn) },
		adapter: func(w *tenants, _ *tenant) string {
			adapters, err := w.sim.DeviceInterfaces(context.Background(), win.InterfaceClassStoragePort)
			w.must(err)
			return adapters[len(adapters)-1]
		},
	}
	for object, of := range objects {
		for trouble, begin := range diskTroubles {
			for _, call := range []string{"", win.IoctlStorageQueryProperty.String()} {
				if call != "" && !strings.HasSuffix(object, "disk") {
					continue
				}
				t.Run(strings.TrimSpace(object+" "+trouble+" "+call), func(t *testing.T) {
					times := timesOfOwnCalls(t, node, func(w *tenants, other *tenant) {
						w.must(beginTrouble(w.sim, begin, call, of(w, other)))
						if object == adapter { // it may be the driver's until it is known to be slow
							w.must(w.own[red].Disk.Rescan(context.Background()))
						}
					})
					for i, c := range ownCalls() {
						if times[i] > healthy[i]+healthy[i]/5+c.more {
							t.Errorf("%s takes %v, and %v without the trouble", c.name, times[i], healthy[i])
						}
					}
				})
			}
		}
	}
}

// slowSessions are the calls of a node on which an iSCSI session is slow to say which disks it has.
type slowSessions struct {
	*winsim.System
	isSlow bool
}

func (s *slowSessions) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	if s.isSlow {
		time.Sleep(500 * time.Millisecond)
	}
	return s.System.ISCSISessionDevices(ctx, id)
}

// A driver waits once for a disk whose iSCSI session is slow, and may be any driver's. The session's own driver has the disk as
// soon as the session answers.
func TestDiskOfSlowSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		d, other := w.own[red], w.own[blue]
		sys := &slowSessions{System: w.sim}
		node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
		w.must(err)
		listed := func(driver string) (count int, took time.Duration) {
			begun := time.Now()
			ids, err := node.Driver(driver).Disk.ListDiskIDs(t.Context())
			w.must(err)
			return len(ids), time.Since(begun)
		}
		before, _ := listed(d.name)
		w.must(node.Driver(d.name).ISCSI.AddTargetPortal(t.Context(), d.portal))
		w.must(node.Driver(d.name).ISCSI.ConnectTarget(t.Context(), d.portal, d.iqn, csiproxy.ISCSIAuthentication{}))
		sys.isSlow = true
		node, err = nodeops.New(sys, nodeops.Options{}, w.drivers...) // one that doesn't know whose the disk is
		w.must(err)
		_, first := listed(other.name)
		time.Sleep(10 * time.Second)
		_, second := listed(other.name)
		simtest.Want(t, "the first list and the second one take", []time.Duration{first, second}, []time.Duration{200 * time.Millisecond, 0})
		sys.isSlow = false
		time.Sleep(10 * time.Second)
		listed(d.name) // asks the disk, and doesn't wait
		time.Sleep(10 * time.Second)
		after, _ := listed(d.name)
		simtest.Want(t, "disks of the driver with the session", after, before+1)
	})
}

// However many disks of another driver hang, a driver stages and unstages the volumes of disks that it knows by their numbers.
func TestManyDisksOfAnotherThatHang(t *testing.T) {
	beside(t, func(t *testing.T, w *tenants, d, other *tenant, _ string) {
		w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
		for i := range 520 { // more than Windows calls may be under way
			n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 20, VendorID: other.vendor, ProductID: "Disk 1", Serial: fmt.Sprint("many-", i)})
			w.must(beginTrouble(w.sim, diskTroubles["hangs"], win.IoctlStorageQueryProperty.String(), fmt.Sprintf("PhysicalDrive%d ", n)))
		}
		for _, ops := range []nodeops.Operations{d.Operations, w.node.Operations} {
			_, _ = ops.Disk.ListDiskIDs(t.Context())
		}
		wantAtOnce(t, "UnstageVolume", unstagingOf(d))
		wantAtOnce(t, "SetDiskState", func(ctx context.Context) error { return d.Disk.SetDiskState(ctx, d.number, true) })
		wantAtOnce(t, "MountVolume", func(ctx context.Context) error { return d.Volume.MountVolume(ctx, d.volume, d.staging) })
		simtest.Want(t, "calls of the node that hang", w.node.Load().Overdue > 0, true)
	})
}

// Another driver's disk that is offline, or doesn't answer, doesn't keep a driver from finding its leftovers.
func TestLeftoverBesideAnothersDisk(t *testing.T) {
	for name, trouble := range map[string]func(w *tenants, other *tenant){
		"offline": func(w *tenants, other *tenant) {
			w.must(other.Disk.SetDiskState(context.Background(), other.raw, false))
		},
		"hangs": func(w *tenants, other *tenant) {
			w.must(beginTrouble(w.sim, diskTroubles["hangs"], "", fmt.Sprintf("PhysicalDrive%d ", other.raw)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				d, other := w.own[red], w.own[blue]
				w.begin(d)
				w.begin(other)
				w.must(second(d.Disk.ListDiskIDs(t.Context())))
				w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
				trouble(w, other)
				w.must(w.sim.DetachDisk(d.number))
				found, err := d.Storage.CleanUp(t.Context(), true)
				w.must(err)
				var paths []string
				for _, leftover := range found.Mounts {
					paths = append(paths, leftover.Path)
				}
				simtest.Want(t, "leftovers", fmt.Sprint(paths), fmt.Sprint([]string{d.staging}))
				w.sim.ResetRules()
				time.Sleep(24 * time.Hour)
			})
		})
	}
}

// However many calls of another driver are under way, a driver's calls take as long as without these: what Windows runs from is asked
// by each driver's own calls.
func TestManyCallsOfAnother(t *testing.T) {
	took := func(callers int) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w := newSlowTenants(t, winsim.RealisticDelays())
			d, other := w.own[red], w.own[blue]
			w.begin(d)
			w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall}, 300*time.Microsecond))
			ctx, cancel := context.WithCancel(t.Context())
			for range callers {
				go func() {
					for ctx.Err() == nil {
						_, _ = other.Disk.ListDiskLocations(ctx)
					}
				}()
			}
			time.Sleep(time.Second)
			begun := time.Now()
			w.must(d.Disk.SetDiskState(t.Context(), d.number, true))
			took = time.Since(begun)
			cancel()
			time.Sleep(time.Minute) // of the bubble: until their calls have ended
		})
		return took
	}
	simtest.Want(t, "beside calls of another driver", took(40), took(0))
}

// Calls of another driver that search the links all the time don't prolong a driver's searches: it doesn't wait for theirs to end.
func TestSearchesOfAnotherDriver(t *testing.T) {
	timeOfList := func(isBeside bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			w := newSlowTenants(t, winsim.Delays{Calls: map[string]time.Duration{win.CallOpenAt: time.Millisecond}})
			for i := range 100 {
				w.must(w.sim.MkdirAll(fmt.Sprintf(`%s\pods\pod%d\volumes\kubernetes.io~csi\pv`, simtest.Kubelet, i)))
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i := range 4 {
				go func() {
					time.Sleep(time.Duration(i) * 30 * time.Millisecond)
					for isBeside && ctx.Err() == nil {
						_, _ = w.node.Driver(blue).Storage.ListVolumes(ctx)
						time.Sleep(time.Millisecond)
					}
				}()
			}
			time.Sleep(time.Second)
			begun := time.Now()
			for range 10 {
				w.must(second(w.node.Driver(red).Storage.ListVolumes(t.Context())))
				time.Sleep(7 * time.Millisecond)
			}
			took = time.Since(begun)
		})
		return took
	}
	if alone, beside := timeOfList(false), timeOfList(true); beside > alone+alone/5 {
		t.Errorf("ten lists take %v, and %v beside another driver's", alone, beside)
	}
}
