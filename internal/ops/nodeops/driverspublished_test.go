// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// A volume that is mounted at a published path is no driver's, since nobody can tell whose a missing one is. No driver
// mounts one there.
func TestVolumeMountedAtPublishedPath(t *testing.T) {
	for name, happen := range map[string]func(w *tenants, d *tenant){
		"online": func(*tenants, *tenant) {},
		"offline": func(w *tenants, d *tenant) {
			w.must(w.sim.SetDiskAttributes(d.number, win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}))
		},
		"detached": func(w *tenants, d *tenant) { w.must(w.sim.DetachDisk(d.number)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTenants(t)
			d := w.own[red]
			for _, one := range w.own {
				w.begin(one)
			}
			w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
			for what, err := range map[string]error{
				"MountVolume": d.Volume.MountVolume(t.Context(), d.volume, d.target),
				"StageVolume": second(d.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
					Disk: csiproxy.Selector{Number: &d.raw}, StagingPath: d.target})),
			} {
				simtest.WantErrorOf(t, what, err, csiproxy.ErrPermissionDenied, "in its own directories only")
			}
			w.must(w.node.Volume.MountVolume(t.Context(), d.volume, d.target)) // as by the published endpoints before
			happen(w, d)
			before := w.state()
			for driver, ops := range w.own {
				for what, err := range map[string]error{
					"Rmdir":         ops.Filesystem.Rmdir(t.Context(), d.target, true),
					"UnmountVolume": ops.Volume.UnmountVolume(t.Context(), d.volume, d.target),
					"UnstageVolume": second(ops.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: d.target})),
				} {
					if !errors.Is(err, csiproxy.ErrPermissionDenied) && !errors.Is(err, csiproxy.ErrNotFound) {
						t.Errorf("%s of %s: %v", what, driver, err)
					}
				}
				if driver == blue {
					list, err := ops.Storage.ListVolumes(t.Context())
					w.must(err)
					if text := fmt.Sprintf("%+v", list); strings.Contains(text, string(d.volume)) || strings.Contains(text, d.target) {
						t.Errorf("the other driver sees it: %s", text)
					}
					w.must(second(ops.Storage.CleanUp(t.Context(), true)))
				}
			}
			simtest.Want(t, "what was changed", w.state(), before)
			w.must(w.node.Filesystem.Rmdir(t.Context(), d.target, true)) // an administrator may
		})
	}
}

// Nothing can be made below a published path that is no link, where nobody could remove it. Kubelet's file decides whose a
// published path is, wherever a link there leads.
func TestPublishedPathStaysRemovable(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[red], w.own[blue]
	w.must(d.Storage.UnpublishVolume(t.Context(), d.target))
	w.must(d.Filesystem.Mkdir(t.Context(), d.target))
	simtest.WantErrorOf(t, "a directory below", d.Filesystem.Mkdir(t.Context(), d.target+`\x\y`), csiproxy.ErrPermissionDenied,
		"isn't driver "+red+"'s")
	w.must(d.Storage.PublishVolume(t.Context(), d.staging, d.target)) // the empty directory makes way
	for target, by := range map[string]string{other.staging: "another's volume", d.target: "a published path"} {
		w.must(d.Storage.UnpublishVolume(t.Context(), d.podShare))
		w.must(w.node.Filesystem.CreateSymlink(t.Context(), target, d.podShare)) // by the published endpoints
		simtest.WantErrorOf(t, "a link to "+by+", of another driver", other.Storage.UnpublishVolume(t.Context(), d.podShare),
			csiproxy.ErrPermissionDenied, "vol_data.json in the volume's directory doesn't name driver "+blue)
	}
	w.must(d.Storage.UnpublishVolume(t.Context(), d.podShare))
}

