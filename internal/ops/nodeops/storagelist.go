// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// silentVolumeTimeout is how long a list waits for a silent volume or share.
const silentVolumeTimeout = 5 * time.Second

// GetVolume implements [csiproxy.StorageOperations].
func (s *Staging) GetVolume(ctx context.Context, path string) (_ csiproxy.Volume, err error) {
	defer s.options.Observer.End("GetVolume", pathText("path", path), time.Now(), &err)
	notThere := csiproxy.Errorf(csiproxy.ErrNotFound, "neither a volume nor a share is mounted there")
	if remote, err := win.ParseUNC(path); err == nil {
		if !s.Paths.HasShare(path) {
			return csiproxy.Volume{}, notThere
		}
		return s.describeShare(ctx, remote)
	}
	p, err := s.Volumes.Parse(path)
	if err != nil {
		return csiproxy.Volume{}, err
	}
	to, err := s.endOf(ctx, p)
	if err != nil {
		return csiproxy.Volume{}, err
	}
	switch to.Kind {
	case pathpolicy.MountedVolume:
		return s.describe(ctx, csiproxy.VolumeID(to.Volume))
	case pathpolicy.SharedDirectory:
		remote, err := win.ParseUNC(to.Target)
		if err != nil {
			return csiproxy.Volume{}, err
		}
		return s.describeShare(ctx, remote)
	}
	if to.ByLink {
		reason, err := s.Paths.ExplainEmpty(ctx, s.Sys, p)
		if err != nil || reason != "" {
			return csiproxy.Volume{Conditions: notMounted(reason)}, err
		}
	}
	return csiproxy.Volume{}, notThere
}

// endOf returns the target of a path. It first tries Lookup, which leaves the directories on the
// way unheld: kubelet asks for each volume once a minute, and may remove a directory at the same
// moment. Lookup is safe here, because no change depends on the answer, and suffices for most
// paths, the staged volumes.
func (s *Staging) endOf(ctx context.Context, path pathpolicy.Path) (pathpolicy.Resolved, error) {
	to, err := s.Paths.Lookup(ctx, s.Sys, path)
	if err == nil && to.Kind == pathpolicy.MountedVolume {
		reason, err := s.Paths.Protects(ctx, s.Sys, to.Volume)
		if err == nil && reason == "" {
			return to, nil
		}
	}
	return s.Paths.Resolve(ctx, s.Sys, path)
}

// notMounted is the condition of a link without a volume or share at its end.
func notMounted(reason string) csiproxy.Conditions {
	return csiproxy.Conditions{{Reason: csiproxy.ReasonNotMounted, Inaccessible: true, Message: reason}}
}

// describe returns everything known about a volume. Concurrent callers share a query that begins
// after their calls, and each caller sees its own earlier changes. A silent volume is returned with
// the condition NotAnswering.
func (s *Staging) describe(ctx context.Context, id csiproxy.VolumeID) (csiproxy.Volume, error) {
	soon, cancel := context.WithTimeout(ctx, silentVolumeTimeout)
	defer cancel()
	described, err := s.volumes.Do(soon, id,
		func(ctx context.Context) (csiproxy.Volume, error) { return s.Volumes.Describe(ctx, id) })
	if isSilent(err) && ctx.Err() == nil {
		return csiproxy.Volume{VolumeID: id, Conditions: unanswered(csiproxy.ReasonNotAnswering, "it")}, nil
	}
	return described, err
}

// describeShare is describe for a share.
func (s *Staging) describeShare(ctx context.Context, remote win.UNCPath) (csiproxy.Volume, error) {
	soon, cancel := context.WithTimeout(ctx, silentVolumeTimeout)
	defer cancel()
	described, err := s.shares.Do(soon, remote.Root(),
		func(ctx context.Context) (csiproxy.Volume, error) { return s.Mappings.Describe(ctx, remote) })
	if isSilent(err) && ctx.Err() == nil {
		described, err = csiproxy.Volume{
			Share: remote.Root(), Conditions: unanswered(csiproxy.ReasonShareUnreachable, "its server")}, nil
	}
	described.Driver = s.Users.OwnerOfShare(remote.Root())
	return described, err
}

// unanswered is the condition of a silent volume or share.
func unanswered(reason csiproxy.Reason, who string) csiproxy.Conditions {
	return csiproxy.Conditions{{Reason: reason, Inaccessible: true,
		Message: who + " has not answered in time"}}
}

