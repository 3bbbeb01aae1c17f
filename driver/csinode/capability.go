// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// mode is a CSI access mode.
type mode = csi.VolumeCapability_AccessMode_Mode

// Access modes, by what they allow.
const (
	singleNodeWriter       = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	singleNodeSingleWriter = csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	singleNodeMultiWriter  = csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	singleNodeReader       = csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	multiNodeReader        = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	multiNodeSingleWriter  = csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER
	multiNodeMultiWriter   = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
)

var (
	// NTFS would be damaged by a second node, so a disk is attached to one node.
	diskModes = []mode{singleNodeWriter, singleNodeSingleWriter, singleNodeMultiWriter, singleNodeReader}
	// A share can be used by many nodes.
	shareModes = append([]mode{multiNodeReader, multiNodeSingleWriter, multiNodeMultiWriter}, diskModes...)
	// With these, a volume is published once on a node (CSI's table for
	// NodePublishVolume with SINGLE_NODE_MULTI_WRITER).
	publishedOnce = []mode{singleNodeWriter, singleNodeSingleWriter, singleNodeReader}
	readers       = []mode{singleNodeReader, multiNodeReader}
)

// Unsupported says why volumes can't be used with a capability; "" if they can. A share can be
// used by several nodes at one time, and a disk by one. A driver's Controller uses it, too.
func Unsupported(c *csi.VolumeCapability, share bool) string {
	modes, what := diskModes, "on a disk"
	if share {
		modes, what = shareModes, "on a share"
	}
	switch m, fs := c.GetAccessMode().GetMode(), c.GetMount().GetFsType(); {
	case c.GetBlock() != nil:
		return "containers on Windows can't use block devices"
	case c.GetMount() == nil:
		return "the access type is missing"
	case !slices.Contains(modes, m):
		return fmt.Sprintf("the access mode %v isn't possible for a volume %s", m, what)
	case !share && fs != "" && !strings.EqualFold(fs, "ntfs") && !strings.EqualFold(fs, "refs"):
		return fmt.Sprintf("the file system %q isn't supported, only NTFS and ReFS are", fs)
	case len(c.GetMount().GetMountFlags()) != 0:
		return "Windows has no mount options"
	default:
		return ""
	}
}

// OnlyReads reports whether a volume that is published like this is read-only.
func OnlyReads(c *csi.VolumeCapability, readonly bool) bool {
	return readonly || slices.Contains(readers, c.GetAccessMode().GetMode())
}
