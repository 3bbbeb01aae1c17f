// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"context"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// scratchFile is the name of the file that a container's changes are in. Windows' container service
// gives it this name, so no container runtime can choose another.
//
// Source: https://github.com/microsoft/hcsshim/pull/242
const scratchFile = `\sandbox.vhdx`

// IsScratch reports whether a disk is the scratch disk of a container, which Windows Server 2019 shows
// as a disk of the node: a file that is attached as a disk, and whose location text is the path of a
// sandbox.vhdx. Windows and the container runtime use it alone. While somebody has it open, the
// runtime may fail to remove its file. A VHDX with another name, such as an administrator's, is a disk
// like any other. A disk that refuses the queries isn't known as a scratch disk.
//
// Source: https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/3038 shows such location texts.
func IsScratch(ctx context.Context, h win.DeviceHandle, descriptor win.DeviceDescriptor) (bool, error) {
	if descriptor.BusType != win.BusTypeFileBackedVirtual {
		return false, nil
	}
	location, err := h.Location(ctx)
	return strings.HasSuffix(strings.ToLower(location.Text), scratchFile), answered(err)
}
