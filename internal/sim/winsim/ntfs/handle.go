// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package ntfs

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Reparse is the error of an open that met a reparse point which it wasn't told
// to open itself (STATUS_REPARSE): the caller goes on at the reparse point's
// target, or refuses.
type Reparse struct {
	Node *Node
}

// Error names the reparse point.
func (e *Reparse) Error() string {
	return fmt.Sprintf("reparse point at %s", e.Node.Path())
}

// Handle is an open file or directory. A closed one must not be used.
type Handle struct {
	node     *Node
	access   win.Access
	share    win.Share
	position string  // folded name of the last entry that ReadDir gave
	locked   []int64 // offsets of bytes
	onClose  bool    // FILE_DELETE_ON_CLOSE: the handle's end marks the node for deletion
	marked   bool    // the name goes with the handle: it was deleted by it
}

// The access rights that share modes are about, as IoCheckShareAccess groups
// them.
const (
	readRights   = win.FileListDirectory | win.FileTraverse
	writeRights  = win.FileAddFile | win.FileAddSubdirectory
	deleteRights = win.Delete
)

// shares is the table of IoCheckShareAccess: which right needs which share mode.
var shares = []struct {
	right win.Access
	share win.Share
}{
	{readRights, win.ShareRead},
	{writeRights, win.ShareWrite},
	{deleteRights, win.ShareDelete},
}

// mapGeneric replaces the generic rights by those of a file.
func mapGeneric(a win.Access) win.Access {
	if a&win.GenericAll != 0 {
		a |= win.FileFullControl
	}
	if a&win.GenericExecute != 0 {
		a |= win.FileTraverse | win.FileReadAttributes | win.ReadControl | win.Synchronize
	}
	if a&win.GenericRead != 0 {
		a |= win.FileListDirectory | win.FileReadAttributes | win.ReadControl | win.Synchronize
	}
	if a&win.GenericWrite != 0 {
		a |= win.FileAddFile | win.FileAddSubdirectory | win.FileWriteAttributes | win.ReadControl | win.Synchronize
	}
	return a &^ (win.GenericAll | win.GenericExecute | win.GenericRead | win.GenericWrite)
}

// sharing reports whether an open with access and share goes together with the
// handles that are open on n.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/nf-wdm-iocheckshareaccess
func (n *Node) sharing(access win.Access, share win.Share) bool {
	const counted = readRights | writeRights | deleteRights
	if access&counted == 0 {
		return true
	}
	for _, h := range n.handles {
		if h.access&counted == 0 {
			continue
		}
		for _, s := range shares {
			if access&s.right != 0 && h.share&s.share == 0 || h.access&s.right != 0 && share&s.share == 0 {
				return false
			}
		}
	}
	return true
}

// Open opens or creates the entry name of the directory dir, or dir itself if name
// is empty; created tells which. If the entry is a reparse point that o doesn't ask
// for itself, it gives a *Reparse. If dir itself is a reparse point, or has become
// one since it was opened, nothing is found in it: that is
// winerr.ErrorReparsePointEncountered, as opens relative to a handle always have
// OBJ_DONT_REPARSE.
func (f *FS) Open(dir *Node, name string, o win.OpenOptions) (h *Handle, created bool, err error) {
	return f.OpenAs(nil, dir, name, o)
}

// OpenAs is Open by a process of an account.
func (f *FS) OpenAs(a *Account, dir *Node, name string, o win.OpenOptions) (h *Handle, created bool, err error) {
	if o.Options&win.FileDirectoryFile != 0 && o.Options&win.FileNonDirectoryFile != 0 ||
		o.Options&win.FileDeleteOnClose != 0 && o.Access&win.Delete == 0 {
		return nil, false, winerr.ErrorInvalidParameter
	}
	node := dir
	if name != "" {
		switch {
		case dir.Deleted():
			return nil, false, winerr.ErrorDeletePending
		case dir.reparse != nil:
			return nil, false, winerr.ErrorReparsePointEncountered
		case !dir.isDir():
			return nil, false, winerr.ErrorPathNotFound
		}
		if err := CheckName(name); err != nil {
			return nil, false, err
		}
		var exists bool
		if node, exists = dir.Lookup(name); !exists {
			right := win.FileAddFile
			if o.Options&win.FileDirectoryFile != 0 {
				right = win.FileAddSubdirectory
			}
			if (dir.denies(writeRights, o) || !dir.allows(a, right)) && o.Disposition != win.FileOpen {
				return nil, false, winerr.ErrorAccessDenied
			}
			if node, err = f.create(dir, name, o); err != nil {
				return nil, false, err
			}
			if a != nil {
				node.owner = a.SID
			}
			return node.open(o), true, nil
		}
	}
	if err := node.checkOpen(o); err != nil {
		return nil, false, err
	}
	if !node.allows(a, mapGeneric(o.Access)) {
		return nil, false, winerr.ErrorAccessDenied
	}
	return node.open(o), false, nil
}

