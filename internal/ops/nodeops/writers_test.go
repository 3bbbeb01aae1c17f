// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"errors"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// canWrite reports whether ContainerUser can make a file at the root of the volume at a path.
func (n *node) canWrite(path string) bool {
	n.t.Helper()
	err := n.sim.As(winsim.ContainerUser).WriteFile(path+`\of ContainerUser`, nil)
	if err != nil && !errors.Is(err, winerr.ErrorAccessDenied) && !errors.Is(err, winerr.ErrorWriteProtect) {
		n.t.Error(err)
	}
	return err == nil
}

// MountVolume lets writers write at the root of a volume that a format has left behind, and of no other.
func TestWritersOfAVolumeThatIsFound(t *testing.T) {
	add := func(list ...win.ACE) func(n *node, _ uint32, id csiproxy.VolumeID) {
		return func(n *node, _ uint32, id csiproxy.VolumeID) {
			f, err := n.sim.OpenFile(n.t.Context(), string(id), win.OpenOptions{Access: win.ReadControl | win.WriteDAC,
				Disposition: win.FileOpen, Options: win.FileDirectoryFile})
			n.do(err)
			n.do(errors.Join(f.AddAccess(n.t.Context(), list), f.Close()))
		}
	}
	for name, test := range map[string]struct {
		before func(n *node, number uint32, id csiproxy.VolumeID)
		want   bool
	}{
		"as a format leaves it": {func(*node, uint32, csiproxy.VolumeID) {}, true},
		"with what Windows makes by itself": {func(n *node, _ uint32, id csiproxy.VolumeID) {
			n.do(n.sim.MkdirAll(string(id) + `system volume information\x`))
			n.do(n.sim.MkdirAll(string(id) + `$RECYCLE.BIN`))
		}, true},
		"with a drive letter": {func(n *node, _ uint32, id csiproxy.VolumeID) { n.do(n.sim.SetVolumeLetter(string(id), "E")) }, true},
		"with a file":         {func(n *node, _ uint32, id csiproxy.VolumeID) { n.do(n.sim.WriteFile(string(id)+"data", nil)) }, false},
		"with a directory":    {func(n *node, _ uint32, id csiproxy.VolumeID) { n.do(n.sim.MkdirAll(string(id) + "data")) }, false},
		"with many directories, and one that holds data": {func(n *node, _ uint32, id csiproxy.VolumeID) {
			n.do(n.sim.MkdirAll(string(id) + `$RECYCLE.BIN`))
			for _, name := range "abcdefghijklmnopqrstuvwxyz" {
				n.do(n.sim.MkdirAll(string(id) + string(name)))
			}
		}, false},
		"with a file that has the name of a directory of Windows": {func(n *node, _ uint32, id csiproxy.VolumeID) {
			n.do(n.sim.WriteFile(string(id)+"$RECYCLE.BIN", nil))
		}, false},
		"with another list":                {add(win.ACE{Rights: win.FileReadExecute, SID: "S-1-5-21-1-2-3-4"}), false},
		"with a list that denies":          {add(win.ACE{Type: win.AccessDenied, Rights: win.Delete, SID: winid.SIDEveryone}), false},
		"with an entry of an unknown kind": {add(win.ACE{Type: 9}), false},
		"mounted elsewhere": {func(n *node, _ uint32, id csiproxy.VolumeID) {
			n.do(n.sim.MkdirAll(kubelet + `\plugins\other`))
			n.do(n.sim.SetVolumeMountPoint(n.t.Context(), kubelet+`\plugins\other\`, string(id)))
		}, false},
		"mounted outside of the allowed directories": {func(n *node, _ uint32, id csiproxy.VolumeID) {
			n.do(n.sim.MkdirAll(`C:\elsewhere`))
			n.do(n.sim.SetVolumeMountPoint(n.t.Context(), `C:\elsewhere\`, string(id)))
		}, true},
		"read-only": {func(n *node, _ uint32, id csiproxy.VolumeID) { n.do(n.sim.SetVolumeReadOnly(string(id), true)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newVolumeNode(t)
			number, id := n.formatted(winsim.DiskSpec{})
			test.before(n, uint32(number), id)
			n.with(nodeops.Options{VolumeWriters: []string{"Users"}})
			for range 2 {
				n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
				if got := n.canWrite(volumeStaging); got != test.want {
					t.Errorf("ContainerUser can write: %v", got)
				}
			}
		})
	}
}

// FormatVolume lets writers write, whatever list Windows gives, and others not.
func TestWritersOfAFormat(t *testing.T) {
	for name, test := range map[string]struct {
		writers  []string
		settings winsim.Settings
		want     bool
	}{
		"nobody":                 {nil, winsim.Settings{}, false},
		"a group":                {[]string{"Users"}, winsim.Settings{}, true},
		"a group by its SID":     {[]string{"s-1-5-11"}, winsim.Settings{}, true},
		"an account":             {[]string{"ContainerUser"}, winsim.Settings{}, true},
		"others":                 {[]string{"S-1-5-21-1-2-3-1000"}, winsim.Settings{}, false},
		"two, one of them twice": {[]string{"S-1-5-21-1-2-3-1000", "Everyone", "everyone"}, winsim.Settings{}, true},
		"a list in another form": {[]string{"Users"}, winsim.Settings{SplitAccessList: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newVolumeNode(t)
			n.do(n.sim.SetSettings(test.settings))
			n.with(nodeops.Options{VolumeWriters: test.writers})
			_, id := n.formatted(winsim.DiskSpec{})
			n.restart()
			n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
			if got := n.canWrite(volumeStaging); got != test.want {
				t.Errorf("ContainerUser can write: %v", got)
			}
			// What SYSTEM makes is for the writers, too.
			n.do(n.sim.MkdirAll(volumeStaging + `\sub`))
			n.do(n.sim.WriteFile(volumeStaging+`\sub\file`, nil))
			if err := n.sim.As(winsim.ContainerUser).WriteFile(volumeStaging+`\sub\file`, nil); (err == nil) != test.want {
				t.Errorf("to write to a file of SYSTEM gives %v", err)
			}
		})
	}
}

// What can't be known, or set, is an error: the pod would start with a volume that it can't write to. The
// next call makes it good.
func TestWritersThatCannotBeSet(t *testing.T) {
	for _, call := range []string{win.CallOpen, win.CallQuerySecurity, win.CallVolumePathNames, win.CallReadDir, win.CallSetSecurity} {
		t.Run(call, func(t *testing.T) {
			n := newVolumeNode(t)
			_, id := n.formatted(winsim.DiskSpec{})
			n.with(nodeops.Options{VolumeWriters: []string{"Users"}})
			object := string(id)
			if call == win.CallVolumePathNames {
				object = ""
			}
			n.do(n.sim.Fail(winsim.Match{Call: call, Object: object}, winerr.ErrorCRC))
			err := n.volumes.MountVolume(t.Context(), id, volumeStaging)
			if !errors.Is(err, winerr.ErrorCRC) || csiproxy.KindOf(err) == nil || n.mountedAt(volumeStaging) != "" {
				t.Errorf("%v, mounted %q", err, n.mountedAt(volumeStaging))
			}
			n.sim.ResetRules()
			n.do(n.volumes.MountVolume(t.Context(), id, volumeStaging))
			if !n.canWrite(volumeStaging) {
				t.Error("ContainerUser can't write")
			}
		})
	}
}

// A protected volume is refused as it is.
func TestWritersOfAProtectedVolume(t *testing.T) {
	n := newVolumeNode(t)
	_, id := n.formatted(winsim.DiskSpec{})
	n.protect(id)
	if err := n.volumes.MountVolume(t.Context(), id, volumeStaging); !errors.Is(err, csiproxy.ErrFailedPrecondition) {
		t.Errorf("mounted: %v", err)
	}
	if n.canWrite(string(id[:len(id)-1])) {
		t.Error("ContainerUser can write to it")
	}
}

// protect gives the node operations with writers, for which a volume is protected.
func (n *node) protect(id csiproxy.VolumeID) {
	n.t.Helper()
	n.with(nodeops.Options{VolumeWriters: []string{"Users"}, ProtectedVolumes: []string{string(id)}})
}
