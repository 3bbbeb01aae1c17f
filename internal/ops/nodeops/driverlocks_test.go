// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// during calls f once, in the middle of the first Windows call of a name on an object with a text. That is answered
// when f returns. Whatever f calls has a minute: it must not wait for who makes the Windows call.
func (w *tenants) during(call, object string, f func(ctx context.Context)) (happened func() bool) {
	happens := false
	w.sim.OnCall(func(c winsim.Call) {
		if c.Name != call || !strings.Contains(c.Object, object) {
			return
		}
		w.sim.OnCall(nil)
		happens = true
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		f(ctx)
	})
	return func() bool { return happens }
}

// While a driver maps its share, another one that names the share gets the answer that it may not, and doesn't
// wait for the locks. So it doesn't take them, either.
func TestAnothersShareIsntLocked(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[blue], w.own[red]
	w.begin(d)
	planted := d.shareStaging + "-planted"
	w.must(w.sim.Symlink(planted, other.share, true))
	happened := w.during(win.CallCreateSMBGlobalMapping, other.share, func(ctx context.Context) {
		for what, err := range map[string]error{
			"RemoveSMBGlobalMapping": d.SMB.RemoveSMBGlobalMapping(ctx, other.share),
			"NewSMBGlobalMapping":    d.SMB.NewSMBGlobalMapping(ctx, other.share, d.shareStaging+"-new", user),
			"StageShare": d.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: other.share,
				StagingPath: d.shareStaging + "-new", Credentials: user}),
			"UnstageShare": second(d.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{RemotePath: other.share,
				StagingPath: d.shareStaging + "-new"})),
			"UnstageShare of a link": second(d.Storage.UnstageShare(ctx,
				csiproxy.UnstageShareRequest{StagingPath: planted})),
			"UnstageVolume of a link": second(d.Storage.UnstageVolume(ctx,
				csiproxy.UnstageVolumeRequest{StagingPath: planted})),
		} {
			simtest.WantErrorOf(t, what, err, csiproxy.ErrPermissionDenied, "the server isn't one of driver "+blue+"'s")
		}
	})
	w.must(other.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: other.share,
		StagingPath: other.shareStaging, Credentials: user}))
	simtest.Want(t, "the share was mapped", happened(), true)
}

// A driver that logs in to another's target, through a portal of its own that doesn't answer, keeps nobody waiting.
func TestAnothersTargetIsntLocked(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[blue], w.own[red]
	for _, d := range w.own {
		w.must(d.ISCSI.AddTargetPortal(t.Context(), d.portal))
	}
	happened := w.during(win.CallLoginISCSITarget, d.portal.Address, func(ctx context.Context) {
		_, err := other.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: other.staging,
			Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: other.portal, IQN: other.iqn}}})
		w.must(err)
		w.must(other.ISCSI.DisconnectTarget(ctx, other.portal, other.iqn))
	})
	_ = d.ISCSI.ConnectTarget(t.Context(), d.portal, other.iqn, csiproxy.ISCSIAuthentication{})
	simtest.Want(t, "the driver has logged in", happened(), true)
}

// nobodysTarget adds a target at a portal that is no driver's.
func (w *tenants) nobodysTarget() csiproxy.ISCSISelector {
	at := csiproxy.ISCSISelector{Portal: csiproxy.ISCSIPortal{Address: "10.0.0.9", Port: 3260}, IQN: "iqn.2026-01.com.example:green"}
	w.must(w.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: string(at.IQN), Portals: []win.ISCSIPortal{win.ISCSIPortal(at.Portal)}},
		winsim.DiskSpec{SizeBytes: 1 << 30}))
	return at
}

// A driver that logs in to the target of a driver at the shared endpoints, through a portal of its own that doesn't answer, keeps nobody
// waiting. Nor does its staging keep the target connected.
func TestTargetOfSharedEndpointsIsntLocked(t *testing.T) {
	w := newTenants(t)
	d, shared, at := w.own[blue], w.node.Operations, w.nobodysTarget()
	w.must(d.ISCSI.AddTargetPortal(t.Context(), d.portal))
	wanted, staging := csiproxy.Selector{ISCSI: &at}, simtest.Kubelet+`\plugins\kubernetes.io\csi\green\1\globalmount`
	stages := func(ctx context.Context) {
		w.must(second(shared.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{StagingPath: staging, Disk: wanted})))
		unstaged, err := shared.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
		w.must(err)
		simtest.Want(t, "logged out", unstaged.LoggedOut, true)
		w.must(shared.ISCSI.ConnectTarget(ctx, at.Portal, at.IQN, csiproxy.ISCSIAuthentication{}))
		w.must(shared.ISCSI.DisconnectTarget(ctx, at.Portal, at.IQN))
	}
	happened := w.during(win.CallLoginISCSITarget, d.portal.Address, stages)
	_ = d.ISCSI.ConnectTarget(t.Context(), d.portal, at.IQN, csiproxy.ISCSIAuthentication{})
	simtest.Want(t, "the driver has logged in", happened(), true)
	happened = w.during(win.CallLoginISCSITarget, d.portal.Address, stages)
	_, _ = d.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{StagingPath: d.staging, Wait: -1,
		Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: d.portal, IQN: at.IQN}}})
	simtest.Want(t, "the driver was staging", happened(), true)
}

