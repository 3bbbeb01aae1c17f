// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

func TestReadOnlyVolume(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		v := r.create("pvc", gib, nil)
		v.readOnly = true
		r.must(r.attach(v))
		r.refused("stage what nobody has written to", r.stage(v), codes.FailedPrecondition)
		r.must(r.unstage(v))
		r.must(r.detach(v))

		v.readOnly = false
		r.start(v, "writer")
		r.write(v, "writer", "for readers")
		r.end(v, "writer")

		v.readOnly = true
		r.start(v, "reader")
		r.read(v, "reader", "for readers")
		err := r.WriteFile(v.targetPath("reader")+`\hello.txt`, []byte("changed"))
		const writeProtect = 19
		if number, _ := csiproxy.WindowsErrorOf(err); number != writeProtect {
			t.Errorf("write to a read-only volume: %v", err)
		}
		r.read(v, "reader", "for readers")
		r.end(v, "reader")

		v.readOnly = false
		r.start(v, "writer")
		r.write(v, "writer", "changed")
		r.end(v, "writer")
	})
}

// The parameters of a StorageClass reach the format, and a misspelt one is refused when the claim is made.
func TestFormatByStorageClass(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		v := r.create("sql", gib, map[string]string{"allocationUnitSize": "64K", "volumeLabel": "sql", "noShortNames": "true"})
		r.start(v, "pod")
		if got := r.Volumes()[1]; got.ClusterBytes != 64<<10 || got.Label != "sql" || !got.NoShortNames {
			t.Errorf("the volume is %+v", got)
		}
		_, err := r.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "misspelt",
			VolumeCapabilities: []*csi.VolumeCapability{v.capability}, Parameters: map[string]string{"alocationUnitSize": "64K"}})
		r.refused("create with a misspelt parameter", err, codes.InvalidArgument)
	})
}

// A pod that isn't an administrator writes to its volume if the StorageClass says so, and to any other it can't.
func TestVolumeWriters(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		const accessDenied = 5
		pod := r.As(simnode.ContainerUser)
		plain, open := r.create("plain", gib, nil), r.create("open", gib, map[string]string{"volumeWriters": "Users"})
		r.start(plain, "pod")
		err := pod.WriteFile(plain.targetPath("pod")+`\data`, nil)
		if number, _ := csiproxy.WindowsErrorOf(err); number != accessDenied {
			t.Errorf("to write at the root of a volume of Windows' own gives %v", err)
		}
		r.start(open, "pod")
		r.must(pod.WriteFile(open.targetPath("pod")+`\data`, []byte("of ContainerUser")))
		r.must(pod.MkdirAll(open.targetPath("pod") + `\directory`))
		r.end(open, "pod")
		r.start(open, "another")
		if data, err := pod.ReadFile(open.targetPath("another") + `\data`); err != nil || string(data) != "of ContainerUser" {
			t.Errorf("the next pod reads %q, %v", data, err)
		}
		_, err = r.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: "misspelt",
			VolumeCapabilities: []*csi.VolumeCapability{plain.capability}, Parameters: map[string]string{"volumeWriters": "User"}})
		r.refused("create for who isn't known", err, codes.InvalidArgument)
	})
}

func TestWritersOnOneNode(t *testing.T) {
	for mode, second := range map[csi.VolumeCapability_AccessMode_Mode]codes.Code{
		csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        codes.FailedPrecondition,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: codes.FailedPrecondition,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  codes.OK,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			r := newRig(t, viaInProcess)
			v := r.create("pvc", gib, nil)
			v.capability = mount(mode)
			r.start(v, "pod-a")
			r.refused("publish for another pod", r.publish(v, "pod-b"), second)
			r.restartDriver() // which remembers
			r.refused("publish for another pod", r.publish(v, "pod-b"), second)
			r.must(r.unpublish(v, "pod-a"))
			r.must(r.publish(v, "pod-b"))
			r.must(r.unpublish(v, "pod-b"))
		})
	}
}