// isSilent reports whether err means that Windows hasn't answered. An error number of Windows is an
// answer.
func isSilent(err error) bool {
	_, answered := csiproxy.WindowsErrorOf(err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, csiproxy.ErrUnavailable) && !answered
}

// ListVolumes implements [csiproxy.StorageOperations].
func (s *Staging) ListVolumes(ctx context.Context) (_ csiproxy.VolumeList, err error) {
	defer s.options.Observer.End("ListVolumes", "", time.Now(), &err)
	return s.list(ctx, false)
}

// list is ListVolumes. With leftovers, the list also counts as incomplete if some mount can't be
// classified as a leftover or as in use, and a mapping of another program may be a leftover.
func (s *Staging) list(ctx context.Context, leftovers bool) (list csiproxy.VolumeList, _ error) {
	links, incomplete, err := s.Users.AllLinks(ctx)
	if err != nil {
		return list, err
	}
	found := s.cutOthers(s.Paths.Own(links.All()), incomplete)
	mounts, err := s.mountsAt(ctx, found, links)
	if err != nil {
		return list, err
	}
	undecided, err := s.markGone(ctx, mounts, found, links, incomplete)
	if err != nil {
		return list, err
	}
	if !leftovers {
		undecided = nil
	}
	sort.Slice(mounts, func(i, j int) bool { return mounts[i].Path < mounts[j].Path })
	unused, err := s.unusedMappings(ctx, mounts, incomplete, leftovers)
	if ctx.Err() != nil {
		return list, ctx.Err()
	}
	return csiproxy.VolumeList{Mounts: append(mounts, unused...),
		IncompleteReason: incompleteReason(incomplete.Any(), err, undecided)}, nil
}

// maxOthersBytes limits what the links of another driver take of a list: clients take answers of 4 MiB.
const maxOthersBytes = 512 << 10

// cutOthers returns the found links without those of another driver beyond maxOthersBytes, and adds such drivers to
// incomplete.
func (s *Staging) cutOthers(found []*pathpolicy.FoundLink, incomplete usage.Incomplete) (kept []*pathpolicy.FoundLink) {
	bytes := make(map[string]int)
	for _, l := range found {
		driver := s.Paths.DriverOf(l.Path)
		bytes[driver] += l.Bytes()
		if driver == "" || driver == s.options.Driver || bytes[driver] <= maxOthersBytes {
			kept = append(kept, l)
			continue
		}
		incomplete[driver] = csiproxy.Errorf(csiproxy.ErrResourceExhausted, "driver %s has too many links for a list", driver)
	}
	return kept
}

// incompleteReason returns why a list is incomplete: links, mappings or leftovers; "" for a
// complete list.
func incompleteReason(links, mappings, undecided error) string {
	var texts []string
	if links != nil {
		texts = append(texts, "not all directories could be read: "+links.Error())
	}
	if mappings != nil {
		texts = append(texts, "Windows doesn't tell which shares are mapped, and whether they are used: "+mappings.Error())
	}
	if undecided != nil {
		texts = append(texts, "CSI Proxy can't tell which mounts are left over: "+undecided.Error())
	}
	return strings.Join(texts, "; ")
}

// markGone marks leftovers of ended pods: mounts whose volume has left the node, and to which no link
// leads. mounts[i] is at found[i]. markGone skips mounts outside of kubelet's staging paths, since an
// administrator may have made them. undecided is the reason why some mount can't be classified.
func (s *Staging) markGone(ctx context.Context, mounts []csiproxy.Mount, found []*pathpolicy.FoundLink,
	links usage.FoundLinks, incomplete usage.Incomplete) (undecided, _ error) {
	for i, m := range mounts {
		mayBeGone := m.Kind == csiproxy.MountKindMountPoint && m.Volume.Disk == nil && m.Volume.Abnormal() &&
			m.Volume.Conditions[0].Reason != csiproxy.ReasonNotAnswering // a silent volume is there
		if !mayBeGone || !s.Paths.IsOfKubelet(found[i].Path) {
			continue
		}
		driver := s.Paths.DriverOf(found[i].Path)
		if incomplete.For(driver) != nil {
			continue
		}
		gone, err := s.volumeLeftNode(ctx, m.Volume.VolumeID, driver)
		var leading []string
		if gone {
			leading, err = s.Users.LinksToVolumeAmong(ctx, links, driver, m.Volume.VolumeID)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil: // the mount stays unmarked
			undecided = &csiproxy.Error{Object: quote.Text(m.Path), Err: err}
		case gone && len(leading) == 0:
			mounts[i].LeftoverReason = "the disk of the volume has left the node"
		}
	}
	return undecided, nil
}

