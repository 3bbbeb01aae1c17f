// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package ntfs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Record is a part of the persistent state of a file system, for a store of keys
// and values. Together the records say all but the open handles, also which
// contents are not flushed.
type Record struct {
	ID   uint64
	Data []byte // nil: there is no longer such a record
}

// headerID is the ID of the record of the file system itself.
const headerID = 0

type header struct {
	Capacity int64
	Cluster  int64
	NextID   uint64
}

type nodeRecord struct {
	Parent      uint64             `json:",omitempty"`
	Name        storedName         `json:",omitempty"`
	Attributes  win.FileAttributes `json:",omitempty"`
	Created     win.FileTime       `json:",omitempty"`
	Denied      bool               `json:",omitempty"`
	Private     bool               `json:",omitempty"`
	Access      []win.ACE          `json:",omitempty"`
	Owner       winid.SID          `json:",omitempty"`
	Reparse     []byte             `json:",omitempty"`
	Data        []byte             `json:",omitempty"`
	Unflushed   bool               `json:",omitempty"`
	DurableData []byte             `json:",omitempty"`
}

// storedName is a name in the state file: a string or, if it has half a surrogate pair,
// which JSON can't have, its UTF-16 units.
type storedName string

// MarshalJSON implements [json.Marshaler].
func (n storedName) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(n)) {
		return json.Marshal(string(n))
	}
	return json.Marshal(win.AppendUTF16(nil, string(n)))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (n *storedName) UnmarshalJSON(b []byte) error {
	if !bytes.HasPrefix(b, []byte("[")) {
		return json.Unmarshal(b, (*string)(n))
	}
	var units []uint16
	err := json.Unmarshal(b, &units)
	*n = storedName(win.StringFromUTF16(units))
	return err
}

func (f *FS) touch(id uint64) {
	f.changed[id] = struct{}{}
	if f.OnChange != nil {
		f.OnChange()
	}
}

// TakeChanges returns the records that changed since it was last called, in the
// order of their IDs; of a new file system, all.
func (f *FS) TakeChanges() []Record {
	records := make([]Record, 0, len(f.changed))
	for id := range f.changed {
		records = append(records, Record{id, f.record(id)})
	}
	clear(f.changed)
	slices.SortFunc(records, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return records
}

// Records returns all records, whether they have changed or not, for a copy of the file
// system by [Restore].
func (f *FS) Records() []Record {
	records := []Record{{headerID, f.record(headerID)}}
	for id := range f.nodes {
		records = append(records, Record{id, f.record(id)})
	}
	return records
}

// Touch makes TakeChanges return all records, as of a new file system.
func (f *FS) Touch() {
	f.touch(headerID)
	for id := range f.nodes {
		f.touch(id)
	}
}

func (f *FS) record(id uint64) []byte {
	if id == headerID {
		return encode(header{f.capacity, f.cluster, f.nextID})
	}
	n, exists := f.nodes[id]
	if !exists {
		return nil
	}
	r := nodeRecord{
		Name: storedName(n.name), Attributes: n.attributes, Created: n.created, Denied: n.denied, Private: n.private,
		Access: n.access, Owner: n.owner, Reparse: n.reparse, Data: n.contents, Unflushed: n.unflushed, DurableData: n.durable,
	}
	if n.parent != nil {
		r.Parent = n.parent.id
	}
	return encode(r)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("ntfs: " + err.Error()) // numbers, bytes and valid strings only
	}
	return b
}

