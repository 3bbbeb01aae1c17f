// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// DiskStates returns the numbers of online and offline disks, among the disks that answer.
// Options.OnSkippedDisks gets the number of silent disks.
func (n *Node) DiskStates(ctx context.Context) (map[string]int, error) {
	online, offline, err := n.groups.Disks.States(ctx)
	return map[string]int{"online": len(online), "offline": offline}, err
}

// StagedVolumes returns the number of volumes mounted below the allowed directories. It excludes
// silent volumes, and volumes with more mount points than Windows can list.
func (n *Node) StagedVolumes(ctx context.Context) (count int, _ error) {
	names, err := n.calls.FindVolumes(ctx)
	if err != nil {
		return 0, err
	}
	staged, errs := make([]bool, len(names)), make([]error, len(names))
	ask := func(ctx context.Context, i int) error {
		paths, err := n.calls.VolumePathNames(ctx, names[i])
		if err == nil {
			var listed []pathpolicy.Path
			listed, err = n.groups.Paths.Listed(ctx, n.calls, paths)
			staged[i] = slices.ContainsFunc(listed, func(path pathpolicy.Path) bool { return !path.IsOutside() })
		}
		errs[i] = err
		return err
	}
	all := make(map[string][]int)
	for i := range names {
		all[operation.UnknownOwner("")] = append(all[operation.UnknownOwner("")], i)
	}
	operation.AskByOwner(ctx, len(names), all, len(names), volumesTimeout, ask, func(i int) bool {
		isLeftOut := winerr.IsGone(errs[i]) || errors.Is(errs[i], winerr.ErrorMoreData) || isSilent(errs[i])
		if errs[i] != nil && !isLeftOut {
			err = errs[i]
		}
		if staged[i] {
			count++
		}
		return err == nil
	})
	if err != nil {
		return 0, err
	}
	return count, ctx.Err()
}

// The bounds of VolumeUse.
const (
	// mostVolumes is the maximum number of volumes that VolumeUse asks.
	mostVolumes = 250
	// longestNames is the maximum combined length of the names of a PersistentVolume and a driver.
	longestNames = 512
	// volumesAtOnce is how many volumes of a driver VolumeUse asks concurrently, and volumesTimeout
	// how long it waits for all volumes.
	volumesAtOnce  = 16
	volumesTimeout = time.Second
)