func (f *FS) create(dir *Node, name string, o win.OpenOptions) (*Node, error) {
	switch {
	case o.Disposition == win.FileOpen:
		return nil, winerr.ErrorFileNotFound
	case o.Disposition != win.FileCreate && o.Disposition != win.FileOpenIf:
		return nil, winerr.ErrorInvalidParameter
	case !f.fits(1, 0):
		return nil, winerr.ErrorDiskFull
	}
	n := &Node{fs: f, id: f.nextID, created: win.FileTimeOf(time.Now()), private: o.Private}
	if o.Options&win.FileDirectoryFile != 0 {
		n.attributes = win.AttributeDirectory
	}
	f.nextID++
	f.nodes[n.id] = n
	f.touch(headerID)
	n.link(dir, name)
	return n, nil
}

// checkOpen decides whether the existing n may be opened.
func (n *Node) checkOpen(o win.OpenOptions) error {
	access := mapGeneric(o.Access)
	readOnly := n.attributes&win.AttributeReadOnly != 0
	switch {
	case n.Deleted():
		return winerr.ErrorDeletePending
	case o.Disposition == win.FileCreate:
		return winerr.ErrorAlreadyExists
	case o.Disposition != win.FileOpen && o.Disposition != win.FileOpenIf:
		return winerr.ErrorInvalidParameter
	case n.reparse != nil && o.Options&win.FileOpenReparsePoint == 0:
		return &Reparse{n}
	case o.Options&win.FileDirectoryFile != 0 && !n.isDir():
		return winerr.ErrorDirectory
	case o.Options&win.FileNonDirectoryFile != 0 && n.isDir():
		return winerr.ErrorAccessDenied
	case !n.isDir() && readOnly && access&writeRights != 0, readOnly && o.Options&win.FileDeleteOnClose != 0:
		return winerr.ErrorAccessDenied
	case n.denies(access, o):
		return winerr.ErrorAccessDenied
	case !n.sharing(access, o.Share):
		return winerr.ErrorSharingViolation
	}
	return nil
}

// denies reports whether the access list of n denies an open. With FileOpenForBackup the
// list doesn't count: who hasn't SeRestorePrivilege, must not ask for that here.
func (n *Node) denies(access win.Access, o win.OpenOptions) bool {
	return n.denied && access&writeRights != 0 && o.Options&win.FileOpenForBackup == 0
}

func (n *Node) open(o win.OpenOptions) *Handle {
	h := &Handle{node: n, access: mapGeneric(o.Access), share: o.Share, onClose: o.Options&win.FileDeleteOnClose != 0}
	n.handles = append(n.handles, h)
	n.fs.handles++
	return h
}

// Close ends the handle. A node that the handle has marked for deletion loses its name now;
// one that was opened to be deleted on close does so with the last handle.
func (h *Handle) Close() {
	n := h.node
	i := slices.Index(n.handles, h)
	n.handles = slices.Delete(n.handles, i, i+1)
	n.fs.handles--
	if h.onClose && n.canDelete() == nil { // else, as on Windows, nobody hears of it
		n.pending = true
	}
	if n.pending && (h.marked || len(n.handles) == 0) {
		n.remove()
	}
}

// Node returns the file or directory that the handle is open on.
func (h *Handle) Node() *Node { return h.node }

// Info returns the attributes and the reparse tag.
func (h *Handle) Info() win.FileInfo { return h.node.Info() }

func (h *Handle) need(a win.Access) error {
	if h.access&a == 0 {
		return winerr.ErrorAccessDenied
	}
	return nil
}

// readDirBatch is how many entries one ReadDir gives: few, so that going on is
// exercised too.
const readDirBatch = 16

// ReadDir gives the next entries of a directory in the order of their names, and
// ErrorNoMoreFiles after the last. It goes on behind the name that it gave last,
// so that it sees what is created and misses what is deleted meanwhile.
// A file, which has none, gives ErrorInvalidParameter.
func (h *Handle) ReadDir(restart bool) ([]win.DirEntry, error) {
	if !h.node.isDir() {
		return nil, winerr.ErrorInvalidParameter
	}
	if err := h.need(win.FileListDirectory); err != nil {
		return nil, err
	}
	if restart {
		h.position = ""
	}
	i, found := h.node.search(h.position)
	if found {
		i++
	}
	var entries []win.DirEntry
	for _, c := range h.node.children[i:min(i+readDirBatch, len(h.node.children))] {
		entries = append(entries, win.DirEntry{Name: c.name, FileInfo: c.Info(), Created: c.created, Size: c.Size()})
		h.position = c.folded
	}
	if len(entries) == 0 {
		return nil, winerr.ErrorNoMoreFiles
	}
	return entries, nil
}

