// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

var (
	changingOfStaging = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|\d{8}T\d{6}\.\d{3}Z|\d{4}-\d\d-\d\dT[0-9:.]+Z|` +
		`"duration_milliseconds":\d+`)
	unitSize = regexp.MustCompile(`"allocation_unit_bytes":\d+,`) // which is left out if it isn't known
	did      = regexp.MustCompile(`"(partitioned|formatted|grown|errors_found|fixed|unmounted|unlinked|disk_offline|` +
		`logged_out|unmapped)":(true|false)`)
	problem = regexp.MustCompile(`"reason":"|"error":"|"incomplete_reason":"[^"]`)
)

// answer is an operation's answer as text that is the same for two nodes with the same history.
// What it says of a problem is an error.
func answer(value any, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(value)
	text = unitSize.ReplaceAll(text, nil)
	if err == nil && problem.Match(text) {
		err = errors.New(string(text))
		if strings.Contains(string(text), string(csiproxy.ReasonDiskMissing)) { // which it may be, or be offline
			err = fmt.Errorf("%w: %w", simtest.ErrUnknown, err)
		}
	}
	return changingOfStaging.ReplaceAllString(string(text), "*"), err
}

// stateOf is what operations change on a node.
func stateOf(t *testing.T, sim *winsim.System) string {
	t.Helper()
	lines := []string{mappings(t, sim)}
	for _, d := range sim.Disks() {
		lines = append(lines, fmt.Sprint(d.Spec.Serial, d.State, d.Attributes))
	}
	for _, v := range sim.Volumes() {
		lines = append(lines, fmt.Sprint(v.Paths, v.FileSystem, v.ReadOnly, v.Damage, v.Space.Total))
	}
	for _, path := range []string{stagingPath, otherPath, targetPath, sharePath, share2Path, dangling} {
		to, err := sim.ReadLink(path)
		lines = append(lines, fmt.Sprint(path, to, err))
	}
	return changingOfStaging.ReplaceAllString(strings.Join(lines, "\n"), "*")
}

