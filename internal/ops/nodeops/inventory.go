// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops

import (
	"context"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/ops/shares"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// DiskStates returns how many disks are online and offline, of those that answer. Disks
// that don't answer are passed to Options.OnSkippedDisks.
func (n *Node) DiskStates(ctx context.Context) (map[string]int, error) {
	online, offline, err := n.groups.Disks.States(ctx)
	return map[string]int{"online": online, "offline": offline}, err
}

// StagedVolumes returns how many volumes are mounted below the allowed directories.
func (n *Node) StagedVolumes(ctx context.Context) (int, error) {
	volumes, err := n.calls.FindVolumes(ctx)
	if err != nil {
		return 0, err
	}
	count := 0
	for _, volume := range volumes {
		paths, err := n.calls.VolumePathNames(ctx, volume)
		if winerr.IsGone(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		listed, err := n.groups.Paths.Listed(ctx, n.calls, paths)
		if err != nil {
			return 0, err
		}
		if len(slices.DeleteFunc(listed, n.groups.Paths.IsListedOutside)) > 0 {
			count++
		}
	}
	return count, nil
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
