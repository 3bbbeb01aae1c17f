// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Each error reaches the caller, and an operation ends with its caller. The repeated operation leads to the same.
func TestErrorAtEachCallOfFiles(t *testing.T) {
	none := ""
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, run := range map[string]func(ctx context.Context, f *nodeops.Filesystem) error{
		"PathExists": func(ctx context.Context, f *nodeops.Filesystem) error {
			_, err := f.PathExists(ctx, kubelet+`\link\deep\mnt`)
			return err
		},
		"IsSymlink": func(ctx context.Context, f *nodeops.Filesystem) error {
			_, err := f.IsSymlink(ctx, kubelet+`\link\deep\mnt`)
			return err
		},
		"IsSymlink of a link": func(ctx context.Context, f *nodeops.Filesystem) error {
			_, err := f.IsSymlink(ctx, kubelet+`\link`)
			return err
		},
		"Mkdir": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.Mkdir(ctx, kubelet+`\link\new\a`)
		},
		"Mkdir of a link": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.Mkdir(ctx, kubelet+`\link`)
		},
		"Rmdir": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.Rmdir(ctx, kubelet+`\gone`, true)
		},
		"Rmdir of an empty directory": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.Rmdir(ctx, kubelet+`\empty`, true)
		},
		"RmdirContents": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.RmdirContents(ctx, kubelet+`\gone`)
		},
		"CreateSymlink": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.CreateSymlink(ctx, kubelet+`\link`, kubelet+`\new`)
		},
		"CreateSymlink where the link is": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.CreateSymlink(ctx, kubelet+`\x`, kubelet+`\link`)
		},
		"Unlink": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.Unlink(ctx, parse(kubelet+`\link`))
		},
		"Unlink of an empty directory": func(ctx context.Context, f *nodeops.Filesystem) error {
			return f.Unlink(ctx, parse(kubelet+`\empty`))
		},
		"UnlinkIf": func(ctx context.Context, f *nodeops.Filesystem) error {
			_, err := f.UnlinkIf(ctx, parse(kubelet+`\link`), func(context.Context, pathpolicy.Link) (bool, error) { return true, nil })
			return err
		},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			sys, f := stageFiles(t)
			return simtest.Attempt{Sys: sys, Run: func(ctx context.Context) (any, error) { return nil, run(ctx, f) },
				State: func() any { return tree(t, sys, kubelet) }, Passed: &none, Ends: true}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}

// stageFiles starts a node for each of these operations.
func stageFiles(t *testing.T) (*winsim.System, *nodeops.Filesystem) {
	t.Helper()
	sys := newFileNode(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.MkdirAll(kubelet+`\x\deep`))
	must(t, sys.Symlink(kubelet+`\link`, kubelet+`\x`, true))
	mount(t, sys, kubelet+`\x\deep\mnt`, volume)
	must(t, sys.MkdirAll(kubelet+`\empty`))
	must(t, sys.MkdirAll(kubelet+`\gone\sub\empty`))
	must(t, sys.WriteFile(kubelet+`\gone\sub\file`, nil))
	must(t, sys.Junction(kubelet+`\gone\link`, kubelet))
	mount(t, sys, kubelet+`\gone\mnt`, volume)
	return sys, newFilesystem(t, sys)
}