// Contents returns the contents of a file. The caller must not change them.
func (h *Handle) Contents() ([]byte, error) { return h.node.contents, h.data(win.FileListDirectory) }

// SetContents gives a file other contents. If there is no room for them, it keeps those that it has.
func (h *Handle) SetContents(p []byte) error {
	if err := h.data(win.FileAddFile); err != nil {
		return err
	}
	n := h.node
	if !n.gone { // else its space is free already
		more := n.fs.roundUp(int64(len(p))) - n.fs.roundUp(n.Size())
		if more > 0 && !n.fs.fits(0, more) {
			return winerr.ErrorDiskFull
		}
		n.fs.data += more
	}
	if !n.unflushed {
		n.durable, n.unflushed = n.contents, true
	}
	n.contents = slices.Clone(p)
	n.fs.touch(n.id)
	return nil
}

// data checks that a handle can be used to read or write contents.
func (h *Handle) data(right win.Access) error {
	if h.node.isDir() {
		return winerr.ErrorInvalidFunction
	}
	return h.need(right)
}

// Flush makes the contents durable (FlushFileBuffers on the file).
func (h *Handle) Flush() error {
	if err := h.need(writeRights); err != nil {
		return err
	}
	h.node.flush()
	return nil
}

// SetAttributes replaces the attributes that can be set: AttributeReadOnly.
func (h *Handle) SetAttributes(a win.FileAttributes) error {
	if err := h.need(win.FileWriteAttributes); err != nil {
		return err
	}
	h.node.attributes = h.node.attributes&^win.AttributeReadOnly | a&win.AttributeReadOnly
	h.node.fs.touch(h.node.id)
	return nil
}

// CreationDenied reports whether the access list denies to create in the directory.
func (h *Handle) CreationDenied() (bool, error) {
	return h.node.denied, h.need(win.ReadControl)
}

// DenyCreation adds the entry that does so to the directory's access list, or removes it.
func (h *Handle) DenyCreation(deny bool) error {
	const needed = win.ReadControl | win.WriteDAC
	if h.access&needed != needed {
		return winerr.ErrorAccessDenied
	}
	if h.node.denied != deny {
		h.node.denied = deny
		h.node.fs.touch(h.node.id)
	}
	return nil
}

// Private reports whether the file was made so.
func (h *Handle) Private() (bool, error) {
	return h.node.private, h.need(win.ReadControl)
}

// LockByte locks a byte of a file until the handle is closed.
func (h *Handle) LockByte(offset int64) error {
	switch {
	case h.node.isDir():
		return winerr.ErrorInvalidParameter
	case h.access&(win.FileListDirectory|win.FileAddFile) == 0:
		return winerr.ErrorAccessDenied
	case slices.Contains(h.node.Locked(), offset):
		return winerr.ErrorLockViolation
	}
	h.locked = append(h.locked, offset)
	return nil
}

// GetReparse returns the REPARSE_DATA_BUFFER (FSCTL_GET_REPARSE_POINT).
func (h *Handle) GetReparse() ([]byte, error) {
	if h.node.reparse == nil {
		return nil, winerr.ErrorNotAReparsePoint
	}
	return slices.Clone(h.node.reparse), nil
}

// SetReparse makes the file or empty directory a reparse point, or changes the
// data of one with the same tag (FSCTL_SET_REPARSE_POINT). Like NTFS it asks for
// the right to write data or attributes. The latter takes no part in sharing: no
// share mode keeps an empty directory from becoming a link.
func (h *Handle) SetReparse(data []byte) error {
	n := h.node
	if err := h.need(win.FileAddFile | win.FileWriteAttributes); err != nil {
		return err
	}
	if err := checkReparse(data); err != nil {
		return err
	}
	switch tag := tagOf(data); {
	case n == n.fs.root:
		return winerr.ErrorAccessDenied
	case n.gone: // STATUS_FILE_DELETED, as DeviceIoControl tells it
		return winerr.ErrorAccessDenied
	case tag == win.TagMountPoint && !n.isDir():
		return winerr.ErrorDirectory
	case len(n.children) > 0:
		return winerr.ErrorDirNotEmpty
	case n.reparse != nil && tag != tagOf(n.reparse):
		return winerr.ErrorReparseTagMismatch
	}
	n.reparse = slices.Clone(data)
	n.attributes |= win.AttributeReparsePoint
	n.fs.touch(n.id)
	return nil
}

