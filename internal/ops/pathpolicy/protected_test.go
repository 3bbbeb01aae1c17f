// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestProtects(t *testing.T) {
	sys := newNode(t)
	name := func(path string) string {
		name, err := sys.VolumeNameForMountPoint(t.Context(), path)
		must(t, err)
		return name
	}
	volumes := map[string]string{"C:": name(`C:\`)}
	for _, drive := range []string{"D:", "E:", "F:", "G:", "H:"} {
		volumes[drive], _ = newVolume(t, sys)
		must(t, sys.SetVolumeMountPoint(t.Context(), drive+`\`, volumes[drive]))
	}
	// The kubelet directory is a link to D:, the working directory one from E: to F:.
	must(t, sys.MkdirAll(`D:\kubelet`))
	must(t, sys.Rename(kubelet, kubelet+`-old`, false))
	must(t, sys.Junction(kubelet, `D:\kubelet`))
	must(t, sys.MkdirAll(`F:\work`))
	must(t, sys.Junction(`E:\work`, `F:\work`))

	for _, c := range []struct {
		policy *pathpolicy.Policy
		want   string
	}{
		{newPolicy(t), "C: D:"},
		{newPolicy(t, `E:\work`), "C: D: E: F:"},
		{newPolicy(t, `E:\missing\x`, `X:\missing`), "C: D: E:"},
		{protect(t, nil, "G", `h:\`, `x:`), "C: D: G: H:"},
		{protect(t, nil, strings.ToUpper(strings.TrimSuffix(volumes["G:"], `\`))), "C: D: G:"},
		{protect(t, func(_ context.Context, v string) (string, map[string]string, error) {
			return map[string]string{volumes["H:"]: "of the check"}[v], nil, nil
		}), "C: D: H:"},
		// What the check knows isn't asked again: here, that H: has the letter C:.
		{protect(t, func(context.Context, string) (string, map[string]string, error) {
			return "", map[string]string{"C:": volumes["H:"]}, nil
		}), "D: H:"},
	} {
		var got []string
		for _, drive := range []string{"C:", "D:", "E:", "F:", "G:", "H:"} {
			reason, err := c.policy.Protects(t.Context(), sys, volumes[drive])
			must(t, err)
			protected := reason != ""
			if protected {
				got = append(got, drive)
			}
			// No path leads into it.
			must(t, sys.MkdirAll(kubelet+`\mnt`))
			must(t, sys.SetReparsePoint(kubelet+`\mnt`, win.NewMountPoint(volumes[drive])))
			_, err = reach(t, sys, c.policy, kubelet+`\mnt\x`)
			if protected && !errors.Is(err, csiproxy.ErrPermissionDenied) || !protected && err != nil {
				t.Errorf("into %s: %v, protected %v", drive, err, protected)
			}
			must(t, sys.Remove(kubelet+`\mnt`))
		}
		simtest.Want(t, "protected", strings.Join(got, " "), c.want)
	}

	failed := errors.New("of the check")
	p := protect(t, func(context.Context, string) (string, map[string]string, error) { return "", nil, failed })
	if _, err := p.Protects(t.Context(), sys, volumes["G:"]); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
	for _, bad := range []string{"", "DD:", `D:\x`, `\\?\Volume{1}\`, "-"} {
		if _, err := pathpolicy.New(pathpolicy.Options{ProtectedVolumes: []string{bad}}); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func protect(t *testing.T, check pathpolicy.VolumeCheck, volumes ...string) *pathpolicy.Policy {
	t.Helper()
	p, err := pathpolicy.New(pathpolicy.Options{ProtectedVolumes: volumes, OfTheNode: check})
	must(t, err)
	return p
}

// What can't be found out isn't taken for unprotected.
func TestProtectsFailures(t *testing.T) {
	sys := newNode(t)
	must(t, sys.MkdirAll(kubelet))
	p := protect(t, nil, "D:")
	eachCallFails(t, sys, func() error {
		_, err := p.Protects(t.Context(), sys, `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`)
		return err
	})
}

// A protected volume is known by its name; where Windows doesn't tell, it isn't taken for missing.
func TestVolumeNamed(t *testing.T) {
	sys := newNode(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.SetVolumeMountPoint(t.Context(), `D:\`, volume))
	const id = `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`
	p := protect(t, nil, "d", "X:", id)
	if got := p.ProtectedByName(); !slices.Equal(got, []string{"D:", "X:", id}) {
		t.Errorf("the names are %q", got)
	}
	for name, want := range map[string]string{"D:": volume, "X:": "", id: id} {
		if got, err := p.VolumeNamed(t.Context(), sys, name); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	eachCallFails(t, sys, func() error {
		_, err := p.VolumeNamed(t.Context(), sys, "D:")
		return err
	})
}

// What goes wrong when an allowed directory is closed is told, too.
func TestProtectsTellsErrorsOfClosing(t *testing.T) {
	sys := newNode(t)
	volume, _ := newVolume(t, sys)
	if reason, err := newPolicy(t).Protects(t.Context(), unclosable{sys}, volume); !errors.Is(err, winerr.ErrorIODevice) {
		t.Errorf("%q, %v", reason, err)
	}
}

// A path's volume is that of the directory that it leads to, also if the kubelet directory
// is a link to another drive.
func TestResolveTellsTheVolumeBehindALink(t *testing.T) {
	sys, p := newNode(t), newPolicy(t)
	volume, _ := newVolume(t, sys)
	must(t, sys.SetVolumeMountPoint(t.Context(), `D:\`, volume))
	must(t, sys.MkdirAll(`D:\kubelet\dir`))
	must(t, sys.Rename(kubelet, kubelet+`-old`, false))
	must(t, sys.Junction(kubelet, `D:\kubelet`))
	for _, path := range []string{kubelet, kubelet + `\dir`, kubelet + `\none\x`} {
		if got, err := resolve(t, sys, p, path); err != nil || got.Volume != volume {
			t.Errorf("%s is on %s, %v; want %s", path, got.Volume, err, volume)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	one, two := newPolicy(t), newPolicy(t, `D:\work`)
	for _, c := range []struct {
		p     *pathpolicy.Policy
		path  string
		wants []string
	}{
		{one, `C:/var/lib/kubelet/x`, []string{"slash", "backslash"}},
		{one, `/var/lib/kubelet/x`, []string{"slash"}},
		{one, `x`, []string{"not an absolute Windows path"}},
		{one, `C:\Windows`, []string{kubelet, "-kubelet-path", "-working-dir allows others"}},
		{two, `C:\Windows`, []string{kubelet, "-kubelet-path", `D:\work`, "-working-dir"}},
	} {
		_, err := c.p.Parse(c.path, pathpolicy.MaxPath)
		for _, want := range c.wants {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", c.path, err, want)
			}
		}
	}
}
