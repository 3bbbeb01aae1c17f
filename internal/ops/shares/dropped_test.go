// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// The mapping of another share that is broken, and has made way, may be missing after an error.
func TestErrorAtEachCall(t *testing.T) {
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	changed := csiproxy.SMBCredentials{Username: alice.Username, Password: csiproxy.NewSecret("changed")}
	newPassword := func(sys *winsim.System) error {
		return sys.SMB().SetUser("server", alice.Username, changed.Password)
	}
	unlink := func(sys *winsim.System) error { return sys.Remove(stage) }
	linkToLink := func(sys *winsim.System) error {
		must(t, sys.MkdirAll(stage+`\sub`))
		return sys.Symlink(stage+"3", stage+`\sub`, true)
	}
	directory := func(sys *winsim.System) error { return sys.MkdirAll(stage) }
	type step = func(context.Context, *shares.Mappings, *winsim.System) (any, error)
	staged := func(local string, c csiproxy.SMBCredentials) step {
		return func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
			w, err := m.Parse(`\\server\data`, local, c)
			must(t, err)
			w.Staging = true
			return nil, m.Map(ctx, w)
		}
	}
	mapping := func(remote, local string, c csiproxy.SMBCredentials) step {
		return func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
			return nil, m.NewSMBGlobalMapping(ctx, remote, local, c)
		}
	}
	unmapped := func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
		err := m.RemoveSMBGlobalMapping(ctx, `\\server\data`)
		if err != nil && strings.Contains(err.Error(), "the share isn't mapped") {
			return nil, nil // the attempt before has removed it
		}
		if mappings, _ := m.Mapped(context.WithoutCancel(ctx)); err == nil && len(mappings) > 0 {
			err = simtest.ErrUnknown // the links, so it stays
		}
		return nil, err
	}
	kept := func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
		return nil, m.RemoveSMBGlobalMapping(ctx, `\\server\data`)
	}
	unmappedLater := func(ctx context.Context, m *shares.Mappings, sys *winsim.System) (any, error) {
		if _, err := kept(ctx, m, sys); err != nil && !strings.Contains(err.Error(), "the share isn't mapped") {
			return nil, err
		}
		for _, local := range []string{stage, stage + "2"} {
			if err := sys.Remove(local); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			m.RemoveMappingAfterLastLink(ctx, data)
		}
		if mappings, err := m.Mapped(ctx); err != nil || len(mappings) > 0 {
			return nil, errors.Join(simtest.ErrUnknown, err) // the links, so it stays
		}
		return nil, nil
	}
	removeUnused := func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
		r, err := m.LockForRemoval(ctx, data)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		links, err := m.LinksToShare(ctx, r.Share)
		if err != nil {
			return nil, err
		}
		return m.RemoveUnused(ctx, r, links)
	}
	links := func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
		r, err := m.LockForRemoval(ctx, data)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		links, err := m.LinksToShare(ctx, r.Share)
		return links.Paths(), errors.Join(err, links.Incomplete)
	}
	describe := func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
		d, err := m.Describe(ctx, data)
		if err == nil && len(d.Conditions) > 0 {
			err = errors.New(d.Conditions[0].Message)
		}
		return d, err
	}
	list := func(ctx context.Context, m *shares.Mappings, _ *winsim.System) (any, error) {
		mappings, err := m.Mapped(ctx)
		return names(mappings), err
	}
	stageIt, stageSecond := staged(stage, alice), staged(stage+"2", alice)
	mapIt, mapOnly, mapLogs := mapping(`\\server\data`, stage, alice), mapping(`\\server\data`, "", alice),
		mapping(`\\server\logs`, "", alice)
	mapChanged := mapping(`\\server\data`, stage, changed)
	const linked = `<nil>: mapped ours \\server\data\`
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, test := range map[string]struct {
		before  []step // by an earlier process, unless same is set
		same    bool
		prepare func(*winsim.System) error
		run     step
		want    string
	}{
		"map a directory":       {run: mapping(`\\server\data\sub`, stage, alice), want: linked + `sub\`},
		"map without a link":    {run: mapOnly, want: "<nil>: mapped"},
		"map again":             {before: []step{mapIt}, run: mapIt, want: linked},
		"map with new password": {before: []step{mapIt}, same: true, prepare: newPassword, run: mapChanged, want: linked},
		"map beside a broken one": {before: []step{mapLogs}, same: true, prepare: newPassword, want: linked,
			run: func(ctx context.Context, m *shares.Mappings, sys *winsim.System) (any, error) {
				_, err := mapChanged(ctx, m, sys)
				if errors.Is(err, winerr.ErrorSessionCredentialConflict) { // the other one may work, for all that is known
					err = fmt.Errorf("%w: %w", simtest.ErrUnknown, err)
				}
				return nil, err
			}},
		"stage":                    {run: stageIt, want: linked},
		"stage at a directory":     {prepare: directory, run: stageIt, want: linked},
		"stage again":              {before: []step{stageIt}, same: true, run: stageIt, want: linked},
		"stage after a restart":    {before: []step{stageIt}, run: stageIt, want: linked},
		"stage what was staged":    {before: []step{stageIt}, prepare: unlink, run: stageIt, want: linked},
		"unmap":                    {before: []step{mapOnly}, run: unmapped, want: "<nil>: "},
		"unmap what has two links": {before: []step{stageIt, stageSecond}, run: kept, want: linked},
		"unmap, and unlink":        {before: []step{stageIt, stageSecond}, run: unmappedLater, want: "<nil>: "},
		"remove what is unused":    {before: []step{stageIt}, prepare: unlink, run: removeUnused, want: "true: "},
		"remove what is used":      {before: []step{stageIt}, run: removeUnused, want: "false" + linked[len("<nil>"):]},
		"remove what isn't ours":   {before: []step{mapOnly}, run: removeUnused, want: "false: mapped"},
		"describe":                 {before: []step{stageIt}, run: describe},
		"list":                     {before: []step{stageIt}, run: list, want: `\\server\data` + linked[len("<nil>"):]},
		"links": {before: []step{stageIt}, prepare: linkToLink, run: links,
			want: "[" + stage + " " + stage + "3]" + linked[len("<nil>"):]},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			sys, m := newNode(t)
			for _, do := range test.before {
				_, err := do(t.Context(), m, sys)
				must(t, err)
			}
			if test.prepare != nil {
				must(t, test.prepare(sys))
			}
			if !test.same {
				m = newMappings(t, sys, shares.Options{})
			}
			return simtest.Attempt{
				Sys: sys, Want: test.want, Did: regexp.MustCompile(`^(true|false)$`), // whether a mapping was removed
				Run: func(ctx context.Context) (any, error) { return test.run(ctx, m, sys) },
				State: func() any {
					var words []string
					if strings.Contains(mapped(t, sys), `\\server\data`) {
						words = append(words, "mapped")
					}
					m := newMappings(t, sys, shares.Options{})
					_, err := m.Mapped(t.Context()) // which drops records that are stale
					must(t, err)
					ours, err := m.IsUnused(t.Context(), data)
					must(t, err)
					if ours {
						words = append(words, "ours")
					}
					if target, err := sys.ReadLink(stage); err == nil {
						words = append(words, target)
					}
					return strings.Join(words, " ")
				},
			}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}

// What is known of a share, and what is wrong with it.
func TestDescribe(t *testing.T) {
	sys, m := newNode(t)
	data, err := win.ParseUNC(`\\server\data\sub`)
	must(t, err)
	is := func(reason csiproxy.Reason) csiproxy.Volume {
		t.Helper()
		d, err := m.Describe(t.Context(), data)
		must(t, err)
		if d.Share != `\\server\data` || reason == "" && len(d.Conditions) > 0 ||
			reason != "" && (len(d.Conditions) != 1 || d.Conditions[0].Reason != reason || d.Conditions[0].Message == "") {
			t.Errorf("%+v, want the condition %q", d, reason)
		}
		return d
	}
	is(csiproxy.ReasonShareNotMapped)
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
	if d := is(""); d.SizeBytes == 0 || d.FreeBytes == 0 || d.UsedBytes == 0 || d.UsedBytes+d.FreeBytes > d.SizeBytes {
		t.Errorf("%+v", d)
	}
	for _, test := range []struct {
		number winerr.Errno
		reason csiproxy.Reason
	}{
		{winerr.ErrorBadNetPath, csiproxy.ReasonShareUnreachable}, {winerr.ErrorAccessDenied, csiproxy.ReasonShareRefused},
		{winerr.ErrorLogonFailure, csiproxy.ReasonShareRefused}, // which is remembered, so it comes last
	} {
		must(t, sys.Fail(winsim.Match{Call: probe}, test.number))
		is(test.reason)
		sys.ResetRules()
	}
}

// A staging that fails takes away the mapping that it has made, and its record, and no other one.
func TestFailedStagingIsUndone(t *testing.T) {
	sys, m := newNode(t)
	w, err := m.Parse(`\\server\data\missing`, stage, alice)
	must(t, err)
	w.Staging = true
	want(t, m.Map(t.Context(), w), csiproxy.ErrNotFound)
	simtest.Want(t, "mapped", mapped(t, sys), "")
	wantNoRecord(t, sys)
	must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
	must(t, sys.Remove(stage))
	want(t, m.Map(t.Context(), w), csiproxy.ErrNotFound)
	simtest.Want(t, "mapped before", mapped(t, sys), `\\server\data`)
}

const records = `C:\Windows\csi-proxy-mappings`

func wantNoRecord(t *testing.T, sys *winsim.System) {
	t.Helper()
	if left, err := sys.ReadDir(records); err != nil && !errors.Is(err, fs.ErrNotExist) || len(left) > 0 {
		t.Errorf("records are left: %v, %v", left, err)
	}
}

// Nothing is recorded of a mapping that wasn't made, and of one that somebody else has made, though
// CSI Proxy makes that again when it fails for everybody: it isn't removed with the last link.
func TestNoRecordOfMappingsOfOthers(t *testing.T) {
	changed := csiproxy.SMBCredentials{Username: alice.Username, Password: csiproxy.NewSecret("changed")}
	for name, do := range map[string]func(sys *winsim.System, m *shares.Mappings){
		"not made": func(sys *winsim.System, m *shares.Mappings) {
			want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, changed), csiproxy.ErrUnauthenticated)
		},
		"an administrator's is made again": func(sys *winsim.System, m *shares.Mappings) {
			must(t, sys.CreateSMBGlobalMapping(t.Context(), `\\server\data`,
				win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}))
			must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
			changes := counted(sys, remove, create)
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, changed))
			simtest.Want(t, "calls to remove and create", changes(), []int{1, 1})
		},
		"one without a link is made again beside another one": func(sys *winsim.System, m *shares.Mappings) {
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice))
			must(t, sys.SMB().SetUser("server", alice.Username, changed.Password))
			changes := counted(sys, remove, create)
			must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\logs`, stage, changed))
			simtest.Want(t, "calls to remove and create", changes(), []int{1, 3}) // the first one is refused
		},
	} {
		t.Run(name, func(t *testing.T) {
			sys, m := newNode(t)
			do(sys, m)
			data, err := win.ParseUNC(`\\server\data`)
			must(t, err)
			if unused, err := m.IsUnused(t.Context(), data); unused || err != nil {
				t.Errorf("it goes with the last link: %t, %v", unused, err)
			}
		})
	}
}

