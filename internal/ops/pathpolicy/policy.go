// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// DefaultKubeletPath is the directory that kubelet uses on Windows.
const DefaultKubeletPath = `C:\var\lib\kubelet`

// Policy is the fixed set of allowed directories and protected volumes.
type Policy struct {
	allowed []location // as given; the first is the kubelet directory
	roots   []location // the outermost allowed directories

	system systemPaths

	protected   []string // volumes: drives, such as "D:", or \\?\Volume{guid}\
	ofTheNode   VolumeCheck
	driverPaths *driverPaths // of the policy's driver; nil for the whole node

	drivers     map[string][]location // the own directories of the node's drivers, by driver
	reformat    map[string][]location // see MayReformatAt, by driver; "" for the whole node
	linkEntries int                   // maxLinkEntries, but in tests
	linkBytes   int                   // maxLinkBytes, but in tests

	held *atomic.Int64 // open files of all walks

	deniesCreation bool // after an unmount
	log            *slog.Logger
}

// Options configure a Policy. The zero value allows kubelet's default directory.
type Options struct {
	// KubeletPath is the directory that kubelet uses: an absolute path with a drive letter. It may
	// be missing at startup. Default: DefaultKubeletPath.
	KubeletPath string
	// WorkingDirs are further allowed directories, in the same form as KubeletPath.
	WorkingDirs []string
	// OwnFiles are the absolute paths of the daemon's own files. Operations leave them alone.
	OwnFiles []string
	// Drivers are the drivers of the node with their own directories. The directories of different
	// drivers must be disjoint. Links searches each driver's directories with separate limits, and
	// one driver cannot exhaust the search.
	Drivers []Driver
	// ReformatDirs are directories in the allowed ones, for MayReformatAt. They do not apply to
	// drivers with their own directories.
	ReformatDirs []string
	// ProtectedVolumes are the administrator's protected volumes, each a drive letter, such as D or
	// D:, or a volume id.
	ProtectedVolumes []string
	// OfTheNode checks the remaining volumes, such as Windows' own. Default: only ProtectedVolumes
	// count.
	OfTheNode VolumeCheck
	// WritableMountPoints makes Unmount leave the directory's access list alone: anybody with the
	// rights can create files there. See [File.Unmount].
	WritableMountPoints bool
	// Logger gets failed steps that do not stop an operation. Default: none.
	Logger *slog.Logger
}

// Driver is a driver with its own directories: kubelet's directories for the driver's name, and
// Dirs, absolute paths in the allowed directories. With Reformat, Dirs are also the driver's
// directories for MayReformatAt.
type Driver struct {
	Name     string
	Dirs     []string
	Reformat bool
}

// Default returns the policy whose only allowed directory is kubelet's.
func Default() *Policy {
	paths, err := New(Options{})
	if err != nil {
		panic(err) // of a constant
	}
	return paths
}

// New returns a policy. The error is csiproxy.ErrInvalidArgument.
func New(o Options) (*Policy, error) {
	p := &Policy{
		protected:      []string{"C:"}, // where Windows is
		ofTheNode:      o.OfTheNode,
		deniesCreation: !o.WritableMountPoints,
		linkEntries:    maxLinkEntries,
		linkBytes:      maxLinkBytes,
		held:           new(atomic.Int64),
		log:            cmp.Or(o.Logger, slog.New(slog.DiscardHandler)),
	}
	for _, dir := range append([]string{cmp.Or(o.KubeletPath, DefaultKubeletPath)}, o.WorkingDirs...) {
		l, err := split(dir, "")
		if err != nil {
			return nil, &csiproxy.Error{Op: "allow directory", Object: quote.Text(dir), Err: err}
		}
		p.allowed = append(p.allowed, l)
	}
	p.system = newSystemPaths(p.allowed[0], o.OwnFiles)
	for _, l := range p.allowed {
		if err := p.system.check(l); err != nil {
			return nil, &csiproxy.Error{Op: "allow directory", Object: quote.Text(l.String()), Err: err}
		}
	}
	for _, l := range p.allowed {
		inOther := func(other location) bool { return l.inside(other) }
		if slices.ContainsFunc(p.roots, inOther) {
			continue
		}
		// A walk begins at the outermost allowed directory: a pod may have write access between two
		// nested allowed directories.
		p.roots = slices.DeleteFunc(p.roots, func(r location) bool { return r.inside(l) })
		p.roots = append(p.roots, l)
	}
	for _, name := range o.ProtectedVolumes {
		volume, err := protectedVolume(name)
		if err != nil {
			return nil, err
		}
		p.protected = append(p.protected, volume)
	}
	if err := p.addDrivers(o.Drivers); err != nil {
		return nil, err
	}
	for _, dir := range o.ReformatDirs {
		l, err := p.checkDirectory("", dir)
		if err != nil {
			return nil, &csiproxy.Error{Op: "allow reformatting in directory", Object: quote.Text(dir), Err: err}
		}
		p.reformat[""] = append(p.reformat[""], l)
	}
	return p, nil
}

