// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// directoriesOfWindows hold Windows and the installed programs. A node has them on C:, and New
// protects C: too.
//
// Source: CSIDL_WINDOWS, CSIDL_PROGRAM_FILES and CSIDL_PROGRAM_FILESX86,
// https://learn.microsoft.com/windows/win32/shell/csidl
var directoriesOfWindows = []string{`C:\Windows`, `C:\Program Files`, `C:\Program Files (x86)`}

var shortName = regexp.MustCompile(`^[^.]{1,6}~[0-9]{1,6}(\.[^.]{1,3})?$`)

// mayBeShort reports whether a name may be the second, short name of a file in NTFS: PROGRA~1,
// KUBERN~1.IO.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file#short-vs-long-names
func mayBeShort(name string) bool { return strings.Contains(name, "~") && shortName.MatchString(name) }

// systemPaths are the files and directories of Windows, of the daemon and of kubelet itself.
// Operations leave them alone, even in an allowed directory.
type systemPaths struct {
	all     []location // of Windows and of the daemon
	kubelet location   // kubelet's directory; placeIn knows kubelet's own names
}

// newSystemPaths returns the system paths of a node, including the daemon's own files. Files
// refused by split, such as files on a server, are skipped: no path of an operation leads there.
func newSystemPaths(kubelet location, ownFiles []string) systemPaths {
	s := systemPaths{kubelet: kubelet}
	for _, path := range slices.Concat(directoriesOfWindows, ownFiles) {
		for _, prefix := range []string{`\\?\`, `\??\`} {
			path = strings.TrimPrefix(path, prefix)
		}
		if l, err := split(path, ""); err == nil {
			s.all = append(s.all, l)
		}
	}
	return s
}

// check returns csiproxy.ErrInvalidArgument for a path in a system path, by its text. Short names
// are refused wherever they could mean a system path or a directory above, as in C:\PROGRA~1.
func (s systemPaths) check(l location) error {
	if system := s.of(l); system != "" {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "csi-proxy touches nothing in %s", quote.Text(system))
	}
	for i, name := range l.names {
		if mayBeShort(name) && s.holds(location{l.drive, l.names[:i]}) {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%q may be the short (8.3) name of another directory; write its long name", name)
		}
	}
	return nil
}

// of returns the system path around a path, by its text; "" if there is none.
func (s systemPaths) of(l location) string {
	if i := slices.IndexFunc(s.all, func(system location) bool { return l.insideBy(system, mayMean) }); i >= 0 {
		return s.all[i].String()
	}
	if place := l.placeIn(s.kubelet); place.kind == placeOwnOfKubelet {
		return s.kubelet.below(place.names[0]).String()
	}
	return ""
}

// holds reports whether a directory holds a system path.
func (s systemPaths) holds(dir location) bool {
	isSame := func(ofSystem, name string) bool { return mayMean(name, ofSystem) }
	return slices.ContainsFunc(s.withKubelet(), func(system location) bool { return system.insideBy(dir, isSame) })
}

// withKubelet returns all system paths, and kubelet's directory in place of kubelet's own.
func (s systemPaths) withKubelet() []location { return append(slices.Clip(s.all), s.kubelet) }

// mayMean reports whether a name in a path may mean the file or directory of a name in a system
// path. A short ofSystem stands for all names that NTFS could shorten to it: NTFS keeps the first
// two characters or more, without blanks.
func mayMean(name, ofSystem string) bool {
	if !mayBeShort(ofSystem) || win.SameName(name, ofSystem) {
		return win.SameName(name, ofSystem)
	}
	beginning := strings.ReplaceAll(win.LowerName(name), " ", "")
	return strings.HasPrefix(beginning, win.LowerName(ofSystem)[:min(2, strings.IndexByte(ofSystem, '~'))])
}

// alias is the real location of an allowed directory, if the administrator has made the directory,
// or a directory above, a link.
type alias struct {
	root   location    // with the volume in the drive's place
	system systemPaths // likewise
}

// findAlias finds the alias of root, the allowed directory of path, which the walk has opened. The
// error is csiproxy.ErrPermissionDenied if path leads to a system path through the alias. Kubelet's
// directory is exempt: wherever it is, its contents belong to kubelet or drivers.
func (w *Walk) findAlias(ctx context.Context, root *File, path Path) error {
	p := w.policy
	if path.root.equal(p.system.kubelet) {
		return nil
	}
	final, err := root.handle.FinalPath(ctx)
	if errors.Is(err, fs.ErrNotExist) { // on a share, which never holds the node's own files
		return nil
	}
	if err != nil {
		return err
	}
	volume, err := volumeOfDrive(ctx, w.sys, path.root.drive)
	if err != nil {
		return err
	}
	there, _ := onVolume(final)
	if there.equal(location{volume, path.root.names}) {
		return nil
	}
	w.alias = &alias{root: there}
	for _, system := range p.system.all {
		system, err := withoutLinksAt(ctx, w.sys, system)
		if err != nil {
			return err
		}
		w.alias.system.all = append(w.alias.system.all, system)
	}
	if w.alias.system.kubelet, err = withoutLinksAt(ctx, w.sys, p.system.kubelet); err != nil {
		return err
	}
	if err := w.alias.system.check(there.below(path.names...)); err != nil {
		return &csiproxy.Error{Object: quote.Text(path.String()), Kind: csiproxy.ErrPermissionDenied, Err: err}
	}
	return nil
}

// isSystem reports whether a path lies in a system path, by its text or by the alias of its allowed
// directory.
func (w *Walk) isSystem(path Path) bool {
	return path.volume == "" && (w.policy.system.of(path.full()) != "" ||
		w.alias != nil && w.alias.system.of(w.alias.root.below(path.names...)) != "")
}

// holdsSystem reports whether a directory holds a system path, by its text or by the alias of its
// allowed directory.
func (w *Walk) holdsSystem(path Path) bool {
	return path.volume == "" && (w.policy.system.holds(path.full()) ||
		w.alias != nil && w.alias.system.holds(w.alias.root.below(path.names...)))
}

// SystemPathsIn returns the texts of the system paths in a working directory. Kubelet's directory
// stands for kubelet's own paths.
func (p *Policy) SystemPathsIn(workingDir string) (held []string) {
	dir, err := split(workingDir, "")
	if err != nil {
		return nil // New has refused the directory
	}
	for _, system := range p.system.withKubelet() {
		if system.inside(dir) {
			held = append(held, system.String())
		}
	}
	return held
}