// listedAtOnce is how many volumes and shares a list asks concurrently.
const listedAtOnce = 16

// askByOwner calls ask for the objects 0 to len(owners)-1, on behalf of a driver or, with "", of the node.
// owners[i] is the owner of object i. At most atOnce calls for the same owner run concurrently. The functions
// that the calls return run one at a time. The node waits for all objects without a driver, and at most
// silentVolumeTimeout for those of drivers. A driver has only its own objects, and waits for all.
func askByOwner(ctx context.Context, driver string, owners []string, atOnce int,
	ask func(ctx context.Context, i int) (take func(), _ error)) error {
	var own []int
	count, ofDrivers := 0, make(map[string][]int)
	for i, owner := range owners {
		if owner == "" || driver != "" {
			own = append(own, i)
		} else {
			count++
			ofDrivers[owner] = append(ofDrivers[owner], i)
		}
	}
	takes, errs := make([]func(), len(owners)), make([]error, len(owners))
	askOne := func(ctx context.Context, i int) error {
		takes[i], errs[i] = ask(ctx, i)
		return nil
	}
	ended := make(chan operation.Outcome[int], 1)
	go func() {
		ended <- operation.Catch(func() (int, error) {
			return 0, operation.Each(len(own), atOnce, func(k int) error { return askOne(ctx, own[k]) })
		})
	}()
	takeAnswer := func(i int) bool {
		if errs[i] == nil {
			takes[i]()
		}
		return true
	}
	operation.AskByOwner(ctx, count, ofDrivers, atOnce, silentVolumeTimeout, askOne, takeAnswer)
	_, err := (<-ended).Get()
	for _, i := range own {
		err = cmp.Or(err, errs[i])
		takeAnswer(i)
	}
	return cmp.Or(err, ctx.Err())
}

// mountsAt describes the mounts at the links found, among all links.
func (s *Staging) mountsAt(ctx context.Context, found []*pathpolicy.FoundLink, all usage.FoundLinks) ([]csiproxy.Mount, error) {
	mounts, owners := make([]csiproxy.Mount, len(found)), make([]string, len(found))
	for i, l := range found {
		mounts[i], owners[i] = s.silentMount(l)
	}
	return mounts, askByOwner(ctx, s.options.Driver, owners, listedAtOnce, func(ctx context.Context, i int) (func(), error) {
		m, err := s.mounted(ctx, found[i], all)
		return func() { mounts[i] = m }, err
	})
}

// silentMount returns the mount at a link whose volume or share has not answered, and the driver that
// owns the mount.
func (s *Staging) silentMount(l *pathpolicy.FoundLink) (m csiproxy.Mount, driver string) {
	m = csiproxy.Mount{Path: l.Path.String(), Target: l.Link.Target(), ForgottenPod: l.ForgottenPod, Kind: csiproxy.MountKindLink}
	m.Volume.Conditions = unanswered(csiproxy.ReasonNotAnswering, "it")
	driver = cmp.Or(s.Paths.DriverOf(l.Path), s.Paths.DriverOf(l.Link.Path))
	if l.Link.IsMountPoint() {
		m.Kind, m.Volume.VolumeID = csiproxy.MountKindMountPoint, csiproxy.VolumeID(l.Link.Volume)
	} else if l.Link.Kind == pathpolicy.LinkToShare {
		m.Kind = csiproxy.MountKindShare
		if remote, err := win.ParseUNC(m.Target); err == nil {
			driver = s.Users.OwnerOfShare(remote.Root())
			m.Volume = csiproxy.Volume{Share: remote.Root(), Driver: driver,
				Conditions: unanswered(csiproxy.ReasonShareUnreachable, "its server")}
		}
	}
	return m, driver
}