// Path is a path inside the policy's directories or, behind a link, in a volume mounted inside
// them.
type Path struct {
	root   location // the allowed directory; without a drive: the root of volume
	volume string   // \\?\Volume{guid}\
	names  []string // the elements below
}

// String returns the path in Windows' form, with the allowed directory in its own spelling:
// `C:\var\lib\kubelet\x` or `\\?\Volume{guid}\x`.
func (p Path) String() string {
	if p.volume != "" {
		return p.volume + strings.Join(p.names, `\`)
	}
	return p.full().String()
}

// Equal reports whether two paths are the same text to NTFS.
func (p Path) Equal(q Path) bool {
	if p.volume != "" || q.volume != "" {
		return strings.EqualFold(p.volume, q.volume) && slices.EqualFunc(p.names, q.names, win.SameName)
	}
	return p.full().equal(q.full())
}

// full is the path from its drive on.
func (p Path) full() location {
	return location{p.root.drive, slices.Concat(p.root.names, p.names)}
}

// Limits on the length of a path, in UTF-16 units.
const (
	MaxPath     = 260   // what the filesystem group promises
	MaxLongPath = 32767 // what Windows can do
)

// Parse checks the text of a path of at most maxLength UTF-16 units. Every fault gives
// csiproxy.ErrInvalidArgument, even a path outside the allowed directories: retrying is pointless.
// The exception is a driver's policy: a path outside the driver's driverPaths gives
// csiproxy.ErrPermissionDenied. The error leaves out the path.
//
// As in Windows, repeated backslashes count as a single backslash, and backslashes at the end are
// ignored. A path that begins with one backslash is on the drive of the kubelet directory: kubelet
// gives drivers such paths.
func (p *Policy) Parse(path string, maxLength int) (Path, error) {
	if len(path) > maxLength { // a quick check: each unit takes at least a byte
		if length := win.NameLength(path); length > maxLength {
			return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path has %d characters, and may have at most %d",
				length, maxLength)
		}
	}
	l, err := split(path, p.allowed[0].drive)
	if err != nil {
		return Path{}, err
	}
	if len(l.names) > maxDirectories {
		return Path{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path has %d elements, and may have at most %d",
			len(l.names), maxDirectories)
	}
	parsed, ok := p.locate(l)
	if !ok {
		kind := csiproxy.ErrInvalidArgument
		if p.driverPaths != nil { // a driver must not learn the other allowed directories
			kind = csiproxy.ErrPermissionDenied
		} else if err := p.system.check(l); err != nil && slices.ContainsFunc(p.roots, l.inside) {
			return Path{}, err
		}
		return Path{}, csiproxy.Errorf(kind, "the path is not inside of %s", p.directories())
	}
	return parsed, nil
}

// directories names the allowed directories and the daemon's flags that allow them.
func (p *Policy) directories() string {
	if p.driverPaths != nil {
		return p.driverPaths.directories()
	}
	s := "the kubelet directory " + quote.Text(p.allowed[0].String()) + " (-kubelet-path)"
	for _, dir := range p.allowed[1:] {
		s += ", the working directory " + quote.Text(dir.String())
	}
	if len(p.allowed) == 1 {
		return s + "; -working-dir allows others"
	}
	return s + " (-working-dir)"
}

func (p *Policy) locate(l location) (Path, bool) {
	if p.system.check(l) != nil {
		return Path{}, false
	}
	if p.driverPaths != nil && !p.driverPaths.has(l) {
		return Path{}, false
	}
	i := slices.IndexFunc(p.roots, l.inside)
	if i < 0 {
		return Path{}, false
	}
	root := p.roots[i]
	return Path{root: root, names: l.names[len(root.names):]}, true
}

// holdsAllowed reports whether path is an allowed directory or a directory above one.
func (p *Policy) holdsAllowed(path Path) bool {
	return path.volume == "" && slices.ContainsFunc(p.allowed, func(a location) bool { return a.inside(path.full()) })
}
