// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
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

// beside runs test on a node where both drivers have begun: d, and other, which attacks it. dir is a directory of other's.
func beside(t *testing.T, test func(t *testing.T, w *tenants, d, other *tenant, dir string)) {
	t.Helper()
	besideOn(t, func(*tenants) {}, test)
}

// besideWithAndWithoutLink is beside on a node as usual, and on one whose kubelet's directory is a link of the administrator's.
func besideWithAndWithoutLink(t *testing.T, test func(t *testing.T, w *tenants, d, other *tenant, dir string)) {
	t.Run("kubelet's directory is one", func(t *testing.T) { beside(t, test) })
	t.Run("kubelet's directory is a link", func(t *testing.T) {
		besideOn(t, func(w *tenants) {
			w.must(w.sim.Rename(simtest.Kubelet, `C:\real`, false))
			w.must(w.sim.Junction(simtest.Kubelet, `C:\real`))
		}, test)
	})
}

// besideOn is beside on a node that prepare changes first.
func besideOn(t *testing.T, prepare func(w *tenants), test func(t *testing.T, w *tenants, d, other *tenant, dir string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		prepare(w)
		for _, name := range []string{red, blue} { // in this order, which the numbers of the disks show
			w.begin(w.own[name])
		}
		dir := simtest.Kubelet + `\plugins\` + blue
		w.must(w.sim.MkdirAll(dir))
		test(t, w, w.own[red], w.own[blue], dir)
		w.sim.ResetRules()
		time.Sleep(48 * time.Hour) // of the bubble: until what hangs has ended
	})
}

// wantAtOnce fails unless a call succeeds while no time passes for what hangs.
func wantAtOnce(t *testing.T, what string, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	begun, ended := time.Now(), make(chan error, 1)
	go func() { ended <- call(ctx) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if took := time.Since(begun); err != nil || took > 5*time.Second {
		t.Errorf("%s takes %v: %v", what, took, err)
	}
}

func unstagingOf(d *tenant) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return second(d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: d.staging}))
	}
}

func stagingOf(d *tenant) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: d.staging}))
	}
}

func spotFix(ctx context.Context, d *tenant) error {
	return second(d.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: d.staging, SpotFix: true}))
}

// A driver's links that lead to directories which don't answer take the driver's own calls to Windows, whoever follows them.
func TestLinksOfDriverTakeItsOwnCalls(t *testing.T) {
	for name, follow := range map[string]func(ctx context.Context, w *tenants, other *tenant) error{
		"its CheckVolume":   func(ctx context.Context, _ *tenants, other *tenant) error { return spotFix(ctx, other) },
		"its UnstageVolume": func(ctx context.Context, _ *tenants, other *tenant) error { return unstagingOf(other)(ctx) },
		"the metrics": func(ctx context.Context, w *tenants, _ *tenant) error {
			_, _, err := w.node.Links(ctx)
			return err
		},
		"the node's list": func(ctx context.Context, w *tenants, _ *tenant) error { return second(w.node.Storage.ListVolumes(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
				w.must(other.Storage.UnpublishVolume(t.Context(), other.target))
				w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallOpenAt, Object: `held`}, 24*time.Hour))
				for i := range 520 { // more than one pool has
					held := fmt.Sprintf(`%s\kubernetes.io~secret\held%d`, dir, i)
					w.must(w.sim.MkdirAll(held))
					_ = w.sim.Remove(dir + `\link`)
					w.must(w.sim.Symlink(dir+`\link`, held+`\x`, true))
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					go func() { _ = follow(ctx, w, other); cancel() }()
					time.Sleep(100 * time.Millisecond) // of the bubble
				}
				wantAtOnce(t, "ListVolumes", func(ctx context.Context) error { return second(d.Storage.ListVolumes(ctx)) })
				wantAtOnce(t, "PublishVolume", func(ctx context.Context) error { return d.Storage.PublishVolume(ctx, d.staging, d.target) })
				wantAtOnce(t, "the node's ListDisks", func(ctx context.Context) error {
					return second(w.node.Storage.ListDisks(ctx, csiproxy.Selector{}))
				})
			})
		})
	}
}

// By a planted mount point, a driver's links lead into another driver's volume: nothing is opened there, so the other driver can
// unstage it at that moment, and no error has a name from there.
func TestLinksIntoAnothersVolume(t *testing.T) {
	plant := func(w *tenants, d *tenant, dir string) {
		w.must(w.sim.MkdirAll(d.staging + `\directory\inner`))
		w.must(w.sim.MkdirAll(dir + `\kubernetes.io~secret\mount`))
		w.must(w.sim.SetReparsePoint(dir+`\kubernetes.io~secret\mount`, win.NewMountPoint(string(d.volume))))
		w.must(w.sim.Symlink(dir+`\link`, dir+`\kubernetes.io~secret\mount\directory\inner\x`, true))
		w.must(d.Storage.UnpublishVolume(context.Background(), d.target))
	}
	for name, follow := range map[string]func(ctx context.Context, w *tenants, other *tenant) error{
		"its CheckVolume": func(ctx context.Context, _ *tenants, other *tenant) error { return spotFix(ctx, other) },
		"its list": func(ctx context.Context, _ *tenants, other *tenant) error {
			return second(other.Storage.ListVolumes(ctx))
		},
		"the metrics": func(ctx context.Context, w *tenants, _ *tenant) error {
			_, _, err := w.node.Links(ctx)
			return err
		},
		"the node's list": func(ctx context.Context, w *tenants, _ *tenant) error { return second(w.node.Storage.ListVolumes(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
				plant(w, d, dir)
				w.sim.OnCall(func(winsim.Call) {
					for _, open := range w.sim.OpenHandles() {
						if strings.Contains(open, `\directory`) {
							t.Errorf("%s is open, in the other driver's volume", open)
						}
					}
				})
				if err := follow(t.Context(), w, other); strings.Contains(fmt.Sprint(err), "inner") {
					t.Errorf("the error has a name from the other driver's volume: %v", err)
				}
			})
		})
	}
	t.Run("the other driver unstages meanwhile", func(t *testing.T) {
		beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
			plant(w, d, dir)
			happened := w.during(win.CallOpenAt, `~secret`, func(context.Context) { wantAtOnce(t, "UnstageVolume", unstagingOf(d)) })
			_ = spotFix(t.Context(), other) // it may find out
			simtest.Want(t, "the link was followed", happened(), true)
		})
	})
}

// A mount point of a driver's volume in another driver's directory, which Windows lists, is no use of the volume, and isn't asked.
func TestMountPointInAnothersDirectory(t *testing.T) {
	for _, endpoints := range []string{"the driver's", "the node's"} {
		t.Run(endpoints, func(t *testing.T) {
			besideWithAndWithoutLink(t, func(t *testing.T, w *tenants, d, _ *tenant, dir string) {
				if endpoints == "the node's" {
					d.Operations = w.node.Operations
				}
				w.must(w.sim.MkdirAll(dir + `\mine`))
				w.must(w.sim.SetVolumeMountPoint(t.Context(), dir+`\mine\`, string(d.volume)))
				w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
				list, err := d.Storage.ListDisks(t.Context(), csiproxy.Selector{SerialNumber: d.serial})
				w.must(err)
				simtest.Want(t, "the paths of the volume", list[0].Partitions[len(list[0].Partitions)-1].Paths, []string{d.staging})
				unstaged, err := d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
				w.must(err)
				simtest.Want(t, "the disk goes offline", unstaged.DiskOffline, true)
				w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: `mine`, Fires: winsim.MustNotFire}, 24*time.Hour))
				wantAtOnce(t, "StageVolume", stagingOf(d))
				wantAtOnce(t, "SetDiskState", func(ctx context.Context) error {
					return errors.Join(unstagingOf(d)(ctx), d.Disk.SetDiskState(ctx, d.number, true), d.Disk.SetDiskState(ctx, d.number, false))
				})
			})
		})
	}
}

// So it is if the other driver has made the mount point by its own call, while a clone on its disk had the name of the volume.
func TestMountPointOfClone(t *testing.T) {
	besideWithAndWithoutLink(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
		w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
		w.must(unstagingOf(d)(t.Context()))
		clone, err := w.sim.CloneDisk(d.number, winsim.DiskSpec{VendorID: other.vendor, ProductID: "Disk 1", Serial: "clone"})
		w.must(err)
		w.sim.Settle()
		w.must(other.Volume.MountVolume(t.Context(), d.volume, dir+`\mine`))
		w.must(w.sim.DetachDisk(clone))
		wantAtOnce(t, "StageVolume", stagingOf(d))
	})
}

// Nor is one in data of a pod's own, which may hang, too.
func TestMountPointInPodsData(t *testing.T) {
	for _, endpoints := range []string{"the driver's", "the node's"} {
		t.Run(endpoints, func(t *testing.T) {
			besideWithAndWithoutLink(t, func(t *testing.T, w *tenants, d, _ *tenant, _ string) {
				if endpoints == "the node's" {
					d.Operations = w.node.Operations
				}
				planted := simtest.Kubelet + `\pods\blue\volumes\kubernetes.io~empty-dir\data\mine`
				w.must(w.sim.MkdirAll(planted))
				w.must(w.sim.SetVolumeMountPoint(t.Context(), planted+`\`, string(d.volume)))
				w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
				w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: `mine`, Fires: winsim.MustNotFire}, 24*time.Hour))
				unstaged, err := d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
				w.must(err)
				simtest.Want(t, "the disk goes offline", unstaged.DiskOffline, true)
				wantAtOnce(t, "StageVolume", stagingOf(d))
			})
		})
	}
}

// Mount points outside of the allowed directories, in another driver's volume or a directory that a pod has by hostPath, keep the
// disk online, and nothing else: however many hang, the volume is unmounted soon, and staged again, read-only and writable.
func TestMountPointsOutside(t *testing.T) {
	for _, place := range []string{`X:`, `C:\logs`} {
		for _, endpoints := range []string{"the driver's", "the node's"} {
			for _, trouble := range []string{"nothing", "the directories hang", "the other driver's volume hangs", "its disk is sick"} {
				t.Run(fmt.Sprint(place, ", ", endpoints, " endpoints, ", trouble), func(t *testing.T) {
					beside(t, func(t *testing.T, w *tenants, d, other *tenant, _ string) {
						if endpoints == "the node's" {
							d.Operations = w.node.Operations
						}
						w.must(w.sim.SetVolumeLetter(string(other.volume), "X:"))
						for i := range 20 {
							planted := fmt.Sprintf(`%s\mine%d`, place, i)
							w.must(w.sim.MkdirAll(planted))
							w.must(w.sim.SetVolumeMountPoint(t.Context(), planted+`\`, string(d.volume)))
						}
						w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
						switch trouble {
						case "the directories hang":
							w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallOpenAt, Object: `mine`}, 24*time.Hour))
						case "the other driver's volume hangs":
							w.must(beginTrouble(w.sim, diskTroubles["hangs"], "", strings.TrimSuffix(string(other.volume), `\`)))
						case "its disk is sick":
							w.must(beginTrouble(w.sim, diskTroubles["fails"], "", fmt.Sprintf("PhysicalDrive%d ", other.number)))
						}
						for _, isReadOnly := range []bool{true, false, false} {
							wantAtOnce(t, "UnstageVolume", func(ctx context.Context) error {
								unstaged, err := d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
								simtest.Want(t, "unmounted, and the disk offline", []bool{unstaged.Unmounted, unstaged.DiskOffline}, []bool{true, false})
								return err
							})
							time.Sleep(time.Minute) // of the bubble
							wantAtOnce(t, "StageVolume", func(ctx context.Context) error {
								return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
									Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: d.staging, ReadOnly: isReadOnly}))
							})
						}
					})
				})
			}
		}
	}
}

// If another driver has planted more mount points of a volume than Windows can list, the volume is staged and unstaged as before, but at
// one path only, and its disk stays online.
func TestTooManyMountPoints(t *testing.T) {
	for _, owner := range []string{"the driver's", "nobody's"} {
		for _, endpoints := range []string{"the driver's", "the node's"} {
			if owner == "nobody's" && endpoints == "the driver's" {
				continue
			}
			t.Run(owner+" volume, "+endpoints+" endpoints", func(t *testing.T) {
				besideWithAndWithoutLink(t, func(t *testing.T, w *tenants, d, _ *tenant, dir string) {
					if owner == "nobody's" {
						w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "GREEN", Serial: "green"})
						d = &tenant{serial: "green", staging: simtest.Kubelet + `\plugins\kubernetes.io\csi\green\1\globalmount`}
					}
					if endpoints == "the node's" {
						d.Operations = w.node.Operations
					}
					if owner == "nobody's" {
						w.must(stagingOf(d)(t.Context()))
						d.volume = csiproxy.VolumeID(w.volumeAt(d.staging))
					} else {
						w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
					}
					w.must(w.sim.MkdirAll(dir + `\mine`))
					w.must(w.sim.SetVolumeMountPoint(t.Context(), dir+`\mine\`, string(d.volume)))
					w.must(w.sim.Fail(winsim.Match{Call: win.CallVolumePathNames, Object: string(d.volume)}, winerr.ErrorMoreData))
					w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: `mine`, Fires: winsim.MustNotFire}, 24*time.Hour))
					for _, isReadOnly := range []bool{true, false, false} {
						list, err := d.Storage.ListDisks(t.Context(), csiproxy.Selector{SerialNumber: d.serial})
						w.must(err)
						partition := list[0].Partitions[len(list[0].Partitions)-1]
						simtest.Want(t, "the paths of the volume", partition.Paths, []string{d.staging})
						simtest.Want(t, "its error", partition.Error, "it is mounted at more directories than can be listed")
						simtest.WantError(t, d.Disk.SetDiskState(t.Context(), list[0].Number, false), csiproxy.ErrFailedPrecondition, "is mounted at")
						elsewhere := &tenant{Operations: d.Operations, serial: d.serial, staging: strings.Replace(d.staging, `\globalmount`, `-2\globalmount`, 1)}
						simtest.WantError(t, stagingOf(elsewhere)(t.Context()), csiproxy.ErrFailedPrecondition, "staged")
						wantAtOnce(t, "UnstageVolume", func(ctx context.Context) error {
							unstaged, err := d.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
							simtest.Want(t, "unmounted, and the disk offline", []bool{unstaged.Unmounted, unstaged.DiskOffline}, []bool{true, false})
							return err
						})
						wantAtOnce(t, "StageVolume", func(ctx context.Context) error {
							return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
								Disk: csiproxy.Selector{SerialNumber: d.serial}, StagingPath: d.staging, ReadOnly: isReadOnly}))
						})
					}
				})
			})
		}
	}
}

// A driver at the shared endpoints, whose disk is no driver's, stages its volume beside mount points of it in a driver's directory,
// which aren't asked, since they may hang. It doesn't take the disk offline, since that driver may have mounted the volume there.
func TestMountPointOfNobodysVolume(t *testing.T) {
	besideWithAndWithoutLink(t, func(t *testing.T, w *tenants, _, _ *tenant, dir string) {
		w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "GREEN", Serial: "green"})
		d := &tenant{Operations: w.node.Operations, serial: "green", staging: simtest.Kubelet + `\plugins\kubernetes.io\csi\green\1\globalmount`}
		w.must(stagingOf(d)(t.Context()))
		for i := range 100 {
			planted := fmt.Sprintf(`%s\mine%d`, dir, i)
			w.must(w.sim.MkdirAll(planted))
			w.must(w.sim.SetVolumeMountPoint(t.Context(), planted+`\`, w.volumeAt(d.staging)))
		}
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: `mine`, Fires: winsim.MustNotFire}, 24*time.Hour))
		unstaged, err := d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
		w.must(err)
		simtest.Want(t, "unmounted, and the disk offline", []bool{unstaged.Unmounted, unstaged.DiskOffline}, []bool{true, false})
		wantAtOnce(t, "StageVolume", stagingOf(d))
	})
}

// So does it beside mount points in data of a pod's own, which are no use of the volume: its disk goes offline.
func TestMountPointOfNobodysVolumeInPodsData(t *testing.T) {
	besideWithAndWithoutLink(t, func(t *testing.T, w *tenants, _, _ *tenant, _ string) {
		w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "GREEN", Serial: "green"})
		d := &tenant{Operations: w.node.Operations, serial: "green", staging: simtest.Kubelet + `\plugins\kubernetes.io\csi\green\1\globalmount`}
		w.must(stagingOf(d)(t.Context()))
		planted := simtest.Kubelet + `\pods\blue\volumes\kubernetes.io~empty-dir\data\mine`
		w.must(w.sim.MkdirAll(planted))
		w.must(w.sim.SetVolumeMountPoint(t.Context(), planted+`\`, w.volumeAt(d.staging)))
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: `mine`, Fires: winsim.MustNotFire}, 24*time.Hour))
		unstaged, err := d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
		w.must(err)
		simtest.Want(t, "the disk goes offline", unstaged.DiskOffline, true)
		wantAtOnce(t, "StageVolume", stagingOf(d))
	})
}

// A directory above a mount point that Windows lists has become a link, to another machine or to another mount point of the volume.
// It isn't followed, in a directory of a driver or of nobody: the volume isn't mounted there, and is staged elsewhere.
func TestLinkAboveMountPoint(t *testing.T) {
	const elsewhere = `C:\elsewhere`
	for _, place := range []string{`plugins\` + blue, `plugins\green`} {
		for _, target := range []string{`\\evil\data`, elsewhere} {
			for _, endpoints := range []string{"the driver's", "the node's"} {
				t.Run(fmt.Sprint(place, ", to ", target, ", ", endpoints), func(t *testing.T) {
					besideWithAndWithoutLink(t, func(t *testing.T, w *tenants, _, d *tenant, _ string) {
						if endpoints == "the node's" {
							d.Operations = w.node.Operations
						}
						above := simtest.Kubelet + `\` + place + `\above`
						for _, dir := range []string{above, elsewhere} {
							w.must(w.sim.MkdirAll(dir + `\mine`))
						}
						w.must(w.sim.SetVolumeMountPoint(t.Context(), above+`\mine\`, string(d.volume)))
						w.must(w.sim.SetReparsePoint(elsewhere+`\mine`, win.NewMountPoint(string(d.volume))))
						w.must(w.sim.Rename(above, above+"-old", false))
						w.must(w.sim.Symlink(above, target, true))
						w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
						list, err := d.Storage.ListDisks(t.Context(), csiproxy.Selector{SerialNumber: d.serial})
						w.must(err)
						partition := list[0].Partitions[len(list[0].Partitions)-1]
						simtest.Want(t, "the volume's paths", append(partition.Paths, partition.Error), []string{d.staging, ""})
						unstaged, err := d.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.staging})
						w.must(err)
						simtest.Want(t, "the disk goes offline", unstaged.DiskOffline, true)
						wantAtOnce(t, "StageVolume", stagingOf(d))
					})
				})
			}
		}
	}
}

// At the shared endpoints, a driver's session that hangs delays a list of disks as a disk does that hangs, and only once.
func TestListBesideSessionThatHangs(t *testing.T) {
	beside(t, func(t *testing.T, w *tenants, d, _ *tenant, _ string) {
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: win.CallISCSISessionDevices}, 24*time.Hour))
		for _, most := range []time.Duration{6 * time.Second, 0} {
			begun := time.Now()
			list, err := w.node.Storage.ListDisks(t.Context(), csiproxy.Selector{})
			w.must(err)
			simtest.Want(t, "the list has the disk", slices.ContainsFunc(list, func(disk csiproxy.Disk) bool { return disk.Number == d.number }), true)
			if took := time.Since(begun); took > most {
				t.Errorf("the list takes %v", took)
			}
		}
	})
}

// manySessions is a node with further sessions, through the portal of the driver blue, that don't say which disks they have,
// and with further targets that don't say where they were found.
type manySessions struct {
	*winsim.System
	more, targets  int
	isDisconnected bool // the sessions have no connection
	replaced       int  // how often all of them were replaced by others
}

const hangingTarget = "iqn.2026-01.com.example:many-"

func (s *manySessions) ISCSISessions(ctx context.Context) ([]win.ISCSISession, error) {
	all, err := s.System.ISCSISessions(ctx)
	for i := range s.more {
		n := s.replaced*s.more + i
		all = append([]win.ISCSISession{{ID: win.ISCSISessionID{AdapterUnique: 1, AdapterSpecific: uint64(n)},
			Target: fmt.Sprint(hangingTarget, n), Portals: []win.ISCSIPortal{{Address: "10.0.0.2", Port: 3260}}}}, all...)
		if s.isDisconnected {
			all[0].Portals = nil
		}
	}
	return all, err
}

func (s *manySessions) ISCSITargets(ctx context.Context) ([]string, error) {
	all, err := s.System.ISCSITargets(ctx)
	for i := range s.targets {
		all = append([]string{fmt.Sprint(hangingTarget, s.replaced*s.targets+i)}, all...)
	}
	return all, err
}

func (s *manySessions) ISCSIDiscoveryMechanisms(ctx context.Context, target string) ([]string, error) {
	if strings.HasPrefix(target, hangingTarget) {
		time.Sleep(24 * time.Hour) // of the bubble
	}
	return s.System.ISCSIDiscoveryMechanisms(ctx, target)
}

func (s *manySessions) ISCSISessionDevices(ctx context.Context, id win.ISCSISessionID) ([]win.ISCSIDevice, error) {
	if id.AdapterUnique == 1 {
		time.Sleep(24 * time.Hour) // of the bubble
	}
	time.Sleep(10 * time.Millisecond) // all queries begin before the first answer
	return s.System.ISCSISessionDevices(ctx, id)
}

// However many sessions of a driver hang, another driver's disks of targets are staged, and calls to Windows are left to the node.
func TestManySessionsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTenants(t)
		w.begin(w.own[red])
		sys := &manySessions{System: w.sim}
		node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
		w.must(err)
		d := &tenant{Operations: node.Driver(red), serial: "red-1", staging: w.own[red].staging}
		sys.more = 520 // more than one pool has
		target := csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: w.own[red].portal, IQN: w.own[red].iqn}}
		for range 3 {
			wantAtOnce(t, "StageVolume of the target", func(ctx context.Context) error {
				return second(d.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{Disk: target, StagingPath: w.own[red].staging + "2"}))
			})
			wantAtOnce(t, "StageVolume", stagingOf(d))
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, _ = node.Storage.ListDisks(ctx, csiproxy.Selector{}) // may lack targets
			cancel()
			wantAtOnce(t, "the node's ListVolumes", func(ctx context.Context) error { return second(node.Storage.ListVolumes(ctx)) })
		}
		time.Sleep(48 * time.Hour) // of the bubble: until what hangs has ended
	})
}

// A driver's sessions or targets hang, and are replaced by others that hang, again and again. Another driver's calls go on.
func TestHangingSessionsAndTargetsThatAreReplaced(t *testing.T) {
	for name, hanging := range map[string]*manySessions{
		"sessions": {more: 32}, "sessions without a connection": {more: 32, isDisconnected: true}, "targets": {targets: 127},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTenants(t)
				w.begin(w.own[red])
				hanging.System = w.sim
				node, err := nodeops.New(hanging, nodeops.Options{}, w.drivers...)
				w.must(err)
				d := &tenant{Operations: node.Driver(red), serial: "red-1", staging: w.own[red].staging, target: w.own[red].target}
				staging := csiproxy.StageVolumeRequest{StagingPath: d.staging + "2",
					Disk: csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: w.own[red].portal, IQN: w.own[red].iqn}}}
				for range 20 {
					wantAtOnce(t, "StageVolume of the target", func(ctx context.Context) error { return second(d.Storage.StageVolume(ctx, staging)) })
					wantAtOnce(t, "DiscoverTargetPortal", func(ctx context.Context) error {
						return second(d.ISCSI.DiscoverTargetPortal(ctx, w.own[red].portal))
					})
					hanging.replaced++
					time.Sleep(time.Minute)
				}
				if overdue := node.Load().Overdue; overdue < 100 {
					t.Errorf("%d calls hang", overdue)
				}
				wantAtOnce(t, "UnpublishVolume", func(ctx context.Context) error { return d.Storage.UnpublishVolume(ctx, d.target) })
				wantAtOnce(t, "UnstageVolume", unstagingOf(d))
				time.Sleep(48 * time.Hour) // of the bubble: until what hangs has ended
			})
		})
	}
}

// To another driver, a target whose session has no connection is a missing one. Its own driver is told to try again.
func TestSessionWithoutConnectionTellsNothing(t *testing.T) {
	connect := func(driver string, named csiproxy.IQN) error {
		w := newTenants(t)
		sys := &sessions{System: w.sim}
		node, err := nodeops.New(sys, nodeops.Options{}, w.drivers...)
		w.must(err)
		w.begin(w.own[red])
		d := node.Driver(driver).ISCSI
		w.must(d.AddTargetPortal(t.Context(), w.own[driver].portal))
		sys.broken = func(all []win.ISCSISession) ([]win.ISCSISession, error) {
			for i := range all {
				all[i].Portals = nil
			}
			return all, nil
		}
		return d.ConnectTarget(t.Context(), w.own[driver].portal, named, csiproxy.ISCSIAuthentication{})
	}
	const missing = "iqn.2026-01.com.example:none"
	anothers := strings.ReplaceAll(fmt.Sprint(connect(blue, iqn)), string(iqn), missing)
	simtest.Want(t, "of another driver's target", anothers, fmt.Sprint(connect(blue, missing)))
	simtest.WantErrorOf(t, "of its own target", connect(red, iqn), csiproxy.ErrUnavailable)
}

// Calls of a driver that end before its servers answer leave records. They don't make the node's lists long.
func TestRecordsOfDriver(t *testing.T) {
	w := newTenants(t)
	w.must(w.sim.MkdirAll(`C:\Windows\csi-proxy-mappings`))
	for i := range 1000 {
		w.must(w.sim.WriteFile(fmt.Sprintf(`C:\Windows\csi-proxy-mappings\other+share%d`, i), nil))
	}
	calls := 0
	w.sim.OnCall(func(winsim.Call) { calls++ })
	w.must(second(w.node.Storage.ListVolumes(t.Context())))
	if calls > 1000 {
		t.Errorf("a list takes %d calls", calls)
	}
	w.sim.OnCall(nil)
	for range 20 {
		w.must(second(w.node.Storage.ListVolumes(t.Context())))
	}
	left, err := w.sim.ReadDir(`C:\Windows\csi-proxy-mappings`)
	w.must(err)
	simtest.Want(t, "records that are left", len(left), 0)
}

// A link's target of thousands of characters makes no long line in the log.
func TestLongTargetInLog(t *testing.T) {
	w := newTenants(t)
	var log bytes.Buffer
	node, err := nodeops.New(w.sim, nodeops.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, w.drivers...)
	w.must(err)
	path := simtest.Kubelet + `\plugins\` + blue + `\link`
	w.must(w.sim.MkdirAll(path))
	w.must(w.sim.SetReparsePoint(path, win.NewSymlink(`C:\other`+strings.Repeat(`\long`, 600))))
	w.must(node.Driver(blue).Storage.UnpublishVolume(t.Context(), path))
	if !strings.Contains(log.String(), "link removed") || log.Len() > 1<<10 {
		t.Errorf("the log has %d bytes: %.200s", log.Len(), &log)
	}
}

// What can't be read outside of a driver's own directories keeps it from ending a use, and isn't named to it: an administrator
// sees where that is.
func TestUnreadablePodOfAnother(t *testing.T) {
	beside(t, func(t *testing.T, w *tenants, _, other *tenant, _ string) {
		w.must(w.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `pods\red\volumes\kubernetes.io~csi\pv-1`}, winerr.ErrorAccessDenied))
		w.must(other.Storage.UnpublishVolume(t.Context(), other.target))
		list, err := other.Storage.ListVolumes(t.Context())
		w.must(err)
		leftovers, err := other.Storage.CleanUp(t.Context(), true)
		w.must(err)
		for what, text := range map[string]string{"ListVolumes": list.IncompleteReason, "CleanUp": leftovers.IncompleteReason,
			"UnstageVolume": fmt.Sprint(unstagingOf(other)(t.Context())), "CheckVolume": fmt.Sprint(spotFix(t.Context(), other))} {
			if strings.Contains(text, `pods\red`) || !strings.Contains(text, "csi-proxyctl storage volumes") {
				t.Errorf("%s: %s", what, text)
			}
		}
		whole, err := w.node.Storage.ListVolumes(t.Context())
		w.must(err)
		if !strings.Contains(whole.IncompleteReason, `pods\red`) {
			t.Errorf("the node's list: %s", whole.IncompleteReason)
		}
	})
}

// To the attacker, which has planted its mount point, another driver's volume is missing also while the disk fails, and so is one of no
// driver: each call has the result, code, Windows' number and text that it has for a volume that doesn't exist.
func TestPlantedMountPointOfSickDiskTellsNothing(t *testing.T) {
	anyGUID := regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f-]{27}`)
	outcomes := func(volume string) (all []string) {
		for _, below := range []string{"", `\x`} {
			for i := range attemptsAt(nil) {
				beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
					planted, named := dir+`\mount`, *d
					switch volume {
					case "green's":
						named.number = w.beginGreen(t.Context())
						named.volume = csiproxy.VolumeID(w.volumeAt(greenStaging))
					case "missing":
						named.volume = `\\?\Volume{00000000-0000-0000-0000-000000000002}\`
					}
					w.must(w.sim.MkdirAll(planted))
					w.must(w.sim.SetReparsePoint(planted, win.NewMountPoint(string(named.volume))))
					w.must(other.have(w.sim, strings.Replace(other.target, "pv-1", "new", 1)))
					w.must(beginTrouble(w.sim, diskTroubles["fails"], "", fmt.Sprintf("PhysicalDrive%d ", named.number)))
					a := attemptsAt(func(*tenant) string { return planted + below })[i]
					seen, err := a.call(t.Context(), other, &named)
					code, _ := csiproxy.WindowsErrorOf(err)
					link, linkErr := w.sim.ReadLink(planted)
					all = append(all, anyGUID.ReplaceAllString(fmt.Sprint(a.name, below, ": ", seen, err, csiproxy.KindOf(err), code, link, linkErr), "GUID"))
				})
			}
		}
		return all
	}
	missing := outcomes("missing")
	for _, volume := range []string{"red's", "green's"} {
		for i, got := range outcomes(volume) {
			simtest.Want(t, volume+" volume", got, missing[i])
		}
	}
}

// In a driver's own directory, a mount point of another driver's volume and one of a missing volume look alike, and both can be
// removed.
func TestPlantedMountPointTellsNothing(t *testing.T) {
	anyGUID := regexp.MustCompile(`(?i)[0-9a-f]{8}-[0-9a-f-]{27}`)
	const missing = `\\?\Volume{00000000-0000-0000-0000-000000000002}\`
	const ofGreen = "green"
	outcomes := func(volume string) (all []string) {
		idOf := func(w *tenants, d *tenant) csiproxy.VolumeID {
			switch volume {
			case "":
				return d.volume
			case ofGreen:
				w.attach(winsim.DiskSpec{SizeBytes: 1 << 30, VendorID: "GREEN", ProductID: "Disk 1", Serial: "green"})
				staged, err := w.node.Storage.StageVolume(context.Background(), csiproxy.StageVolumeRequest{
					Disk:        csiproxy.Selector{SerialNumber: "green"},
					StagingPath: simtest.Kubelet + `\plugins\kubernetes.io\csi\green.csi.example.com\1\globalmount`})
				w.must(err)
				return staged.VolumeID
			}
			return csiproxy.VolumeID(volume)
		}
		for _, below := range []string{"", `\x`} {
			for i := range attemptsAt(nil) {
				beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
					planted := dir + `\mount`
					named := *d
					named.volume = idOf(w, d)
					w.must(w.sim.MkdirAll(planted))
					w.must(w.sim.SetReparsePoint(planted, win.NewMountPoint(string(named.volume))))
					w.must(other.have(w.sim, strings.Replace(other.target, "pv-1", "new", 1)))
					a := attemptsAt(func(*tenant) string { return planted + below })[i]
					begun := time.Now()
					seen, err := a.call(t.Context(), other, &named)
					link, linkErr := w.sim.ReadLink(planted)
					code, _ := csiproxy.WindowsErrorOf(err)
					all = append(all, anyGUID.ReplaceAllString(fmt.Sprint(a.name, below, ": ", seen, err, csiproxy.KindOf(err), code,
						time.Since(begun), link, linkErr), "GUID"))
				})
			}
		}
		for _, removal := range []string{"Rmdir", "UnmountVolume", "UnstageVolume", "CleanUp"} {
			beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
				planted, id := dir+`\mount`, idOf(w, d)
				w.must(w.sim.MkdirAll(planted))
				w.must(w.sim.SetReparsePoint(planted, win.NewMountPoint(string(id))))
				list, err := other.Storage.ListVolumes(t.Context())
				w.must(err)
				text := fmt.Sprintf("%+v", list)
				switch removal {
				case "Rmdir":
					err = other.Filesystem.Rmdir(t.Context(), planted, false)
				case "UnmountVolume":
					err = other.Volume.UnmountVolume(t.Context(), id, planted)
				case "UnstageVolume":
					err = second(other.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: planted}))
				case "CleanUp":
					err = second(other.Storage.CleanUp(t.Context(), true))
				}
				simtest.WantErrorOf(t, removal, err, nil)
				if link, _ := w.sim.ReadLink(planted); link != "" {
					t.Errorf("%s leaves the mount point of %s", removal, id)
				}
				w.must(second(w.sim.ReadFile(d.staging + file))) // which stays staged
				all = append(all, anyGUID.ReplaceAllString(text, "GUID"))
			})
		}
		return all
	}
	anothers, greens, missings := outcomes(""), outcomes(ofGreen), outcomes(missing)
	for i := range missings {
		if anothers[i] != missings[i] {
			t.Errorf("of another driver's volume:\n%s\nof a missing one:\n%s", anothers[i], missings[i])
		}
		if greens[i] != missings[i] {
			t.Errorf("of a volume of a driver at the shared endpoints:\n%s\nof a missing one:\n%s", greens[i], missings[i])
		}
	}
	if !slices.ContainsFunc(anothers, func(outcome string) bool { return strings.Contains(outcome, "not found") }) {
		t.Errorf("no call is refused: %q", anothers)
	}
}

// Links of a driver to directories that hang, one after the other, don't keep the metric of links from counting those of others.
func TestLinksMetricBesideHangingLinks(t *testing.T) {
	beside(t, func(t *testing.T, w *tenants, d, other *tenant, dir string) {
		w.must(w.sim.MkdirAll(simtest.Kubelet + `\plugins\` + d.name))
		w.must(w.sim.Symlink(simtest.Kubelet+`\plugins\`+d.name+`\nothing`, simtest.Kubelet+`\plugins\`+d.name+`\none`, true))
		const hanging = 20 // more than are asked at a time
		for i := range hanging {
			deep := fmt.Sprintf(`%s\1\2\3\4\5\6\7\hangs-%d`, dir, i) // deeper than searches for links go
			w.must(w.sim.MkdirAll(deep))
			w.must(w.sim.Symlink(fmt.Sprintf(`%s\link-%d`, dir, i), deep, true))
		}
		w.must(w.sim.DelayUncancellable(winsim.Match{Call: winsim.EachCall, Object: `7\hangs-`}, 24*time.Hour))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // as the metrics do
			toNothing, _, err := w.node.Links(ctx)
			cancel()
			w.must(err)
			simtest.Want(t, "links to nothing", toNothing, 1)
			time.Sleep(5 * time.Minute)
		}
	})
}
