// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Extent returns the place of a volume on one part of one disk. The error is
// csiproxy.ErrInvalidArgument for a malformed volume id, csiproxy.ErrNotFound for a missing volume.
func Extent(ctx context.Context, sys win.DeviceOpener, id csiproxy.VolumeID) (win.DiskExtent, error) {
	if err := id.Validate(); err != nil {
		return win.DiskExtent{}, err
	}
	extents, err := win.ExtentsOf(ctx, sys, win.VolumePath(string(id)))
	if err == nil && len(extents) != 1 {
		err = SpreadError(len(extents))
	}
	if err != nil {
		return win.DiskExtent{}, err
	}
	return extents[0], nil
}

// SpreadError is the error for a volume on several parts of disks, or on none.
func SpreadError(parts int) error {
	return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
		"the volume lies on %d parts of disks; only a volume on one part of one disk can be used", parts)
}

// IsMissing reports whether a volume is missing now, because its disk has left the node or is
// offline. IsMissing queries the volume itself. If Windows lists the volume, but fails to open it,
// the error is csiproxy.ErrUnavailable. To a driver, volumes of other drivers are missing.
func (f *Finder) IsMissing(ctx context.Context, id csiproxy.VolumeID) (bool, error) {
	_, err := Extent(ctx, f.sys, id)
	if errors.Is(err, scope.ErrNotOwn) {
		return true, nil
	}
	if !winerr.IsGone(err) {
		return false, err
	}
	names, listErr := f.sys.FindVolumes(ctx)
	if listErr != nil {
		return false, listErr
	}
	if slices.ContainsFunc(names, func(name string) bool { return id.Equal(csiproxy.VolumeID(name)) }) {
		return false, &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
			Detail: "Windows lists the volume, but it can't be opened; try again later", Err: err}
	}
	return true, nil
}

// Directories returns the paths without the drive letters. Windows assigns letters on its own, and
// a letter does not count as "in use".
func Directories(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), IsDriveLetter)
}

