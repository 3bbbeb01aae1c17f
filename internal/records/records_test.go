// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package records_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/records"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

const directory = `C:\Windows\csi-proxy-links`

// wantRecords looks which records there are, and whether their directory is.
func wantRecords(t *testing.T, sim *winsim.System, want ...records.Record) {
	t.Helper()
	all, err := records.Links.All(t.Context(), sim)
	simtest.Must(t, err)
	if !slices.Equal(all, want) {
		t.Errorf("there are records %v, want %v", all, want)
	}
	for _, r := range want {
		if has, err := records.Links.Has(t.Context(), sim, r.Name); err != nil || !has {
			t.Errorf("a record of %s: %v, %v", r.About, has, err)
		}
	}
	if _, err := sim.ReadDir(directory); (err == nil) != (len(want) > 0) {
		t.Errorf("the directory with %d records: %v", len(want), err)
	}
}

func TestRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, ctx := simtest.Open(t, winsim.Delays{}), t.Context()
		one := records.Record{Name: records.Name(`C:\one`), About: `C:\one`}
		wantRecords(t, sim)
		simtest.Must(t, records.Links.Drop(ctx, sim, one.Name, nil)) // there is none

		for _, first := range []bool{true, false} {
			isNew, release, err := records.Links.Make(ctx, sim, one.Name, one.About)
			simtest.Must(t, err)
			simtest.Want(t, "the record is new", isNew, first)
			simtest.Must(t, records.Links.Drop(ctx, sim, one.Name, nil))
			wantRecords(t, sim, one) // it is being made
			release()
		}
		simtest.Must(t, records.Links.Drop(ctx, sim, one.Name, func() (bool, error) { return false, nil }))
		wantRecords(t, sim, one)

		// Who makes it waits for who drops it.
		made := make(chan error)
		simtest.Must(t, records.Links.Drop(ctx, sim, one.Name, func() (bool, error) {
			go func() {
				isNew, release, err := records.Links.Make(ctx, sim, one.Name, one.About)
				if err == nil && !isNew {
					err = errors.New("the record that was dropped is there")
				}
				if err == nil {
					release()
				}
				made <- err
			}()
			time.Sleep(time.Second)
			return true, nil
		}))
		simtest.Must(t, <-made)
		wantRecords(t, sim, one)
		simtest.Must(t, records.Links.Drop(ctx, sim, one.Name, func() (bool, error) {
			return true, records.Links.Drop(ctx, sim, one.Name, nil) // another call is quicker
		}))
		wantRecords(t, sim)
	})
}

// What a maker leaves that dies half-way is no record, and is removed.
func TestHalfMade(t *testing.T) {
	sim, ctx := simtest.Open(t, winsim.Delays{}), t.Context()
	half := records.Name("half")
	simtest.Must(t, sim.MkdirAll(directory))
	simtest.Must(t, sim.WriteFile(directory+`\`+half, nil))
	if has, err := records.Links.Has(ctx, sim, half); err != nil || has {
		t.Errorf("a record half made is one: %v, %v", has, err)
	}
	wantRecords(t, sim)

	simtest.Must(t, sim.MkdirAll(directory))
	simtest.Must(t, sim.WriteFile(directory+`\`+half, nil))
	isNew, release, err := records.Links.Make(ctx, sim, half, `C:\half`)
	simtest.Must(t, err)
	release()
	if !isNew {
		t.Error("a record half made isn't made")
	}
	wantRecords(t, sim, records.Record{Name: half, About: `C:\half`})
}

// An error of Windows is no answer.
func TestErrors(t *testing.T) {
	sim, ctx := simtest.Open(t, winsim.Delays{}), t.Context()
	_, release, err := records.Links.Make(ctx, sim, "one", `C:\one`)
	simtest.Must(t, err)
	release()
	for name, f := range map[string]func() error{
		"Has":  func() error { _, err := records.Links.Has(ctx, sim, "one"); return err },
		"All":  func() error { _, err := records.Links.All(ctx, sim); return err },
		"Make": func() error { _, _, err := records.Links.Make(ctx, sim, "one", `C:\one`); return err },
		"Drop": func() error { return records.Links.Drop(ctx, sim, "one", nil) },
	} {
		simtest.Must(t, sim.Fail(winsim.Match{Call: "CreateFileW"}, win.ErrorAccessDenied))
		simtest.WantErrorOf(t, name, f(), win.ErrorAccessDenied)
		sim.ResetRules()
	}
	wantRecords(t, sim, records.Record{Name: "one", About: `C:\one`})
}
