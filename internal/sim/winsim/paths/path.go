// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package paths finds files on a simulated node: it resolves whole paths over drive letters,
// names of volumes, shares, links and mount points, and makes and removes mount points as
// the mount manager does.
//
// It does no locking: the owner holds one lock around every call.
package paths

import (
	"errors"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Errors of path resolution that package win has no constant for.
//
// Source: https://learn.microsoft.com/windows/win32/debug/system-error-codes
const (
	errorDirNotRoot          winerr.Errno = 144  // ERROR_DIR_NOT_ROOT
	errorCantAccessFile      winerr.Errno = 1920 // ERROR_CANT_ACCESS_FILE: nobody knows the reparse tag
	errorCantResolveFilename winerr.Errno = 1921 // ERROR_CANT_RESOLVE_FILENAME
	// ERROR_SYMLINK_CLASS_DISABLED: by default Windows follows no link that it meets
	// on a server (fsutil behavior query SymlinkEvaluation).
	errorSymlinkClassDisabled winerr.Errno = 1463
)

// maxReparse is how many links the I/O manager follows on the way to one file.
const maxReparse = 63

// For opens that keep nobody away, and for those of a link itself.
const (
	ShareAll = win.ShareRead | win.ShareWrite | win.ShareDelete
	OpenLink = win.FileOpenReparsePoint | win.FileOpenForBackup
)

// Root is what the names of a path begin at: a volume of the node, or a [Share] of a
// server.
type Root interface {
	// Mount returns the file system, as it is at this moment.
	Mount() (*ntfs.FS, error)
	Writable() bool
}

// Share is the root of a share that the node is connected to.
type Share struct {
	FS *ntfs.FS
	// ReadOnly is whether the server lets nobody write.
	ReadOnly bool
}

// Mount implements [Root].
func (s Share) Mount() (*ntfs.FS, error) { return s.FS, nil }

// Writable implements [Root].
func (s Share) Writable() bool { return !s.ReadOnly }

// IsOn reports whether a root is that of a share with a file system.
func IsOn(r Root, fs *ntfs.FS) bool {
	share, ok := r.(Share)
	return ok && share.FS == fs
}

// Space has all names of the node. Nothing in it changes.
type Space struct {
	Settings *settings.Settings
	Volumes  *volumes.Manager
	Shares   Shares
	account  *ntfs.Account // whose process uses the names
}

// As returns the names as a process of an account uses them.
func (s *Space) As(a *ntfs.Account) *Space {
	as := *s
	as.account = a
	return &as
}

// Shares are those that the node can connect to.
type Shares interface {
	// Connect gives the file system of a share, and whether the server lets nobody write.
	Connect(server, share string) (fs *ntfs.FS, readOnly bool, err error)
}

// Location is a place in the name space: names below a root.
type Location struct {
	Root  Root
	Names []string
}

// dosPath is a path taken apart, before it is known whether its root exists.
type dosPath struct {
	drive         string // "C"; or
	server, share string // of a UNC path; or
	volume        winid.GUID
	names         []string
}

// parsePath takes apart C:\…, \\server\share\…, these two behind \\?\ and
// \\?\UNC\, and \\?\Volume{guid}\…. As in Win32, the first two forms may have
// slashes and dots, which `\\?\` turns off. A path without a drive gives
// ErrorInvalidName: what it is relative to, only the caller knows.
func parsePath(path string) (dosPath, error) {
	if id, rest, ok := volumes.ParseName(path); ok {
		if rest == "" { // the device, not its root directory
			return dosPath{}, winerr.ErrorInvalidParameter
		}
		names, err := splitVerbatim(rest)
		return dosPath{volume: id, names: names}, err
	}
	path, verbatim := strings.CutPrefix(path, `\\?\`)
	if verbatim {
		if len(path) >= 4 && strings.EqualFold(path[:4], `UNC\`) {
			return parseUNC(path[4:], verbatim)
		}
		if len(path) >= 6 && strings.EqualFold(path[:6], `Volume`) {
			return dosPath{}, winerr.ErrorPathNotFound
		}
	} else {
		path = strings.ReplaceAll(path, `/`, `\`)
		switch {
		case strings.HasPrefix(path, `\\.\`):
			return dosPath{}, winerr.ErrorFileNotFound
		case strings.HasPrefix(path, `\\`):
			return parseUNC(path[2:], verbatim)
		}
	}
	if len(path) < 3 || !isLetter(path[0]) || path[1] != ':' || path[2] != '\\' {
		return dosPath{}, winerr.ErrorInvalidName
	}
	names, err := splitPath(path[2:], verbatim)
	return dosPath{drive: path[:1], names: names}, err
}

// parseUNC takes apart what follows the two backslashes of a UNC path.
func parseUNC(path string, verbatim bool) (dosPath, error) {
	server, path, _ := strings.Cut(path, `\`)
	share, path, _ := strings.Cut(path, `\`)
	if server == "" || share == "" {
		return dosPath{}, winerr.ErrorInvalidName
	}
	names, err := splitPath(`\`+path, verbatim)
	return dosPath{server: server, share: share, names: names}, err
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// splitPath splits \a\b, which is behind \\?\ if it is verbatim.
func splitPath(path string, verbatim bool) ([]string, error) {
	if verbatim {
		return splitVerbatim(path)
	}
	return splitDots(path), nil
}

// splitVerbatim splits \a\b or \a\b\. Empty names and dots are no names here.
func splitVerbatim(path string) ([]string, error) {
	path = strings.TrimSuffix(path[1:], `\`)
	if path == "" {
		return nil, nil
	}
	names := strings.Split(path, `\`)
	for _, name := range names {
		if name == "" || name == "." || name == ".." {
			return nil, winerr.ErrorInvalidName
		}
	}
	return names, nil
}

// splitDots splits a path and resolves its dots by the text alone; what would go
// above the root stays there.
func splitDots(path string) []string {
	var names []string
	for name := range strings.SplitSeq(path, `\`) {
		switch name {
		case "", ".":
		case "..":
			names = names[:max(0, len(names)-1)]
		default:
			names = append(names, name)
		}
	}
	return names
}

// Locate finds the volume of a path, or connects to its share.
func (s *Space) Locate(path string) (Location, error) {
	p, err := parsePath(path)
	if err != nil {
		return Location{}, err
	}
	if p.server != "" {
		fs, readOnly, err := s.Shares.Connect(p.server, p.share)
		if err != nil {
			return Location{}, err
		}
		return Location{Share{fs, readOnly}, p.names}, nil
	}
	v, ok := s.Volumes.WithID(p.volume)
	if p.drive != "" {
		v, ok = s.Volumes.WithLetter(p.drive)
	}
	if !ok {
		return Location{}, winerr.ErrorPathNotFound
	}
	return Location{v, p.names}, nil
}

// locate is Locate for an open: the device of a volume is no directory.
func (s *Space) locate(path string, o win.OpenOptions) (Location, error) {
	l, err := s.Locate(path)
	if err == winerr.ErrorInvalidParameter && o.Options&win.FileDirectoryFile != 0 {
		err = winerr.ErrorDirectory
	}
	return l, err
}

// Opened is what an open of a path gives: never a link, unless asked for.
type Opened struct {
	*ntfs.Handle
	Root Root
	FS   *ntfs.FS
}

// Volume returns the volume of the file; false for one on a share.
func (op Opened) Volume() (*volumes.Volume, bool) {
	v, ok := op.Root.(*volumes.Volume)
	return v, ok
}

// Open opens the file or directory at a path. With a backslash at its end the path means a
// directory.
//
// Source: MS-FSA 2.1.5.1, FileTypeToOpen
func (s *Space) Open(path string, o win.OpenOptions) (op Opened, err error) {
	if strings.HasSuffix(path, `\`) {
		defer func() {
			if err == winerr.ErrorDirectory && s.Settings.FileAsDirectory != 0 {
				err = s.Settings.FileAsDirectory
			}
		}()
		if o.Options&win.FileNonDirectoryFile != 0 {
			return Opened{}, winerr.ErrorInvalidName
		}
		o.Options |= win.FileDirectoryFile
	}
	l, err := s.locate(path, o)
	if err != nil {
		return Opened{}, err
	}
	return s.OpenAt(l, o)
}

// OpenByWin32 is Open by a function of Win32, which has other errors than NtCreateFile.
func (s *Space) OpenByWin32(path string, o win.OpenOptions) (Opened, error) {
	op, err := s.Open(path, o)
	if err == winerr.ErrorDeletePending && s.Settings.DeletePendingDenied {
		err = winerr.ErrorAccessDenied
	}
	return op, err
}

// OpenWithoutLinks is Open, but follows no link.
func (s *Space) OpenWithoutLinks(path string, o win.OpenOptions) (Opened, error) {
	l, err := s.locate(path, o)
	switch {
	case err != nil:
		return Opened{}, err
	case s.Settings.DriveIsLink:
		return Opened{}, winerr.ErrorReparsePointEncountered
	}
	fs, err := l.Root.Mount()
	if err != nil {
		return Opened{}, err
	}
	file, err := s.Walk(l.Root, fs, fs.Root(), l.Names, o)
	if errors.As(err, new(*Reparse)) {
		err = winerr.ErrorReparsePointEncountered
	}
	return Opened{file, l.Root, fs}, err
}

// OpenAt walks down from the root and opens the last name. Each link on the
// way, also to another root, starts the walk anew.
func (s *Space) OpenAt(l Location, o win.OpenOptions) (Opened, error) {
	for links := 0; ; links++ {
		fs, err := l.Root.Mount()
		if err != nil {
			return Opened{}, err
		}
		file, err := s.Walk(l.Root, fs, fs.Root(), l.Names, o)
		var link *Reparse
		isLink := errors.As(err, &link)
		if !isLink {
			if err != nil {
				return Opened{}, err
			}
			return Opened{file, l.Root, fs}, nil
		}
		if links == maxReparse {
			return Opened{}, errorCantResolveFilename
		}
		if l, err = s.follow(l.Root, link, o); err != nil {
			return Opened{}, err
		}
	}
}

// Reparse stops a walk at a link.
type Reparse struct {
	*ntfs.Reparse
	rest []string // the names behind the link
}

// Walk opens the last of names below dir. Those before it must be directories.
func (s *Space) Walk(r Root, fs *ntfs.FS, dir *ntfs.Node, names []string, o win.OpenOptions) (*ntfs.Handle, error) {
	for _, name := range names {
		if err := ntfs.CheckName(name); err != nil {
			return nil, err
		}
	}
	last := ""
	if n := len(names); n > 0 {
		last = names[n-1]
		for i, name := range names[:n-1] {
			child, ok := dir.Lookup(name)
			if !ok {
				return nil, winerr.ErrorPathNotFound
			}
			if child.Info().IsReparsePoint() {
				return nil, &Reparse{&ntfs.Reparse{Node: child}, names[i+1:]}
			}
			dir = child
		}
	}
	file, err := s.openIn(r, fs, dir, last, o)
	if err == nil {
		return file, nil
	}
	if link := new(ntfs.Reparse); errors.As(err, &link) {
		return nil, &Reparse{link, nil}
	}
	return nil, err
}

// openIn opens name in dir, or dir itself if name is empty.
func (s *Space) openIn(r Root, fs *ntfs.FS, dir *ntfs.Node, name string, o win.OpenOptions) (*ntfs.Handle, error) {
	missing, refusal := winerr.ErrorFileNotFound, winerr.ErrorWriteProtect
	if _, isShare := r.(Share); isShare {
		refusal = winerr.ErrorAccessDenied
	}
	if !r.Writable() {
		const writing = win.GenericWrite | win.FileAddFile | win.FileAddSubdirectory |
			win.FileWriteAttributes | win.Delete | win.WriteDAC
		onClose := o.Options&win.FileDeleteOnClose != 0 && o.Disposition != win.FileCreate
		if onClose && s.Settings.DeleteOnCloseDenied {
			return nil, winerr.ErrorAccessDenied
		}
		if o.Access&writing != 0 || o.Disposition == win.FileCreate {
			return nil, refusal
		}
		if o.Disposition == win.FileOpenIf {
			o.Disposition, missing = win.FileOpen, refusal
		}
	}
	account := s.account
	if _, local := r.(*volumes.Volume); !local {
		account = nil // a server asks for the user of the mapping, who may do everything here
	}
	file, _, err := fs.OpenAs(account, dir, name, o)
	if err == winerr.ErrorFileNotFound {
		return nil, missing
	}
	return file, err
}

// follow returns where a link below the root from leads.
func (s *Space) follow(from Root, link *Reparse, o win.OpenOptions) (Location, error) {
	if _, local := from.(*volumes.Volume); !local {
		return Location{}, errorSymlinkClassDisabled
	}
	r, err := win.DecodeReparsePoint(link.Node.Reparse())
	switch {
	case err != nil: // nobody could set it
		return Location{}, err
	case r.Tag != win.TagSymlink && r.Tag != win.TagMountPoint: // no driver here knows it
		return Location{}, errorCantAccessFile
	}
	var l Location
	if r.Relative {
		l = Location{from, splitDots(link.Node.Parent().Path() + `\` + r.SubstituteName)}
		if strings.HasPrefix(r.SubstituteName, `\`) { // relative to the volume
			l.Names = splitDots(r.SubstituteName)
		}
	} else if l, err = s.locate(r.Target(), o); err != nil {
		return Location{}, err
	}
	l.Names = append(l.Names[:len(l.Names):len(l.Names)], link.rest...)
	return l, nil
}

// Information is GetVolumeInformationW of the root of a volume or share.
func (s *Space) Information(root string) (win.VolumeInformation, error) {
	if !strings.HasSuffix(root, `\`) {
		return win.VolumeInformation{}, winerr.ErrorInvalidName
	}
	op, err := s.OpenByWin32(root, openDirectory)
	if err != nil {
		return win.VolumeInformation{}, err
	}
	defer op.Close()
	if op.Node() != op.FS.Root() {
		return win.VolumeInformation{}, errorDirNotRoot
	}
	if v, ok := op.Volume(); ok {
		return v.Information()
	}
	return win.VolumeInformation{FileSystem: "NTFS"}, nil // on the server
}

// FreeSpace is the space of the file system that a directory is on.
func (s *Space) FreeSpace(directory string) (win.DiskSpace, error) {
	op, err := s.OpenByWin32(directory, openDirectory)
	if err != nil {
		return win.DiskSpace{}, err
	}
	defer op.Close()
	return volumes.Space(op.FS), nil
}

// openDirectory opens a directory to ask for the file system that it is on.
var openDirectory = win.OpenOptions{
	Access: win.AccessNone, Share: ShareAll, Disposition: win.FileOpen,
	Options: win.FileDirectoryFile | win.FileOpenForBackup,
}
