// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/node"
	"github.com/csi-proxy/csi-proxy/simnode"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem"
	filesystemapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem/hostapi"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/utils"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/volume"
	volumeapi "github.com/kubernetes-csi/csi-proxy/v2/pkg/volume/hostapi"
)

// stageReadOnly stages a disk by the storage group, first writable, so that it has a file system.
func stageReadOnly(t *testing.T, sim *simnode.Node, number uint32) {
	t.Helper()
	n := must[*node.Node](t)(host.Node())
	selected := csiproxy.DiskNumber(number)
	for _, readOnly := range []bool{false, true} {
		must[csiproxy.StagedVolume](t)(n.Storage.StageVolume(t.Context(),
			csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{Number: &selected}, StagingPath: staging, ReadOnly: readOnly}))
		if !readOnly {
			must[csiproxy.UnstagedVolume](t)(n.Storage.UnstageVolume(t.Context(),
				csiproxy.UnstageVolumeRequest{StagingPath: staging}))
		}
	}
}

// volumeOf returns what the node has of a volume.
func volumeOf(t *testing.T, sim *simnode.Node, id string) simnode.VolumeInfo {
	t.Helper()
	for _, v := range sim.Volumes() {
		if string(v.ID) == id {
			return v
		}
	}
	t.Fatalf("there is no volume %s", id)
	return simnode.VolumeInfo{}
}

func TestVolumes(t *testing.T) {
	sim, ctx := start(t), t.Context()
	volumes := must[*volume.Volume](t)(volume.New(volumeapi.New()))
	files := must[*filesystem.Filesystem](t)(filesystem.New(filesystemapi.New()))
	first, second := attach(t, sim)
	id, other := partitioned(t, first), partitioned(t, second)
	if id == other || volumeapi.VolumeRegexp.FindString(id) == "" {
		t.Fatalf("the volumes are %q and %q", id, other)
	}
	for partition, want := range map[uint32]int{0: 1, 1: 0, 2: 1} { // 1 is reserved
		list := must[*volume.ListVolumesOnDiskResponse](t)(volumes.ListVolumesOnDisk(ctx,
			&volume.ListVolumesOnDiskRequest{DiskNumber: first, PartitionNumber: partition}))
		equal(t, "the number of volumes", len(list.VolumeIDs), want)
	}

	formatted := func(id string) bool {
		t.Helper()
		return must[*volume.IsVolumeFormattedResponse](t)(volumes.IsVolumeFormatted(ctx, &volume.IsVolumeFormattedRequest{VolumeID: id})).Formatted
	}
	equal(t, "a raw volume is formatted", formatted(id), false)
	must[*volume.FormatVolumeResponse](t)(volumes.FormatVolume(ctx, &volume.FormatVolumeRequest{VolumeID: id}))
	equal(t, "a formatted volume is formatted", formatted(id), true)
	equal(t, "the other volume is formatted", formatted(other), false)
	equal(t, "the file system", volumeOf(t, sim, id).FileSystem, "NTFS")

	at := func(path string) (mounted, closest string) {
		t.Helper()
		closestID := must[*volume.GetClosestVolumeIDFromTargetPathResponse](t)(volumes.GetClosestVolumeIDFromTargetPath(ctx,
			&volume.GetClosestVolumeIDFromTargetPathRequest{TargetPath: path}))
		mountedID, err := volumes.GetVolumeIDFromTargetPath(ctx, &volume.GetVolumeIDFromTargetPathRequest{TargetPath: path})
		if err != nil {
			is(t, err, csiproxy.ErrNotFound)
			return "", closestID.VolumeID
		}
		return mountedID.VolumeID, closestID.VolumeID
	}
	must[*filesystem.MkdirResponse](t)(files.Mkdir(ctx, &filesystem.MkdirRequest{Path: staging}))
	mounted, windows := at(staging)
	equal(t, "what is mounted at a directory", mounted, "")
	for range 2 {
		must[*volume.MountVolumeResponse](t)(volumes.MountVolume(ctx, &volume.MountVolumeRequest{VolumeID: id, TargetPath: staging}))
	}
	mounted, closest := at(staging)
	equal(t, "what is mounted", mounted, id)
	equal(t, "what is closest", closest, id)
	succeed(t, sim.MkdirAll(staging+`\a\b`))
	_, closest = at(staging + `\a\b`)
	equal(t, "what a path in the volume is on", closest, id)
	succeed(t, sim.WriteFile(staging+`\data`, []byte("kept")))

	on := must[*volume.GetDiskNumberFromVolumeIDResponse](t)(volumes.GetDiskNumberFromVolumeID(ctx,
		&volume.GetDiskNumberFromVolumeIDRequest{VolumeID: id}))
	equal(t, "the volume's disk", on.DiskNumber, first)

	stats := func() (total, used int64) {
		t.Helper()
		s := must[*volume.GetVolumeStatsResponse](t)(volumes.GetVolumeStats(ctx, &volume.GetVolumeStatsRequest{VolumeID: id}))
		info := volumeOf(t, sim, id)
		equal(t, "the volume's size", s.TotalBytes, info.TotalBytes)
		equal(t, "what is used", s.UsedBytes, info.TotalBytes-info.FreeBytes)
		return s.TotalBytes, s.UsedBytes
	}
	total, used := stats()
	if used <= 0 || used >= total {
		t.Errorf("%d of %d bytes are used", used, total)
	}
	sim.GrowDisk(1, 12<<30)
	resize := func(size int64) {
		t.Helper()
		must[*volume.ResizeVolumeResponse](t)(volumes.ResizeVolume(ctx, &volume.ResizeVolumeRequest{VolumeID: id, SizeBytes: size}))
	}
	resize(11 << 30)
	if grown, _ := stats(); grown <= total || grown > 11<<30 {
		t.Errorf("after a growth to 11 GiB the size is %d", grown)
	}
	resize(0)
	if grown, _ := stats(); grown <= 11<<30 {
		t.Errorf("after a growth as far as the disk allows the size is %d", grown)
	}

	flushes := sim.Calls()["FlushFileBuffers"]
	must[*volume.WriteVolumeCacheResponse](t)(volumes.WriteVolumeCache(ctx, &volume.WriteVolumeCacheRequest{VolumeID: id}))
	equal(t, "how often the cache was written out", sim.Calls()["FlushFileBuffers"]-flushes, 1)

	_, err := volumes.UnmountVolume(ctx, &volume.UnmountVolumeRequest{VolumeID: other, TargetPath: staging})
	is(t, err, csiproxy.ErrFailedPrecondition)
	must[*volume.UnmountVolumeResponse](t)(volumes.UnmountVolume(ctx, &volume.UnmountVolumeRequest{VolumeID: id, TargetPath: staging}))
	mounted, closest = at(staging)
	equal(t, "what is mounted afterwards", mounted, "")
	equal(t, "what is closest afterwards", closest, windows)

	must[*volume.MountVolumeResponse](t)(volumes.MountVolume(ctx, &volume.MountVolumeRequest{VolumeID: id, TargetPath: staging}))
	data, err := sim.ReadFile(staging + `\data`)
	equal(t, "what is on the volume", string(data), "kept")
	succeed(t, err)
}

