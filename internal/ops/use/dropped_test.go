// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package use_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/use"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const (
	mountPath = simtest.Kubelet + `\mount`
	linkPath  = simtest.Kubelet + `\link`  // to mountPath
	again     = simtest.Kubelet + `\again` // to linkPath
	sharePath = simtest.Kubelet + `\share`
)

// newUsedNode returns a node whose volume is mounted, with links to it and to a share.
func newUsedNode(t *testing.T) node {
	t.Helper()
	n := newNode(t)
	simtest.Mount(t, n.sim, mountPath, string(n.id))
	simtest.Must(t, n.sim.Symlink(linkPath, mountPath, true))
	simtest.Must(t, n.sim.Symlink(again, linkPath, true))
	simtest.Must(t, n.sim.Symlink(sharePath, `\\server\share`, true))
	return n
}

func parse(t *testing.T, path string) pathpolicy.Path {
	t.Helper()
	paths, err := pathpolicy.New(simtest.Kubelet)
	simtest.Must(t, err)
	parsed, err := paths.Parse(path, pathpolicy.MaxPath)
	simtest.Must(t, err)
	return parsed
}

func TestErrorAtEachCall(t *testing.T) {
	type operation = func(ctx context.Context, o *use.Owner, n node) (any, error)
	mountedAt := func(path string) operation {
		return func(ctx context.Context, o *use.Owner, n node) (any, error) {
			to, release, err := o.LockMountedAt(ctx, parse(t, path))
			if err != nil {
				return nil, err
			}
			defer release()
			needless := path == simtest.Kubelet
			return fmt.Sprint(to.Kind, to.ByLink, to.Volume == string(n.id), needless == (len(n.sim.LockedBytes(lockFile)) == 0)), nil
		}
	}
	operations := map[string]operation{
		"mounted volume":  mountedAt(mountPath),
		"link to it":      mountedAt(linkPath),
		"share":           mountedAt(sharePath),
		"directory":       mountedAt(simtest.Kubelet),
		"links to volume": func(ctx context.Context, o *use.Owner, n node) (any, error) { return o.LinksTo(ctx, n.id) },
		"away":            func(ctx context.Context, o *use.Owner, n node) (any, error) { return o.IsMissing(ctx, n.id) },
		"away, detached": func(ctx context.Context, o *use.Owner, n node) (any, error) {
			detach(t, n)
			return o.IsMissing(ctx, n.id)
		},
		"a mount is away": func(ctx context.Context, o *use.Owner, n node) (any, error) {
			detach(t, n)
			return o.MountsMissingVolume(ctx)
		},
		"no mount is away": func(ctx context.Context, o *use.Owner, n node) (any, error) {
			maybe, err := o.MountsMissingVolume(ctx)
			if maybe && err == nil {
				err = simtest.ErrUnknown
			}
			return maybe, err
		},
		"mounts of disk": func(ctx context.Context, o *use.Owner, n node) (any, error) { return o.MountsOf(ctx, n.number) },
		"mounts of disk, detached": func(ctx context.Context, o *use.Owner, n node) (any, error) {
			detach(t, n)
			return o.MountsOf(ctx, n.number)
		},
		"protected disks": func(ctx context.Context, _ *use.Owner, n node) (any, error) {
			protected, err := protecting(t, n, string(n.id)).ProtectedDisks(ctx)
			return protected[n.number], err
		},
		"missing volumes": func(ctx context.Context, _ *use.Owner, n node) (any, error) {
			missing, err := protecting(t, n, string(n.id)).MissingVolumes(ctx)
			return missing, err
		},
		"an empty disk while a volume is missing": func(ctx context.Context, _ *use.Owner, n node) (any, error) {
			d, err := opendisk.Open(ctx, n.sim, n.number, win.AccessNone)
			if err != nil {
				return nil, err
			}
			defer d.Close()
			return nil, protecting(t, n, "X:").CheckEmptyDisk(ctx, d)
		},
	}
	for _, r := range rights {
		if r.name == "server" { // of which Windows isn't asked
			continue
		}
		operations[r.name] = func(ctx context.Context, o *use.Owner, n node) (any, error) {
			held, err := r.take(ctx, o, n, use.ToChange)
			if err != nil {
				return nil, err
			}
			defer held.Release()
			if d, ok := held.(*use.LockedDisk); ok { // it can be changed
				err = d.UpdateProperties(ctx)
			}
			return nil, err
		}
	}
	attempts := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, do := range operations {
		attempts[name] = func(t *testing.T) simtest.Attempt {
			n := newUsedNode(t)
			o := n.process()
			return simtest.Attempt{Sys: n.sim, Run: func(ctx context.Context) (any, error) {
				return do(ctx, o, n)
			}}
		}
	}
	simtest.ErrorAtEachCall(t, attempts)
}

