// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package hardware

import (
	"path/filepath"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

func dialControl(endpointDir string) (*Simulated, error) {
	return dial("unix:" + filepath.Join(endpointDir, simv1.EndpointName+".sock"))
}