func TestRefusals(t *testing.T) {
	r := newRig(t, viaInProcess)
	v := r.create("pvc", gib, nil)
	with := func(change func(*volume)) *volume {
		changed := *v
		change(&changed)
		return &changed
	}
	block := with(func(v *volume) {
		v.capability = &csi.VolumeCapability{
			AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
			AccessMode: v.capability.AccessMode,
		}
	})
	multiNode := with(func(v *volume) { v.capability = mount(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER) })
	ext4 := with(func(v *volume) {
		v.capability = mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
		v.capability.GetMount().FsType = "ext4"
	})
	options := with(func(v *volume) {
		v.capability = mount(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
		v.capability.GetMount().MountFlags = []string{"noatime"}
	})
	readOnly := with(func(v *volume) { v.readOnly = true })
	elsewhere := with(func(v *volume) {
		v.Volume = &csi.Volume{VolumeId: v.VolumeId,
			VolumeContext: map[string]string{"type": "smb", "source": "//server/share"}}
	})
	unknown := with(func(v *volume) { v.Volume = &csi.Volume{VolumeId: "vol-unknown"} })

	r.refused("stage before attach", r.stage(v), codes.NotFound)
	r.must(r.unstage(v))
	r.refused("publish before stage", r.publish(v, "pod"), codes.FailedPrecondition)
	r.must(r.attach(v))
	r.refused("attach otherwise", r.attach(readOnly), codes.AlreadyExists)
	for name, exceeding := range map[string]*volume{"block": block, "multi node": multiNode, "ext4": ext4,
		"options": options} {
		r.refused("create for "+name, r.createFor(exceeding), codes.InvalidArgument)
		r.refused("attach for "+name, r.attach(exceeding), codes.FailedPrecondition)
		r.refused("stage for "+name, r.stage(exceeding), codes.FailedPrecondition)
		if r.confirms(exceeding) {
			t.Errorf("%s is confirmed", name)
		}
	}
	if !r.confirms(v) {
		t.Error("what is supported isn't confirmed")
	}
	r.must(r.stage(v))
	r.refused("publish a block device", r.publish(block, "pod"), codes.FailedPrecondition)
	r.must(r.publish(v, "pod"))
	r.refused("stage another source", r.stage(elsewhere), codes.AlreadyExists)
	r.refused("publish otherwise", r.publish(readOnly, "pod"), codes.AlreadyExists)

	_, err := r.NodeExpandVolume(t.Context(), &csi.NodeExpandVolumeRequest{
		VolumeId: v.VolumeId, VolumePath: v.targetPath("pod"), CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * gib},
	})
	r.refused("grow before the disk has grown", err, codes.Unavailable)
	_, err = r.NodeGetVolumeHealth(t.Context(), &csi.NodeGetVolumeHealthRequest{VolumeId: unknown.VolumeId})
	r.refused("health of an unknown volume", err, codes.NotFound)
	_, err = r.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: v.VolumeId})
	r.refused("delete while attached", err, codes.FailedPrecondition)
	_, err = r.NodePublishVolume(t.Context(), &csi.NodePublishVolumeRequest{
		VolumeId: v.VolumeId, StagingTargetPath: v.stagingPath(), TargetPath: `C:\Windows\System32\drivers\pod`, VolumeCapability: v.capability,
	})
	r.refused("publish outside of kubelet's directory", err, codes.InvalidArgument)
}

// createFor is what a claim leads to that asks for what the volume's capability says.
func (r *rig) createFor(v *volume) error {
	_, err := r.CreateVolume(r.t.Context(),
		&csi.CreateVolumeRequest{Name: "other", VolumeCapabilities: []*csi.VolumeCapability{v.capability}})
	return err
}

func (r *rig) confirms(v *volume) bool {
	response, err := r.ValidateVolumeCapabilities(r.t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
		VolumeId: v.VolumeId, VolumeCapabilities: []*csi.VolumeCapability{v.capability},
	})
	r.must(err)
	return response.Confirmed != nil
}

