// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// TestPowerLoss: only contents that weren't flushed are lost, also if the process
// ended in between.
func TestPowerLoss(t *testing.T) {
	s := newNode(t, Delays{})
	_, name := newVolume(t, s, true)
	write := func(file, contents string) {
		t.Helper()
		must(t, s.WriteFile(name+file, []byte(contents)))
	}
	write("volume flushed", "old")
	v := openDevice(t, s, device1(name), readWrite)
	must(t, v.Flush(t.Context()))
	closeHandle(t, v)
	write("volume flushed", "new")
	write("file flushed", "content")
	must(t, s.FlushFile(name+"file flushed"))
	write("not flushed", "content")
	must(t, s.MkdirAll(name+"dir"))

	must(t, s.PowerLoss())
	for file, want := range map[string]string{"volume flushed": "old", "file flushed": "content", "not flushed": ""} {
		wantText(t, s, name+file, want)
	}
	if _, err := s.ReadDir(name + "dir"); err != nil {
		t.Errorf("the directory is lost: %v", err)
	}
	write("not flushed", "again")
	must(t, s.Reboot()) // in order: everything is written out
	must(t, s.PowerLoss())
	wantText(t, s, name+"not flushed", "again")
}

func TestRebootEndsHandles(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	n, name := newVolume(t, s, true)
	must(t, s.WriteFile(name+"file", nil))
	d := openDevice(t, s, drivePath(n), win.GenericRead)
	v := openDevice(t, s, device1(name), readWrite)
	f, err := s.OpenFile(ctx, name+"file", win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
	must(t, err)
	wantErr(t, "remove a held file", s.Remove(name+"file"), winerr.ErrorSharingViolation)
	must(t, s.Reboot())
	if open := s.OpenHandles(); len(open) != 0 {
		t.Errorf("handles after a restart: %q", open)
	}
	wantErr(t, "read the disk", errorOf(d.ReadAt(ctx, make([]byte, 512), 0)), winerr.ErrorInvalidHandle)
	wantErr(t, "flush the volume", v.Flush(ctx), winerr.ErrorInvalidHandle)
	wantErr(t, "delete the file", f.Delete(ctx), winerr.ErrorInvalidHandle)
	wantErr(t, "close", f.Close(), winerr.ErrorInvalidHandle)
	must(t, s.Remove(name+"file"))
}

// TestRebootFinds: a restart finds what needed a scan, and reads capacities.
func TestRebootFinds(t *testing.T) {
	s := newNode(t, Delays{})
	n := attach(t, s, DiskSpec{})
	must(t, s.GrowDisk(n, 20*gib))
	attach(t, s, DiskSpec{NeedsRescan: true})
	must(t, s.Reboot())
	if d := s.Disks(); d[1].Seen != 20*gib || d[2].State != disks.Present || d[2].Number != 2 {
		t.Errorf("disks %+v", d[1:])
	}
}
