// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

func TestErrorAtEachCall(t *testing.T) {
	const (
		dir     = kubelet + `\dir`
		shallow = dir + `\link`
		deep    = dir + `\1\2\3\4\5\6\7\8\9\link` // which is recorded
		mounted = kubelet + `\mount`
		chain   = kubelet + `\chain`
	)
	type run = func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error)
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, test := range map[string]struct {
		run  run
		want string
	}{
		"links": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			all, incomplete, err := p.Links(ctx, sys)
			var paths []string
			for _, l := range all {
				paths = append(paths, strings.TrimPrefix(l.Path.String(), kubelet))
			}
			return paths, errors.Join(incomplete, err)
		}, `[\chain \dir\link \mount \dir\1\2\3\4\5\6\7\8\9\link]: <nil>`},
		"links of a directory": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			var paths []string
			return &paths, p.Reach(ctx, sys, mustParse(t, p, dir), func(e pathpolicy.Entry) error {
				f, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
				if err != nil {
					return err
				}
				incomplete, err := f.Links(ctx, func(l pathpolicy.FoundLink) {
					paths = append(paths, strings.TrimPrefix(l.Path.String(), kubelet))
				})
				return errors.Join(incomplete, err)
			})
		}, `&[\dir\link \dir\1\2\3\4\5\6\7\8\9\link]: <nil>`},
		"resolve": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			to, err := p.Resolve(ctx, sys, mustParse(t, p, chain+`\sub`))
			return []any{to.Kind, to.ByLink, to.InVolume}, err
		}, ""},
		"glance": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			to, err := p.Glance(ctx, sys, mustParse(t, p, mounted))
			return []any{to.Kind, to.Volume != ""}, err
		}, ""},
		"exists": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			return p.Exists(ctx, sys, mustParse(t, p, chain+`\sub`))
		}, "true: <nil>"},
		"leads nowhere": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			return p.Nowhere(ctx, sys, mustParse(t, p, shallow))
		}, "it leads to nothing: <nil>"},
		"leads somewhere": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			return p.Nowhere(ctx, sys, mustParse(t, p, chain))
		}, ": <nil>"},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			sys := newNode(t)
			name, _ := simtest.Volume(t, sys)
			simtest.Mount(t, sys, mounted, name)
			must(t, sys.MkdirAll(mounted+`\sub`))
			must(t, sys.Symlink(chain, mounted, true))
			for _, path := range []string{shallow, deep} {
				makeLink(t, sys, path)
			}
			p := newPolicy(t)
			return simtest.Attempt{Sys: sys, Want: test.want,
				Run: func(ctx context.Context) (any, error) { return test.run(ctx, sys, p) }}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}

// What is moved aside from a directory lies in one of its own in the same allowed directory.
func TestAside(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	must(t, p.ReachMaking(t.Context(), sys, mustParse(t, p, kubelet+`\a\b`), func(e pathpolicy.Entry) error {
		simtest.Want(t, "where it goes to", e.Aside("now").String(), kubelet+`\csi-proxy-moved-aside\now\a\b`)
		return nil
	}))
}