// A call at the shared endpoints doesn't end another owner's session, nor one that may be another owner's.
func TestSessionsOfOtherOwners(t *testing.T) {
	w := newTenants(t)
	d, at := w.own[blue], w.nobodysTarget()
	sys := &sessions{System: w.sim}
	node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
	w.must(err)
	w.must(node.ISCSI.AddTargetPortal(t.Context(), at.Portal))
	w.must(node.ISCSI.ConnectTarget(t.Context(), at.Portal, at.IQN, csiproxy.ISCSIAuthentication{}))
	isConnected := func() bool {
		all, err := w.sim.ISCSISessions(t.Context())
		w.must(err)
		return len(all) > 0
	}
	through := func(portals ...win.ISCSIPortal) {
		sys.broken = func(all []win.ISCSISession) ([]win.ISCSISession, error) {
			for i := range all {
				all[i].Portals = portals
			}
			return all, nil
		}
	}
	through(win.ISCSIPortal(d.portal))
	w.must(node.ISCSI.DisconnectTarget(t.Context(), at.Portal, at.IQN))
	simtest.WantErrorOf(t, "the login beside another owner's session",
		node.ISCSI.ConnectTarget(t.Context(), at.Portal, at.IQN, csiproxy.ISCSIAuthentication{}), csiproxy.ErrUnavailable)
	through()
	simtest.WantErrorOf(t, "a session without a connection", node.ISCSI.DisconnectTarget(t.Context(), at.Portal, at.IQN), csiproxy.ErrUnavailable)
	simtest.Want(t, "the target is connected", isConnected(), true)
	through(win.ISCSIPortal(at.Portal))
	w.must(node.ISCSI.DisconnectTarget(t.Context(), at.Portal, at.IQN))
	simtest.Want(t, "the target is connected", isConnected(), false)
}

// A target stays connected while the driver stages a disk of it, or the node's own tasks do at the same portal.
func TestWhoseStagingKeepsTargetConnected(t *testing.T) {
	const node = "the node"
	for _, c := range []struct {
		stages, unstages string
		loggedOut        bool
	}{
		{blue, red, true},
		{red, red, false},
		{node, red, false},
		{red, node, false},
		{blue, node, true},
	} {
		t.Run(c.stages+" and "+c.unstages, func(t *testing.T) {
			w := newTenants(t)
			d := w.own[red]
			operations := func(name string) nodeops.Operations {
				if name == node {
					return w.node.Operations
				}
				return w.own[name].Operations
			}
			wanted := csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: d.portal, IQN: d.iqn}}
			_, err := d.Storage.StageVolume(t.Context(),
				csiproxy.StageVolumeRequest{StagingPath: d.staging, Disk: wanted})
			w.must(err)
			again := csiproxy.StageVolumeRequest{StagingPath: d.staging + "-new", Disk: wanted, Wait: -1}
			if c.stages == blue {
				other := w.own[blue]
				again.StagingPath = other.staging
				again.Disk.ISCSI = &csiproxy.ISCSISelector{Portal: other.portal, IQN: d.iqn}
			}
			happened := w.during(win.CallISCSIPortals, "", func(ctx context.Context) {
				unstaged, err := operations(c.unstages).Storage.UnstageVolume(ctx,
					csiproxy.UnstageVolumeRequest{StagingPath: d.staging, Disk: wanted})
				w.must(err)
				simtest.Want(t, "logged out", unstaged.LoggedOut, c.loggedOut)
			})
			_, _ = operations(c.stages).Storage.StageVolume(t.Context(), again)
			simtest.Want(t, "a disk was being staged", happened(), true)
		})
	}
}