func detach(t *testing.T, n node) {
	t.Helper()
	if slices.ContainsFunc(n.sim.Disks(), func(d disks.Record) bool { return d.Number == n.number }) {
		simtest.Must(t, n.sim.DetachDisk(n.number))
	}
}

// protecting returns the owner of a node whose administrator protects volumes.
func protecting(t *testing.T, n node, volumes ...string) *use.Owner {
	t.Helper()
	paths, err := pathpolicy.New(simtest.Kubelet)
	simtest.Must(t, err)
	paths, err = paths.Protect(volumes, nil)
	simtest.Must(t, err)
	return use.New(n.sim, paths, slog.New(slog.DiscardHandler))
}

// What is known of a volume that comes and goes.
func TestUsers(t *testing.T) {
	n := newUsedNode(t)
	o := protecting(t, n, string(n.id))
	is := func(what string, got, want any, err error) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) || err != nil {
			t.Errorf("%s: %v, %v, want %v", what, got, err, want)
		}
	}
	links, err := o.LinksTo(t.Context(), n.id)
	is("links", links, []string{again, linkPath}, err)
	protected, err := o.ProtectedDisks(t.Context())
	is("protected", protected, map[disk.Number]bool{0: true, n.number: true}, err)
	awaited, err := o.MountsMissingVolume(t.Context())
	is("a mount is away", awaited, false, err)
	mounts, err := o.MountsOf(t.Context(), n.number)
	is("mounts of its disk", mounts, []string{mountPath}, err)
	mounts, err = o.MountsOf(t.Context(), n.number+1)
	is("mounts of another disk", mounts, []string{}, err)
	// One error proves nothing.
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: "CreateFileW", Object: string(n.id[:20]), Count: 1},
		win.ErrorDeviceNotConnected))
	_, err = o.IsMissing(t.Context(), n.id)
	simtest.WantError(t, err, csiproxy.ErrUnavailable)
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: "CreateFileW", Object: string(n.id[:20]), Count: 1},
		win.ErrorDeviceNotConnected))
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallFindVolumes, Count: 1}, win.ErrorAccessDenied))
	_, err = o.IsMissing(t.Context(), n.id)
	simtest.WantError(t, err, csiproxy.ErrPermissionDenied)
	const hidden = simtest.Kubelet + `\hidden`
	simtest.Must(t, n.sim.MkdirAll(hidden))
	simtest.Must(t, n.sim.Fail(winsim.Match{Call: win.CallOpenAt, Object: `hidden`}, win.ErrorAccessDenied))
	_, err = o.LinksTo(t.Context(), n.id)
	simtest.WantError(t, err, csiproxy.ErrUnavailable)
	awaited, err = o.MountsMissingVolume(t.Context())
	is("a mount may be away", awaited, true, err)
	_, err = o.MountsOf(t.Context(), n.number)
	simtest.WantError(t, err, csiproxy.ErrPermissionDenied)
	n.sim.ResetRules()

	detach(t, n)
	away, err := o.IsMissing(t.Context(), n.id)
	is("away", away, true, err)
	awaited, err = o.MountsMissingVolume(t.Context())
	is("a mount is away", awaited, true, err)
	protected, err = o.ProtectedDisks(t.Context())
	is("protected", protected, map[disk.Number]bool{0: true}, err)
	for range 2 {
		right, err := o.LockVolumeAlone(t.Context(), n.id, use.ToChange)
		simtest.Must(t, err)
		right.Release()
	}
}