// Restore returns the file system that the records of TakeChanges describe: of
// each ID the last one. The order of different IDs doesn't matter.
func Restore(records []Record) (*FS, error) {
	last := map[uint64][]byte{}
	for _, r := range records {
		if r.Data == nil {
			delete(last, r.ID)
		} else {
			last[r.ID] = r.Data
		}
	}
	var h header
	if err := json.Unmarshal(last[headerID], &h); err != nil {
		return nil, fmt.Errorf("file system record: %w", err)
	}
	if h.Cluster <= 0 || h.Cluster > 1<<31 || h.Capacity < 0 || h.Capacity%h.Cluster != 0 {
		return nil, fmt.Errorf("file system record: %d bytes in clusters of %d", h.Capacity, h.Cluster)
	}
	delete(last, headerID)
	f := &FS{capacity: h.Capacity, cluster: h.Cluster, nextID: h.NextID, nodes: map[uint64]*Node{},
		changed: map[uint64]struct{}{}}
	parents := map[*Node]nodeRecord{}
	for id, data := range last {
		var r nodeRecord
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, fmt.Errorf("file record %d: %w", id, err)
		}
		n, err := f.restoreNode(id, r)
		if err != nil {
			return nil, fmt.Errorf("file record %d: %w", id, err)
		}
		parents[n] = r
	}
	f.root = f.nodes[rootID]
	if f.root == nil || !f.root.isDir() || f.root.reparse != nil {
		return nil, errors.New("the root directory's record is missing or wrong")
	}
	for n, r := range parents {
		if n == f.root {
			continue
		}
		if err := f.restoreName(n, r); err != nil {
			return nil, fmt.Errorf("file record %d: %w", n.id, err)
		}
	}
	for _, n := range f.nodes {
		if err := n.sortRestored(); err != nil {
			return nil, fmt.Errorf("file record %d: %w", n.id, err)
		}
	}
	if n := f.unrooted(); n != nil {
		return nil, fmt.Errorf("file record %d: its directories form a ring", n.id)
	}
	clear(f.changed)
	return f, nil
}

func (f *FS) restoreNode(id uint64, r nodeRecord) (*Node, error) {
	n := &Node{
		fs: f, id: id, attributes: r.Attributes, created: r.Created, denied: r.Denied, private: r.Private,
		access: r.Access, owner: r.Owner, reparse: r.Reparse, contents: r.Data, durable: r.DurableData, unflushed: r.Unflushed,
	}
	if n.reparse != nil {
		if err := checkReparse(n.reparse); err != nil {
			return nil, err
		}
	}
	switch {
	case id != rootID && id >= f.nextID:
		return nil, errors.New("its number was never given")
	case int64(max(len(n.contents), len(n.durable))) > f.capacity:
		return nil, errors.New("more contents than the volume holds")
	case n.isDir() && len(n.contents)+len(n.durable) != 0:
		return nil, errors.New("a directory with contents")
	case (n.reparse != nil) != n.Info().IsReparsePoint():
		return nil, errors.New("its attributes and its reparse point disagree")
	}
	f.nodes[id] = n
	f.data += f.roundUp(n.Size())
	return n, nil
}

func (f *FS) restoreName(n *Node, r nodeRecord) error {
	if err := CheckName(string(r.Name)); err != nil {
		return err
	}
	dir := f.nodes[r.Parent]
	if dir == nil || !dir.isDir() || dir.reparse != nil {
		return fmt.Errorf("%d is no directory to hold it", r.Parent)
	}
	n.parent, n.name, n.folded = dir, string(r.Name), win.UpperName(string(r.Name))
	dir.children = append(dir.children, n)
	return nil
}

// sortRestored puts the children that restoreName has appended in order. Sorting
// them once keeps a directory of many entries from taking quadratic time.
func (n *Node) sortRestored() error {
	slices.SortFunc(n.children, func(a, b *Node) int { return cmp.Compare(a.folded, b.folded) })
	for i := 1; i < len(n.children); i++ {
		if n.children[i-1].folded == n.children[i].folded {
			return fmt.Errorf("it has the name %q twice", n.children[i].name)
		}
	}
	return nil
}

// unrooted returns a node that can't be reached from the root, because directories
// hold each other; nil if there is none. It looks at each node once.
func (f *FS) unrooted() *Node {
	reached := map[*Node]bool{f.root: true}
	for queue := []*Node{f.root}; len(queue) > 0; {
		n := queue[len(queue)-1]
		queue = append(queue[:len(queue)-1], n.children...)
		for _, c := range n.children {
			reached[c] = true
		}
	}
	for _, n := range f.nodes {
		if !reached[n] {
			return n
		}
	}
	return nil
}