func TestErrorAtEachCallOfStaging(t *testing.T) {
	const iqn = csiproxy.IQN("iqn.2026-01.com.example:vol-1")
	portal := csiproxy.ISCSIPortal{Address: "10.0.0.1", Port: 3260}
	target := csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: iqn}}

	type prepare = func(t *testing.T, sim *winsim.System, n *nodeops.Node)
	type run = func(ctx context.Context, s csiproxy.StorageOperations) (any, error)
	raw := func(t *testing.T, sim *winsim.System, _ *nodeops.Node) {
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1", Offline: true})
	}
	attachTarget := func(t *testing.T, sim *winsim.System, _ *nodeops.Node) {
		simtest.Must(t, sim.ISCSI().AddTarget(iscsitarget.Target{IQN: string(iqn),
			Portals: []win.ISCSIPortal{win.ISCSIPortal(portal)}}, winsim.DiskSpec{SizeBytes: 1 << 30}))
	}
	staged := func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		raw(t, sim, n)
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	}
	stagedTarget := func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		attachTarget(t, sim, n)
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: target, StagingPath: stagingPath})
	}
	published := func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		staged(t, sim, n)
		simtest.Must(t, n.Storage.PublishVolume(t.Context(), stagingPath, targetPath))
	}
	unstaged := func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		staged(t, sim, n)
		unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath})
	}
	stagedReadOnly := func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		unstaged(t, sim, n)
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath, ReadOnly: true})
	}
	away := func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		staged(t, sim, n)
		simtest.Must(t, sim.DetachDisk(1))
	}
	shared := func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, sharePath)))
	}
	stageIt := func(r csiproxy.StageVolumeRequest) run {
		r.StagingPath, r.Wait = stagingPath, time.Second
		return func(ctx context.Context, s csiproxy.StorageOperations) (any, error) { return s.StageVolume(ctx, r) }
	}
	unstageIt := func(wanted csiproxy.Selector) run {
		return func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: stagingPath, Disk: wanted})
		}
	}
	operations := make(map[string]func(t *testing.T) simtest.Attempt)
	for name, test := range map[string]struct {
		prepare prepare
		run     run
	}{
		"stage a raw disk":       {raw, stageIt(csiproxy.StageVolumeRequest{Disk: serial("vol-1")})},
		"stage again":            {staged, stageIt(csiproxy.StageVolumeRequest{Disk: serial("vol-1"), Grow: true})},
		"stage a disk with data": {unstaged, stageIt(csiproxy.StageVolumeRequest{Disk: serial("vol-1")})},
		"stage read-only":        {unstaged, stageIt(csiproxy.StageVolumeRequest{Disk: serial("vol-1"), ReadOnly: true})},
		"stage read-only what is online": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			unstaged(t, sim, n)
			simtest.Must(t, n.Disk.SetDiskState(t.Context(), 1, true))
		}, stageIt(csiproxy.StageVolumeRequest{Disk: serial("vol-1"), ReadOnly: true})},
		"stage read-only what shows no table": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			unstaged(t, sim, n)
			simtest.Must(t, sim.SetSettings(winsim.Settings{OfflineLayout: settings.OfflineBlank}))
		}, stageIt(csiproxy.StageVolumeRequest{Disk: serial("vol-1"), ReadOnly: true})},
		"stage a target":       {attachTarget, stageIt(csiproxy.StageVolumeRequest{Disk: target})},
		"unstage":              {staged, unstageIt(serial("vol-1"))},
		"unstage read-only":    {stagedReadOnly, unstageIt(serial("vol-1"))},
		"unstage a target":     {stagedTarget, unstageIt(target)},
		"unstage what is away": {away, unstageIt(serial("vol-1"))},
		"unstage what was staged": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			staged(t, sim, n)
			simtest.Must(t, sim.DeleteVolumeMountPoint(t.Context(), stagingPath+`\`))
		}, unstageIt(serial("vol-1"))},
		"publish": {staged, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return nil, s.PublishVolume(ctx, stagingPath, targetPath)
		}},
		"publish a share": {shared, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return nil, s.PublishVolume(ctx, sharePath, targetPath)
		}},
		"publish at a directory": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			staged(t, sim, n)
			simtest.Must(t, sim.MkdirAll(targetPath))
		}, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return nil, s.PublishVolume(ctx, stagingPath, targetPath)
		}},
		"unpublish": {published, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return nil, s.UnpublishVolume(ctx, targetPath)
		}},
		"expand": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			staged(t, sim, n)
			simtest.Must(t, sim.GrowDisk(1, 20<<30))
		}, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.ExpandVolume(ctx, csiproxy.ExpandVolumeRequest{StagingPath: stagingPath, DiskSizeBytes: 20 << 30})
		}},
		"check": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			staged(t, sim, n)
			simtest.Must(t, sim.SetVolumeDamage(stagingPath, volumes.SpotDamage))
		}, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: stagingPath, SpotFix: true})
		}},
		"stage a share": {func(*testing.T, *winsim.System, *nodeops.Node) {},
			func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
				return nil, s.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath))
			}},
		"unstage a share": {shared, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
		}},
		"unstage the share that is named": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			shared(t, sim, n)
			simtest.Must(t, sim.Remove(sharePath))
		}, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath, RemotePath: `\\filer\data`})
		}},
		"unstage an empty directory": {func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
			simtest.Must(t, sim.MkdirAll(sharePath))
		}, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
		}},
		"get volume": {staged, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.GetVolume(ctx, stagingPath)
		}},
		"get published volume": {published, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.GetVolume(ctx, targetPath)
		}},
		"get share": {shared, func(ctx context.Context, s csiproxy.StorageOperations) (any, error) {
			return s.GetVolume(ctx, sharePath)
		}},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			// Nothing arrives when it is looked for, so that each time there are as many looks.
			sim, n := newSlowNode(t, winsim.Delays{DiskArrival: 1100 * time.Microsecond, VolumeArrival: 1300 * time.Microsecond})
			addShares(t, sim)
			test.prepare(t, sim, n)
			return simtest.Attempt{
				Sys:   sim,
				Run:   func(ctx context.Context) (any, error) { return answer(test.run(ctx, n.Storage)) },
				State: func() any { return stateOf(t, sim) }, Did: did,
			}
		}
	}
	for name, run := range map[string]func(context.Context, *winsim.System, csiproxy.StorageOperations) (any, error){
		"list volumes": func(ctx context.Context, _ *winsim.System, s csiproxy.StorageOperations) (any, error) {
			list, err := s.ListVolumes(ctx)
			leftovers := 0
			for i, m := range list.Mounts {
				if m.LeftoverReason != "" {
					leftovers++
					list.Mounts[i].Volume.Conditions = nil
				}
			}
			if err == nil && leftovers != 3 { // the others may be in use
				err = simtest.ErrUnknown
			}
			return list, err
		},
		"clean up": func(ctx context.Context, sim *winsim.System, s csiproxy.StorageOperations) (any, error) {
			done, err := s.CleanUp(ctx, true)
			sim.OnCall(nil)
			sim.ResetRules()
			_, linkErr := sim.ReadLink(dangling)
			_, mountErr := sim.ReadLink(otherPath)
			for _, one := range done.Mounts {
				if err == nil && !one.Removed && one.Error == "" {
					return nil, fmt.Errorf("nobody is told why there still is %+v", one)
				}
			}
			if err == nil && (linkErr == nil || mountErr == nil || mappings(t, sim) != `\\filer\data`) {
				err = fmt.Errorf("%w of the leftovers: %+v", simtest.ErrUnknown, done)
			}
			return nil, err
		},
	} {
		operations[name] = func(t *testing.T) simtest.Attempt {
			sim, n := withLeftovers(t)
			return simtest.Attempt{
				Sys:   sim,
				Run:   func(ctx context.Context) (any, error) { return answer(run(ctx, sim, n.Storage)) },
				State: func() any { return stateOf(t, sim) }, Did: did,
			}
		}
	}
	simtest.ErrorAtEachCall(t, operations)
}
