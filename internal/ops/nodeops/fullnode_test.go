// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"fmt"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// fullNodeOperations are the operations that search for links. Each begins on a node with one
// published and one mere staged volume, and with a share.
var fullNodeOperations = map[string]struct {
	prepare func(r *rig)
	run     func(ctx context.Context, n *nodeops.Node) error
}{
	"UnstageVolume": {(*rig).mounted, func(ctx context.Context, n *nodeops.Node) error {
		done, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: staging})
		return want("unmounted, and the disk offline", done.Unmounted && done.DiskOffline, true, err)
	}},
	"UnstageShare": {(*rig).shared, func(ctx context.Context, n *nodeops.Node) error {
		done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share})
		return want("unmapped", done.Unmapped, true, err)
	}},
	"ListVolumes": {(*rig).published, func(ctx context.Context, n *nodeops.Node) error {
		list, err := n.Storage.ListVolumes(ctx)
		if list.IncompleteReason != "" {
			return fmt.Errorf("incomplete: %s", list.IncompleteReason)
		}
		for _, m := range list.Mounts {
			if m.LeftoverReason != "" {
				return fmt.Errorf("a leftover: %+v", m)
			}
		}
		return want("at least", len(list.Mounts) >= 2, true, err)
	}},
	"CleanUp": {func(r *rig) {
		r.mounted()
		r.must(r.sim.DetachDisk(r.number))
	}, func(ctx context.Context, n *nodeops.Node) error {
		done, err := n.Storage.CleanUp(ctx, true)
		if done.IncompleteReason != "" {
			return fmt.Errorf("incomplete: %s", done.IncompleteReason)
		}
		if len(done.Mounts) != 1 || !done.Mounts[0].Removed {
			return fmt.Errorf("the mount isn't removed: %+v, %w", done, err)
		}
		return err
	}},
}

