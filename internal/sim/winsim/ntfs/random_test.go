// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package ntfs

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// checkInvariants looks at everything that must hold between two calls.
func checkInvariants(t *testing.T, f *FS) {
	t.Helper()
	reachable := map[uint64]bool{}
	var data int64
	var visit func(n *Node)
	visit = func(n *Node) {
		if reachable[n.id] {
			t.Fatalf("%s is reached twice", n.Path())
		}
		reachable[n.id] = true
		data += f.roundUp(n.Size())
		switch {
		case f.nodes[n.id] != n:
			t.Fatalf("%s isn't among the nodes", n.Path())
		case n.gone:
			t.Fatalf("%s is deleted and has a name", n.Path())
		case n.Info().IsReparsePoint() != (n.reparse != nil):
			t.Fatalf("%s: attributes %x, reparse data %x", n.Path(), n.attributes, n.reparse)
		case len(n.children) > 0 && (n.reparse != nil || !n.isDir()):
			t.Fatalf("%s has entries and is no plain directory", n.Path())
		}
		for i, c := range n.children {
			if c.parent != n {
				t.Fatalf("%s: the entry %s has another parent", n.Path(), c.name)
			}
			if i > 0 && win.UpperName(n.children[i-1].name) >= win.UpperName(c.name) {
				t.Fatalf("%s: %s stands before %s", n.Path(), n.children[i-1].name, c.name)
			}
			visit(c)
		}
	}
	visit(f.root)
	if len(reachable) != len(f.nodes) {
		t.Fatalf("%d nodes, %d reachable", len(f.nodes), len(reachable))
	}
	if data != f.data {
		t.Fatalf("contents take %d bytes, counted are %d", data, f.data)
	}
	if f.Used() > f.capacity {
		t.Fatalf("%d of %d bytes used", f.Used(), f.capacity)
	}
}

// dump is all that must survive a restart.
func dump(f *FS) map[string]any {
	d := map[string]any{"capacity": f.Capacity(), "cluster": f.ClusterSize(), "used": f.Used(), "next": f.nextID}
	for _, n := range f.nodes {
		d[fmt.Sprintf("%d %s", n.id, n.Path())] = fmt.Sprint(n.attributes, n.private, n.access, n.owner, n.reparse,
			string(n.contents), n.unflushed, string(n.durable))
	}
	return d
}

// runRandom does operations that the bytes of script choose, and checks after
// each that all that must hold does, and that a store that has been given all
// changes restores to the same file system.
func runRandom(t *testing.T, script []byte) {
	f := New(4*mebi, 0)
	store := map[uint64][]byte{}
	var handles []*Handle
	next := func() int {
		if len(script) == 0 {
			return 0
		}
		b := script[0]
		script = script[1:]
		return int(b)
	}
	for step := 0; len(script) > 0 && step < 500; step++ {
		var h *Handle
		if len(handles) > 0 {
			h = handles[next()%len(handles)]
		}
		switch op := next() % 12; {
		case op < 4 || h == nil: // open or create
			dir := f.root
			if h != nil && next()%2 == 0 {
				dir = h.Node()
			}
			if len(dir.children) > 0 && next()%2 == 0 {
				dir = dir.children[next()%len(dir.children)]
			}
			o := win.OpenOptions{
				Access: []win.Access{win.GenericRead, win.GenericWrite, win.Delete,
					win.FileWriteAttributes}[next()%4] | win.Access(next()&1)*win.Delete,
				Share:       win.Share(next()) & shareAll,
				Disposition: win.Disposition(next()%3 + 1),
				Options: []win.CreateOptions{0, win.FileDirectoryFile,
					win.FileNonDirectoryFile}[next()%3] | win.CreateOptions(next()&1)*win.FileOpenReparsePoint,
			}
			if opened, _, err := f.Open(dir, string("aAbB"[next()%4]), o); err == nil {
				handles = append(handles, opened)
			}
		case op == 4:
			h.Close()
			handles = slices.DeleteFunc(handles, func(other *Handle) bool { return other == h })
		case op == 5:
			_ = h.Delete()
		case op == 6:
			_ = h.Rename(handles[next()%len(handles)].Node(), string("aAbB"[next()%4]), next()%2 == 0)
		case op == 7:
			reparse := []win.ReparsePoint{win.NewJunction(`C:\x`), win.NewSymlink("x")}[next()%2].Encode()
			if next()%2 == 0 {
				_ = h.SetReparse(reparse)
			} else {
				_ = h.DeleteReparse(header0(reparse))
			}
		case op == 8:
			_ = h.SetContents(make([]byte, next()))
		case op == 9:
			_ = h.SetContents(make([]byte, next()<<(next()%8)))
		case op == 10:
			_ = h.SetAttributes(win.FileAttributes(next()))
		case op == 11:
			switch next() % 3 {
			case 0:
				_ = h.Flush()
			case 1:
				f.DropUnflushed()
			case 2:
				f.Extend(f.Capacity() + int64(next())*1000)
			}
		}
		if len(handles) != f.Handles() {
			t.Fatalf("%d handles, counted are %d", len(handles), f.Handles())
		}
		checkInvariants(t, f)

		for _, r := range f.TakeChanges() {
			if r.Data == nil {
				delete(store, r.ID)
			} else {
				store[r.ID] = r.Data
			}
		}
		if step%16 == 0 || len(script) == 0 {
			var records []Record
			for id, data := range store {
				records = append(records, Record{id, data})
			}
			restored, err := Restore(records)
			must(t, err)
			checkInvariants(t, restored)
			if diff := cmp.Diff(dump(f), dump(restored)); diff != "" {
				t.Fatal(diff)
			}
			if changes := restored.TakeChanges(); len(changes) != 0 {
				t.Fatalf("changes after restoring: %v", changes)
			}
		}
	}
}

