// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const podImage = `C:\app\pod.exe`

// processIDs asks for the processes of a volume, through a handle that is closed again.
func processIDs(t *testing.T, s *System, path string) []win.ProcessID {
	t.Helper()
	d := openDevice(t, s, path, win.GenericRead)
	defer closeHandle(t, d)
	ids, err := d.ProcessIDs(t.Context())
	must(t, err)
	return ids
}

func TestProcesses(t *testing.T) {
	s := newNode(t, Delays{})
	_, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", nil))
	must(t, s.WriteFile(name+"other", nil))
	pod, err := s.StartProcess(podImage, name+"file", `C:\Windows`)
	must(t, err)
	reader, err := s.StartProcess(`C:\app\backup.exe`, device1(name))
	must(t, err)
	ids := func(ids ...win.ProcessID) []win.ProcessID {
		slices.Sort(ids)
		return ids
	}
	if got, want := processIDs(t, s, device1(name)), ids(pod, reader, self); !slices.Equal(got, want) {
		t.Errorf("of the volume: %v, want %v", got, want)
	}
	for file, want := range map[string][]win.ProcessID{"file": ids(pod, self), "other": ids(self)} {
		f, err := s.OpenFile(t.Context(), name+file, existing(win.FileReadAttributes, 0))
		must(t, err)
		if got, err := f.ProcessIDs(t.Context()); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %s: %v, %v; want %v", file, got, err, want)
		}
		closeHandle(t, f)
	}
	must(t, s.SetSettings(Settings{VolumeProcessesOnly: true}))
	if got, want := processIDs(t, s, device1(name)), ids(reader, self); !slices.Equal(got, want) {
		t.Errorf("of the volume itself: %v, want %v", got, want)
	}
	d := openDevice(t, s, device1(name), win.GenericRead)
	must(t, s.SetSettings(Settings{NoProcessIDs: true}))
	_, err = d.ProcessIDs(t.Context())
	closeHandle(t, d)
	wantErr(t, "ids that Windows doesn't tell", err, winerr.ErrorInvalidParameter)

	image, err := s.ProcessImage(t.Context(), pod)
	if err != nil || image != podImage {
		t.Errorf("the program is %q, %v", image, err)
	}
	must(t, s.EndProcess(pod))
	wantErr(t, "program of no process", errorOf(s.ProcessImage(t.Context(), pod)), winerr.ErrorInvalidParameter)
	wantErr(t, "end no process", s.EndProcess(pod), winerr.ErrorNotFound)
	wantErr(t, "no program", errorOf(s.StartProcess("", name+"file")), winerr.ErrorInvalidParameter)
	wantErr(t, "no file", errorOf(s.StartProcess(podImage, name+"file", name+"missing")), winerr.ErrorFileNotFound)
	if p := s.Processes(); len(p) != 1 || p[0].ID != reader {
		t.Errorf("left are %+v", p)
	}
	if open := s.OpenHandles(); len(open) != 1 {
		t.Errorf("open are %q", open)
	}
	must(t, s.Reboot())
	if p := s.Processes(); len(p) != 0 {
		t.Errorf("after the restart there are %+v", p)
	}
}

// Processes outlive the daemon, with what they have open.
func TestProcessesOutliveTheDaemon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	_, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", nil))
	id, err := s.StartProcess(podImage, name+"file")
	must(t, err)
	must(t, s.Close())
	s = openNode(t, Config{StateFile: file})
	defer closeHandle(t, s)
	if ids := processIDs(t, s, device1(name)); !slices.Contains(ids, id) {
		t.Errorf("the process %d is lost: %v", id, ids)
	}
	must(t, s.EndProcess(id))
}

// What the contract and the facts of others don't say of a lock.
func TestLockVolume(t *testing.T) {
	s := newNode(t, Delays{})
	n, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", []byte("content")))
	lock := func(d win.Device) error {
		_, err := d.Control(t.Context(), win.FsctlLockVolume, nil, nil)
		return err
	}
	d := openDevice(t, s, device1(name), readWrite)
	reader := openDevice(t, s, device1(name), win.AccessNone) // takes no part
	wantErr(t, "lock without access", lock(reader), winerr.ErrorAccessDenied)
	must(t, lock(d))
	closeHandle(t, reader)
	closeHandle(t, openDevice(t, s, device1(name), win.AccessNone))
	wantErr(t, "format", s.FormatVolume(t.Context(), name, win.FormatOptions{FileSystem: "NTFS"}), winerr.ErrorGenFailure)
	// A lock ends with its volume, too.
	for _, a := range []win.DiskAttributes{win.DiskOffline, 0} {
		must(t, s.SetDiskAttributes(n, win.SetDiskAttributes{Attributes: a, Mask: win.DiskOffline}))
		s.Settle()
	}
	wantText(t, s, name+"file", "content")
	closeHandle(t, d)

	system := openDevice(t, s, `\\.\C:`, readWrite)
	defer closeHandle(t, system)
	wantErr(t, "lock Windows' own volume", lock(system), winerr.ErrorAccessDenied)
	_, err := system.Control(t.Context(), win.FsctlDismountVolume, nil, nil)
	wantErr(t, "dismount Windows' own volume", err, winerr.ErrorAccessDenied)
}

// What was written when a volume was locked or dismounted outlasts a loss of power.
func TestLockAndDismountFlush(t *testing.T) {
	for name, code := range map[string]win.IoctlCode{"lock": win.FsctlLockVolume, "dismount": win.FsctlDismountVolume} {
		t.Run(name, func(t *testing.T) {
			s := newNode(t, Delays{})
			_, volume := newVolume(t, s, true)
			must(t, s.WriteFile(volume+"file", []byte("content")))
			mustControlWith(t, s, device1(volume), readWrite, code)
			must(t, s.PowerLoss())
			s.Settle()
			wantText(t, s, volume+"file", "content")
		})
	}
}

// mustControlWith sends a code on a handle with an access, and closes the handle.
func mustControlWith(t *testing.T, s *System, path string, access win.Access, code win.IoctlCode) {
	t.Helper()
	d := openDevice(t, s, path, access)
	defer closeHandle(t, d)
	_, err := d.Control(t.Context(), code, nil, nil)
	must(t, err)
}
