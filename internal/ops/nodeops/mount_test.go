// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	kubelet      = simtest.Kubelet
	volumeTarget = kubelet + `\pods\1\volumes\kubernetes.io~csi\pvc-1\mount`
)

// mountedAt is what Windows says, without the product.
func (n *node) mountedAt(path string) csiproxy.VolumeID {
	name, err := n.sim.VolumeNameForMountPoint(n.t.Context(), path+`\`)
	if err != nil {
		return ""
	}
	return csiproxy.VolumeID(name)
}

func TestMountAndUnmount(t *testing.T) {
	n := newVolumeNode(t)
	ctx := t.Context()
	_, id := n.formatted(winsim.DiskSpec{})
	for range 2 {
		n.do(n.volumes.MountVolume(ctx, id, volumeStaging))
		if got := n.mountedAt(volumeStaging); !got.Equal(id) {
			t.Fatalf("mounted is %q, want %q", got, id)
		}
	}
	n.do(n.sim.WriteFile(volumeStaging+`\file`, []byte("data")))
	for range 2 {
		n.do(n.volumes.UnmountVolume(ctx, id, volumeStaging))
		if got := n.mountedAt(volumeStaging); got != "" {
			t.Fatalf("%q is still mounted", got)
		}
	}
	if entries, err := n.sim.ReadDir(volumeStaging); err != nil || len(entries) != 0 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
	if _, err := n.sim.ReadFile(volumeStaging + `\file`); err == nil {
		t.Error("the file went to the directory and not to the volume")
	}
	n.do(n.volumes.MountVolume(ctx, id, `\var\lib\kubelet\plugins\elsewhere`)) // as kubelet writes it
	if data, err := n.sim.ReadFile(kubelet + `\plugins\elsewhere\file`); err != nil || string(data) != "data" {
		t.Errorf("mounted elsewhere the file has %q, %v", data, err)
	}
}

func TestMountRefusals(t *testing.T) {
	n := newVolumeNode(t)
	ctx := t.Context()
	_, one := n.formatted(winsim.DiskSpec{})
	_, other := n.formatted(winsim.DiskSpec{})
	n.do(n.volumes.MountVolume(ctx, one, volumeStaging))
	n.do(n.sim.MkdirAll(kubelet + `\full\x`))
	n.do(n.sim.MkdirAll(kubelet + `\empty`))
	n.do(n.sim.WriteFile(kubelet+`\file`, nil))
	n.do(n.sim.Symlink(kubelet+`\link`, volumeStaging, true))
	n.do(n.sim.Symlink(kubelet+`\out`, `C:\Windows`, true))
	n.do(n.sim.Junction(kubelet+`\junction`, `C:\Windows\System32`))
	for path, kind := range map[string]error{
		volumeStaging:           csiproxy.ErrFailedPrecondition,
		kubelet + `\full`:       csiproxy.ErrFailedPrecondition,
		kubelet + `\file`:       csiproxy.ErrFailedPrecondition,
		kubelet + `\link`:       csiproxy.ErrFailedPrecondition,
		kubelet + `\junction`:   csiproxy.ErrFailedPrecondition,
		kubelet + `\out\x`:      csiproxy.ErrPermissionDenied,
		kubelet + `\junction\x`: csiproxy.ErrPermissionDenied,
		kubelet:                 csiproxy.ErrInvalidArgument,
		`C:\Windows`:            csiproxy.ErrInvalidArgument,
		kubelet + `-evil\x`:     csiproxy.ErrInvalidArgument,
		kubelet + `\..\x`:       csiproxy.ErrInvalidArgument,
		`\\server\share\x`:      csiproxy.ErrInvalidArgument,
		`\\?\` + kubelet + `\x`: csiproxy.ErrInvalidArgument,
		kubelet + `\x:stream`:   csiproxy.ErrInvalidArgument,
		`C:/var/`:               csiproxy.ErrInvalidArgument,
		"":                      csiproxy.ErrInvalidArgument,
	} {
		for name, err := range map[string]error{
			"MountVolume":   n.volumes.MountVolume(ctx, other, path),
			"UnmountVolume": n.volumes.UnmountVolume(ctx, other, path),
		} {
			if name == "UnmountVolume" && (path == kubelet || path == kubelet+`\full`) {
				continue // nothing is mounted there, which is what is asked for
			}
			if got := csiproxy.KindOf(err); got != kind {
				t.Errorf("%s at %q: %v, want %v", name, path, err, kind)
			}
		}
	}
	simtest.Want(t, "mounted", n.mountedAt(volumeStaging), one)
	_, atFile := n.volumes.MountedAtPath(ctx, n.path(kubelet+`\file`))
	for _, err := range []error{n.volumes.MountVolume(ctx, other, kubelet+`\file`),
		n.volumes.UnmountVolume(ctx, other, kubelet+`\file`), atFile} {
		if err == nil || !strings.Contains(err.Error(), "the path is a file") {
			t.Errorf("at a file: %v", err)
		}
	}
	err := n.volumes.MountVolume(ctx, other, kubelet+`\full`)
	if err == nil || !strings.Contains(err.Error(), "the directory is not empty: it has x (since 20") {
		t.Errorf("at a directory with an entry: %v", err)
	}
	for path, want := range map[string]error{
		kubelet + `\file`: csiproxy.ErrFailedPrecondition, kubelet + `\link`: csiproxy.ErrFailedPrecondition,
		kubelet + `\none`: nil, kubelet + `\empty`: nil,
	} {
		id, err := n.volumes.MountedAtPath(ctx, n.path(path))
		if simtest.WantError(t, err, want); id != "" {
			t.Errorf("mounted at %s is %q", path, id)
		}
	}
	entries, err := n.sim.ReadDir(`C:\Windows`)
	n.do(err)
	for _, e := range entries {
		if e.Name != "System32" && e.Name != "csi-proxy.lock" {
			t.Errorf(`C:\Windows has %s`, e.Name)
		}
	}
}

// Somebody else mounts a volume right before the call does: if it is the same, all is well.
func TestMountBesideSomebodyElse(t *testing.T) {
	for _, same := range []bool{true, false} {
		n := newVolumeNode(t)
		_, id := n.formatted(winsim.DiskSpec{})
		_, other := n.formatted(winsim.DiskSpec{})
		if same {
			other = id
		}
		n.sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallSetVolumeMountPoint {
				n.sim.OnCall(nil)
				n.do(n.sim.SetVolumeMountPoint(t.Context(), volumeStaging+`\`, string(other)))
			}
		})
		err := n.volumes.MountVolume(t.Context(), id, volumeStaging)
		if got := n.mountedAt(volumeStaging); (err == nil) != same || !got.Equal(other) {
			t.Errorf("mounted is %q; the error is %v", got, err)
		}
	}
}

// A bad path is the caller's fault, whatever there is of the volume.
func TestMountChecksThePathFirst(t *testing.T) {
	n := newVolumeNode(t)
	simtest.WantError(t, n.volumes.MountVolume(t.Context(), unknown, `C:\Windows`),
		csiproxy.ErrInvalidArgument)
}

func TestUnmountWhereNothingIs(t *testing.T) {
	n := newVolumeNode(t)
	n.do(n.sim.MkdirAll(volumeStaging))
	for _, path := range []string{volumeStaging, volumeStaging + `\a\b`} {
		simtest.WantErrorOf(t, fmt.Sprintf("%q", path), n.volumes.UnmountVolume(t.Context(), unknown, path), nil)
	}
}

// A volume whose disk has been pulled must not keep its pods from ending.
func TestUnmountOfAVolumeThatHasLeft(t *testing.T) {
	n := newVolumeNode(t)
	number, id := n.formatted(winsim.DiskSpec{})
	n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
	n.do(n.sim.DetachDisk(number))
	if got, err := n.volumes.GetVolumeIDFromTargetPath(t.Context(), volumeStaging); err != nil || !got.Equal(id) {
		t.Errorf("the mount point says %q, %v", got, err)
	}
	n.do(n.volumes.UnmountVolume(t.Context(), id, volumeStaging))
	if entries, err := n.sim.ReadDir(volumeStaging); err != nil || len(entries) != 0 {
		t.Errorf("the directory holds %v, %v", entries, err)
	}
}

// If the cache can't be written, the volume stays where it is.
func TestUnmountKeepsWhatCannotBeFlushed(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.formatted(winsim.DiskSpec{})
	n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
	n.do(n.sim.Fail(winsim.Match{Call: "FlushFileBuffers", Count: 1}, winerr.ErrorIODevice))
	simtest.WantError(t, n.volumes.UnmountVolume(t.Context(), id, volumeStaging), winerr.ErrorIODevice)
	// It seems to be gone, and isn't.
	n.do(n.sim.Fail(winsim.Match{Call: win.CallOpen, Object: string(id[:20]), Count: 1}, winerr.ErrorDeviceNotConnected))
	simtest.WantError(t, n.volumes.UnmountVolume(t.Context(), id, volumeStaging), csiproxy.ErrUnavailable)
	simtest.Want(t, "mounted", n.mountedAt(volumeStaging), id)
}

// A volume that is raw, or whose file system is damaged, may not know the request to flush it.
func TestUnmountOfWhatKnowsNoFlush(t *testing.T) {
	for _, errno := range []winerr.Errno{winerr.ErrorInvalidFunction, winerr.ErrorNotSupported} {
		n := newVolumeNode(t)
		_, id := n.attach(winsim.DiskSpec{})
		n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
		n.do(n.sim.Fail(winsim.Match{Call: win.CallFlush}, errno))
		n.do(n.volumes.WriteVolumeCache(t.Context(), id))
		n.do(n.volumes.UnmountVolume(t.Context(), id, volumeStaging))
		simtest.Want(t, "mounted", n.mountedAt(volumeStaging), "")
	}
}

func TestVolumeIDFromTargetPath(t *testing.T) {
	n := newVolumeNode(t)
	ctx := t.Context()
	_, id := n.formatted(winsim.DiskSpec{})
	n.do(n.volumes.MountVolume(ctx, id, volumeStaging))
	n.do(n.sim.MkdirAll(volumeTarget[:strings.LastIndex(volumeTarget, `\`)]))
	n.do(n.sim.Symlink(volumeTarget, volumeStaging, true))
	n.do(n.sim.Symlink(kubelet+`\second`, volumeTarget, true))
	n.do(n.sim.MkdirAll(volumeStaging + `\inside`))
	n.do(n.sim.MkdirAll(kubelet + `\plain`))
	n.do(n.sim.Symlink(kubelet+`\dangling`, kubelet+`\nowhere`, true))
	n.do(n.sim.Symlink(kubelet+`\loop`, kubelet+`\loop`, true))
	n.do(n.sim.Symlink(kubelet+`\out`, `C:\Windows`, true))
	n.do(n.sim.Symlink(kubelet+`\share`, `\\server\share`, true))
	system, err := n.sim.VolumeNameForMountPoint(ctx, `C:\`)
	n.do(err)
	none := csiproxy.ErrNotFound
	for _, c := range []struct {
		path          string
		mounted       csiproxy.VolumeID
		kind          error
		closest       csiproxy.VolumeID
		closestKind   error
		doesNotExist  bool // the words that drivers look for
		closestAbsent bool
	}{
		{path: volumeStaging, mounted: id, closest: id},
		{path: `\var` + volumeStaging[len(`C:\var`):], mounted: id, closest: id},
		{path: volumeTarget, mounted: id, closest: id},
		{path: kubelet + `\second`, mounted: id, closest: id},
		{path: volumeStaging + `\inside`, kind: none, closest: id, doesNotExist: true},
		{path: kubelet + `\plain`, kind: none, closest: csiproxy.VolumeID(system), doesNotExist: true},
		{path: kubelet, kind: none, closest: csiproxy.VolumeID(system), doesNotExist: true},
		{path: kubelet + `\missing\x`, kind: none, closestKind: none, doesNotExist: true},
		{path: kubelet + `\dangling`, kind: none, closest: csiproxy.VolumeID(system), doesNotExist: true},
		{path: kubelet + `\loop`, kind: csiproxy.ErrFailedPrecondition, closestKind: csiproxy.ErrFailedPrecondition},
		{path: kubelet + `\share`, kind: none, closestKind: csiproxy.ErrFailedPrecondition, doesNotExist: true},
		{path: kubelet + `\out`, kind: csiproxy.ErrPermissionDenied, closestKind: csiproxy.ErrPermissionDenied},
		{path: `C:\Windows`, kind: csiproxy.ErrInvalidArgument, closestKind: csiproxy.ErrInvalidArgument},
	} {
		got, err := n.volumes.GetVolumeIDFromTargetPath(ctx, c.path)
		if csiproxy.KindOf(err) != c.kind || !got.Equal(c.mounted) {
			t.Errorf("mounted at %q: %q, %v", c.path, got, err)
		}
		if c.doesNotExist && !strings.Contains(err.Error(), "because it does not exist") {
			t.Errorf("mounted at %q: %q lacks the words that drivers look for", c.path, err)
		}
		got, err = n.volumes.GetClosestVolumeIDFromTargetPath(ctx, c.path)
		if csiproxy.KindOf(err) != c.closestKind || !got.Equal(c.closest) {
			t.Errorf("closest to %q: %q, %v", c.path, got, err)
		}
	}
}

// Somebody swaps directories for links at each call to Windows in turn. The mount
// lands inside of the kubelet directory, or nowhere.
func TestMountUnderAttack(t *testing.T) {
	const dir = kubelet + `\pods\1`
	simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
		n := newVolumeNode(t)
		_, id := n.formatted(winsim.DiskSpec{})
		n.do(n.sim.MkdirAll(dir + `\mount`))
		n.do(n.sim.MkdirAll(`C:\Windows\victim\mount`))
		swapped := false
		before(n.sim, func(winsim.Call) {
			swapped = true
			// As a pod could, if the handles let it: each of these may fail.
			if n.sim.Rename(dir, dir+`-away`, false) == nil {
				n.sim.Symlink(dir, `C:\Windows\victim`, true)
			} else if n.sim.Remove(dir+`\mount`) == nil {
				n.sim.Junction(dir+`\mount`, `C:\Windows\victim\mount`)
			} else {
				n.sim.SetReparsePoint(dir+`\mount`, win.NewJunction(`C:\Windows\victim\mount`))
			}
		})
		err := n.volumes.MountVolume(t.Context(), id, dir+`\mount`)
		n.sim.OnCall(nil)
		if got := n.mountedAt(`C:\Windows\victim\mount`); got != "" {
			t.Errorf("mounted outside, %v", err)
		}
		if info, statErr := n.sim.FileAttributes(t.Context(), `C:\Windows\victim\mount`); statErr != nil || info&win.AttributeReparsePoint != 0 {
			t.Errorf("the victim is %#x, %v", info, statErr)
		}
		if !swapped {
			n.do(err)
		}
	})
}

// Directories are swapped for links to the outside before each call to Windows in turn: the query by name, and those that follow
// where it can't answer. Neither a volume nor a directory outside shows.
func TestVolumeIDUnderAttack(t *testing.T) {
	const dir, outside = kubelet + `\pods\1`, `C:\Windows\victim`
	swaps := map[string]func(s *winsim.System, victim string) error{
		"rename": func(s *winsim.System, victim string) error {
			if err := s.Rename(dir+victim, dir+`-away`, false); err != nil {
				return err
			}
			return s.Symlink(dir+victim, outside+victim, true)
		},
		"in place": func(s *winsim.System, victim string) error { // which Windows allows for an empty directory
			return s.SetReparsePoint(dir+victim, win.NewJunction(outside+victim))
		},
	}
	for kind, swap := range swaps {
		for _, path := range []string{`\a\plain`, `\a\mount`, `\a\none`, `\a\hidden`} {
			swapped, asked := 0, false
			for _, victim := range []string{`\a`, `\a\plain`} {
				for at, more := 0, true; more; at++ {
					n := newVolumeNode(t)
					_, own := n.formatted(winsim.DiskSpec{})
					_, foreign := n.formatted(winsim.DiskSpec{})
					n.do(n.sim.MkdirAll(dir + `\a\plain`))
					simtest.Mount(t, n.sim, dir+`\a\mount`, string(own))
					for _, name := range []string{`\a\plain`, `\a\mount`, `\a\none`} {
						simtest.Mount(t, n.sim, outside+name, string(foreign))
					}
					n.do(n.sim.MkdirAll(outside + `\a\hidden`))
					calls := 0
					n.sim.OnCall(func(c winsim.Call) {
						asked = asked || c.Name == win.CallAttributesWithoutLinks
						if calls == at && swap(n.sim, victim) == nil {
							swapped++
						}
						calls++
					})
					got, err := n.volumes.GetVolumeIDFromTargetPath(t.Context(), dir+path)
					n.sim.OnCall(nil)
					more = at < calls
					if err == nil && !got.Equal(own) || path == `\a\hidden` && strings.Contains(fmt.Sprint(err), "no volume is mounted there") {
						t.Errorf("%s of %q before call %d: of %s it tells %q, %v", kind, victim, at, path, got, err)
					}
				}
			}
			if swapped == 0 || !asked {
				t.Errorf("%s, for %s: %d swaps, asked by name: %v", kind, path, swapped, asked)
			}
		}
	}
}

// An administrator may allow a whole drive, also one that isn't there.
func TestClosestVolumeOfADrive(t *testing.T) {
	n := newVolumeNode(t)
	n.with(nodeops.Options{KubeletPath: `C:\`, WorkingDirs: []string{`X:\`}})
	n.do(n.sim.Symlink(`C:\link`, `X:\missing`, true))
	_, err := n.volumes.GetClosestVolumeIDFromTargetPath(t.Context(), `C:\link`)
	simtest.WantError(t, err, csiproxy.ErrNotFound)
	system, err := n.sim.VolumeNameForMountPoint(t.Context(), `C:\`)
	n.do(err)
	for _, path := range []string{`C:\`, `C:\var`} {
		got, err := n.volumes.GetClosestVolumeIDFromTargetPath(t.Context(), path)
		if err != nil || string(got) != system {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

func TestVolumesOnOtherWindows(t *testing.T) {
	simtest.OnOtherWindows(t, map[string]func(*testing.T){
		"TestMountAndUnmount":             TestMountAndUnmount,
		"TestMountRefusals":               TestMountRefusals,
		"TestUnmountWithoutMountManager":  TestUnmountWithoutMountManager,
		"TestUnmountWhereNothingIs":       TestUnmountWhereNothingIs,
		"TestUnmountOfAVolumeThatHasLeft": TestUnmountOfAVolumeThatHasLeft,
		"TestVolumeIDFromTargetPath":      TestVolumeIDFromTargetPath,
		"TestMountUnderAttack":            TestMountUnderAttack,
	})
}

// Volumes of the node itself and those that the administrator protects aren't mounted.
func TestMountRefusesProtectedVolumes(t *testing.T) {
	n := newVolumeNode(t)
	ctx := t.Context()
	system, err := n.sim.VolumeNameForMountPoint(ctx, `C:\`)
	n.do(err)
	_, data := n.formatted(winsim.DiskSpec{})
	_, work := n.formatted(winsim.DiskSpec{})
	_, lettered := n.formatted(winsim.DiskSpec{})
	n.do(n.sim.SetVolumeMountPoint(ctx, `D:\`, string(data)))
	n.do(n.sim.SetVolumeMountPoint(ctx, `E:\`, string(work)))
	n.do(n.sim.SetVolumeMountPoint(ctx, `F:\`, string(lettered)))
	n.do(n.sim.MkdirAll(`E:\work`))
	n.with(nodeops.Options{WorkingDirs: []string{`E:\work`}, ProtectedVolumes: []string{"D:"}})
	v := n.volumes
	for id, want := range map[csiproxy.VolumeID]error{
		csiproxy.VolumeID(system): csiproxy.ErrFailedPrecondition,
		data:                      csiproxy.ErrFailedPrecondition,
		work:                      csiproxy.ErrFailedPrecondition,
		lettered:                  nil, // Windows gives letters to CSI volumes by itself
	} {
		path := kubelet + `\` + string(id)[len(`\\?\`):len(id)-1]
		simtest.WantErrorOf(t, string(id), v.MountVolume(ctx, id, path), want)
		simtest.Want(t, "mounted", n.mountedAt(path) != "", want == nil)
	}
}

// In this group a slash separates, as published. An error says at which path.
func TestSlashesAndErrors(t *testing.T) {
	n := newVolumeNode(t)
	ctx := t.Context()
	_, id := n.formatted(winsim.DiskSpec{})
	n.do(n.volumes.MountVolume(ctx, id, strings.ReplaceAll(volumeStaging, `\`, `/`)))
	simtest.Want(t, "mounted", n.mountedAt(volumeStaging), id)
	for _, path := range []string{volumeStaging[:len(volumeStaging)-len(`\globalmount`)] + `/globalmount`, `/var` + volumeStaging[len(`C:\var`):]} {
		if got, err := n.volumes.GetVolumeIDFromTargetPath(ctx, path); err != nil || !got.Equal(id) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
		if got, err := n.volumes.GetClosestVolumeIDFromTargetPath(ctx, path+`/x/..`); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	n.do(n.volumes.UnmountVolume(ctx, id, `C:/var`+strings.ReplaceAll(volumeStaging[len(`C:\var`):], `\`, `/`)))
	simtest.Want(t, "mounted", n.mountedAt(volumeStaging), "")
	for _, path := range []string{`//server/share`, `/??/C:/var/lib/kubelet/x`, `//?/C:/var/lib/kubelet/x`, `C:/Windows`} {
		if err := n.volumes.MountVolume(ctx, id, path); !errors.Is(err, csiproxy.ErrInvalidArgument) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
	n.do(n.sim.Remove(volumeStaging))
	n.do(n.sim.MkdirAll(volumeStaging + `\entry`))
	if err := n.volumes.MountVolume(ctx, id, volumeStaging); err == nil {
		t.Fatal("it is mounted over an entry")
	} else if !strings.Contains(err.Error(), volumeStaging) {
		t.Errorf("%v doesn't say where", err)
	}
}

// On ReFS Windows has no mount points.
func TestMountOnReFS(t *testing.T) {
	n := newVolumeNode(t)
	_, host := n.attach(winsim.DiskSpec{})
	n.do(n.sim.FormatVolume(t.Context(), string(host), win.FormatOptions{FileSystem: "ReFS"}))
	n.do(n.sim.SetVolumeMountPoint(t.Context(), `D:\`, string(host)))
	_, id := n.formatted(winsim.DiskSpec{})
	err := groupsOf(t, n.sim, nodeops.Options{KubeletPath: `D:\kubelet`}).Volumes.MountVolume(t.Context(), id, `D:\kubelet\x`)
	simtest.WantError(t, err, csiproxy.ErrFailedPrecondition, "ReFS")
}

// DeleteVolumeMountPointW doesn't know the mount point, or says so: it goes all the same,
// or the call fails.
func TestUnmountWithoutMountManager(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.formatted(winsim.DiskSpec{})
	for _, errno := range []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorPathNotFound, winerr.ErrorInvalidParameter,
		winerr.ErrorNotAReparsePoint} {
		n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
		n.do(n.sim.Fail(winsim.Match{Call: win.CallDeleteVolumeMountPoint}, errno))
		simtest.WantErrorOf(t, fmt.Sprintf("%v", errno), n.volumes.UnmountVolume(t.Context(), id, volumeStaging), nil)
		simtest.Want(t, fmt.Sprintf("mounted after %v", errno), n.mountedAt(volumeStaging), "")
		n.sim.ResetRules()
	}
	n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
	for _, errno := range []winerr.Errno{winerr.ErrorFileNotFound, winerr.ErrorAccessDenied} {
		n.do(n.sim.Fail(winsim.Match{Call: win.CallDeleteVolumeMountPoint}, winerr.ErrorFileNotFound))
		n.do(n.sim.Fail(winsim.Match{Call: "FSCTL_DELETE_REPARSE_POINT"}, errno))
		if err := n.volumes.UnmountVolume(t.Context(), id, volumeStaging); err == nil {
			t.Errorf("%v: unmounted is said, and %q is mounted", errno, n.mountedAt(volumeStaging))
		}
		n.sim.ResetRules()
	}
}

// Two calls unmount a volume at one time, in one process and in two: the second begins at each
// call of the first. Both succeed.
func TestUnmountTwiceAtOneTime(t *testing.T) {
	for _, where := range []string{"one process", "two processes"} {
		simtest.AtEachCall(t, func(t *testing.T, before func(*winsim.System, func(winsim.Call))) {
			n := newVolumeNode(t)
			_, id := n.formatted(winsim.DiskSpec{})
			n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
			first := n.volumes
			if where == "two processes" {
				n.restart()
			}
			var ended chan error
			before(n.sim, func(winsim.Call) {
				ended = make(chan error, 1)
				go func() { ended <- n.volumes.UnmountVolume(t.Context(), id, volumeStaging) }()
				synctest.Wait()
			})
			err := first.UnmountVolume(t.Context(), id, volumeStaging)
			n.sim.OnCall(nil)
			if ended == nil {
				return
			}
			if other := <-ended; err != nil || other != nil {
				t.Errorf("%s: %v; the other call: %v", where, err, other)
			}
		})
	}
}