// A record that can't be dropped is an error: the mapping would be removed for others later.
func TestRecordIsNotDropped(t *testing.T) {
	for name, do := range map[string]func(sys *winsim.System, m *shares.Mappings) error{
		"mapped by a driver": func(_ *winsim.System, m *shares.Mappings) error {
			return m.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", alice)
		},
		"unmapped by a driver": func(sys *winsim.System, m *shares.Mappings) error {
			must(t, sys.Remove(stage))
			return m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`)
		},
	} {
		sys, m := newNode(t)
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice))
		must(t, sys.Fail(winsim.Match{Call: "CreateFileW", Object: `csi-proxy-mappings\`}, winerr.ErrorAccessDenied))
		simtest.WantErrorOf(t, name, do(sys, m), winerr.ErrorAccessDenied)
	}
}

// A mapping that can't be removed with its last link stays one that CSI Proxy has made.
func TestLastUnmapFails(t *testing.T) {
	sys, m := newNode(t)
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	for _, local := range []string{stage, stage + "2"} {
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, local, alice))
	}
	must(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`)) // it stays for the links
	must(t, sys.Fail(winsim.Match{Call: remove}, winerr.ErrorIODevice))
	for _, local := range []string{stage, stage + "2"} {
		must(t, sys.Remove(local))
		m.RemoveMappingAfterLastLink(t.Context(), data)
	}
	if unused, err := m.IsUnused(t.Context(), data); !unused || err != nil || mapped(t, sys) == "" {
		t.Errorf("%t, %v", unused, err)
	}
}

