// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"encoding/json"
	"os/exec"
	"testing"
	"time"
)

// watchedDisk is a disk as csi-proxyctl disk watch tells it.
type watchedDisk struct {
	Number    uint32 `json:"number"`
	SizeBytes int64  `json:"size_bytes"`
	Online    *bool  `json:"online"`
}

// A disk that comes, changes and leaves is told while somebody watches. How soon is in the
// log: without a notice of Windows it takes up to 5 seconds.
func TestNativeWatchDisks(t *testing.T) {
	startOnStorage(t)
	cmd := exec.CommandContext(t.Context(), ctlProgram, "-o", "json", "disk", "watch")
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer func() {
		cmd.Process.Kill()
		cmd.Wait() // that it was killed is no news
	}()
	decoder := json.NewDecoder(out)
	await := func(what string, told func(removed, added, changed []watchedDisk) bool) {
		t.Helper()
		begun := time.Now()
		tooLong := time.AfterFunc(patience, func() { cmd.Process.Kill() })
		defer tooLong.Stop()
		for {
			var c struct{ Removed, Added, Changed []watchedDisk }
			if err := decoder.Decode(&c); err != nil {
				t.Fatalf("waiting until %s: %v", what, err)
			}
			if told(c.Removed, c.Added, c.Changed) {
				t.Logf("it took %v until %s", time.Since(begun).Round(time.Millisecond), what)
				return
			}
		}
	}
	await("the list is there", func(_, added, _ []watchedDisk) bool { return len(added) > 0 })
	d := newVirtualDisk(t, gib, 512)
	with := func(which func(watchedDisk) bool, disks ...watchedDisk) bool {
		for _, one := range disks {
			if one.Number == d.Number && which(one) {
				return true
			}
		}
		return false
	}
	there := func(watchedDisk) bool { return true }
	await("a disk has come", func(_, added, _ []watchedDisk) bool { return with(there, added...) })
	online := newest(t, "disk").call("GetDiskState", fields{"disk_number": d.Number}).get("is_online").Bool()
	for range 2 {
		online = !online
		newest(t, "disk").call("SetDiskState", fields{"disk_number": d.Number, "is_online": online})
		await("its state has changed", func(_, _, changed []watchedDisk) bool {
			return with(func(one watchedDisk) bool { return one.Online != nil && *one.Online == online && one.SizeBytes == gib },
				changed...)
		})
	}
	must(t, d.Detach())
	await("it has left", func(removed, _, _ []watchedDisk) bool { return with(there, removed...) })
}