// A driver whose login comes when another one has just connected the target isn't told that it is connected.
func TestAnothersTargetIsConnectedMeanwhile(t *testing.T) {
	w := newTenants(t)
	d, other := w.own[blue], w.own[red]
	const atBoth = csiproxy.IQN("iqn.2026-01.com.example:both")
	w.must(w.sim.ISCSI().AddTarget(iscsitarget.Target{IQN: string(atBoth),
		Portals: []win.ISCSIPortal{win.ISCSIPortal(d.portal), win.ISCSIPortal(other.portal)}},
		winsim.DiskSpec{SizeBytes: 1 << 30}))
	for _, d := range w.own {
		w.must(d.ISCSI.AddTargetPortal(t.Context(), d.portal))
	}
	happened := w.during(win.CallLoginISCSITarget, d.portal.Address, func(ctx context.Context) {
		w.must(other.ISCSI.ConnectTarget(ctx, other.portal, atBoth, csiproxy.ISCSIAuthentication{}))
	})
	err := d.ISCSI.ConnectTarget(t.Context(), d.portal, atBoth, csiproxy.ISCSIAuthentication{})
	simtest.WantErrorOf(t, "the driver's login", err, csiproxy.ErrUnavailable)
	simtest.Want(t, "the driver has logged in", happened(), true)
}

