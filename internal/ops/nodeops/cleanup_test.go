// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"strings"
	"testing"
	"testing/synctest"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Leftovers are listed, and removed only if that is asked for; what is in use stays.
func TestCleanUp(t *testing.T) {
	sim, n := withLeftovers(t)
	ctx := t.Context()
	simtest.Must(t, sim.WriteFile(targetPath+file, []byte("precious")))

	found, err := n.Storage.CleanUp(ctx, false)
	if err != nil || len(found.Mounts) != 3 {
		t.Fatalf("a dry run: %+v, %v", found, err)
	}
	for _, one := range found.Mounts {
		if one.Removed || one.Error != "" {
			t.Errorf("a dry run: %+v", one)
		}
	}
	again, err := n.Storage.CleanUp(ctx, true)
	if err != nil || len(again.Mounts) != 3 {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, one := range again.Mounts {
		if !one.Removed || one.Error != "" {
			t.Errorf("%+v", one)
		}
	}
	if left, err := n.Storage.CleanUp(ctx, true); err != nil || len(left.Mounts) != 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
	if data, err := sim.ReadFile(targetPath + file); string(data) != "precious" || err != nil {
		t.Errorf("the file is %q, %v", data, err)
	}
	simtest.Must(t, sim.WriteFile(sharePath+file, nil))
	simtest.Want(t, "mapped", mappings(t, sim), `\\filer\data`)
}

// A mount where kubelet has none may be an administrator's: it stays, though its disk has left.
func TestCleanUpLeavesOthersMounts(t *testing.T) {
	const workingDir = `C:\work`
	for at, removed := range map[string]bool{
		otherPath: true, targetPath: true,
		simtest.Kubelet + `\tools`: false, simtest.Kubelet + `\plugins`: false, simtest.Kubelet + `\plugins-of-ours\mnt`: false,
		workingDir + `\plugins\mnt`: false,
	} {
		sim := simtest.Open(t, winsim.Delays{})
		n, err := nodeops.New(sim, nodeops.Options{WorkingDirs: []string{workingDir}})
		simtest.Must(t, err)
		volume, number := simtest.Volume(t, sim)
		simtest.Mount(t, sim, at, volume)
		simtest.Must(t, sim.DetachDisk(number))
		did, err := n.Storage.CleanUp(t.Context(), true)
		simtest.Must(t, err)
		if (len(did.Mounts) == 1) != removed || (len(sim.MountPoints()) == 0) != removed {
			t.Errorf("%s: %+v, left are %v", at, did, sim.MountPoints())
		}
	}
}

// If Windows doesn't tell which shares are mapped, the rest is listed and cleaned up. No
// mapping is taken for a leftover then.
func TestListsWithoutMappings(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	r := stagingShareRequest(`\\filer\other`, "")
	simtest.Must(t, n.SMB.NewSMBGlobalMapping(ctx, r.RemotePath, "", r.Credentials))
	dangling := simtest.Kubelet + `\pods\dangling`
	simtest.Must(t, sim.MkdirAll(simtest.Kubelet+`\pods`))
	simtest.Must(t, sim.Symlink(dangling, simtest.Kubelet+`\none`, true))

	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallSMBGlobalMappings}, winerr.ErrorServiceNotActive))
	list, err := n.Storage.ListVolumes(ctx)
	simtest.Must(t, err)
	if list.Complete() || !strings.Contains(list.IncompleteReason, "which shares are mapped") ||
		!strings.Contains(list.IncompleteReason, "1062") {
		t.Errorf("the incomplete reason is %q", list.IncompleteReason)
	}
	listed := make(map[string]csiproxy.Mount)
	for _, m := range list.Mounts {
		listed[m.Path] = m
	}
	if m := listed[stagingPath]; len(list.Mounts) != 3 || m.Kind != csiproxy.MountKindMountPoint || m.Volume.Abnormal() {
		t.Errorf("listed are %+v", list.Mounts)
	}
	if m := listed[sharePath]; m.Volume.Share != `\\filer\data` || len(m.Volume.Conditions) != 1 || m.Volume.Conditions[0].Reason != csiproxy.ReasonShareUnknown || m.LeftoverReason != "" {
		t.Errorf("the share is %+v", m)
	}
	_, err = n.Storage.GetVolume(ctx, sharePath)
	simtest.WantErrorOf(t, "GetVolume of the share", err, csiproxy.ErrUnavailable)

	left, err := n.Storage.CleanUp(ctx, true)
	if err != nil || left.IncompleteReason != list.IncompleteReason || len(left.Mounts) != 1 ||
		left.Mounts[0].Path != dangling || !left.Mounts[0].Removed {
		t.Errorf("cleaned up are %+v, %v", left, err)
	}
	sim.ResetRules()
	simtest.Want(t, "mapped", mappings(t, sim), `\\filer\data \\filer\other`)
}