// At a volume's path may be another volume, or none.
func TestStatsOfTheRightVolume(t *testing.T) {
	r := newRig(t, viaInProcess)
	one, other := r.create("one", gib, nil), r.create("other", gib, nil)
	r.start(one, "pod")
	r.start(other, "pod")
	r.usage(one, "pod", gib)
	for _, path := range []string{other.targetPath("pod"), other.stagingPath(), one.targetPath("no-pod"), pods + "pod"} {
		_, err := r.NodeGetVolumeStats(t.Context(), &csi.NodeGetVolumeStatsRequest{VolumeId: one.VolumeId, VolumePath: path})
		r.refused("stats at "+path, err, codes.NotFound)
	}
}

func TestListVolumesInPages(t *testing.T) {
	r := newRig(t, viaInProcess)
	var want, got []string
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		want = append(want, r.create(name, gib, nil).VolumeId)
	}
	request := &csi.ListVolumesRequest{MaxEntries: 2}
	for pages := 1; ; pages++ {
		page, err := r.ListVolumes(t.Context(), request)
		r.must(err)
		for _, entry := range page.Entries {
			got = append(got, entry.Volume.VolumeId)
		}
		if request.StartingToken = page.NextToken; page.NextToken == "" {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

// After an error that isn't in doubt, kubelet doesn't unstage, and may not come again.
func TestRefusedStageLeavesNothing(t *testing.T) {
	r := newRig(t, viaInProcess)
	disksArriveOffline := target("", "")
	disksArriveOffline.LUNs[0].Offline = true
	r.AddISCSITarget(disksArriveOffline)
	v := targetVolume("", "")
	v.VolumeContext["lun"] = "1"
	r.refused("stage a LUN that the target doesn't have", r.stage(v), codes.NotFound)
	disks, err := r.Operations().Disk.ListDiskIDs(t.Context())
	r.must(err)
	if len(disks) != 1 {
		t.Errorf("the target is still connected: disks %v", disks)
	}
	if files := r.recordFiles(); len(files) != 0 {
		t.Errorf("records %v", files)
	}

	// In doubt, the record stays for NodeUnstageVolume.
	v = r.create("pvc", gib, nil)
	r.must(r.attach(v))
	const busy = 170
	r.Fail("GetDiskFreeSpaceExW", busy, 1)
	r.refused("stage on a busy node", r.stage(v), codes.Unavailable)
	if files := r.recordFiles(); len(files) != 1 {
		t.Errorf("records %v", files)
	}

	// What pods use is left to them.
	r.start(v, "pod")
	r.Fail("IOCTL_STORAGE_QUERY_PROPERTY", 1117, 0)
	r.refused("stage again while the disk says nothing", r.stage(v), codes.NotFound)
	r.ClearFaults()
	r.write(v, "pod", "as if nothing had been")
	r.must(r.publish(v, "pod-b"))
}

func (r *rig) recordFiles() []string {
	files, err := filepath.Glob(filepath.Join(r.dir, "volumes", "*.json"))
	r.must(err)
	return files
}

func TestHealth(t *testing.T) {
	eachWay(t, func(t *testing.T, r *rig) {
		v := r.create("pvc", gib, nil)
		r.start(v, "pod")
		r.healthIs(v)
		r.Fail("GetDiskFreeSpaceExW", 1117, 0)
		r.healthIs(v, "INACCESSIBLE Unreadable")
		r.ClearFaults()
		r.healthIs(v)
		r.SetVolumeDirty(`C:`+v.stagingPath(), true)
		r.healthIs(v, "DEGRADED Dirty")
		r.SetVolumeDirty(`C:`+v.stagingPath(), false)
		r.healthIs(v)

		r.DetachDisk(r.diskOf(v))
		r.healthIs(v, "INACCESSIBLE DiskMissing")
		r.must(r.unpublish(v, "pod"))
		r.must(r.unstage(v)) // there is nothing to write out to
		r.must(r.detach(v))
		r.start(v, "pod")
		r.healthIs(v)
		r.must(r.Remove(`C:` + v.stagingPath()))
		r.healthIs(v, "INACCESSIBLE NotMounted")
	})
}