// mounted describes the volume or share at the end of l. all has all links and mount points,
// including l.
func (s *Staging) mounted(ctx context.Context, l *pathpolicy.FoundLink, all usage.FoundLinks) (m csiproxy.Mount, err error) {
	m, _ = s.silentMount(l)
	m.Volume = csiproxy.Volume{}
	if l.Link.IsMountPoint() {
		m.Volume, err = s.describe(ctx, csiproxy.VolumeID(l.Link.Volume))
		return m, err
	}
	if l.Link.Kind == pathpolicy.LinkToShare {
		remote, parseErr := win.ParseUNC(m.Target)
		if parseErr != nil {
			return m, nil
		}
		if m.Volume, err = s.describeShare(ctx, remote); err != nil {
			m.Volume = csiproxy.Volume{Share: remote.Root(),
				Conditions: csiproxy.Conditions{{Reason: csiproxy.ReasonShareUnknown, Message: err.Error()}}}
		}
		return m, ctx.Err()
	}
	if l.Link.Kind == pathpolicy.LinkInside {
		if to := all.At(l.Link.Path.String()); to != nil && to.Link.IsMountPoint() {
			return m, nil // known to lead to a volume; following the link would take two calls for each directory
		}
	}
	reason, err := s.Users.ExplainEmpty(ctx, l)
	if err == nil {
		m.LeftoverReason = reason
	} else if !pathpolicy.LeadsOutside(err) { // a link leading outside is foreign
		m.Volume.Conditions = csiproxy.Conditions{{Reason: csiproxy.ReasonUnreadable, Inaccessible: true,
			Message: "CSI Proxy can't find out where it leads: " + err.Error()}}
	}
	return m, ctx.Err()
}

// unusedMappings returns the mappings without a staged path, with their names in Windows. Such a
// mapping is a leftover if CSI Proxy has made it for a staged path, and no file on its share is
// open. With leftovers, a mapping made by another program is also a leftover if the server refuses
// the mapping: a refused mapping keeps the server from accepting other credentials. If Windows
// leaves some of these questions unanswered, unusedMappings returns an error.
func (s *Staging) unusedMappings(ctx context.Context, mounts []csiproxy.Mount,
	incomplete usage.Incomplete, leftovers bool) (unused []csiproxy.Mount, unknown error) {
	mappings, err := s.Mappings.Mapped(ctx)
	if err != nil {
		return nil, err
	}
	uses := make(map[string][]int) // the mounts of each share, by the share's root
	for i, m := range mounts {
		if m.Kind == csiproxy.MountKindShare {
			uses[m.Volume.Share] = append(uses[m.Volume.Share], i)
		}
	}
	var once sync.Once
	var open map[string]int
	var openErr error
	openFiles := func() (map[string]int, error) {
		once.Do(func() { open, openErr = s.Mappings.OpenFiles(ctx) })
		return open, openErr
	}
	var remotes []win.UNCPath
	var ofShares []win.SMBMapping
	var owners []string
	for _, mapping := range mappings {
		remote, err := win.ParseUNC(mapping.RemotePath)
		if err != nil {
			return nil, err
		}
		isUse := func(i int) bool {
			target, err := win.ParseUNC(mounts[i].Target)
			return err == nil && target.IsBelow(remote)
		}
		if mapping.LocalPath == "" && slices.ContainsFunc(uses[remote.Root()], isUse) { // mounts never use drive letters
			continue
		}
		m := csiproxy.Mount{Kind: csiproxy.MountKindMapping, Path: mapping.LocalPath, Target: mapping.RemotePath,
			Volume: csiproxy.Volume{Share: remote.Root(), Unencrypted: !mapping.RequirePrivacy}}
		unused, remotes, ofShares = append(unused, m), append(remotes, remote), append(ofShares, mapping)
		owners = append(owners, s.Users.OwnerOfShare(remote.Root()))
	}
	err = askByOwner(ctx, s.options.Driver, owners, 1, func(ctx context.Context, i int) (func(), error) {
		if incomplete.For(owners[i]) != nil {
			return func() {}, nil
		}
		reason, err := s.leftoverReason(ctx, ofShares[i], remotes[i], openFiles, leftovers)
		return func() {
			unused[i].LeftoverReason = reason
			unknown = cmp.Or(err, unknown)
		}, nil
	})
	return unused, cmp.Or(err, unknown)
}

// leftoverReason returns why a mapping without a staged path is a leftover, or "" if somebody may
// need the mapping.
func (s *Staging) leftoverReason(ctx context.Context, mapping win.SMBMapping, remote win.UNCPath,
	openFiles func() (map[string]int, error), ofOthers bool) (string, error) {
	if shares.IsOwnKind(mapping, remote) {
		idle, err := s.Mappings.IsUnusedAmong(ctx, remote, openFiles)
		if err != nil {
			return "", err
		}
		if idle {
			return "no staged path leads to the share", nil
		}
	}
	if !ofOthers {
		return "", nil
	}
	useless, err := s.Mappings.IsUseless(ctx, mapping)
	if err != nil || !useless {
		return "", err
	}
	return "no staged path leads to it, its server refuses it, and another program has made it: csi-proxyctl smb unmap " +
		quote.Text(mapping.Name()) + " removes it", nil
}