// VolumeUse returns how full the PersistentVolumes are that CSI drivers have staged and published,
// and the number of the volumes left out: beyond the first 250, silent, offline or not readable.
// VolumeUse asks a volume only if the volume's disk has just answered and no call on the volume
// hangs. The names come from kubelet's directories.
func (n *Node) VolumeUse(ctx context.Context) (use []usage.VolumeUse, leftOut int, _ error) {
	links, _, err := n.groups.Users.AllLinks(ctx) // Links tells of an incomplete search
	if err != nil {
		return nil, 0, err
	}
	states, err := n.groups.Disks.askStates(ctx)
	if err != nil {
		return nil, 0, err
	}
	owners := make(map[csiproxy.DiskNumber]string) // of the online disks; "" without an owner
	for _, f := range n.groups.Disks.queries.states.disksOf(states) {
		if f.err == nil && !f.state.Offline {
			owners[f.number] = f.driver
		}
	}
	found := 0
	var asked []usage.VolumeUse
	byDriver := make(map[string][]int)
	taken := make(map[string]bool) // volumes and series that occur already: planted links may repeat them
	for l := range links.All() {
		_, name := n.groups.Paths.PublishedAt(l.Path)
		staging, driver := n.groups.Paths.StagingPathOf(l.Link.Path)
		id := ""
		if staged := links.At(staging); staged != nil {
			id = staged.Link.Volume
		}
		volume, series := driver+id, driver+`\`+name // by driver: another driver may plant the same volume
		if name == "" || id == "" || len(series) > longestNames || taken[volume] || taken[series] {
			continue
		}
		taken[volume], taken[series] = true, true
		if found++; found <= mostVolumes {
			byDriver[driver] = append(byDriver[driver], len(asked))
			asked = append(asked, usage.VolumeUse{VolumeID: id, PersistentVolume: name, Driver: driver})
		}
	}
	measure := func(ctx context.Context, i int) error {
		volume := &asked[i]
		for _, calls := range n.all {
			if calls.Hangs(volume.VolumeID) {
				return nil
			}
		}
		extent, err := usage.Extent(ctx, n.calls, csiproxy.VolumeID(volume.VolumeID))
		if err != nil {
			return err
		}
		owner, isOnline := owners[extent.DiskNumber]
		isPlanted := owner != "" && !win.SameName(owner, volume.Driver)
		if !isOnline || isPlanted {
			return nil
		}
		space, err := n.calls.DiskFreeSpace(ctx, volume.VolumeID)
		volume.SizeBytes, volume.UsedBytes = space.Total, space.Total-space.Free
		return err
	}
	operation.AskByOwner(ctx, len(asked), byDriver, volumesAtOnce, volumesTimeout, measure, func(i int) bool {
		if asked[i].SizeBytes > 0 {
			use = append(use, asked[i])
		}
		return true
	})
	return use, found - len(use), ctx.Err()
}

// Links returns the number of links in the allowed directories that lead to nothing, or to a
// directory whose volume was unmounted. forgotten has the sorted paths of the remaining links that
// kubelet has lost track of. Links fails if the search is incomplete outside of the drivers' own
// directories. Inside, an incomplete search is no error: a driver could otherwise hide all links. A
// driver's link to a silent directory counts as leading somewhere.
func (n *Node) Links(ctx context.Context) (toNothing int, forgotten []string, _ error) {
	links, incomplete, err := n.groups.Users.AllLinks(ctx)
	if err == nil {
		err = incomplete[""]
	}
	if err != nil {
		return 0, nil, err
	}
	var found []*pathpolicy.FoundLink
	var owners []string
	for l := range links.All() {
		found = append(found, l)
		owners = append(owners, cmp.Or(n.groups.Paths.DriverOf(l.Path), n.groups.Paths.DriverOf(l.Link.Path)))
	}
	reasons := make([]string, len(found)) // why the links lead to nothing
	err = askByOwner(ctx, "", owners, listedAtOnce, func(ctx context.Context, i int) (func(), error) {
		reason, err := n.groups.Users.ExplainEmpty(ctx, found[i])
		if err != nil { // the link is foreign, for example leads outside
			reason = ""
		}
		return func() { reasons[i] = reason }, ctx.Err()
	})
	if err != nil {
		return 0, nil, err
	}
	for i, l := range found {
		if reasons[i] != "" {
			toNothing++
		} else if l.ForgottenPod != "" {
			forgotten = append(forgotten, l.Path.String())
		}
	}
	slices.Sort(forgotten)
	return toNothing, forgotten, nil
}

// ForeignRecords returns the number of foreign files among the records of mappings.
func (n *Node) ForeignRecords(ctx context.Context) (int, error) {
	paths, err := shares.ForeignRecords(ctx, n.calls)
	return len(paths), err
}

// MissingVolumes returns for each volume of Options.ProtectedVolumes whether the volume is missing
// from all disks of the node.
func (n *Node) MissingVolumes(ctx context.Context) (map[string]bool, error) {
	return n.groups.Users.MissingVolumes(ctx)
}

// mappingStates names the states of mappings.
var mappingStates = map[win.SMBMappingStatus]string{
	win.SMBMappingOK:           "ok",
	win.SMBMappingPaused:       "paused",
	win.SMBMappingDisconnected: "disconnected",
	win.SMBMappingNetworkError: "network_error",
	win.SMBMappingConnecting:   "connecting",
	win.SMBMappingReconnecting: "reconnecting",
}

// MappingStates returns the number of SMB global mappings in each state. Windows reports a
// mapping's state as of the mapping's last use.
func (n *Node) MappingStates(ctx context.Context) (map[string]int, error) {
	mappings, err := n.groups.Mappings.List(ctx)
	if err != nil {
		return nil, err
	}
	states := make(map[string]int)
	for _, name := range mappingStates {
		states[name] = 0
	}
	for _, m := range mappings {
		name, ok := mappingStates[m.Status]
		if !ok {
			name = "other"
		}
		states[name]++
	}
	return states, nil
}