// By a link in its own directories to the directory of its published path, a driver makes nothing there that it couldn't make by
// the path itself: the search for links would open each entry, and nobody could remove it.
func TestNothingIsMadeBesidePublishedPath(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d := w.own[blue]
	way := simtest.Kubelet + `\plugins\` + d.name + `\way`
	w.must(w.sim.Symlink(way, strings.TrimSuffix(d.target, `\mount`), true)) // by its container
	before := w.state()
	for what, err := range map[string]error{
		"Mkdir":                d.Filesystem.Mkdir(t.Context(), way+`\x`),
		"Mkdir of directories": d.Filesystem.Mkdir(t.Context(), way+`\x\y`),
		"CreateSymlink":        d.Filesystem.CreateSymlink(t.Context(), d.staging, way+`\x`),
		"MountVolume":          d.Volume.MountVolume(t.Context(), d.volume, way+`\x`),
		"StageShare": d.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: d.share, StagingPath: way + `\x`,
			Credentials: user}),
	} {
		simtest.WantErrorOf(t, what, err, csiproxy.ErrPermissionDenied)
	}
	simtest.Want(t, "what is there", w.state(), before)
}

// Where kubelet has no volume of the driver, the driver makes nothing: no path of another driver, of a driver without
// endpoints of its own, of a pod that doesn't exist, or where kubelet's file has gone.
func TestNothingIsMadeWhereKubeletHasNone(t *testing.T) {
	w := newTenants(t)
	for _, d := range w.own {
		w.begin(d)
	}
	d, other := w.own[blue], w.own[red]
	shared := &tenant{name: "shared.csi.example.com"}
	pods := simtest.Kubelet + `\pods\`
	w.must(shared.have(w.sim, pods+`shared\volumes\kubernetes.io~csi\pv-1\mount`))
	w.must(w.sim.MkdirAll(pods + `lost\volumes\kubernetes.io~csi\pv-1`))
	w.must(other.Storage.UnpublishVolume(t.Context(), other.target))
	before := w.state()
	for _, path := range []string{other.target, pods + `shared\volumes\kubernetes.io~csi\pv-1\mount`,
		pods + `lost\volumes\kubernetes.io~csi\pv-1\mount`, pods + `none\volumes\kubernetes.io~csi\pv-1\mount`} {
		for what, err := range map[string]error{
			"Mkdir":               d.Filesystem.Mkdir(t.Context(), path),
			"Mkdir of the parent": d.Filesystem.Mkdir(t.Context(), path[:strings.LastIndex(path, `\`)]),
			"CreateSymlink":       d.Filesystem.CreateSymlink(t.Context(), d.staging, path),
			"PublishVolume":       d.Storage.PublishVolume(t.Context(), d.staging, path),
			"NewSMBGlobalMapping": d.SMB.NewSMBGlobalMapping(t.Context(), d.share, path, user),
			"StageShare": d.Storage.StageShare(t.Context(), csiproxy.StageShareRequest{RemotePath: d.share, StagingPath: path,
				Credentials: user}),
		} {
			simtest.WantErrorOf(t, what+" at "+path, err, csiproxy.ErrPermissionDenied, "vol_data.json")
		}
	}
	simtest.Want(t, "what is there", w.state(), before)
}

// The directory that has a published path can be asked for, and made, as csi-driver-smb does for an inline volume. It
// stays, with kubelet's files in it.
func TestDirectoryOfPublishedPath(t *testing.T) {
	w := newTenants(t)
	d := w.own[red]
	w.begin(d)
	directory := simtest.Kubelet + `\pods\6a1c\volumes\kubernetes.io~csi\inline`
	linked := simtest.Kubelet + `\pods\6a1c\volumes\kubernetes.io~csi\linked`
	w.must(d.have(w.sim, directory+`\mount`, linked+`\mount`))
	exists, err := d.Filesystem.PathExists(t.Context(), directory)
	w.must(err)
	simtest.Want(t, "it is there", exists, true)
	w.must(d.Filesystem.Mkdir(t.Context(), directory))
	before := w.state()
	w.must(d.SMB.NewSMBGlobalMapping(t.Context(), d.share, directory+`\mount`, user))
	w.must(d.Filesystem.Rmdir(t.Context(), directory+`\mount`, true))
	for what, err := range map[string]error{
		"Rmdir":               d.Filesystem.Rmdir(t.Context(), directory, false),
		"Rmdir, force":        d.Filesystem.Rmdir(t.Context(), directory, true),
		"UnpublishVolume":     d.Storage.UnpublishVolume(t.Context(), directory),
		"MountVolume":         d.Volume.MountVolume(t.Context(), d.volume, linked),
		"CreateSymlink":       d.Filesystem.CreateSymlink(t.Context(), d.staging, linked),
		"NewSMBGlobalMapping": d.SMB.NewSMBGlobalMapping(t.Context(), d.share, linked, user),
		"kubelet's file":      d.Filesystem.Rmdir(t.Context(), directory+`\vol_data.json`, true),
	} {
		if !errors.Is(err, csiproxy.ErrPermissionDenied) {
			t.Errorf("%s: %v", what, err)
		}
	}
	simtest.Want(t, "what is there", w.state(), before)
}