// A mapping is a leftover only if all links are known.
func TestNoLeftoverMappingsWithoutAllLinks(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	simtest.Must(t, sim.Fail(winsim.Match{Call: "NtCreateFile", Object: `csi\smb`}, winerr.ErrorAccessDenied))
	left, err := n.Storage.CleanUp(ctx, true)
	if err != nil || len(left.Mounts) != 0 || !strings.Contains(left.IncompleteReason, "directories") || !strings.Contains(left.IncompleteReason, `csi\smb`) {
		t.Errorf("cleaned up are %+v, %v", left, err)
	}
	sim.ResetRules()
	simtest.Want(t, "mapped", mappings(t, sim), `\\filer\data`)
}

// So is a mount.
func TestNoLeftoverMountsWithoutAllLinks(t *testing.T) {
	for _, unknown := range []string{`kubelet\pods`, `kubelet\none`} { // where links may be, and where one leads
		sim, n := withLeftovers(t)
		simtest.Must(t, sim.Fail(winsim.Match{Call: "NtCreateFile", Object: unknown}, winerr.ErrorAccessDenied))
		list, err := n.Storage.ListVolumes(t.Context())
		simtest.Must(t, err)
		for _, m := range list.Mounts {
			if m.Kind == csiproxy.MountKindMountPoint && m.LeftoverReason != "" {
				t.Errorf("without %s, a leftover is %+v", unknown, m)
			}
		}
	}
}

func TestCheckVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingNode(t)
		ctx := t.Context()
		disk := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
		simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
		stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: otherPath,
			Format: csiproxy.FormatOptions{FileSystem: csiproxy.ReFS}})
		check := func(what string, spotFix, errorsFound, fixed bool) {
			t.Helper()
			got, err := n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: stagingPath, SpotFix: spotFix})
			if err != nil || got.ErrorsFound != errorsFound || got.Fixed != fixed {
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		}
		check("a sound volume", false, false, false)
		check("a spot fix of a sound volume", true, false, false)
		simtest.Must(t, sim.SetVolumeDamage(stagingPath, volumes.SpotDamage))
		check("a damaged volume", false, true, false)
		simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
		_, err := n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: targetPath, SpotFix: true})
		simtest.WantErrorOf(t, "a published volume", err, csiproxy.ErrFailedPrecondition, "it is published at", targetPath)
		simtest.Must(t, sim.Fail(winsim.Match{Call: "NtCreateFile", Object: `kubelet\pods`}, winerr.ErrorAccessDenied))
		_, err = n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: stagingPath, SpotFix: true})
		simtest.WantErrorOf(t, "not all links are known", err, csiproxy.ErrUnavailable, "can't tell whether pods use the volume")
		sim.ResetRules()
		simtest.Must(t, n.Storage.UnpublishVolume(ctx, targetPath))
		sim.OnCall(func(c winsim.Call) {
			if c.Name == win.CallRepairVolume {
				sim.OnCall(nil)
				simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
			}
		})
		_, err = n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: stagingPath, SpotFix: true})
		simtest.WantErrorOf(t, "a volume that is published during the scan", err,
			csiproxy.ErrFailedPrecondition, "it is published at", targetPath)
		simtest.Must(t, n.Storage.UnpublishVolume(ctx, targetPath))
		check("a spot fix", true, true, true)
		check("a volume that was fixed", false, false, false)
		simtest.Must(t, sim.SetVolumeDamage(stagingPath, volumes.OfflineDamage))
		check("damage that a spot fix leaves", true, true, false)

		_, err = n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: otherPath})
		simtest.WantErrorOf(t, "ReFS", err, csiproxy.ErrUnimplemented)
		_, err = n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: simtest.Kubelet})
		simtest.WantErrorOf(t, "no volume", err, csiproxy.ErrNotFound)
		simtest.Must(t, sim.DetachDisk(disk))
		_, err = n.Storage.CheckVolume(ctx, csiproxy.CheckVolumeRequest{StagingPath: stagingPath})
		simtest.WantErrorOf(t, "a disk that has left", err, csiproxy.ErrUnavailable, "has left the node or is offline")
	})
}

