// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package staging_test

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/winsim"
	"github.com/csi-proxy/csi-proxy/internal/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/storage"
)

// Leftovers are listed, and removed only if that is asked for; what is in use stays.
func TestCleanUp(t *testing.T) {
	sim, n := newShares(t)
	ctx := t.Context()
	gone := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: otherPath})
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	simtest.Must(t, n.Storage.StageShare(ctx, shareRequest(`\\filer\data`, sharePath)))
	r := shareRequest(`\\filer\other`, "")
	simtest.Must(t, n.SMB.NewSMBGlobalMapping(ctx, r.RemotePath, "", r.Credentials))
	dangling := simtest.Kubelet + `\pods\dangling`
	simtest.Must(t, sim.Symlink(dangling, simtest.Kubelet+`\none`, true))
	simtest.Must(t, sim.DetachDisk(gone))
	simtest.Must(t, sim.WriteFile(targetPath+file, []byte("precious")))

	found, err := n.Storage.CleanUp(ctx, false)
	if err != nil || len(found) != 3 {
		t.Fatalf("a dry run: %+v, %v", found, err)
	}
	for _, one := range found {
		if one.Removed || one.Error != "" {
			t.Errorf("a dry run: %+v", one)
		}
	}
	again, err := n.Storage.CleanUp(ctx, true)
	if err != nil || len(again) != 3 {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, one := range again {
		if !one.Removed || one.Error != "" {
			t.Errorf("%+v", one)
		}
	}
	if left, err := n.Storage.CleanUp(ctx, true); err != nil || len(left) != 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
	if data, err := sim.ReadFile(targetPath + file); string(data) != "precious" || err != nil {
		t.Errorf("the file is %q, %v", data, err)
	}
	simtest.Must(t, sim.WriteFile(sharePath+file, nil))
	if got := mappings(t, sim); got != `\\filer\data` {
		t.Errorf("mapped are %s", got)
	}
}

func TestCheckVolume(t *testing.T) {
	sim, n := newNode(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
	stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	stage(t, n, storage.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: otherPath, Format: storage.FormatOptions{FileSystem: storage.ReFS}})
	check := func(what string, spotFix, errorsFound, fixed bool) {
		t.Helper()
		got, err := n.Storage.CheckVolume(ctx, storage.CheckVolumeRequest{Path: stagingPath, SpotFix: spotFix})
		if err != nil || got.ErrorsFound != errorsFound || got.Fixed != fixed {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	check("a sound volume", false, false, false)
	check("a spot fix of a sound volume", true, false, false)
	simtest.Must(t, sim.SetVolumeDamage(stagingPath, winsim.SpotDamage))
	check("a damaged volume", false, true, false)
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	_, err := n.Storage.CheckVolume(ctx, storage.CheckVolumeRequest{Path: targetPath, SpotFix: true})
	wantKind(t, "a published volume", err, csiproxy.ErrFailedPrecondition, "it is published at", targetPath)
	simtest.Must(t, n.Storage.UnpublishVolume(ctx, targetPath))
	check("a spot fix", true, true, true)
	check("a volume that was fixed", false, false, false)

	_, err = n.Storage.CheckVolume(ctx, storage.CheckVolumeRequest{Path: otherPath})
	wantKind(t, "ReFS", err, csiproxy.ErrUnimplemented)
	_, err = n.Storage.CheckVolume(ctx, storage.CheckVolumeRequest{Path: simtest.Kubelet})
	wantKind(t, "no volume", err, csiproxy.ErrNotFound)
}
