// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
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

// DiskStates returns how many disks are online and offline, of those that answer. Disks
// that don't answer are passed to Options.OnSkippedDisks.
func (n *Node) DiskStates(ctx context.Context) (map[string]int, error) {
	online, offline, err := n.groups.Disks.States(ctx)
	return map[string]int{"online": len(online), "offline": offline}, err
}

// StagedVolumes returns how many volumes are mounted below the allowed directories. A volume with more mount points than Windows can
// list isn't counted.
func (n *Node) StagedVolumes(ctx context.Context) (int, error) {
	names, err := n.calls.FindVolumes(ctx)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, name := range names {
		paths, err := n.calls.VolumePathNames(ctx, name)
		if winerr.IsGone(err) || errors.Is(err, winerr.ErrorMoreData) {
			continue
		}
		if err != nil {
			return 0, err
		}
		listed, err := n.groups.Paths.Listed(ctx, n.calls, paths)
		if err != nil {
			return 0, err
		}
		if len(slices.DeleteFunc(listed, pathpolicy.Path.IsOutside)) > 0 {
			count++
		}
	}
	return count, nil
}

// The bounds of VolumeUse.
const (
	// mostVolumes is how many volumes VolumeUse asks.
	mostVolumes = 250
	// longestNames is how long the names of a PersistentVolume and a driver are at most, together.
	longestNames = 512
	// volumesAtOnce is how many volumes of a driver it asks at one time, and volumesTimeout how long it waits for all.
	volumesAtOnce  = 16
	volumesTimeout = time.Second
)

// VolumeUse returns how full the volumes of PersistentVolumes are that CSI drivers have staged and published, and how many of these
// it leaves out: those beyond the first 250, and those that don't answer. It asks a volume only if its disk has just answered, and
// if no call on the volume hangs. The names are those of kubelet's directories.
func (n *Node) VolumeUse(ctx context.Context) (use []usage.VolumeUse, leftOut int, _ error) {
	links, _, err := n.groups.Users.AllLinks(ctx) // Links has an error if some are missing
	if err != nil {
		return nil, 0, err
	}
	online, _, err := n.groups.Disks.States(ctx)
	if err != nil {
		return nil, 0, err
	}
	var asked []usage.VolumeUse
	byDriver, known := make(map[string][]int), make(map[string]bool)
	for _, l := range links.All {
		_, name := n.groups.Paths.PublishedAt(l.Path)
		staging, driver := n.groups.Paths.StagingPathOf(l.Link.Path.String())
		id := links.ByPath[win.LowerName(staging)].Link.Volume
		series := driver + `\` + name // each may come once, also if a link or directory is planted
		if name == "" || id == "" || len(series) > longestNames || known[id] || known[series] {
			continue
		}
		known[id], known[series] = true, true
		if leftOut++; leftOut <= mostVolumes {
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
		if err != nil || !slices.Contains(online, extent.DiskNumber) {
			return err
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
	return use, leftOut - len(use), ctx.Err()
}

// Links returns how many links in the allowed directories lead to nothing, or to a directory whose
// volume was unmounted, and the paths of the others that kubelet has lost track of, sorted. If not
// all are known, it has an error.
func (n *Node) Links(ctx context.Context) (toNothing int, forgotten []string, _ error) {
	links, incomplete, err := n.groups.Users.AllLinks(ctx)
	if err == nil {
		err = incomplete
	}
	if err != nil {
		return 0, nil, err
	}
	for _, l := range links.All {
		reason, err := n.groups.Users.ExplainEmpty(ctx, l)
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if err == nil && reason != "" { // else it leads outside, say, and isn't ours
			toNothing++
			continue
		}
		if l.ForgottenPod != "" {
			forgotten = append(forgotten, l.Path.String())
		}
	}
	slices.Sort(forgotten)
	return toNothing, forgotten, nil
}

// ForeignRecords returns how many files among the records of mappings are none.
func (n *Node) ForeignRecords(ctx context.Context) (int, error) {
	paths, err := shares.ForeignRecords(ctx, n.calls)
	return len(paths), err
}

// MissingVolumes says of each volume of Options.ProtectedVolumes whether no disk of the node has it.
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

// MappingStates returns how many SMB global mappings there are, by the state that Windows
// tells. That is how they were when they were used last.
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