// A disk that doesn't tell whether it is online may have the volume of a mount: then it isn't known
// whether that is left over, and CleanUp says so.
func TestCleanUpWithoutAStateOfADisk(t *testing.T) {
	sim, n := newStagingNode(t)
	volume, number := simtest.Volume(t, sim)
	simtest.Mount(t, sim, otherPath, volume)
	simtest.Must(t, sim.DetachDisk(number))
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.IoctlDiskGetDiskAttributes.String()}, winerr.ErrorIODevice))
	for _, remove := range []bool{false, true} {
		found, err := n.Storage.CleanUp(t.Context(), remove)
		if err != nil || len(found.Mounts) > 0 || !strings.Contains(found.IncompleteReason, otherPath) ||
			!strings.Contains(found.IncompleteReason, "1117") {
			t.Errorf("remove %t: %+v, %v", remove, found, err)
		}
	}
	if list, err := n.Storage.ListVolumes(t.Context()); err != nil || !list.Complete() || len(list.Mounts) != 1 {
		t.Errorf("what is mounted is known: %+v, %v", list, err)
	}
	sim.ResetRules()
	done, err := n.Storage.CleanUp(t.Context(), true)
	if err != nil || len(done.Mounts) != 1 || done.IncompleteReason != "" {
		t.Errorf("when it tells: %+v, %v", done, err)
	}
}

// A link of which Windows doesn't tell where it leads isn't listed as one that is fine. One that
// leads where nobody may go is no concern of anybody's.
func TestLinksThatCannotBeFollowed(t *testing.T) {
	sim, n := newStagingNode(t)
	simtest.Must(t, sim.MkdirAll(simtest.Kubelet+`\d\unreadable`))
	simtest.Must(t, sim.MkdirAll(`C:\elsewhere`))
	simtest.Must(t, sim.Symlink(simtest.Kubelet+`\d\outside`, `C:\elsewhere`, true))
	for link, to := range map[string]string{
		`unknown`: `\d\unreadable`, `outside`: `\d\outside\f`, `itself`: `\itself`, `nothing`: `\none`, `fine`: `\d`,
	} {
		simtest.Must(t, sim.Symlink(simtest.Kubelet+`\`+link, simtest.Kubelet+to, true))
	}
	simtest.Must(t, sim.Fail(winsim.Match{Call: "NtCreateFile", Object: `unreadable`}, winerr.ErrorIODevice))
	list, err := n.Storage.ListVolumes(t.Context())
	simtest.Must(t, err)
	for _, m := range list.Mounts {
		said := ""
		if m.Volume.Abnormal() {
			said = string(m.Volume.Conditions[0].Reason)
		}
		want := map[string]string{
			simtest.Kubelet + `\unknown`: string(csiproxy.ReasonUnreadable),
			simtest.Kubelet + `\nothing`: "it leads to nothing",
		}[m.Path]
		if said+m.LeftoverReason != want {
			t.Errorf("%s: %q %+v, want %q", m.Path, m.LeftoverReason, m.Volume.Conditions, want)
		}
	}
}
