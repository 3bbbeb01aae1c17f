// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"

	"github.com/kubernetes-csi/csi-proxy/v2/pkg/utils"
)

// The functions of package utils see the same of a link, a mount point, a directory and a missing path, also by long paths.
func TestUtils(t *testing.T) {
	sim := start(t)
	sim.AttachDisk(simnode.Disk{SizeBytes: 1 << 30, Serial: "vol-1"})
	_, err := sim.Operations().Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{
		Disk: csiproxy.Selector{SerialNumber: "vol-1"}, StagingPath: staging})
	succeed(t, err)
	directory, link := pods+`\pv-1`, pods+`\pv-1\mount`
	succeed(t, sim.Operations().Filesystem.Mkdir(t.Context(), directory))
	succeed(t, utils.CreateSymlink(utils.EnsureLongPath(link), staging, true))
	succeed(t, utils.CreateSymlink(link, staging, true))

	for path, isLink := range map[string]bool{staging: true, link: true, directory: false} {
		for _, path := range []string{path, utils.EnsureLongPath(path)} {
			equal(t, "PathExists of "+path, must[bool](t)(utils.PathExists(path)), true)
			equal(t, "IsPathValid of "+path, must[bool](t)(utils.IsPathValid(path)), true)
			equal(t, "IsPathSymlink of "+path, must[bool](t)(utils.IsPathSymlink(path)), isLink)
			equal(t, "IsMountedFolder of "+path, must[bool](t)(utils.IsMountedFolder(path)), isLink)
		}
	}
	missing := pods + `\pv-2`
	equal(t, "PathExists of what is missing", must[bool](t)(utils.PathExists(missing)), false)
	equal(t, "IsPathValid of what is missing", must[bool](t)(utils.IsPathValid(missing)), false)
	_, err = utils.IsPathSymlink(missing)
	is(t, err, csiproxy.ErrNotFound)
	equal(t, "a long path made twice", utils.EnsureLongPath(utils.EnsureLongPath(`C:\a`)), `\\?\C:\a`)
}
