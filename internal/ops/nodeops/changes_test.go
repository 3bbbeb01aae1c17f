// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// repeats are scenarios whose second run changes something: they remove what the first one
// has made, or nobody can know what was set before.
var repeats = []string{"CreateSymlink", "NewSMBGlobalMapping", "SetMutualCHAPSecret", "StageShare that is refused",
	"StageVolume of a disk of others"}

// logLines returns the messages of a log, and empties it.
func logLines(log *bytes.Buffer) (messages []string) {
	for line := range strings.Lines(log.String()) {
		_, line, _ = strings.Cut(line, `msg="`)
		message, _, _ := strings.Cut(line, `"`)
		messages = append(messages, message)
	}
	log.Reset()
	return messages
}

// A change is logged when it is made. When a scenario is run again, there is nothing left to change,
// and nothing is logged.
func TestChangesAreLoggedOnce(t *testing.T) {
	logged := make(map[string]bool)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // one of them waits for who uses a volume
				r := newRig(t)
				s.prepare(r)
				var log bytes.Buffer
				n, err := nodeops.New(r.sim, nodeops.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				r.must(err)
				simtest.Must(t, s.run(context.Background(), r, n))
				for _, message := range logLines(&log) {
					logged[message] = true
				}
				simtest.Must(t, s.again(s.run(context.Background(), r, n)))
				if again := logLines(&log); len(again) > 0 && !slices.Contains(repeats, s.name) {
					t.Errorf("a second run, which has nothing to do, logs %q", again)
				}
			})
		})
	}
	for message := range changing {
		if !logged[message] {
			t.Errorf("no scenario logs %q", message)
		}
	}
}

// changing are the calls to Windows that make the changes, by what the lines say.
var changing = map[string]string{
	"disk brought online":           win.IoctlDiskSetDiskAttributes.String(),
	"disk taken offline":            win.IoctlDiskSetDiskAttributes.String(),
	"disk made read-only":           win.IoctlDiskSetDiskAttributes.String(),
	"partition table made":          win.IoctlDiskCreateDisk.String(),
	"disk partitioned":              win.IoctlDiskSetDriveLayoutEx.String(),
	"volume formatted":              win.CallFormatVolume,
	"writers of a volume set":       win.CallSetSecurity,
	"volume repaired":               win.CallRepairVolume,
	"volume mounted":                win.CallSetVolumeMountPoint,
	"volume unmounted":              win.CallDeleteVolumeMountPoint,
	"partition grown":               win.IoctlDiskGrowPartition.String(),
	"file system grown":             win.FsctlExtendVolume.String(),
	"directory made":                win.CallOpenAt,
	"files and directories removed": win.CallDeleteFile,
	"directory removed":             win.CallDeleteFile,
	"link made":                     win.FsctlSetReparsePoint.String(),
	"link removed":                  win.CallDeleteFile,
	"mapping made":                  win.CallCreateSMBGlobalMapping,
	"mapping removed":               win.CallRemoveSMBGlobalMapping,
	"service started":               win.CallStartService,
	"service stopped":               win.CallStopService,
	"portal added":                  win.CallAddISCSIPortal,
	"portal removed":                win.CallRemoveISCSIPortal,
	"target connected":              win.CallLoginISCSITarget,
	"target disconnected":           win.CallLogoutISCSITarget,
	"persistent login removed":      win.CallRemoveISCSIPersistent,
	"mutual CHAP secret set":        win.CallSetISCSICHAPSecret,

	"disk returned to its earlier state after a refused request": win.IoctlDiskSetDiskAttributes.String(),
	"disk made writable, since it is staged no more":             win.IoctlDiskSetDiskAttributes.String(),
}

// undone are the changes of operations that have failed before: without them, an operation may end well.
var undone = map[string][]string{"StageShare that is refused": {"mapping removed"}}

// What Windows refuses is no change.
func TestRefusedChangesAreNotLogged(t *testing.T) {
	for _, s := range scenarios {
		run := func(t *testing.T, refused string) (messages []string, err error) {
			r := newRig(t)
			s.prepare(r)
			var log bytes.Buffer
			n, err := nodeops.New(r.sim, nodeops.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			r.must(err)
			if refused != "" {
				r.must(r.sim.Fail(winsim.Match{Call: refused}, winerr.ErrorIODevice))
			}
			err = s.run(context.Background(), r, n)
			return logLines(&log), err
		}
		var messages []string
		synctest.Test(t, func(t *testing.T) { messages, _ = run(t, "") })
		for _, message := range messages {
			if strings.Contains(message, "a broken mapping") || strings.HasPrefix(message, "a server has refused") {
				continue // it is no change
			}
			t.Run(s.name+"/"+message, func(t *testing.T) {
				call, ok := changing[message]
				if !ok {
					t.Fatalf("which call makes the change %q?", message)
				}
				synctest.Test(t, func(t *testing.T) {
					logged, err := run(t, call)
					if err == nil && !slices.Contains(undone[s.name], message) {
						t.Error("the operation succeeds without the change")
					}
					if slices.Contains(logged, message) {
						t.Errorf("a change that Windows has refused is logged: %q", logged)
					}
				})
			})
		}
	}
}
