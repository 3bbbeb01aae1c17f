// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package opendisk

import (
	"context"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// scratchFile is the name of the file with a container's changes. Windows' container service
// chooses the name, and container runtimes cannot change it.
//
// Source: https://github.com/microsoft/hcsshim/pull/242
const scratchFile = `\sandbox.vhdx`

// IsScratch reports whether a disk is the scratch disk of a container. Windows Server 2019 shows a
// scratch disk as a disk of the node: a file attached as a disk, with the path of a sandbox.vhdx as
// location text. Only Windows and the container runtime use a scratch disk. While anybody has the
// disk open, the runtime may fail to remove the file. A VHDX with another name, such as an
// administrator's, is an ordinary disk. A disk that refuses the queries does not count as a scratch
// disk.
//
// Source: https://github.com/kubernetes-sigs/azuredisk-csi-driver/pull/3038 shows location texts of
// scratch disks.
func IsScratch(ctx context.Context, h win.DeviceHandle, descriptor win.DeviceDescriptor) (bool, error) {
	if descriptor.BusType != win.BusTypeFileBackedVirtual {
		return false, nil
	}
	location, err := h.Location(ctx)
	return strings.HasSuffix(strings.ToLower(location.Text), scratchFile), ignoreRefusal(err)
}
