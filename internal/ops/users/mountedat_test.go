// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package users_test

import (
	"context"
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/users"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
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
		if paths, err := users.Default(sys).MountedAt(ctx, name); err != nil || !slices.Equal(paths, []string{`C:\`}) {
			t.Errorf("with error %d: mounted at %q, %v", errno, paths, err)
		}
	}
}

// stale is a node whose mount manager has a record of a mount point where another volume is by now.
type stale struct{ *winsim.System }

func (stale) VolumePathNames(context.Context, string) ([]string, error) {
	return []string{`C:\stale\`}, nil
}

func (stale) VolumeNameForMountPoint(context.Context, string) (string, error) {
	return `\\?\Volume{00000000-0000-0000-0000-000000000001}\`, nil
}

func TestMountedAtAnother(t *testing.T) {
	const name = `\\?\Volume{00000000-0000-0000-0000-000000000002}\`
	if paths, err := users.Default(stale{simtest.Open(t, winsim.Delays{})}).MountedAt(t.Context(), name); err != nil || len(paths) != 0 {
		t.Errorf("mounted at %q, %v", paths, err)
	}
}
