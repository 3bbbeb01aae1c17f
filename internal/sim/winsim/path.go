// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"errors"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Errors of path resolution that package win has no constant for.
//
// Source: https://learn.microsoft.com/windows/win32/debug/system-error-codes
const (
	errorDirNotRoot          win.Errno = 144  // ERROR_DIR_NOT_ROOT
	errorCantAccessFile      win.Errno = 1920 // ERROR_CANT_ACCESS_FILE: nobody knows the reparse tag
	errorCantResolveFilename win.Errno = 1921 // ERROR_CANT_RESOLVE_FILENAME
	// ERROR_SYMLINK_CLASS_DISABLED: by default Windows follows no link that it meets
	// on a server (fsutil behavior query SymlinkEvaluation).
	errorSymlinkClassDisabled win.Errno = 1463
)

// maxReparse is how many links the I/O manager follows on the way to one file.
const maxReparse = 63

const (
	shareAll = win.ShareRead | win.ShareWrite | win.ShareDelete
	openLink = win.FileOpenReparsePoint | win.FileOpenForBackup
)

// root is what the names of a path begin at: a volume of the node, or a share of a
// server.
type root interface {
	// mount returns the file system, as it is at this moment.
	mount() (*ntfs.FS, error)
	writable() bool
}

// location is a place in the name space: names below a root.
type location struct {
	root  root
	names []string
}

// dosPath is a path taken apart, before it is known whether its root exists.
type dosPath struct {
	drive         string // "C"; or
	server, share string // of a UNC path; or
	volume        win.GUID
	names         []string
}

// parsePath takes apart C:\…, \\server\share\…, these two behind \\?\ and
// \\?\UNC\, and \\?\Volume{guid}\…. As in Win32, the first two forms may have
// slashes and dots, which `\\?\` turns off. A path without a drive gives
// ErrorInvalidName: what it is relative to, only the caller knows.
func parsePath(path string) (dosPath, error) {
	if id, rest, ok := parseVolumeName(path); ok {
		if rest == "" { // the device, not its root directory
			return dosPath{}, win.ErrorInvalidParameter
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
			return dosPath{}, win.ErrorPathNotFound
		}
	} else {
		path = strings.ReplaceAll(path, `/`, `\`)
		switch {
		case strings.HasPrefix(path, `\\.\`):
			return dosPath{}, win.ErrorFileNotFound
		case strings.HasPrefix(path, `\\`):
			return parseUNC(path[2:], verbatim)
		}
	}
	if len(path) < 3 || !isLetter(path[0]) || path[1] != ':' || path[2] != '\\' {
		return dosPath{}, win.ErrorInvalidName
	}
	names, err := splitPath(path[2:], verbatim)
	return dosPath{drive: path[:1], names: names}, err
}

// parseUNC takes apart what follows the two backslashes of a UNC path.
func parseUNC(path string, verbatim bool) (dosPath, error) {
	server, path, _ := strings.Cut(path, `\`)
	share, path, _ := strings.Cut(path, `\`)
	if server == "" || share == "" {
		return dosPath{}, win.ErrorInvalidName
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
			return nil, win.ErrorInvalidName
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

// locate finds the volume of a path, or connects to its share.
func (s *System) locate(path string) (location, error) {
	p, err := parsePath(path)
	if err != nil {
		return location{}, err
	}
	if p.server != "" {
		fs, err := s.smb.Connect(p.server, p.share)
		if err != nil {
			return location{}, err
		}
		return location{shareRoot{fs}, p.names}, nil
	}
	v, ok := s.volumes.withID(p.volume)
	if p.drive != "" {
		v, ok = s.volumes.withLetter(p.drive)
	}
	if !ok {
		return location{}, win.ErrorPathNotFound
	}
	return location{v, p.names}, nil
}

// opened is what an open of a path gives: never a link, unless asked for.
type opened struct {
	root root
	fs   *ntfs.FS
	file *ntfs.Handle
}

// volume returns the volume of the file; false for one on a share.
func (op opened) volume() (*volume, bool) {
	v, ok := op.root.(*volume)
	return v, ok
}

// openPath opens the file or directory at a path.
func (s *System) openPath(path string, o win.OpenOptions) (opened, error) {
	l, err := s.locate(path)
	if err != nil {
		return opened{}, err
	}
	return s.openLocation(l, o)
}

// openLocation walks down from the root and opens the last name. Each link on the
// way, also to another root, starts the walk anew.
func (s *System) openLocation(l location, o win.OpenOptions) (opened, error) {
	for links := 0; ; links++ {
		fs, err := l.root.mount()
		if err != nil {
			return opened{}, err
		}
		file, err := walk(l.root, fs, fs.Root(), l.names, o)
		link, isLink := errors.AsType[*reparse](err)
		if !isLink {
			if err != nil {
				return opened{}, err
			}
			return opened{l.root, fs, file}, nil
		}
		if links == maxReparse {
			return opened{}, errorCantResolveFilename
		}
		if l, err = s.follow(l.root, link); err != nil {
			return opened{}, err
		}
	}
}

// reparse stops a walk at a link.
type reparse struct {
	*ntfs.Reparse
	rest []string // the names behind the link
}

// walk opens the last of names below dir. Those before it must be directories.
func walk(r root, fs *ntfs.FS, dir *ntfs.Node, names []string, o win.OpenOptions) (*ntfs.Handle, error) {
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
				return nil, win.ErrorPathNotFound
			}
			if child.Info().IsReparsePoint() {
				return nil, &reparse{&ntfs.Reparse{Node: child}, names[i+1:]}
			}
			dir = child
		}
	}
	file, err := openIn(r, fs, dir, last, o)
	if link, ok := errors.AsType[*ntfs.Reparse](err); ok {
		return nil, &reparse{link, nil}
	}
	return file, err
}

// openIn opens name in dir, or dir itself if name is empty.
func openIn(r root, fs *ntfs.FS, dir *ntfs.Node, name string, o win.OpenOptions) (*ntfs.Handle, error) {
	missing := win.ErrorFileNotFound
	if !r.writable() {
		const writing = win.GenericWrite | win.FileAddFile | win.FileAddSubdirectory | win.FileWriteAttributes | win.Delete | win.WriteDAC
		if o.Access&writing != 0 || o.Disposition == win.FileCreate {
			return nil, win.ErrorWriteProtect
		}
		if o.Disposition == win.FileOpenIf {
			o.Disposition, missing = win.FileOpen, win.ErrorWriteProtect
		}
	}
	file, _, err := fs.Open(dir, name, o)
	if err == win.ErrorFileNotFound {
		return nil, missing
	}
	return file, err
}

// follow returns where a link below the root from leads.
func (s *System) follow(from root, link *reparse) (location, error) {
	if _, local := from.(*volume); !local {
		return location{}, errorSymlinkClassDisabled
	}
	r, err := win.DecodeReparsePoint(link.Node.Reparse())
	switch {
	case err != nil:
		return location{}, win.ErrorInvalidReparseData
	case r.Tag != win.TagSymlink && r.Tag != win.TagMountPoint: // no driver here knows it
		return location{}, errorCantAccessFile
	}
	var l location
	if r.Relative {
		l = location{from, splitDots(link.Node.Parent().Path() + `\` + r.SubstituteName)}
		if strings.HasPrefix(r.SubstituteName, `\`) { // relative to the volume
			l.names = splitDots(r.SubstituteName)
		}
	} else if l, err = s.locate(r.Target()); err != nil {
		return location{}, err
	}
	l.names = append(l.names[:len(l.names):len(l.names)], link.rest...)
	return l, nil
}
