// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// ours reports whether a process that has just started knows the mapping of data as one that goes
// with the last link.
func ours(t *testing.T, sys *winsim.System) bool {
	t.Helper()
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	is, err := newMappings(t, sys, shares.Options{}).IsUnused(t.Context(), data)
	must(t, err)
	return is
}

// A record outlives the process, not the mapping.
func TestRecord(t *testing.T) {
	sys, m := newNode(t)
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\SERVER\Data\sub`, stage, alice))
	if !ours(t, sys) {
		t.Error("the mapping has no record")
	}
	must(t, sys.Reboot())
	_, err := m.Mapped(t.Context())
	must(t, err)
	wantNoRecord(t, sys)
	must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`,
		win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}))
	if ours(t, sys) {
		t.Error("an administrator's mapping has a record")
	}
}

// Whatever is where records are made, and is none, is no record. It is named in the log and left
// where it is, and mappings are made, listed and removed beside it.
func TestWhatIsNoRecord(t *testing.T) {
	for name, place := range map[string]func(sys *winsim.System, path string) error{
		"a directory":           func(sys *winsim.System, path string) error { return sys.MkdirAll(path + `\sub`) },
		"a link":                func(sys *winsim.System, path string) error { return sys.Symlink(path, `\\server\data`, false) },
		"a link to a directory": func(sys *winsim.System, path string) error { return sys.Symlink(path, `C:\none`, true) },
		"another letter case":   func(sys *winsim.System, path string) error { return sys.WriteFile(records+`\none+Data`, nil) },
		"a file without a plus": func(sys *winsim.System, path string) error { return sys.WriteFile(records+`\none`, nil) },
		"no name of a server":   func(sys *winsim.System, path string) error { return sys.WriteFile(records+`\a b+c`, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			sys, _ := newNode(t)
			must(t, sys.MkdirAll(records))
			must(t, place(sys, records+`\server+data`))
			must(t, sys.WriteFile(records+`\other`, nil)) // all are named
			before, err := sys.ReadDir(records)
			must(t, err)
			log := new(bytes.Buffer)
			m := newMappings(t, sys, shares.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
			if ours(t, sys) {
				t.Error("it counts as a record")
			}
			foreign, err := shares.ForeignRecords(t.Context(), sys)
			must(t, err)
			simtest.Want(t, "foreign", foreign, []string{records + `\` + before[0].Name, records + `\` + before[1].Name})
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
			_, err = m.Mapped(t.Context())
			must(t, err)
			if !strings.Contains(log.String(), "count=2") || !strings.Contains(log.String(), before[0].Name) {
				t.Errorf("the log doesn't name %s:\n%s", before[0].Name, log)
			}
			must(t, sys.Remove(stage))
			must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
			simtest.Want(t, "mapped", mapped(t, sys), "")
			_, err = m.Mapped(t.Context())
			must(t, err)
			after, err := sys.ReadDir(records)
			must(t, err)
			simtest.Want(t, "the directory of the records", after, before)
		})
	}
}

// A file in the place of the directory keeps no mapping from being listed and removed.
func TestNoDirectoryOfRecords(t *testing.T) {
	sys, m := newNode(t)
	must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`,
		win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}))
	must(t, sys.WriteFile(records, []byte("x")))
	simtest.WantErrorOf(t, "a mapping that can't be recorded",
		m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, stage, alice), winerr.ErrorDirectory, records)
	simtest.Want(t, "mapped", mapped(t, sys), `\\server\data`)
	if ours(t, sys) {
		t.Error("the mapping has a record")
	}
	_, err := m.Mapped(t.Context())
	must(t, err)
	must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
}

// An error of Windows is no answer.
func TestErrorsOfRecords(t *testing.T) {
	sys, m := newNode(t)
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	must(t, sys.Fail(winsim.Match{Call: "CreateFileW", Object: records}, winerr.ErrorAccessDenied))
	_, err = m.IsUnused(t.Context(), data)
	simtest.WantErrorOf(t, "whether it is unused", err, winerr.ErrorAccessDenied, records)
	sys.ResetRules()
	if !ours(t, sys) {
		t.Error("the record is gone")
	}
}

// late is a node that doesn't list any mapping for the first two times.
type late struct {
	*winsim.System
	lists *int
}

func (l late) SMBGlobalMappings(ctx context.Context) ([]win.SMBMapping, error) {
	if *l.lists++; *l.lists <= 2 {
		return nil, nil
	}
	return l.System.SMBGlobalMappings(ctx)
}

// A mapping that another process makes meanwhile keeps its record.
func TestRecordOfAnotherProcess(t *testing.T) {
	sys, m := newNode(t)
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
	again := newMappings(t, late{sys, new(int)}, shares.Options{})
	must(t, again.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage+"2", alice))
	if !ours(t, sys) {
		t.Error("the mapping has no record")
	}
}