// pod makes the directories of a pod as kubelet does, with only the volume that every pod has.
func (r *rig) pod(uid string) {
	pod := simtest.Kubelet + `\pods\` + uid
	access := pod + `\volumes\kubernetes.io~projected\kube-api-access-x7x2k`
	r.written(access, 3)
	for _, dir := range []string{`\plugins\kubernetes.io~empty-dir\wrapped_kube-api-access-x7x2k`, `\containers\app`} {
		r.must(r.sim.MkdirAll(pod + dir))
	}
	r.must(r.sim.WriteFile(pod+`\plugins\kubernetes.io~empty-dir\wrapped_kube-api-access-x7x2k\ready`, nil))
	r.must(r.sim.WriteFile(pod+`\etc-hosts`, nil))
}

// written makes a directory that kubelet has written a ConfigMap to, or the like.
func (r *rig) written(dir string, keys int) {
	data := dir + `\..2026_11_28_00_00_00.1`
	r.must(r.sim.MkdirAll(data))
	r.must(r.sim.Symlink(dir+`\..data`, `..2026_11_28_00_00_00.1`, true))
	for i := range keys {
		r.must(r.sim.WriteFile(fmt.Sprintf(`%s\key-%d`, data, i), nil))
		r.must(r.sim.Symlink(fmt.Sprintf(`%s\key-%d`, dir, i), fmt.Sprintf(`..data\key-%d`, i), false))
	}
}

// Whatever a pod and its user have where they may write: it costs others nothing, and keeps none of
// their volumes.
func TestHostilePods(t *testing.T) {
	entries, keys := 100_000, 8_000
	if testing.Short() {
		entries, keys = 5_000, 1_000
	}
	const (
		pod   = simtest.Kubelet + `\pods\hostile`
		plain = pod + `\volumes\kubernetes.io~csi\inline\mount` // a directory of the node, as some drivers give to pods
	)
	inline := func(r *rig) { // kubelet has made it
		r.must(r.sim.MkdirAll(plain[:len(plain)-len(`\mount`)]))
		r.must(r.sim.WriteFile(plain[:len(plain)-len(`mount`)]+"vol_data.json", []byte("{}")))
	}
	many := func(dir string) func(r *rig) {
		return func(r *rig) {
			r.must(r.sim.MkdirAll(dir))
			for i := range entries {
				r.must(r.sim.WriteFile(fmt.Sprintf(`%s\%d`, dir, i), nil))
			}
		}
	}
	planted := func(dir string) func(r *rig) {
		return func(r *rig) {
			r.must(r.sim.MkdirAll(dir))
			for i, to := range []string{staging, share, staging + `\sub`, target, simtest.Kubelet + `\nothing`, `C:\Windows`} {
				r.must(r.sim.Symlink(fmt.Sprintf(`%s\%d`, dir, i), to, true))
				r.must(r.sim.Symlink(fmt.Sprintf(`%s\file-%d`, dir, i), to, false))
				r.must(r.sim.Junction(fmt.Sprintf(`%s\junction-%d`, dir, i), to))
			}
		}
	}
	for what, fill := range map[string]func(r *rig){
		"a large ConfigMap":               func(r *rig) { r.written(pod+`\volumes\kubernetes.io~configmap\large`, keys) },
		"a large Secret":                  func(r *rig) { r.written(pod+`\volumes\kubernetes.io~secret\large`, keys) },
		"much in the pod's directory":     many(pod),
		"much in another directory of it": many(pod + `\other`),
		"much in an emptyDir":             many(pod + `\volumes\kubernetes.io~empty-dir\cache`),
		"much in a driver's directory":    many(plain),
		"much in another driver's":        many(pod + `\volumes\example~driver\pv`),
		"links in a ConfigMap":            planted(pod + `\volumes\kubernetes.io~configmap\map`),
		"links in an emptyDir":            planted(pod + `\volumes\kubernetes.io~empty-dir\cache`),
		"links in a driver's directory":   planted(plain),
		"links in another driver's":       planted(pod + `\volumes\example~driver\pv`),
		"links in the pod's directory":    planted(pod + `\other`),
		"an emptyDir has become a link": func(r *rig) {
			r.must(r.sim.MkdirAll(pod + `\volumes\kubernetes.io~empty-dir`))
			r.must(r.sim.Symlink(pod+`\volumes\kubernetes.io~empty-dir\cache`, staging, true))
			r.must(r.sim.Symlink(pod+`\volumes\kubernetes.io~empty-dir\share`, share, true))
		},
		"a driver's directory has become a link of a kind that nobody knows": func(r *rig) {
			inline(r)
			r.must(r.sim.MkdirAll(plain))
			r.control(plain, win.FsctlSetReparsePoint, []byte{0x99, 0, 0, 0x20, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6,
				7, 8})
		},
		"a driver's directory has become a link, and is being deleted": func(r *rig) {
			inline(r)
			r.must(r.sim.Symlink(plain, staging, true))
			f := r.open(plain, win.Delete)
			r.must(f.Delete(context.Background()))
			r.t.Cleanup(func() { f.Close() })
		},
	} {
		for name, operation := range fullNodeOperations {
			t.Run(what+"/"+name, func(t *testing.T) {
				var calls [2]int
				for i := range calls {
					r := newRig(t)
					operation.prepare(r)
					r.pod("hostile")
					if i == 1 {
						fill(r)
					}
					n := r.process()
					calls[i] = r.calls(func() { r.must(operation.run(t.Context(), n)) })
				}
				const most = 30 // what three searches of one more pod cost
				if calls[1] > calls[0]+most {
					t.Errorf("%d calls, and %d without", calls[1], calls[0])
				}
			})
		}
	}
}

func (r *rig) open(path string, access win.Access) win.File {
	f, err := r.sim.OpenFile(context.Background(), path, win.OpenOptions{Access: access | win.Synchronize,
		Share:       win.ShareRead | win.ShareWrite | win.ShareDelete,
		Disposition: win.FileOpen, Options: win.FileOpenReparsePoint | win.FileOpenForBackup})
	r.must(err)
	return f
}

func (r *rig) control(path string, code win.IoctlCode, in []byte) {
	f := r.open(path, win.FileWriteAttributes)
	defer f.Close()
	_, err := f.Control(context.Background(), code, in, nil)
	r.must(err)
}