// While a driver's call hangs in its own directory, its disk leaves, and another driver's disk gets the number, or its volume
// the name. The other driver doesn't wait, nor does one at the shared endpoints for the number.
func TestLocksThatChangeHands(t *testing.T) {
	for _, what := range []string{"number", "name", "number of nobody's disk"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				for _, d := range w.own {
					w.begin(d)
				}
				d, other := w.own[red], w.own[blue]
				if what == "number of nobody's disk" {
					d = &tenant{Operations: w.node.Operations, vendor: "GREEN", staging: simtest.Kubelet + `\plugins\kubernetes.io\csi\green\1\globalmount`}
				}
				held := simtest.Kubelet + `\plugins\` + other.name + `\held`
				w.must(w.sim.MkdirAll(held))
				number, volume, staging := other.number, other.volume, d.staging+"-new"
				if what == "name" {
					w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
					w.must(second(d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})))
					clone, err := w.sim.CloneDisk(d.number, winsim.DiskSpec{VendorID: other.vendor, ProductID: "Disk 1", Serial: "clone"})
					w.must(err)
					w.sim.Settle()
					number, volume, staging = clone, d.volume, d.staging
				}
				w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallOpenAt, Object: `held`}, 24*time.Hour))
				mounted := make(chan error)
				go func() { mounted <- other.Volume.MountVolume(context.Background(), volume, held+`\x`) }()
				time.Sleep(30 * time.Second)
				w.must(w.sim.DetachDisk(number))
				if what != "name" {
					d.serial = "red-new"
					w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: d.vendor, ProductID: "Disk 1", Serial: d.serial, Number: &number})
					w.sim.Settle()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				w.must(second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: staging})))
				w.sim.ResetRules()
				if err := <-mounted; err == nil {
					t.Error("what has left is mounted")
				}
			})
		})
	}
}

// A driver that ends the use of a sick disk, which it only presumes to own, excludes the node, also once the disk says whose it is.
func TestPresumedOwnerExcludesNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		n := w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "GREEN", Serial: "green"})
		planted := simtest.Kubelet + `\plugins\` + blue + `\planted`
		w.must(second(w.node.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{Number: &n}, StagingPath: planted})))
		node, err := nodeops.New(w.sim, nodeops.Options{}, w.drivers...) // which knows nothing of the disk
		w.must(err)
		w.must(w.sim.Fail(winsim.Match{Call: win.IoctlStorageQueryProperty.String(), Object: fmt.Sprintf("PhysicalDrive%d ", n)}, winerr.ErrorIODevice))
		happened := w.during(win.FsctlLockVolume.String(), "", func(ctx context.Context) {
			w.sim.ResetRules()
			simtest.WantErrorOf(t, "SetDiskState by the node", node.Disk.SetDiskState(ctx, n, false), context.DeadlineExceeded)
		})
		_, err = node.Driver(blue).Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: planted})
		simtest.WantErrorOf(t, "the driver's UnstageVolume", err, csiproxy.ErrUnavailable)
		simtest.Want(t, "it happened", happened(), true)
		w.must(node.Disk.SetDiskState(t.Context(), n, false))
	})
}

// A check of one driver's volume that hangs doesn't keep another driver from checking a volume that has the name afterwards.
func TestCheckOfNameThatChangesHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		for _, d := range w.own {
			w.begin(d)
		}
		d, other := w.own[red], w.own[blue]
		w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
		w.must(second(d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})))
		clone, err := w.sim.CloneDisk(d.number, winsim.DiskSpec{VendorID: other.vendor, ProductID: "Disk 1", Serial: "clone"})
		w.must(err)
		w.sim.Settle()
		mounted := simtest.Kubelet + `\plugins\` + other.name + `\clone`
		w.must(other.Volume.MountVolume(t.Context(), d.volume, mounted))
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallRepairVolume, Count: 1}, 24*time.Hour))
		checked := make(chan error)
		go func() {
			checked <- second(other.Storage.CheckVolume(context.Background(), csiproxy.CheckVolumeRequest{StagingPath: mounted}))
		}()
		time.Sleep(30 * time.Second)
		w.must(w.sim.DetachDisk(clone))
		w.must(w.sim.DeleteVolumeMountPoint(t.Context(), mounted+`\`))
		w.must(second(d.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: d.staging})))
		w.must(second(d.Storage.CheckVolume(t.Context(), csiproxy.CheckVolumeRequest{StagingPath: d.staging})))
		w.sim.ResetRules()
		<-checked
	})
}

// A driver whose call hangs in its own directory, and names the volume of a driver that has no endpoints of its own, doesn't keep
// that from its volume: neither at the shared endpoints, nor in a process of its own.
func TestVolumeOfSharedEndpointsIsntLocked(t *testing.T) {
	for _, process := range []string{"the daemon", "another"} {
		t.Run(process, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				d, shared := w.own[blue], w.node.Operations
				if process == "another" {
					shared = w.process().Operations
				}
				mounted := simtest.Kubelet + `\plugins\kubernetes.io\csi\green\1\globalmount`
				w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "GREEN", Serial: "green"})
				staged, err := shared.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
					Disk: csiproxy.Selector{SerialNumber: "green"}, StagingPath: mounted})
				w.must(err)
				held := simtest.Kubelet + `\plugins\` + d.name + `\held`
				w.must(w.sim.MkdirAll(held))
				w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallOpenAt, Object: `held`}, 24*time.Hour))
				unmounted := make(chan error)
				go func() { unmounted <- d.Volume.UnmountVolume(context.Background(), staged.VolumeID, held+`\x`) }()
				time.Sleep(30 * time.Second)
				wantAtOnce(t, "UnmountVolume", func(ctx context.Context) error { return shared.Volume.UnmountVolume(ctx, staged.VolumeID, mounted) })
				wantAtOnce(t, "MountVolume", func(ctx context.Context) error { return shared.Volume.MountVolume(ctx, staged.VolumeID, mounted) })
				w.sim.ResetRules()
				<-unmounted
				time.Sleep(48 * time.Hour) // until what hangs has ended
			})
		})
	}
}

// A driver that plants a mount point of another driver's missing volume, and is stuck while it removes that, doesn't keep
// the other driver from ending its use. It makes no new use of the volume.
func TestAnothersMissingVolumeIsntLocked(t *testing.T) {
	for name, remove := range map[string]func(d *tenant, planted string, id csiproxy.VolumeID) error{
		"Rmdir": func(d *tenant, planted string, _ csiproxy.VolumeID) error {
			return d.Filesystem.Rmdir(t.Context(), planted, false)
		},
		"UnmountVolume": func(d *tenant, planted string, id csiproxy.VolumeID) error {
			return d.Volume.UnmountVolume(t.Context(), id, planted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenants(t)
			for _, d := range w.own {
				w.begin(d)
			}
			d, other := w.own[blue], w.own[red]
			w.must(other.Storage.UnpublishVolume(t.Context(), other.target))
			planted := simtest.Kubelet + `\plugins\` + d.name + `\planted`
			w.must(w.sim.MkdirAll(planted))
			w.must(w.sim.SetReparsePoint(planted, win.NewMountPoint(string(other.volume))))
			w.must(w.sim.DetachDisk(other.number))
			if err := d.Filesystem.CreateSymlink(t.Context(), planted, planted+"-link"); csiproxy.KindOf(err) != csiproxy.ErrNotFound {
				t.Errorf("a link to the missing volume: %v", err)
			}
			happened := w.during(win.CallDeleteVolumeMountPoint, `planted`, func(ctx context.Context) {
				w.must(second(other.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: other.staging, Force: true})))
			})
			w.must(remove(d, planted, other.volume))
			simtest.Want(t, "it happened", happened(), true)
		})
	}
}
