// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

func parse(t *testing.T, path string) pathpolicy.Path {
	t.Helper()
	paths, err := pathpolicy.New(pathpolicy.Options{KubeletPath: simtest.Kubelet})
	simtest.Must(t, err)
	parsed, err := paths.Parse(path, pathpolicy.MaxPath)
	simtest.Must(t, err)
	return parsed
}

func TestErrorAtEachCallOfLocker(t *testing.T) {
	type operation = func(ctx context.Context, l *usage.Locker, n node) (any, error)
	mountedAt := func(path string) operation {
		return func(ctx context.Context, l *usage.Locker, n node) (any, error) {
			to, release, err := l.LockMountedAt(ctx, parse(t, path))
			if err != nil {
				return nil, err
			}
			defer release()
			needless := path == simtest.Kubelet
			return fmt.Sprint(to.Kind, to.ByLink, to.Volume == string(n.id), needless == (len(n.sim.LockedBytes(lockFile)) == 0)), nil
		}
	}
	operations := map[string]operation{
		"mounted volume": mountedAt(mountPath),
		"link to it":     mountedAt(linkPath),
		"share":          mountedAt(sharePath),
		"directory":      mountedAt(simtest.Kubelet),
	}
	for _, r := range ways {
		if r.name == "server" { // of which Windows isn't asked
			continue
		}
		operations[r.name] = func(ctx context.Context, l *usage.Locker, n node) (any, error) {
			held, err := r.take(ctx, l, n)
			if err != nil {
				return nil, err
			}
			defer held.Release()
			if d, ok := held.(*usage.LockedDisk); ok { // it can be changed
				err = d.UpdateProperties(ctx)
			}
			return nil, err
		}
	}
	attempts := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, do := range operations {
		attempts[name] = func(t *testing.T) simtest.Attempt {
			n := newUsedNode(t)
			l := n.process()
			return simtest.Attempt{Sys: n.sim, Run: func(ctx context.Context) (any, error) {
				return do(ctx, l, n)
			}}
		}
	}
	simtest.ErrorAtEachCall(t, attempts)
}
