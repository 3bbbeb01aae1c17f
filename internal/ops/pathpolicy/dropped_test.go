// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

func TestErrorAtEachCall(t *testing.T) {
	const (
		dir     = kubelet + `\dir`
		shallow = dir + `\link`
		mounted = kubelet + `\mount`
		chain   = kubelet + `\chain`

		published = kubelet + `\pods\uid\volumes\kubernetes.io~csi\pv`
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
		}, `[\chain \dir\link \mount]: <nil>`},
		"resolve": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			to, err := p.Resolve(ctx, sys, mustParse(t, p, chain+`\sub`))
			return []any{to.Kind, to.ByLink, to.InVolume}, err
		}, ""},
		"published": {func(ctx context.Context, sys *winsim.System, _ *pathpolicy.Policy) (any, error) {
			node, err := pathpolicy.New(pathpolicy.Options{KubeletPath: kubelet, Drivers: []pathpolicy.Driver{{Name: "red"}}})
			must(t, err)
			red := node.Within(pathpolicy.DriverPaths{Driver: "red"})
			return red.Exists(ctx, sys, mustParse(t, red, published+`\mount`))
		}, "false: <nil>"},
		"lookup": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			to, err := p.Lookup(ctx, sys, mustParse(t, p, mounted))
			return []any{to.Kind, to.Volume != ""}, err
		}, ""},
		"exists": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			return p.Exists(ctx, sys, mustParse(t, p, chain+`\sub`))
		}, "true: <nil>"},
		"leads nowhere": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			return p.ExplainEmpty(ctx, sys, mustParse(t, p, shallow))
		}, "it leads to nothing: <nil>"},
		"leads somewhere": {func(ctx context.Context, sys *winsim.System, p *pathpolicy.Policy) (any, error) {
			return p.ExplainEmpty(ctx, sys, mustParse(t, p, chain))
		}, ": <nil>"},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			sys := newNode(t)
			name, _ := simtest.Volume(t, sys)
			simtest.Mount(t, sys, mounted, name)
			must(t, sys.MkdirAll(mounted+`\sub`))
			must(t, sys.Symlink(chain, mounted, true))
			must(t, sys.MkdirAll(dir))
			must(t, sys.Symlink(shallow, kubelet+`\staged`, true))
			must(t, sys.MkdirAll(published))
			must(t, sys.WriteFile(published+`\vol_data.json`, []byte(`{"driverName":"red"}`)))
			p := newPolicy(t)
			return simtest.Attempt{Sys: sys, Want: test.want,
				Run: func(ctx context.Context) (any, error) { return test.run(ctx, sys, p) }}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}
