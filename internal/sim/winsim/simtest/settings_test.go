// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"errors"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestPairwise(t *testing.T) {
	values := [][]int{{0, 1}, {0, 1, 2}, {0, 1}, {0, 1, 2, 3}, {0, 1}}
	rows := pairwise(values)
	for i := range values {
		for j := range i {
			for at := range values[i] {
				for jat := range values[j] {
					found := false
					for _, row := range rows {
						found = found || row[i] == at && row[j] == jat
					}
					if !found {
						t.Errorf("no row has %d at %d and %d at %d", at, i, jat, j)
					}
				}
			}
		}
	}
	if len(rows) > 16 { // 12 at least: 3 times 4
		t.Errorf("there are %d rows", len(rows))
	}
}

// Each position of each switch comes alone, too, so that a failure names its switch.
func TestSettings(t *testing.T) {
	alone, names := 0, map[string]bool{}
	for s := range Settings() {
		names[SettingsName(s)] = true
	}
	for _, want := range []winsim.Settings{{NoAutomount: true}, {GoneMountPoint: 2}, {GoneMountPoint: 3},
		{FormatInUse: 121}} {
		if !names[SettingsName(want)] {
			t.Errorf("%+v doesn't come", want)
		}
	}
	for _, values := range positions() {
		alone += len(values) - 1
	}
	if len(names) < alone+6 || len(names) > 2*alone+20 {
		t.Errorf("there are %d rows for %d positions", len(names), alone)
	}
}

// A node that a test opens has the switches that it runs with, and none afterwards.
func TestOnWindows(t *testing.T) {
	exclusive := func(t *testing.T, want error) {
		sys := Open(t, winsim.Delays{})
		volume, _ := Volume(t, sys)
		Must(t, sys.MkdirAll(Kubelet+`\mount`))
		held, err := sys.OpenFile(t.Context(), Kubelet+`\mount`, win.OpenOptions{
			Access: win.FileListDirectory, Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpen,
			Options: win.FileDirectoryFile,
		})
		Must(t, err)
		defer held.Close()
		if err := sys.SetVolumeMountPoint(t.Context(), Kubelet+`\mount\`, volume); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	OnWindows(t, winsim.Settings{MountManagerExclusive: true}, map[string]func(*testing.T){
		"exclusive": func(t *testing.T) { exclusive(t, winerr.ErrorSharingViolation) },
	})
	exclusive(t, nil)
}

func TestLettered(t *testing.T) {
	sys := Open(t, winsim.Delays{})
	volume, number, letter := Lettered(t, sys, winsim.DiskSpec{Serial: "lettered"})
	Must(t, sys.WriteFile(letter+"file", []byte("content")))
	Must(t, sys.DetachDisk(number))
	if again := Attach(t, sys, winsim.DiskSpec{Serial: "lettered"}); again != number {
		t.Errorf("disk %d came back as %d", number, again)
	}
	sys.Settle()
	paths, err := sys.VolumePathNames(t.Context(), volume)
	if content, readErr := sys.ReadFile(volume + "file"); err != nil || len(paths) != 1 || paths[0] != letter ||
		readErr != nil || string(content) != "content" {
		t.Errorf("it came back at %q, %v, with %q, %v", paths, err, content, readErr)
	}
}
