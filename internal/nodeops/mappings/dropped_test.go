// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/nodeops/mappings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
)

// The mapping of another share that is broken, and has made way, may be missing after an error.
func TestNoErrorIsDropped(t *testing.T) {
	data, err := unc.Parse(`\\server\data`)
	must(t, err)
	changed := smb.Credentials{Username: alice.Username, Password: secret.New("changed")}
	newPassword := func(sys *winsim.System) error {
		return sys.SMB().SetUser("server", alice.Username, changed.Password)
	}
	unlink := func(sys *winsim.System) error { return sys.Remove(stage) }
	directory := func(sys *winsim.System) error { return sys.MkdirAll(stage) }
	type step = func(context.Context, *mappings.Mappings) (any, error)
	staged := func(local string, c smb.Credentials) step {
		return func(ctx context.Context, m *mappings.Mappings) (any, error) {
			w, err := m.Parse(`\\server\data`, local, c)
			must(t, err)
			w.Staging = true
			return nil, m.Map(ctx, w)
		}
	}
	mapping := func(remote, local string, c smb.Credentials) step {
		return func(ctx context.Context, m *mappings.Mappings) (any, error) {
			return nil, m.NewSMBGlobalMapping(ctx, remote, local, c)
		}
	}
	unmapped := func(ctx context.Context, m *mappings.Mappings) (any, error) {
		err := m.RemoveSMBGlobalMapping(ctx, `\\server\data`)
		if err != nil && strings.Contains(err.Error(), "the share isn't mapped") {
			return nil, nil // the attempt before has removed it
		}
		if mappings, _ := m.Roots(context.WithoutCancel(ctx)); err == nil && len(mappings) > 0 {
			err = simtest.ErrUnknown // the links, so it stays
		}
		return nil, err
	}
	kept := func(ctx context.Context, m *mappings.Mappings) (any, error) {
		return nil, m.RemoveSMBGlobalMapping(ctx, `\\server\data`)
	}
	removeUnused := func(ctx context.Context, m *mappings.Mappings) (any, error) {
		_, r, err := m.Rights(ctx, data)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		links, err := m.LinksTo(ctx, r.Share)
		if err != nil {
			return nil, err
		}
		return m.RemoveUnused(ctx, r, links)
	}
	links := func(ctx context.Context, m *mappings.Mappings) (any, error) {
		_, r, err := m.Rights(ctx, data)
		if err != nil {
			return nil, err
		}
		defer r.Release()
		links, err := m.LinksTo(ctx, r.Share)
		return links.Paths(), errors.Join(err, links.Incomplete)
	}
	describe := func(ctx context.Context, m *mappings.Mappings) (any, error) {
		d, err := m.Describe(ctx, data)
		if err == nil && len(d.Conditions) > 0 {
			err = errors.New(d.Conditions[0].Message)
		}
		return d, err
	}
	list := func(ctx context.Context, m *mappings.Mappings) (any, error) { return m.Roots(ctx) }
	stageIt, stageSecond := staged(stage, alice), staged(stage+"2", alice)
	mapIt, mapOnly, mapLogs := mapping(`\\server\data`, stage, alice), mapping(`\\server\data`, "", alice),
		mapping(`\\server\logs`, "", alice)
	mapChanged := mapping(`\\server\data`, stage, changed)
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, test := range map[string]struct {
		before  []step // by an earlier process, unless same is set
		same    bool
		prepare func(*winsim.System) error
		run     step
	}{
		"map a directory":           {run: mapping(`\\server\data\sub`, stage, alice)},
		"map without a link":        {run: mapOnly},
		"map again":                 {before: []step{mapIt}, run: mapIt},
		"map with another password": {before: []step{mapIt}, same: true, prepare: newPassword, run: mapChanged},
		"map beside a broken one":   {before: []step{mapLogs}, same: true, prepare: newPassword, run: mapChanged},
		"stage":                     {run: stageIt},
		"stage at a directory":      {prepare: directory, run: stageIt},
		"stage again":               {before: []step{stageIt}, same: true, run: stageIt},
		"stage after a restart":     {before: []step{stageIt}, run: stageIt},
		"stage what was staged":     {before: []step{stageIt}, prepare: unlink, run: stageIt},
		"unmap":                     {before: []step{mapOnly}, run: unmapped},
		"unmap what has two links":  {before: []step{stageIt, stageSecond}, run: kept},
		"remove what is unused":     {before: []step{stageIt}, prepare: unlink, run: removeUnused},
		"remove what is used":       {before: []step{stageIt}, run: removeUnused},
		"remove what isn't ours":    {before: []step{mapOnly}, run: removeUnused},
		"describe":                  {before: []step{stageIt}, run: describe},
		"list":                      {before: []step{stageIt}, run: list},
		"links":                     {before: []step{stageIt}, run: links},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			sys := newNode(t)
			m := newMappings(t, sys, mappings.Options{})
			for _, do := range test.before {
				_, err := do(t.Context(), m)
				must(t, err)
			}
			if test.prepare != nil {
				must(t, test.prepare(sys))
			}
			if !test.same {
				m = newMappings(t, sys, mappings.Options{})
			}
			return simtest.Attempt{
				Sys: sys,
				Run: func(ctx context.Context) (any, error) { return test.run(ctx, m) },
				State: func() any {
					m := newMappings(t, sys, mappings.Options{})
					_, err := m.Roots(t.Context()) // which drops records that are stale
					must(t, err)
					ours, err := m.IsUnused(t.Context(), data)
					must(t, err)
					target, err := sys.ReadLink(stage)
					return fmt.Sprint(strings.Contains(mapped(t, sys), `\\server\data`), ours, target, err)
				},
			}
		}
	}
	simtest.NoErrorIsDropped(t, operations)
}
