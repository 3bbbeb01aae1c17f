// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package statefile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
)

// text is a part that keeps one text for each key.
type text map[string]string

func (p text) Save(f *File) {
	for k, v := range p {
		f.PutJSON("texts", []byte(k), v)
	}
}

func (p text) Restore(r *Reader) error {
	return r.Each("texts", func(k, v []byte) error {
		p[string(k)] = string(v)
		return nil
	})
}

var must = seamtest.Must

// wantTexts opens the file again and compares its texts.
func wantTexts(t *testing.T, path string, want text) {
	t.Helper()
	got := text{}
	f, isNew, err := Open(path, got)
	must(t, err)
	defer f.Close()
	if isNew != (len(want) == 0) {
		t.Errorf("it is new: %v", isNew)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

func TestChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, isNew, err := Open(path)
	must(t, err)
	if !isNew {
		t.Error("a file that didn't exist isn't new")
	}
	text{"a1": "x", "a2": "y", "b": "z"}.Save(f)
	must(t, f.Commit())
	f.Put("texts", []byte("b"), nil)
	f.Put("texts", []byte("missing"), nil)
	f.DeletePrefix("texts", []byte("a"))
	f.Put("texts", []byte("a3"), []byte("new"))
	if n := f.Pending(); n != 4 {
		t.Errorf("%d changes are pending", n)
	}
	must(t, f.Commit())
	f.Put("texts", []byte("lost"), []byte("not committed"))
	must(t, f.Close())
	wantTexts(t, path, text{"a3": "new"})
}

// TestFailedCommit: what couldn't be written is written the next time.
func TestFailedCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	f, _, err := Open(path)
	must(t, err)
	whole := f.db
	f.db, err = bbolt.Open(filepath.Join(t.TempDir(), "other"), 0o600, nil)
	must(t, err)
	must(t, f.db.Close())
	text{"a": "x"}.Save(f)
	if err := f.Commit(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("the error is %v", err)
	}
	f.db = whole
	text{"b": "y"}.Save(f)
	must(t, f.Commit())
	must(t, f.Close())
	wantTexts(t, path, text{"a": `"x"`, "b": `"y"`})
}

// TestCreate: a new file is a state file from its first moment, and nothing else is
// left beside it.
func TestCreate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	f, _, err := Open(path)
	must(t, err)
	must(t, f.Close()) // killed before anything was saved
	wantTexts(t, path, text{})
	entries, err := os.ReadDir(dir)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("the directory has %v", entries)
	}
	if _, _, err := Open(filepath.Join(dir, "missing", "state")); err == nil {
		t.Error("a directory was made")
	}
	must(t, create(path)) // another process was quicker
	wantTexts(t, path, text{})
}

// TestNoFile: without a path nothing is kept, nor held in memory.
func TestNoFile(t *testing.T) {
	f, isNew, err := Open("")
	must(t, err)
	text{"a": "x"}.Save(f)
	if n := f.Pending(); !isNew || n != 0 {
		t.Errorf("new: %v; %d changes are pending", isNew, n)
	}
	must(t, f.Commit())
	must(t, f.Close())
}

func TestKeys(t *testing.T) {
	keys := []string{string(Key(1)), string(Key(1, 2)), string(Key(1, 300)), string(Key(256, 0))}
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			t.Errorf("key %d sorts before the one before it", i)
		}
	}
	n, err := Numbers(Key(7, 1<<40), 2)
	if got := fmt.Sprint(n, err); got != fmt.Sprint([]uint64{7, 1 << 40}, nil) {
		t.Error(got)
	}
	if _, err := Numbers([]byte("text"), 1); err == nil {
		t.Error("a text was taken for numbers")
	}
}
