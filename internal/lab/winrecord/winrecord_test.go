// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winrecord

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

var update = flag.Bool("update", false, "write the differences that the recordings have from the simulated node")

// simDisk is a disk of the simulated node.
type simDisk struct {
	sys    *winsim.System
	number disk.Number
}

func (d simDisk) Number() disk.Number   { return d.number }
func (d simDisk) Grow(size int64) error { return d.sys.GrowDisk(d.number, size) }

// simulated plays the scenario on the simulated node. In a bubble, what happens later
// on the node happens after the same call each time.
func simulated(t *testing.T) (calls []Call) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sys := simtest.Open(t, winsim.RealisticDelays())
		if err := sys.MkdirAll(Kubelet); err != nil {
			t.Fatal(err)
		}
		number := simtest.Attach(t, sys, winsim.DiskSpec{Serial: "recorded", SizeBytes: 1 << 30})
		var b bytes.Buffer
		if err := Play(t.Context(), New(sys, &b), simDisk{sys, number}); err != nil {
			t.Fatal(err)
		}
		var err error
		if calls, err = Read(&b); err != nil {
			t.Fatal(err)
		}
	})
	return calls
}

// TestRecordings lists where the simulated node does otherwise than a system that was
// recorded by csi-proxy-wintest -record. testdata has a recording, and beside it the
// differences that are known; go test -update writes those anew, to be read.
func TestRecordings(t *testing.T) {
	recordings, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(recordings) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	sim := simulated(t)
	for _, name := range recordings {
		system := strings.TrimSuffix(filepath.Base(name), ".jsonl")
		t.Run(system, func(t *testing.T) {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			calls, err := Read(f)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(Compare(system, calls, "simulated", sim), "\n") + "\n"
			known := "testdata/" + system + ".differences"
			if *update {
				if err := os.WriteFile(known, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(known)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("other differences than the known ones (-known +now); go test -update writes them:\n%s", diff)
			}
		})
	}
}

// A recording compared with itself, or with another run, has no differences.
func TestCompareSame(t *testing.T) {
	a, b := simulated(t), simulated(t)
	if len(a) < 100 {
		t.Fatalf("the scenario makes %d calls only", len(a))
	}
	if differences := Compare("a", a, "b", b); len(differences) > 0 {
		t.Errorf("two runs differ:\n%s", strings.Join(differences, "\n"))
	}
}

func TestCompare(t *testing.T) {
	const id = `{01234567-89ab-cdef-0123-456789abcdef}`
	a := []Call{
		{Step: "s", Call: "Open", On: `\\?\Volume` + id},
		{Step: "s", Call: "Read", On: "x", Out: []byte(`{"size":3,"hex":"010203"}`)},
		{Step: "s", Call: "Close", On: "x", Error: 5},
		{Step: "s", Call: "IOCTL_DISK_GET_DRIVE_LAYOUT_EX", On: "x", Out: []byte(`{"size":2,"hex":"0102"}`)},
	}
	b := []Call{
		{Step: "other"},
		{Step: "s", Call: "Open", On: `\\?\Volume` + strings.ToUpper(strings.Replace(id, "4", "5", 1))},
		{Step: "s", Call: "Read", On: "x", Out: []byte(`{"size":3,"hex":"010204"}`)},
		{Step: "s", Call: "More", On: "x"},
		{Step: "s", Call: "Close", On: "x", Error: 6},
		{Step: "s", Call: "IOCTL_DISK_GET_DRIVE_LAYOUT_EX", On: "x", Out: []byte(`{"size":2,"hex":"0304"}`)},
	}
	want := []string{
		`s: Read x
  a: in nothing, error 0, out {"size":3,"hex":"010203"}
  b: in nothing, error 0, out {"size":3,"hex":"010204"}`,
		`s: More x
  a: no such call
  b: in nothing, error 0, out nothing`,
		`s: Close x
  a: in nothing, error 5, out nothing
  b: in nothing, error 6, out nothing`,
	}
	if diff := cmp.Diff(want, Compare("a", a, "b", b)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	sys := simtest.Open(t, winsim.Delays{})
	var b bytes.Buffer
	r := New(sys, &b)
	const hidden = "a secret of a test"
	// They fail, for lack of servers and targets.
	_ = r.CreateSMBGlobalMapping(t.Context(), `\\server\share`, win.SMBMappingOptions{Username: "user", Password: secret.New(hidden)})
	_, _ = r.LoginISCSITarget(t.Context(), win.ISCSILogin{Secret: secret.New(hidden)})
	_ = r.SetISCSIInitiatorCHAPSecret(t.Context(), secret.New(hidden))
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if calls := strings.Count(b.String(), "\n"); calls != 3 || strings.Contains(b.String(), hidden) {
		t.Errorf("%d calls are recorded, with a secret:\n%s", calls, &b)
	}
}
