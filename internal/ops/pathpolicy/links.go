// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unsafe"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// FoundLink is a link or mount point found by Links.
type FoundLink struct {
	Path Path
	Link Link
	// ForgottenPod is the UID of the link's pod if vol_data.json beside the link is missing or
	// empty: kubelet needs the file to unpublish the volume. Otherwise ForgottenPod is "".
	ForgottenPod string
}

// Limits of Links.
const (
	// maxLinkDepth is the maximum number of names below an allowed directory in the paths of a
	// search. Kubelet's staging and target paths have six:
	// plugins\kubernetes.io\csi\DRIVER\VOLUME\globalmount and pods\POD\volumes\PLUGIN\VOLUME\mount.
	maxLinkDepth = 8
	// maxLinkEntries limits the directory entries checked: in the directory of each pod, in each
	// driver's own directories, and elsewhere.
	maxLinkEntries = 200_000
	// maxLinkBytes limits the memory of the links found in one search, about 10,000 usual links. The
	// target of a link may have 16 KiB.
	maxLinkBytes = 8 << 20
)

// linkOverhead is the memory of a found link besides its texts, in bytes, with its place in a map.
const linkOverhead = 512

// CheckSearched returns csiproxy.ErrFailedPrecondition if Links does not search the entry's
// directory. Call CheckSearched before making a link. A volume or share counts as in use because
// Links finds a link to it. With a link hidden from Links, a volume could be unmounted, or a share
// unmapped, while in use.
func (e Entry) CheckSearched() error {
	if reason := e.walk.policy.unsearched(e.path()); reason != "" {
		return e.refused(csiproxy.ErrFailedPrecondition, reason+", where CSI Proxy doesn't search for links")
	}
	return nil
}

// unsearched says why Links misses a path; "" if Links finds the path.
func (p *Policy) unsearched(path Path) (reason string) {
	above := path.names[:max(0, len(path.names)-1)]
	if path.volume != "" {
		return "the path leads into a mounted volume"
	}
	if slices.ContainsFunc(above, isPodData) {
		return "the path lies in one of kubelet's directories for data that belong to no volume of a driver"
	}
	switch p.placeOf(path).kind {
	case placePodData, placeBelowPublished:
		return "the path lies in the directory of a pod, but not where kubelet has its volumes"
	}
	if p.depth(path) > maxLinkDepth {
		return fmt.Sprintf("the path lies more than %d levels below an allowed directory", maxLinkDepth)
	}
	return ""
}

// depth returns the number of names in path below the innermost allowed directory around it.
func (p *Policy) depth(path Path) int {
	depth := len(path.names)
	for depth > 0 {
		above := path
		above.names = path.names[:len(path.names)-depth+1]
		if !p.holdsAllowed(above) {
			break
		}
		depth--
	}
	return depth
}

// Links returns the links and mount points in the allowed directories, down to maxLinkDepth. In the
// directories of pods, Links searches only kubelet's directories for volumes. Links to files are
// left out: they use no volume or share. Links follows no link.
//
// A driver's policy (see Within) searches the driver's own directories, and the node's policy the
// directories without a driver. The contents of a driver's directories, and the time to read them,
// affect only the driver itself.
//
// If links may be missing, incomplete says why: reading a directory failed or, with
// csiproxy.ErrResourceExhausted, there are too many entries, or too many or too long links.
func (p *Policy) Links(ctx context.Context, sys System) (all []FoundLink, incomplete, _ error) {
	s := &linkSearch{policy: p, remainingEntries: p.linkEntries, remainingBytes: p.linkBytes}
	tops := p.roots
	if p.driverPaths != nil {
		s.driver, tops = p.driverPaths.driver, p.driverPaths.dirs
	}
	for _, dir := range tops {
		top, ok := p.locate(dir)
		if !ok {
			continue
		}
		err := s.top(ctx, sys, top)
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		s.note(err)
	}
	return s.found, s.incomplete, nil
}

type linkSearch struct {
	policy           *Policy
	driver           string // the owner of the searched directories; "" for directories without a driver
	found            []FoundLink
	incomplete       error // the first reason
	remainingEntries int   // how many more entries may be checked
	remainingBytes   int   // how much more memory the found links may take
}

// note keeps the first error. Errors for an entry removed meanwhile are ignored.
func (s *linkSearch) note(err error) {
	if s.incomplete == nil && !Missing(err) {
		s.incomplete = err
	}
}

// mayGoOn counts an entry, and reports whether the entry is within the limit.
func (s *linkSearch) mayGoOn() bool {
	if s.remainingEntries--; s.remainingEntries < 0 {
		s.note(csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"the allowed directories have more than %d entries", s.policy.linkEntries))
	}
	return s.remainingEntries >= 0
}

// top searches an allowed directory or a driver's own directory.
func (s *linkSearch) top(ctx context.Context, sys System, top Path) (err error) {
	w := s.policy.Walk(sys)
	defer w.CloseInto(&err)
	dir, err := w.enter(ctx, top, win.FileOpen)
	if w.isSystem(top) {
		return nil // operations never make links there
	}
	if err != nil {
		return err
	}
	if len(top.names) == 0 {
		return s.search(ctx, dir, 0)
	}
	last := len(top.names) - 1
	if dir, err = dir.openEach(ctx, top.names[:last]); err != nil {
		return err
	}
	aDirectory := win.FileInfo{Attributes: win.AttributeDirectory}
	return s.entry(ctx, dir.Entry(top.names[last]), aDirectory, s.policy.depth(top)-1)
}

