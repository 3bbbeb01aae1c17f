// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage_test

import (
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// A record of a mount point at whose path there is a file now says nothing, whichever error
// Windows has for that.
func TestMountedAtFile(t *testing.T) {
	for _, errno := range []winerr.Errno{0, winerr.ErrorInvalidName} {
		sys, ctx := simtest.Open(t, winsim.Delays{}), t.Context()
		simtest.Must(t, sys.SetSettings(winsim.Settings{FileAsDirectory: errno}))
		name, err := sys.VolumeNameForMountPoint(ctx, `C:\`)
		simtest.Must(t, err)
		const path = `C:\mounted`
		simtest.Must(t, sys.MkdirAll(path))
		simtest.Must(t, sys.SetVolumeMountPoint(ctx, path+`\`, name))
		simtest.Must(t, sys.Remove(path))
		simtest.Must(t, sys.WriteFile(path, nil))
		if len(sys.MountPoints()) == 0 {
			t.Fatal("the mount manager has no record")
		}
		if paths, err := usage.DefaultFinder(sys).MountedAt(ctx, name); err != nil || !slices.Equal(paths, []string{`C:\`}) {
			t.Errorf("with error %d: mounted at %q, %v", errno, paths, err)
		}
	}
}

// A record says nothing if another volume is mounted at its path by now.
func TestMountedAtAnother(t *testing.T) {
	for _, path := range []string{`C:\mounted`, simtest.Kubelet + `\mounted`} {
		sys, ctx := simtest.Open(t, winsim.Delays{}), t.Context()
		name, _ := simtest.Volume(t, sys)
		another, _ := simtest.Volume(t, sys)
		simtest.Must(t, sys.MkdirAll(path))
		simtest.Must(t, sys.SetVolumeMountPoint(ctx, path+`\`, name))
		mounted, err := usage.DefaultFinder(sys).MountedAt(ctx, name)
		simtest.Must(t, err)
		simtest.Want(t, "mounted before", mounted, []string{path})
		simtest.Must(t, sys.Remove(path))
		simtest.Must(t, sys.MkdirAll(path))
		simtest.Must(t, sys.SetReparsePoint(path, win.NewMountPoint(another)))
		listed, err := sys.VolumePathNames(ctx, name)
		simtest.Must(t, err)
		simtest.Want(t, "listed", listed, []string{path + `\`})
		mounted, err = usage.DefaultFinder(sys).MountedAt(ctx, name)
		simtest.Must(t, err)
		simtest.Want(t, "mounted after", len(mounted), 0)
	}
}