func TestRandomOperations(t *testing.T) {
	for seed := range uint64(200) {
		script := make([]byte, 1200)
		state := seed*2862933555777941757 + 3037000493
		for i := range script {
			state = state*6364136223846793005 + 1442695040888963407
			script[i] = byte(state >> 56)
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runRandom(t, script) })
	}
}

func FuzzOperations(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Fuzz(runRandom)
}

// records is a small valid set: a directory with a file in it.
func records(t *testing.T) map[uint64][]byte {
	f := New(4*mebi, 0)
	mustOpen(t, f, "d", makeDir).Close()
	file := mustOpen(t, f, `d\file`, writeFile)
	must(t, file.SetContents([]byte("abc")))
	file.Close()
	m := map[uint64][]byte{}
	for _, r := range f.TakeChanges() {
		m[r.ID] = r.Data
	}
	return m
}

func TestRestoreRefusesDamage(t *testing.T) {
	const dir, file = firstID, firstID + 1
	edit := func(id uint64, change func(*nodeRecord)) func(map[uint64][]byte) {
		return func(m map[uint64][]byte) {
			var r nodeRecord
			must(t, json.Unmarshal(m[id], &r))
			change(&r)
			m[id] = encode(r)
		}
	}
	for what, damage := range map[string]func(map[uint64][]byte){
		"no header":       func(m map[uint64][]byte) { delete(m, headerID) },
		"no cluster size": func(m map[uint64][]byte) { m[headerID] = encode(header{Capacity: mebi, NextID: 100}) },
		"negative capacity": func(m map[uint64][]byte) {
			m[headerID] = encode(
				header{Capacity: -4096, Cluster: 4096, NextID: 100})
		},
		"no root":             func(m map[uint64][]byte) { delete(m, rootID) },
		"no parent":           func(m map[uint64][]byte) { delete(m, dir) },
		"not JSON":            func(m map[uint64][]byte) { m[file] = []byte("{") },
		"number not given":    func(m map[uint64][]byte) { m[99] = m[file] },
		"name twice":          func(m map[uint64][]byte) { m[dir-1] = m[file] },
		"bad name":            edit(file, func(r *nodeRecord) { r.Name = `a\b` }),
		"parent is a file":    edit(dir, func(r *nodeRecord) { r.Parent = file }),
		"parent is itself":    edit(dir, func(r *nodeRecord) { r.Parent = dir }),
		"too much data":       edit(file, func(r *nodeRecord) { r.Data = make([]byte, 4*mebi+1) }),
		"directory with data": edit(dir, func(r *nodeRecord) { r.Data = []byte("x") }),
		"attribute only":      edit(file, func(r *nodeRecord) { r.Attributes |= win.AttributeReparsePoint }),
		"bad reparse data": edit(file, func(r *nodeRecord) {
			r.Attributes |= win.AttributeReparsePoint
			r.Reparse = []byte{1, 2, 3}
		}),
		"entries of a link": edit(dir, func(r *nodeRecord) {
			r.Attributes |= win.AttributeReparsePoint
			r.Reparse = win.NewJunction(`C:\x`).Encode()
		}),
	} {
		t.Run(what, func(t *testing.T) {
			m := records(t)
			list := func() (l []Record) {
				for id, data := range m {
					l = append(l, Record{id, data})
				}
				return l
			}
			if _, err := Restore(list()); err != nil {
				t.Fatalf("undamaged: %v", err)
			}
			damage(m)
			if f, err := Restore(list()); err == nil {
				t.Errorf("restored to %v", dump(f))
			}
		})
	}
}

// TestRestoreDeep restores directories that are nested so deeply that the test would
// not end in time if the work grew with the square of the depth.
func TestRestoreDeep(t *testing.T) {
	const levels = 200_000
	fs := New(1<<40, 0)
	dir := fs.Root()
	for range levels {
		h, _, err := fs.Open(dir, "d", win.OpenOptions{Disposition: win.FileCreate, Options: win.FileDirectoryFile})
		must(t, err)
		dir = h.Node()
		h.Close()
	}
	restored, err := Restore(fs.TakeChanges())
	must(t, err)
	depth := -1 // without the root
	for n, ok := restored.Root(), true; ok; n, ok = n.Lookup("d") {
		depth++
	}
	if depth != levels {
		t.Errorf("it has %d levels, want %d", depth, levels)
	}
}

func FuzzRestore(f *testing.F) {
	for id, data := range records(&testing.T{}) {
		f.Add(id, data)
	}
	f.Fuzz(func(t *testing.T, id uint64, data []byte) {
		l := []Record{}
		for id, data := range records(t) {
			l = append(l, Record{id, data})
		}
		if fs, err := Restore(append(l, Record{id, data})); err == nil {
			checkInvariants(t, fs)
		}
	})
}
