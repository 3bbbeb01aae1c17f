// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ntfs is the namespace of one simulated NTFS volume in memory: names,
// attributes, reparse points, contents, used space, and the share modes and
// deletion rules of its open handles.
//
// It knows one volume only. Whoever owns the volumes follows the reparse points
// that Open reports, and joins volumes to drive letters and mount points. It does
// no locking: the owner holds one lock around every call.
//
// Calls fail with the winerr.Errno that NTFS's status becomes in Win32.
package ntfs

import (
	"cmp"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// FS is one file system.
type FS struct {
	capacity int64
	cluster  int64
	root     *Node
	nodes    map[uint64]*Node // those that have a name, and the root
	nextID   uint64
	data     int64 // bytes allocated to contents
	handles  int
	changed  map[uint64]struct{} // ids of records that TakeChanges owes

	// OnChange, if it isn't nil, is called at every change that TakeChanges owes.
	OnChange func()
}

const (
	defaultCluster = 4096
	recordSize     = 1024 // of one file record in the master file table

	// The numbers that NTFS gives to the root directory and to the first file.
	rootID  = 5
	firstID = 24
)

// New returns a freshly formatted file system of capacity bytes, rounded down to
// whole clusters. A clusterSize of 0 is 4096 bytes.
func New(capacity int64, clusterSize uint32) *FS {
	if clusterSize == 0 {
		clusterSize = defaultCluster
	}
	f := &FS{
		cluster: int64(clusterSize),
		nodes:   map[uint64]*Node{},
		nextID:  firstID,
		changed: map[uint64]struct{}{},
	}
	f.root = &Node{fs: f, id: rootID, attributes: win.AttributeDirectory}
	f.nodes[rootID] = f.root
	f.touch(rootID)
	f.Extend(capacity)
	return f
}

// Root returns the root directory.
func (f *FS) Root() *Node { return f.root }

// Capacity returns the size of the file system in bytes.
func (f *FS) Capacity() int64 { return f.capacity }

// ClusterSize returns the size of a cluster in bytes.
func (f *FS) ClusterSize() uint32 { return uint32(f.cluster) }

// Extend sets the size of the file system to capacity bytes, rounded down to
// whole clusters. A smaller size than the present one changes nothing.
func (f *FS) Extend(capacity int64) {
	if capacity -= capacity % f.cluster; capacity > f.capacity {
		f.capacity = capacity
		f.touch(headerID)
	}
}

// Used returns the bytes in use: those of NTFS's own files, of file records and
// of contents. It is a multiple of the cluster size.
func (f *FS) Used() int64 {
	return min(f.capacity, f.overhead()+f.roundUp(int64(len(f.nodes))*recordSize)+f.data)
}

// overhead is what a fresh file system uses: roughly the log file and bitmap of a
// small volume.
func (f *FS) overhead() int64 { return f.roundUp(2<<20 + f.capacity/1024) }

func (f *FS) roundUp(n int64) int64 { return (n + f.cluster - 1) / f.cluster * f.cluster }

// fits reports whether there is room for so many more nodes and bytes of
// allocation.
func (f *FS) fits(nodes int, bytes int64) bool {
	records := f.roundUp(int64(len(f.nodes)+nodes) * recordSize)
	return f.overhead()+records+f.data+bytes <= f.capacity
}

// Handles returns the number of open handles.
func (f *FS) Handles() int { return f.handles }

// Flush makes the contents of all files durable (FlushFileBuffers on the volume).
func (f *FS) Flush() {
	for _, n := range f.nodes {
		n.flush()
	}
}

// DropUnflushed takes the contents of every file back to what was last flushed,
// as a loss of power does. Names, attributes and reparse points are journalled
// and stay.
func (f *FS) DropUnflushed() {
	for _, n := range f.nodes {
		if n.unflushed {
			f.data += f.roundUp(int64(len(n.durable))) - f.roundUp(n.Size())
			n.contents, n.durable, n.unflushed = n.durable, nil, false
			f.touch(n.id)
		}
	}
}

// Node is a file or directory. It outlives its name for as long as a handle to it
// is open.
type Node struct {
	fs         *FS
	id         uint64
	name       string
	folded     string // name as it is compared
	parent     *Node  // nil for the root and for a node without a name
	attributes win.FileAttributes
	created    win.FileTime
	denied     bool      // an entry of its access list denies to create in it
	private    bool      // only SYSTEM and the Administrators own and open it
	access     []win.ACE // its access list, if it isn't what private, or the directory above, makes of it
	owner      winid.SID // whose process has made it; "" for SYSTEM and the Administrators
	reparse    []byte    // REPARSE_DATA_BUFFER, or nil
	children   []*Node   // sorted by their folded names

	contents  []byte // it is replaced, never changed
	durable   []byte // what is on the disk, if unflushed
	unflushed bool

	handles []*Handle
	pending bool // marked for deletion: its name goes when a handle is closed
	gone    bool // deleted
}

// ID returns the number of the file record: stable, and never given again.
func (n *Node) ID() uint64 { return n.id }

// Name returns the name in the case in which it was given; "" for the root.
func (n *Node) Name() string { return n.name }

// Parent returns the directory that holds n, nil for the root and for a deleted
// node.
func (n *Node) Parent() *Node { return n.parent }

// Path returns the names from the root to n, each behind a backslash; "" for the
// root.
func (n *Node) Path() string {
	if n.parent == nil {
		return ""
	}
	return n.parent.Path() + `\` + n.name
}

// Deleted reports whether the node is marked for deletion, or has lost its name.
func (n *Node) Deleted() bool { return n.pending || n.gone }

// Info returns the attributes and the reparse tag.
func (n *Node) Info() win.FileInfo {
	return win.FileInfo{Attributes: n.attributes, ReparseTag: tagOf(n.reparse)}
}

// Reparse returns the REPARSE_DATA_BUFFER of a reparse point, nil if n isn't one.
// The caller must not change it.
func (n *Node) Reparse() []byte { return n.reparse }

// CreationDenied reports whether the access list denies to create in the directory.
func (n *Node) CreationDenied() bool { return n.denied }

// Locked returns the offsets of the bytes that are locked, sorted.
func (n *Node) Locked() (offsets []int64) {
	for _, h := range n.handles {
		offsets = append(offsets, h.locked...)
	}
	slices.Sort(offsets)
	return offsets
}

// Private reports whether the file was made for SYSTEM and the Administrators alone.
func (n *Node) Private() bool { return n.private }

// Size returns the length of a file's contents in bytes.
func (n *Node) Size() int64 { return int64(len(n.contents)) }

// Children returns the entries of a directory in NTFS's order.
func (n *Node) Children() []*Node { return slices.Clone(n.children) }

// Lookup finds the entry name of a directory. Case doesn't matter.
func (n *Node) Lookup(name string) (*Node, bool) {
	i, ok := n.search(win.UpperName(name))
	if !ok {
		return nil, false
	}
	return n.children[i], true
}

// search finds the place of a folded name among the children.
func (n *Node) search(folded string) (int, bool) {
	return slices.BinarySearchFunc(n.children, folded, func(c *Node, folded string) int {
		return cmp.Compare(c.folded, folded)
	})
}

func (n *Node) isDir() bool { return n.attributes&win.AttributeDirectory != 0 }

// link gives n a name in a directory that has no such entry.
func (n *Node) link(dir *Node, name string) {
	n.parent, n.name, n.folded = dir, name, win.UpperName(name)
	i, _ := dir.search(n.folded)
	dir.children = slices.Insert(dir.children, i, n)
	n.fs.touch(n.id)
}

func (n *Node) unlink() {
	i, _ := n.parent.search(n.folded)
	n.parent.children = slices.Delete(n.parent.children, i, i+1)
	n.parent = nil
}

// remove takes the name away for good. The contents of a file whose handles are
// still open stay readable, but their space is free at once.
func (n *Node) remove() {
	n.unlink()
	n.pending, n.gone = false, true
	delete(n.fs.nodes, n.id)
	n.fs.data -= n.fs.roundUp(n.Size())
	n.fs.touch(n.id)
}

// openBelow reports whether a node below n has open handles.
func (n *Node) openBelow() bool {
	return slices.ContainsFunc(n.children, func(c *Node) bool {
		return len(c.handles) > 0 || c.openBelow()
	})
}

// below reports whether n is dir or lies below it.
func (n *Node) below(dir *Node) bool {
	for ; n != nil; n = n.parent {
		if n == dir {
			return true
		}
	}
	return false
}

func (n *Node) flush() {
	if n.unflushed {
		n.durable, n.unflushed = nil, false
		n.fs.touch(n.id)
	}
}