func TestFiles(t *testing.T) {
	sim, ctx := start(t), t.Context()
	files := must[*filesystem.Filesystem](t)(filesystem.New(filesystemapi.New()))
	exists := func(path string) bool {
		t.Helper()
		e := must[*filesystem.PathExistsResponse](t)(files.PathExists(ctx, &filesystem.PathExistsRequest{Path: path})).Exists
		v := must[*filesystem.PathValidResponse](t)(files.PathValid(ctx, &filesystem.PathValidRequest{Path: path})).Valid
		equal(t, "PathValid of "+path, v, e)
		return e
	}
	isLink := func(path string) bool {
		t.Helper()
		return must[*filesystem.IsSymlinkResponse](t)(files.IsSymlink(ctx, &filesystem.IsSymlinkRequest{Path: path})).IsSymlink
	}
	const directory, link = pods + `\pv-1`, pods + `\pv-1\mount`
	equal(t, "a directory that isn't there is", exists(directory), false)
	must[*filesystem.MkdirResponse](t)(files.Mkdir(ctx, &filesystem.MkdirRequest{Path: directory}))
	must[*filesystem.MkdirResponse](t)(files.Mkdir(ctx, &filesystem.MkdirRequest{Path: staging}))
	equal(t, "a directory is there", exists(directory), true)

	must[*filesystem.CreateSymlinkResponse](t)(files.CreateSymlink(ctx,
		&filesystem.CreateSymlinkRequest{SourcePath: staging, TargetPath: link}))
	equal(t, "a link is one", isLink(link), true)
	equal(t, "a directory is a link", isLink(directory), false)
	succeed(t, sim.WriteFile(link+`\data`, []byte("kept")))
	data, err := sim.ReadFile(staging + `\data`)
	equal(t, "what was written through the link", string(data), "kept")
	succeed(t, err)

	_, err = files.Rmdir(ctx, &filesystem.RmdirRequest{Path: directory}) // not empty
	is(t, err, csiproxy.ErrFailedPrecondition)
	must[*filesystem.RmdirResponse](t)(files.Rmdir(ctx, &filesystem.RmdirRequest{Path: link}))
	equal(t, "a link that was removed is there", exists(link), false)
	equal(t, "what the link led to is there", exists(staging+`\data`), true)

	succeed(t, sim.MkdirAll(directory+`\a\b`))
	must[*filesystem.RmdirContentsResponse](t)(files.RmdirContents(ctx, &filesystem.RmdirContentsRequest{Path: directory}))
	equal(t, "what was in the directory is there", exists(directory+`\a`), false)
	equal(t, "the emptied directory is there", exists(directory), true)
	succeed(t, sim.MkdirAll(directory+`\a\b`))
	must[*filesystem.RmdirResponse](t)(files.Rmdir(ctx, &filesystem.RmdirRequest{Path: directory, Force: true}))
	equal(t, "a directory that was removed is there", exists(directory), false)

	for path, valid := range map[string]bool{
		`C:\dir`: true, `\dir`: false, `C:dir`: false, `C:\a\..\b`: false, `C:\a|b`: false, `\\server\share`: false, "": false,
	} {
		equal(t, "ValidatePathWindows of "+path, filesystem.ValidatePathWindows(path) == nil, valid)
	}
	long := `C:\` + string(make([]byte, utils.MaxPathLengthWindows-2))
	equal(t, "a path of 261 characters is valid", filesystem.ValidatePathWindows(long) == nil, false)
}