// A mapping that links have kept goes with the last one, and its record. The request ends with the
// mapping, and if the share is asked for again.
func TestMappingGoesWithTheLastLink(t *testing.T) {
	sys, m := newNode(t)
	data, err := win.ParseUNC(`\\server\data`)
	must(t, err)
	is := func(when, want string) {
		t.Helper()
		simtest.Want(t, "mapped "+when, mapped(t, sys), want)
	}
	unlink := func(local string) {
		must(t, sys.Remove(local))
		m.RemoveMappingAfterLastLink(t.Context(), data)
	}
	for _, local := range []string{stage, stage + "2"} {
		must(t, m.NewSMBGlobalMapping(t.Context(), data.Root(), local, alice))
	}
	must(t, m.RemoveSMBGlobalMapping(t.Context(), data.Root()))
	unlink(stage)
	is("with one link", data.Root())
	unlink(stage + "2")
	is("without a link", "")
	wantNoRecord(t, sys)
	for range 2 {
		must(t, m.RemoveSMBGlobalMapping(t.Context(), data.Root())) // as was asked
	}

	// The driver removes the link without the daemon, asks again, and so ends its request. Then an
	// administrator maps the share.
	must(t, m.NewSMBGlobalMapping(t.Context(), data.Root(), stage, alice))
	must(t, m.RemoveSMBGlobalMapping(t.Context(), data.Root()))
	must(t, sys.Remove(stage))
	must(t, m.RemoveSMBGlobalMapping(t.Context(), data.Root()))
	is("after it was asked again", "")
	want(t, m.RemoveSMBGlobalMapping(t.Context(), data.Root()), csiproxy.ErrNotFound)
	must(t, sys.CreateSMBGlobalMapping(t.Context(), data.Root(),
		win.SMBMappingOptions{Username: alice.Username, Password: alice.Password}))
	m.RemoveMappingAfterLastLink(t.Context(), data)
	is("by an administrator", data.Root())
	must(t, sys.Symlink(stage, data.Root()+`\`, true))
	must(t, m.RemoveSMBGlobalMapping(t.Context(), data.Root()))
	must(t, sys.Remove(stage))
	r, err := m.LockForRemoval(t.Context(), data)
	must(t, err)
	removed, err := m.RemoveUnused(t.Context(), r, shares.ShareLinks{})
	r.Release()
	if !removed || err != nil {
		t.Errorf("an administrator's, whose removal was asked for: %t, %v", removed, err)
	}
	must(t, m.RemoveSMBGlobalMapping(t.Context(), data.Root())) // as was asked
}

// Others remove the mapping whenever it is there.
func TestMappingIsAlwaysRemoved(t *testing.T) {
	sys, m := newNode(t)
	made := 0
	there := false
	sys.OnCall(func(c winsim.Call) {
		switch {
		case c.Name == create:
			made++
			there = true
		case c.Name == list && there:
			there = false // before the call, which comes by here too
			must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
		}
	})
	want(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, stage, alice), csiproxy.ErrUnavailable)
	simtest.Want(t, "creations", made, 4)
}

// Who asks for the removal of a mapping that others have removed is told, also if links are left.
func TestUnmapWhatIsNotMapped(t *testing.T) {
	sys, m := newNode(t)
	for _, local := range []string{stage, stage + "2"} {
		must(t, m.NewSMBGlobalMapping(t.Context(), `\\server\data`, local, alice))
	}
	must(t, sys.RemoveSMBGlobalMapping(t.Context(), `\\server\data`))
	want(t, m.RemoveSMBGlobalMapping(t.Context(), `\\server\data`), csiproxy.ErrNotFound)
}
