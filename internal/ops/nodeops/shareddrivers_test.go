// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// shareDriver is how a shipped driver unstages a volume on a share: its calls in order.
type shareDriver struct {
	name  string
	calls func(d *shareVolumes, path string) []func(ctx context.Context, n *nodeops.Node) error
}

// shareVolumes are the volumes of one share on a node, and what their driver remembers.
type shareVolumes struct {
	*rig
	n      *nodeops.Node
	staged map[string]bool // as the driver counts them
}

func (v *shareVolumes) staging(i int) string {
	return fmt.Sprintf(`%s\plugins\csi\%d\globalmount`, simtest.Kubelet, i)
}
func (v *shareVolumes) target(i int) string {
	return fmt.Sprintf(`%s\pods\%d\volumes\kubernetes.io~csi\pv\mount`, simtest.Kubelet, i)
}

// stage does what the drivers do to stage a volume.
func (v *shareVolumes) stage(i int) {
	ctx, path := context.Background(), v.staging(i)
	v.must(v.sim.MkdirAll(path[:strings.LastIndex(path, `\`)]))
	v.must(v.n.Filesystem.Rmdir(ctx, path, true))
	v.must(v.n.SMB.NewSMBGlobalMapping(ctx, `\\server\data`, path, user))
	v.staged[path] = true
}

func (v *shareVolumes) publish(i int) {
	ctx, path := context.Background(), v.target(i)
	v.must(v.sim.MkdirAll(path[:strings.LastIndex(path, `\`)]))
	v.must(v.n.Filesystem.CreateSymlink(ctx, v.staging(i), path))
}

func (v *shareVolumes) unpublish(i int) {
	v.must(v.n.Filesystem.Rmdir(context.Background(), v.target(i), true))
}

func remove(remote string) func(context.Context, *nodeops.Node) error {
	return func(ctx context.Context, n *nodeops.Node) error { return n.SMB.RemoveSMBGlobalMapping(ctx, remote) }
}

func rmdir(path string, force bool) func(context.Context, *nodeops.Node) error {
	return func(ctx context.Context, n *nodeops.Node) error { return n.Filesystem.Rmdir(ctx, path, force) }
}

type shareCalls = []func(context.Context, *nodeops.Node) error

// Sources: https://github.com/kubernetes-csi/csi-driver-smb/blob/master/pkg/mounter/safe_mounter_windows.go,
// https://github.com/democratic-csi/democratic-csi/blob/master/src/driver/index.js,
// https://github.com/NetApp/trident/blob/master/core/node/detach.go
var shareDrivers = []shareDriver{
	{"csi-driver-smb counts volumes, and unmaps before it unlinks",
		func(v *shareVolumes, path string) shareCalls {
			delete(v.staged, path)
			if len(v.staged) > 0 {
				return shareCalls{rmdir(path, true)}
			}
			return shareCalls{remove(`\\server\data`), rmdir(path, true)}
		}},
	{"csi-driver-smb without the files by which it counts", func(_ *shareVolumes, path string) shareCalls {
		return shareCalls{remove(`\\server\data`), rmdir(path, true)}
	}},
	{"csi-driver-smb that keeps mappings",
		func(_ *shareVolumes, path string) shareCalls { return shareCalls{rmdir(path, true)} }},
	{"democratic-csi unmaps before it unlinks", func(_ *shareVolumes, path string) shareCalls {
		return shareCalls{remove(`\\server\data`), rmdir(path, false)}
	}},
	{"Trident unlinks before it unmaps", func(_ *shareVolumes, path string) shareCalls {
		return shareCalls{rmdir(path, true), remove(`\server\data`)}
	}},
}

// keeps reports whether a driver never asks for the removal of a mapping.
func (d shareDriver) keeps() bool { return strings.HasSuffix(d.name, "keeps mappings") }

// Volumes share a mapping. Whichever driver unstages some of them, in whatever order: the others
// work, also those that aren't published yet, and the mapping goes with the last one.
func TestShareDrivers(t *testing.T) {
	const volumes = 3
	for _, driver := range shareDrivers {
		for _, how := range []string{"in order", "each call twice", "killed after each call"} {
			for _, published := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%s/published %v", driver.name, how, published), func(t *testing.T) {
					r := newRig(t)
					v := &shareVolumes{rig: r, n: r.process(), staged: make(map[string]bool)}
					for i := range volumes {
						v.stage(i)
						if published || i == 0 {
							v.publish(i)
						}
					}
					for i := range volumes {
						if published || i == 0 {
							v.unpublish(i)
						}
						for _, call := range driver.calls(v, v.staging(i)) {
							v.call(t, call, i == volumes-1, how == "each call twice")
							if how == "killed after each call" {
								v.n = r.process()
							}
						}
						for other := i + 1; other < volumes; other++ {
							simtest.WantErrorOf(t, fmt.Sprintf("volume %d after volume %d was unstaged", other, i),
								r.sim.WriteFile(v.staging(other)+file, nil), nil)
						}
						if !published && i+1 < volumes {
							v.publish(i + 1)
						}
						if i+1 < volumes && !published {
							v.unpublish(i + 1)
						}
					}
					// A process that has died may not know that the mapping was to go.
					if r.isMapped() != driver.keeps() && how != "killed after each call" {
						t.Errorf("mapped in the end: %v", r.isMapped())
					}
					if _, err := v.n.Storage.CleanUp(t.Context(), true); err != nil || r.isMapped() {
						t.Errorf("cleaned up: %v, mapped: %v", err, r.isMapped())
					}
				})
			}
		}
	}
}

// call makes a call of a driver, which may be repeated.
func (v *shareVolumes) call(t *testing.T, call func(context.Context, *nodeops.Node) error, last, twice bool) {
	t.Helper()
	v.must(call(t.Context(), v.n))
	if !twice {
		return
	}
	if err := call(t.Context(), v.n); err != nil &&
		(!errors.Is(err, csiproxy.ErrNotFound) || !last && !strings.Contains(err.Error(), "file specified")) {
		t.Errorf("repeated: %v", err)
	}
}

// A driver stages a volume again in the place of one that it has unstaged.
func TestShareDriversStageAgain(t *testing.T) {
	for _, driver := range shareDrivers {
		t.Run(driver.name, func(t *testing.T) {
			r := newRig(t)
			v := &shareVolumes{rig: r, n: r.process(), staged: make(map[string]bool)}
			for range 3 {
				for _, at := range []int{0, 1} {
					v.stage(at)
					v.publish(at)
				}
				for _, at := range []int{1, 0} {
					v.unpublish(at)
					for _, call := range driver.calls(v, v.staging(at)) {
						v.call(t, call, at == 0, false)
					}
				}
				if r.isMapped() != driver.keeps() {
					t.Fatalf("mapped: %v", r.isMapped())
				}
			}
		})
	}
}

// A mapping that was removed is there when NewSMBGlobalMapping with a link has succeeded,
// whatever else runs meanwhile, in this process or in another one.
func TestNewMappingIsThereWhenItsLinkIs(t *testing.T) {
	link := simtest.Kubelet + `\plugins\smb`
	fails := shareRequest(share + "2")
	fails.RemotePath += `\none`
	for name, b := range map[string]struct {
		prepare func(r *rig)
		run     func(ctx context.Context, n *nodeops.Node) error
		want    error
	}{
		"UnstageShare": {(*rig).shared, func(ctx context.Context, n *nodeops.Node) error {
			_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
			return err
		}, nil},
		"CleanUp": {func(r *rig) { r.shared(); r.must(r.sim.Remove(share)) },
			func(ctx context.Context, n *nodeops.Node) error {
				_, err := n.Storage.CleanUp(ctx, true)
				return err
			}, nil},
		"a StageShare that fails": {func(*rig) {}, func(ctx context.Context, n *nodeops.Node) error {
			return n.Storage.StageShare(ctx, fails)
		}, csiproxy.ErrNotFound},
		"RemoveSMBGlobalMapping": {(*rig).mapped, func(ctx context.Context, n *nodeops.Node) error {
			return n.SMB.RemoveSMBGlobalMapping(ctx, `\\server\data`)
		}, csiproxy.ErrNotFound},
	} {
		for _, same := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/one process %v", name, same), func(t *testing.T) {
				s := scenario{name: name, prepare: func(r *rig) { r.must(r.sim.MkdirAll(simtest.Kubelet + `\plugins`)); b.prepare(r) }}
				atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
					n := r.process()
					other := n
					if !same {
						other = r.process()
					}
					before(func(winsim.Call) {
						r.sim.OnCall(nil)
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						defer cancel()
						err := b.run(ctx, other)
						expected := []error{b.want, csiproxy.ErrUnavailable, context.DeadlineExceeded}
						if err != nil && !slices.Contains(expected, csiproxy.KindOf(err)) {
							t.Error(err)
						}
					})
					err := n.SMB.NewSMBGlobalMapping(t.Context(), `\\server\data`, link, user)
					r.sim.OnCall(nil)
					there := r.sim.WriteFile(link+file, nil) == nil
					if err == nil && !there && name != "RemoveSMBGlobalMapping" {
						t.Error("it has succeeded, and the share can't be used")
					}
				})
			})
		}
	}
}