// DeleteReparse makes a reparse point a plain file or empty directory again
// (FSCTL_DELETE_REPARSE_POINT). data is the header with the tag, without data.
func (h *Handle) DeleteReparse(data []byte) error {
	n := h.node
	if err := h.need(win.FileAddFile | win.FileWriteAttributes); err != nil {
		return err
	}
	switch {
	case len(data) != reparseHeader || le.Uint16(data[4:]) != 0:
		return winerr.ErrorInvalidReparseData
	case tagOf(data) <= lastReservedTag:
		return winerr.ErrorReparseTagInvalid
	case tagOf(data)&microsoftTag == 0: // its owner's GUID is missing
		return winerr.ErrorInvalidReparseData
	case n.reparse == nil:
		return winerr.ErrorNotAReparsePoint
	case tagOf(data) != tagOf(n.reparse):
		return winerr.ErrorReparseTagMismatch
	}
	n.reparse = nil
	n.attributes &^= win.AttributeReparsePoint
	n.fs.touch(n.id)
	return nil
}

// Delete marks the node for deletion, also a read-only file (FileDispositionInfoEx with
// FILE_DISPOSITION_POSIX_SEMANTICS and FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE). Nobody
// can open it any more, and its name goes when this handle is closed.
func (h *Handle) Delete() error {
	if err := h.need(win.Delete); err != nil {
		return err
	}
	if err := h.node.canDelete(); err != nil {
		return err
	}
	h.node.pending, h.marked = true, true
	return nil
}

func (n *Node) canDelete() error {
	switch {
	case n == n.fs.root:
		return winerr.ErrorAccessDenied
	case n.gone:
		return winerr.ErrorDeletePending
	case len(n.children) > 0:
		return winerr.ErrorDirNotEmpty
	}
	return nil
}

// Rename gives the node the name in newDir, a directory of the same file system;
// with replace, a file of that name is deleted first. A directory below which
// handles are open can't be renamed.
func (h *Handle) Rename(newDir *Node, name string, replace bool) error {
	n := h.node
	if err := h.need(win.Delete); err != nil {
		return err
	}
	if err := CheckName(name); err != nil {
		return err
	}
	switch {
	case newDir.fs != n.fs:
		return winerr.ErrorNotSameDevice
	case n.Deleted() || newDir.Deleted():
		return winerr.ErrorDeletePending
	case newDir.reparse != nil:
		return &Reparse{newDir}
	case !newDir.isDir():
		return winerr.ErrorPathNotFound
	case newDir.below(n):
		return winerr.ErrorInvalidParameter
	case newDir != n.parent && newDir.denied:
		return winerr.ErrorAccessDenied
	case n == n.fs.root, n.openBelow():
		return winerr.ErrorAccessDenied
	}
	// The I/O manager opens another directory for writing first.
	if everything := win.ShareRead | win.ShareWrite | win.ShareDelete; newDir != n.parent &&
		!newDir.sharing(win.FileAddFile, everything) {
		return winerr.ErrorSharingViolation
	}
	if old, exists := newDir.Lookup(name); exists && old != n {
		switch {
		case !replace:
			return winerr.ErrorAlreadyExists
		case old.isDir(), old.attributes&win.AttributeReadOnly != 0, len(old.handles) > 0:
			return winerr.ErrorAccessDenied
		}
		old.remove()
	}
	if newDir != n.parent {
		n.keepAccess()
	}
	n.unlink()
	n.link(newDir, name)
	return nil
}

var le = binary.LittleEndian

const (
	reparseHeader     = 8       // of a tag that Microsoft owns
	reparseGUIDHeader = 24      // of another one, with its owner's GUID
	microsoftTag      = 1 << 31 // the bit that tells them apart
	lastReservedTag   = 1       // no reparse point has it, nor 0
)

// checkReparse refuses what FsRtlValidateReparsePointBuffer does.
func checkReparse(data []byte) error {
	if len(data) < reparseHeader || len(data) > win.MaximumReparseDataSize {
		return winerr.ErrorInvalidReparseData
	}
	tag, header := tagOf(data), reparseHeader
	switch {
	case tag <= lastReservedTag:
		return winerr.ErrorReparseTagInvalid
	case tag&microsoftTag == 0:
		header = reparseGUIDHeader
	}
	if len(data) != header+int(le.Uint16(data[4:])) {
		return winerr.ErrorInvalidReparseData
	}
	if _, err := win.DecodeReparsePoint(data); err != nil {
		return winerr.ErrorInvalidReparseData
	}
	return nil
}

func tagOf(reparse []byte) win.ReparseTag {
	if reparse == nil {
		return 0
	}
	return win.ReparseTag(le.Uint32(reparse))
}
