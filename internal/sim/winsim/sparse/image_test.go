// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package sparse

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestAgainstSlice does random writes to an image and to a plain slice.
func TestAgainstSlice(t *testing.T) {
	const size = 10*BlockSize + 100 // the last block is cut off
	r := rand.New(rand.NewPCG(1, 2))
	m, want := New(size), make([]byte, size)
	copied := New(size)
	for range 500 {
		off := r.Int64N(size)
		p := make([]byte, r.Int64N(size-off+1))
		if r.IntN(2) == 0 {
			for i := range p {
				p[i] = byte(r.Uint32())
			}
		}
		if n, err := m.WriteAt(p, off); n != len(p) || err != nil {
			t.Fatalf("write %d at %d: %d, %v", len(p), off, n, err)
		}
		copy(want[off:], p)

		off, n := r.Int64N(size), r.Int64N(2*BlockSize)
		got := make([]byte, n)
		if read, err := m.ReadAt(got, off); read != int(min(n, size-off)) || (err != nil) != (n > size-off) ||
			!bytes.Equal(got[:read], want[off:off+int64(read)]) {
			t.Fatalf("read %d at %d: %d, %v", n, off, read, err)
		}
		for index, contents := range m.TakeChanges() {
			if contents == nil {
				delete(copied.blocks, index)
			} else if err := copied.Restore(index, contents); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := make([]byte, size)
	if _, err := copied.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the changes don't make the same image: %v", err)
	}
	for index, b := range m.blocks {
		if allZero(b[:]) {
			t.Errorf("block %d is kept but zero", index)
		}
	}
}

func TestBounds(t *testing.T) {
	m := New(BlockSize)
	for _, off := range []int64{-1, BlockSize - 1, 1 << 62} {
		if _, err := m.WriteAt([]byte{1, 2}, off); err == nil {
			t.Errorf("write at %d: no error", off)
		}
	}
	if changes := maps.Collect(m.TakeChanges()); len(changes) != 0 {
		t.Errorf("failed writes changed blocks %v", slices.Collect(maps.Keys(changes)))
	}
	if n, err := m.ReadAt(make([]byte, 2), 1<<40); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read far behind the end: %d, %v", n, err)
	}
	for _, index := range []int64{-1, 1} {
		if err := m.Restore(index, make([]byte, BlockSize)); err == nil {
			t.Errorf("restore block %d of one: no error", index)
		}
	}
	m.Grow(2 * BlockSize)
	m.Grow(1)
	if _, err := m.WriteAt([]byte{1, 2}, 2*BlockSize-2); err != nil {
		t.Errorf("write into what has grown: %v", err)
	}
}

func TestExport(t *testing.T) {
	const size = 1<<20 + 10
	m := New(size)
	for _, off := range []int64{0, 5000, size - 3} {
		if _, err := m.WriteAt([]byte("abc"), off); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), m.Export(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	if _, err := m.ReadAt(want, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file differs from the image, %v", err)
	}
}