// search searches an open directory and the directories below. It returns errors of the directory
// itself, and notes the errors of entries.
func (s *linkSearch) search(ctx context.Context, dir *File, depth int) error {
	before, known := len(s.found), false
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(ctx, restart)
		isEnd := errors.Is(err, winerr.ErrorNoMoreFiles)
		if err != nil && !isEnd {
			return err
		}
		if isEnd || len(entries) == 0 {
			if !known {
				s.noteForgotten(s.found[before:], dir.Entry(csiMount))
			}
			return nil
		}
		for _, e := range entries {
			known = known || win.SameName(e.Name, csiData) && e.Size > 0
			if !s.mayGoOn() {
				return nil
			}
			if err := s.entry(ctx, dir.Entry(e.Name), e.FileInfo, depth); err != nil {
				return err
			}
		}
	}
}

// noteForgotten sets ForgottenPod if published is a published path and among links.
func (s *linkSearch) noteForgotten(links []FoundLink, published Entry) {
	for i, link := range links {
		if link.Path.Equal(published.path()) {
			links[i].ForgottenPod, _ = s.policy.PublishedAt(link.Path)
		}
	}
}

// entry checks one entry. The only possible error is ctx's.
func (s *linkSearch) entry(ctx context.Context, e Entry, info win.FileInfo, depth int) error {
	if s.policy.DriverOf(e.path()) != s.driver {
		return nil
	}
	if !info.IsDir() {
		return ctx.Err()
	}
	var err error
	if info.IsReparsePoint() {
		err = s.link(ctx, e)
	} else if !isPodData(e.names[0]) {
		err = s.directory(ctx, e, depth+1)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		s.note(e.failed(err))
	}
	return nil
}

// link adds e to the found links, if it is still a link, and within the limit.
func (s *linkSearch) link(ctx context.Context, e Entry) error {
	ofPod := e.walk.policy.placeOf(e.path()).inPods()
	if ofPod { // a pod with a volume in a directory of the node can block the open
		defer func(wait time.Duration) { e.walk.remainingWait = wait }(e.walk.remainingWait)
		e.walk.remainingWait = 0
	}
	link, err := e.Link(ctx)
	if errors.Is(err, winerr.ErrorNotAReparsePoint) {
		return nil
	}
	if ofPod && errors.Is(err, winerr.ErrorDeletePending) {
		return nil // a link being deleted cannot be opened, and is unused
	}
	if err != nil {
		return err
	}
	link.PrintName = "" // nobody reads it here
	found := FoundLink{Path: e.path(), Link: link}
	if s.remainingBytes -= found.Bytes(); s.remainingBytes < 0 {
		s.remainingEntries = 0
		return csiproxy.Errorf(csiproxy.ErrResourceExhausted,
			"the links in the allowed directories take more than %d bytes of memory", s.policy.linkBytes)
	}
	s.found = append(s.found, found)
	return nil
}

// Bytes is about the memory of a found link.
func (l FoundLink) Bytes() int {
	bytes := linkOverhead + len(l.Link.SubstituteName) + len(l.Link.Volume)
	for _, names := range [][]string{l.Path.names, l.Link.Path.names} {
		bytes += cap(names) * int(unsafe.Sizeof(""))
		for _, name := range names {
			bytes += len(name)
		}
	}
	return bytes
}

// directory searches the directory e. The entries of e have depth+1 names below an allowed
// directory. e may have become a link since the listing.
func (s *linkSearch) directory(ctx context.Context, e Entry, depth int) (err error) {
	path := e.path()
	if e.walk.isSystem(path) {
		return nil // operations never make links there
	}
	if depth == 1 && e.walk.policy.holdsAllowed(path) {
		depth = 0
	}
	if depth == maxLinkDepth {
		return nil
	}
	kind := e.walk.policy.placeOf(path).kind
	switch kind {
	case placeVolume, placePublished, placeBelowPublished, placePodData:
		return nil
	}
	dir, err := e.openPlain(ctx)
	if errors.Is(err, winerr.ErrorReparsePointEncountered) {
		return s.link(ctx, e)
	}
	if err != nil {
		return err
	}
	defer dir.CloseInto(&err)
	if kind == placePod {
		return s.pod(ctx, dir, depth)
	}
	return s.search(ctx, dir, depth)
}

// pod searches kubelet's directories for volumes in the directory of a pod, without listing the
// pod's directory.
func (s *linkSearch) pod(ctx context.Context, dir *File, depth int) error {
	elsewhere := s.remainingEntries
	s.remainingEntries = s.policy.linkEntries
	defer func() { s.remainingEntries = elsewhere }()
	for _, name := range []string{volumesDirectory, subpathsDirectory} {
		if err := s.entry(ctx, dir.Entry(name), win.FileInfo{Attributes: win.AttributeDirectory}, depth); err != nil {
			return err
		}
	}
	return nil
}
