// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// A driver keeps its connections for months, while the daemon is stopped, started,
// restarted and crashes. The node goes on each time where it was.
func TestLifeOfService(t *testing.T) {
	s := installSimulated(t)
	s.start()
	disks, volumes, files := newest(t, "disk"), newest(t, "volume"), newest(t, "filesystem")
	disk := attach(t)
	disks.call("PartitionDisk", fields{"disk_number": disk})
	id := volumes.call("ListVolumesOnDisk", fields{"disk_number": disk}).texts("volume_ids")[0]
	volumes.call("FormatVolume", fields{"volume_id": id})
	const path = kubeletPath + `\kept`
	volumes.call("MountVolume", fields{"volume_id": id, "target_path": path})

	for _, end := range []struct {
		name string
		end  func()
	}{
		{"stop", func() {
			process := s.process()
			defer windows.CloseHandle(process)
			s.stop()
			// The published daemon's process outlives its stop, with the pipes.
			must(t, processEnds(process))
			if _, err := winio.DialPipe(pipePath("disk", "v1"), nil); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("after the stop dialling the pipe gives %v", err)
			}
		}},
		{"stop again", s.stop},
		{"crash", func() { must(t, s.kill()) }},
		{"crash again", func() { must(t, s.kill()) }},
	} {
		end.end()
		s.start()
		if got := volumes.call("GetVolumeIDFromTargetPath",
			fields{"target_path": path}).get("volume_id").String(); got != id {
			t.Errorf("after the %s at the mount point is %q, want %s", end.name, got, id)
		}
		if got := disks.call("ListDiskIDs", nil).ofDisk("diskIDs", disk); len(got) == 0 {
			t.Errorf("after the %s the disk isn't listed", end.name)
		}
		files.call("Mkdir", fields{"path": kubeletPath + `\` + end.name})
	}
}

// The manager starts a daemon that has crashed again, if it is told to.
func TestRecovery(t *testing.T) {
	notOnWine(t, "its service manager ignores recovery actions")
	s := installSimulated(t)
	must(t, s.SetRecoveryActions([]mgr.RecoveryAction{{Type: mgr.ServiceRestart}}, 0))
	t.Cleanup(func() { // before the service is removed, or the manager starts it once more
		if err := s.ResetRecoveryActions(); err != nil {
			t.Error(err)
		}
	})
	s.start()
	disks := newest(t, "disk")
	first, err := s.Query()
	must(t, err)
	before := s.process()
	defer windows.CloseHandle(before)
	must(t, windows.TerminateProcess(before, 1))
	must(t, processEnds(before))
	if !eventually(func() bool {
		now, err := s.Query()
		return err == nil && now.State == svc.Running && now.ProcessId != first.ProcessId
	}) {
		t.Fatal("the manager doesn't start the service again")
	}
	disks.call("ListDiskIDs", nil)
}

// Each client of the published packages leaves a connection behind that never sends a byte. The
// daemon closes it, and its client works on. Hundreds of them harm nobody, are no fault that a log
// would tell of, and don't keep the daemon from ending.
func TestSilentConnections(t *testing.T) {
	s := installSimulated(t)
	s.start()
	const many = 200
	first := newest(t, "disk")
	for range many {
		newest(t, "disk").call("ListDiskIDs", nil)
	}
	closed := silentConnection(t)
	if _, err := io.Copy(io.Discard, closed); err != nil { // until the daemon closes it
		t.Errorf("a silent connection ends with %v, want its end", err)
	}
	first.call("ListDiskIDs", nil)
	silent := silentConnection(t)
	process := s.process()
	defer windows.CloseHandle(process)
	s.stop()
	must(t, processEnds(process))
	if _, err := io.Copy(io.Discard, silent); err != nil {
		t.Errorf("after the daemon's end a silent connection ends with %v, want its end", err)
	}
	if lines := strings.Count(s.written(), "\n"); lines >= many {
		t.Errorf("the daemon logs %d lines about %d connections", lines, many)
	}
}

func silentConnection(t *testing.T) net.Conn {
	t.Helper()
	c, err := winio.DialPipe(pipePath("disk", "v1"), nil)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	must(t, c.SetReadDeadline(time.Now().Add(patience)))
	return c
}

// A second daemon takes nothing from the one that serves, and says which process that is.
func TestSecondDaemon(t *testing.T) {
	s := installSimulated(t)
	s.start()
	disks := newest(t, "disk")
	disks.call("ListDiskIDs", nil)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, err := s.Query()
	must(t, err)
	out, err := exec.CommandContext(ctx, simProgram).CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 ||
		!strings.Contains(string(out), fmt.Sprintf("in use by another process: process %d", first.ProcessId)) {
		t.Errorf("the second daemon ends with %v, want exit code 1 and process %d:\n%s", err, first.ProcessId, out)
	}
	disks.call("ListDiskIDs", nil)
	newest(t, "disk").call("ListDiskIDs", nil)
}