// IsDriveLetter reports whether a mount point is a drive letter rather than a directory.
func IsDriveLetter(mountPath string) bool { return len(mountPath) <= len(`C:\`) }

// Allowed returns the paths of MountedAt below the allowed directories.
func (f *Finder) Allowed(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), f.SharedFinder.paths.IsListedOutside)
}

// MountsMissingVolume reports whether a missing volume, perhaps of a disk, is mounted in the allowed
// directories. Only the own directories of the disk's driver and the directories without a driver
// count. If some of these are unreadable, the result is true: a missing volume may be mounted there.
func (f *Finder) MountsMissingVolume(ctx context.Context, n csiproxy.DiskNumber) (bool, error) {
	owner, err := f.ownerOfDisk(ctx, n)
	if err != nil {
		return true, ctx.Err()
	}
	links, incomplete, err := f.Links(ctx, owner)
	if err != nil || incomplete != nil {
		return true, err
	}
	for l := range links.All() {
		if !l.Link.IsMountPoint() {
			continue
		}
		sys := f.whole // any driver's volume may be mounted in directories without a driver
		if f.driver != "" && f.paths.DriverOf(l.Path) == f.driver {
			sys = f.sys
		}
		if _, err := Extent(ctx, sys, csiproxy.VolumeID(l.Link.Volume)); err != nil {
			return true, ctx.Err()
		}
	}
	return false, nil
}

// MaxLinksFollowed is the maximum number of links and mount points on the way to a volume or share:
// the limit of Windows for one open. In a longer chain only the links near the end count. The limit
// bounds the time: every link is followed, and a chain of some thousand links would take minutes.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/reparse-points
const MaxLinksFollowed = 63

// FoundLinks are the links and mount points found in one search of the allowed directories. Callers
// share them, and must not change them.
type FoundLinks struct {
	searches []linkSearch
	drivers  []*Finder // the drivers whose own directories were also searched
}

// linkSearch is the result of a search, shared by its callers.
type linkSearch struct {
	all        []pathpolicy.FoundLink
	byPath     map[string]*pathpolicy.FoundLink // by win.LowerName of the path
	longest    int                              // the length of the longest key
	incomplete error                            // why links may be missing, or nil
}

func newLinkSearch(all []pathpolicy.FoundLink, incomplete error) linkSearch {
	s := linkSearch{all: all, byPath: make(map[string]*pathpolicy.FoundLink, len(all)), incomplete: incomplete}
	for i := range all {
		path := win.LowerName(all[i].Path.String())
		s.byPath[path] = &all[i]
		s.longest = max(s.longest, len(path))
	}
	return s
}

// All returns all links.
func (l FoundLinks) All() iter.Seq[*pathpolicy.FoundLink] {
	return func(yield func(*pathpolicy.FoundLink) bool) {
		for _, s := range l.searches {
			for i := range s.all {
				if !yield(&s.all[i]) {
					return
				}
			}
		}
	}
}

// At returns the link at a path, or nil.
func (l FoundLinks) At(path string) *pathpolicy.FoundLink { return l.at(win.LowerName(path)) }

func (l FoundLinks) at(folded string) *pathpolicy.FoundLink {
	for _, s := range l.searches {
		if link := s.byPath[folded]; link != nil {
			return link
		}
	}
	return nil
}

// FirstOn returns the first link on a path: at a directory above, or at the path itself. If there is
// none, FirstOn returns nil.
func (l FoundLinks) FirstOn(path string) *pathpolicy.FoundLink {
	longest := 0
	for _, s := range l.searches {
		longest = max(longest, s.longest)
	}
	folded := win.LowerName(path)
	for end, char := range folded {
		if end > longest {
			return nil
		}
		if char == '\\' {
			if first := l.at(folded[:end]); first != nil {
				return first
			}
		}
	}
	return l.at(folded)
}

// searchTimeout is the time limit for a search of a driver's own directories.
const searchTimeout = 10 * time.Second

// Incomplete is why links may be missing: in a driver's own directories, by the driver, and in the
// directories without a driver, by "".
type Incomplete map[string]error

// For returns why links to a driver's volumes and shares may be missing, or nil. Other drivers'
// directories have none.
func (i Incomplete) For(driver string) error { return cmp.Or(i[""], i[driver]) }

// Any returns why any link may be missing, or nil.
func (i Incomplete) Any() (err error) {
	for _, driver := range slices.Sorted(maps.Keys(i)) {
		err = cmp.Or(err, i[driver])
	}
	return err
}

// Links returns the links and mount points in a driver's own directories, and in the directories
// without a driver. incomplete is why links may be missing, or nil. A driver's finder always uses
// its own driver.
func (f *Finder) Links(ctx context.Context, driver string) (_ FoundLinks, incomplete, err error) {
	var drivers []*Finder
	if own := f.drivers[cmp.Or(f.driver, driver)]; own != nil {
		drivers = append(drivers, own)
	}
	links, reasons, err := f.findLinks(ctx, drivers)
	return links, reasons.Any(), err
}

// AllLinks is Links with the own directories of all drivers. A driver's finder uses its own driver
// only.
func (f *Finder) AllLinks(ctx context.Context) (_ FoundLinks, incomplete Incomplete, err error) {
	if f.driver != "" {
		return f.findLinks(ctx, []*Finder{f.drivers[f.driver]})
	}
	var drivers []*Finder
	for _, name := range slices.Sorted(maps.Keys(f.drivers)) {
		drivers = append(drivers, f.drivers[name])
	}
	return f.findLinks(ctx, drivers)
}

func (f *Finder) findLinks(ctx context.Context, drivers []*Finder) (_ FoundLinks, incomplete Incomplete, err error) {
	if f.driver != "" {
		ctx = operation.ForDriver(ctx)
	}
	found, err := NewFinder(f.SharedFinder).search(ctx, f.driver)
	if err != nil {
		return FoundLinks{}, nil, err
	}
	all, incomplete := FoundLinks{[]linkSearch{found}, drivers}, Incomplete{"": f.withoutPath(found.incomplete)}
	for _, driver := range drivers {
		found, err := driver.search(ctx, driver.driver)
		if ctx.Err() != nil {
			return FoundLinks{}, nil, ctx.Err()
		}
		all.searches, incomplete[driver.driver] = append(all.searches, found), cmp.Or(err, found.incomplete)
	}
	return all, incomplete, nil
}

// search searches the own directories of the finder's driver or, with the node's finder, the
// directories without a driver. Concurrent callers with the same key share a search. A caller first
// waits for the end of the current search with its key. Each driver has its own key, and a driver
// that searches all the time delays only itself.
func (f *Finder) search(ctx context.Context, key string) (linkSearch, error) {
	searches := &f.links
	if f.driver != "" {
		searches = &f.linksOfDrivers
	}
	return searches.Do(ctx, key, func(ctx context.Context) (linkSearch, error) {
		all, incomplete, err := f.paths.Links(ctx, f.sys)
		return newLinkSearch(all, incomplete), err
	})
}

// withoutPath returns an error about something outside a driver's own directories. To the driver,
// the error names no path there: a path may contain the UID of another driver's pod, for example.
func (f *Finder) withoutPath(err error) error {
	if f.driver == "" || err == nil {
		return err
	}
	return csiproxy.Errorf(csiproxy.KindOf(err), "a directory or link outside of the driver's own directories can't be read; "+
		"csi-proxyctl storage volumes says which one to an administrator of the node")
}

// MountsOf returns the mount points of a disk's volumes in the allowed directories. MountsOf
// searches the directories, and never queries the disk. If the search may have missed mounts,
// MountsOf returns an error.
func (f *Finder) MountsOf(ctx context.Context, n csiproxy.DiskNumber) (paths []string, _ error) {
	owner, err := f.ownerOfDisk(ctx, n)
	if err != nil {
		return nil, err
	}
	end, err := f.BeginFollowing(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	links, incomplete, err := f.Links(ctx, owner)
	if err = cmp.Or(err, incomplete); err != nil {
		return nil, err
	}
	for l := range links.All() {
		if !l.Link.IsMountPoint() {
			continue
		}
		extents, err := f.extentsIfThere(ctx, csiproxy.VolumeID(l.Link.Volume))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			err = &csiproxy.Error{Object: l.Path.String(), Err: err}
			if f.paths.DriverOf(l.Path) != f.driver {
				err = f.withoutPath(err)
			}
			return nil, err
		}
		if slices.ContainsFunc(extents, func(e win.DiskExtent) bool { return e.DiskNumber == n }) {
			paths = append(paths, l.Path.String())
		}
	}
	return paths, nil
}

// extentsIfThere returns the parts of disks under a volume: none for a missing volume.
func (f *Finder) extentsIfThere(ctx context.Context, id csiproxy.VolumeID) ([]win.DiskExtent, error) {
	extents, err := win.ExtentsOf(ctx, f.sys, win.VolumePath(string(id)))
	if winerr.IsGone(err) {
		missing, missingErr := f.IsMissing(ctx, id)
		if missing {
			return nil, nil
		}
		err = cmp.Or(missingErr, err)
	}
	return extents, err
}

// LinksToVolume returns the links in the allowed directories that lead to a volume, directly or
// through further links. Links in the own directories of drivers other than the volume's are
// ignored. If the search may have missed links, LinksToVolume returns an error.
func (f *Finder) LinksToVolume(ctx context.Context, id csiproxy.VolumeID) (links []string, _ error) {
	owner, err := f.ownerOfVolume(ctx, id)
	if err != nil {
		return nil, unknownLinks(err)
	}
	end, err := f.BeginFollowing(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	all, incomplete, err := f.Links(ctx, owner)
	if err != nil {
		return nil, err
	}
	if incomplete != nil {
		return nil, unknownLinks(incomplete)
	}
	return f.LinksToVolumeAmong(ctx, all, owner, id)
}

// BeginFollowing waits until fewer than maxFollowing calls of the finder's driver follow links. Each
// of them holds the links of its search. Calls at the shared endpoints are unlimited.
func (f *Finder) BeginFollowing(ctx context.Context) (end func(), _ error) {
	if f.driver == "" {
		return func() {}, nil
	}
	select {
	case f.following <- struct{}{}:
		return func() { <-f.following }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// finderFor returns the finder for following a link: of the driver whose own directories hold the
// link or its target.
func (f *Finder) finderFor(l *pathpolicy.FoundLink) *Finder {
	for _, path := range []pathpolicy.Path{l.Path, l.Link.Path} {
		if owner := f.drivers[f.paths.DriverOf(path)]; f.driver == "" && owner != nil {
			return owner
		}
	}
	return f
}

// ExplainEmpty says why a link leads to nothing; "" if the link leads to a volume, a share or
// files.
func (f *Finder) ExplainEmpty(ctx context.Context, l *pathpolicy.FoundLink) (reason string, _ error) {
	if l.Link.Kind != pathpolicy.LinkInside {
		return "", nil
	}
	finder := f.finderFor(l)
	return finder.paths.ExplainEmpty(ctx, finder.sys, l.Link.Path)
}

// LinksToVolumeAmong returns the links that lead to a volume of a driver, among all links in the
// allowed directories. Links in the own directories of other drivers are ignored.
func (f *Finder) LinksToVolumeAmong(ctx context.Context, all FoundLinks, driver string, id csiproxy.VolumeID) (links []string, _ error) {
	known := make(map[*pathpolicy.FoundLink]int)
	for l := range all.All() {
		if l.Link.IsMountPoint() {
			continue
		}
		if holder := f.paths.DriverOf(l.Path); holder != "" && holder != driver {
			continue
		}
		length, err := f.wayToVolume(ctx, l, id, all, known)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, unknownLinks(err)
		}
		if length > 0 {
			links = append(links, l.Path.String())
		}
	}
	return links, nil
}

func unknownLinks(err error) error {
	return &csiproxy.Error{
		Kind: csiproxy.ErrUnavailable, Err: err,
		Detail: "CSI Proxy can't tell whether pods use the volume, since some links can't be read; try again later",
	}
}

// wayToVolume returns the number of links and mount points on the way of a link to a volume or into
// it; 0 if the link leads elsewhere. known has the results for the links followed before, and gets
// those for all links on the way: a chain is followed once, however many links lead into it.
func (f *Finder) wayToVolume(ctx context.Context, l *pathpolicy.FoundLink, id csiproxy.VolumeID, all FoundLinks,
	known map[*pathpolicy.FoundLink]int) (length int, _ error) {
	var followed []*pathpolicy.FoundLink
	for l != nil {
		isKnown := false
		if length, isKnown = known[l]; isKnown {
			break
		}
		known[l] = 0 // a circle ends here
		next, leads, err := f.follow(ctx, l, id, all)
		if err != nil {
			return 0, err
		}
		if leads {
			length = 1
			known[l] = length
			break
		}
		followed = append(followed, l)
		l = next
	}
	for _, link := range slices.Backward(followed) {
		if length == 0 || length == MaxLinksFollowed { // a longer way counts as leading elsewhere
			return 0, nil
		}
		length++
		known[link] = length
	}
	return length, nil
}

// follow returns the next link or mount point on the way of a link, or nil at its end, and reports
// whether the end lies on a volume. follow takes links and mount points from all. Further links are
// read only on a way without any of these: links inside another volume or share belong to its pods,
// and are no use of this volume. A way through a driver's unsearched directories is ignored too.
func (f *Finder) follow(ctx context.Context, l *pathpolicy.FoundLink, id csiproxy.VolumeID, all FoundLinks) (
	next *pathpolicy.FoundLink, leads bool, _ error) {
	switch l.Link.Kind {
	case pathpolicy.LinkToVolume:
		return nil, id.Equal(csiproxy.VolumeID(l.Link.Volume)), nil
	case pathpolicy.LinkInside:
	default:
		return nil, false, nil
	}
	to := l.Link.Path
	driver := f.paths.DriverOf(to)
	isSearched := func(searched *Finder) bool { return searched.driver == driver }
	if driver != "" && !slices.ContainsFunc(all.drivers, isSearched) {
		return nil, false, nil
	}
	next = all.FirstOn(to.String())
	if next != nil && (next.Link.Kind != pathpolicy.LinkInside || next.Path.Equal(to)) {
		return next, false, nil
	}
	leads, err := f.finderFor(l).resolvesTo(ctx, to, id)
	if driver != f.driver {
		err = f.withoutPath(err)
	}
	return nil, leads, err
}

// resolvesTo reports whether a path leads to a volume or into it.
func (f *Finder) resolvesTo(ctx context.Context, path pathpolicy.Path, id csiproxy.VolumeID) (bool, error) {
	_, on, err := f.paths.ResolveVolume(ctx, f.sys, path)
	if winerr.IsGone(err) { // the path seems to lead through a missing volume; ask twice
		_, on, err = f.paths.ResolveVolume(ctx, f.sys, path)
		if winerr.IsGone(err) {
			return false, nil
		}
	}
	if pathpolicy.LeadsOutside(err) {
		return false, nil
	}
	return err == nil && id.Equal(csiproxy.VolumeID(on)), err
}

// VolumeUse is the used and the whole size of a PersistentVolume's volume.
type VolumeUse struct {
	VolumeID, PersistentVolume, Driver string
	UsedBytes, SizeBytes               uint64
}
