// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !simulated

package main

import (
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/sim/simcontrol"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// The tests need the simulated node also in the released program for Windows, which lacks it.
func init() {
	openSimulated = func(o options) (system, map[string]server.Service, error) {
		sim, err := winsim.Open(winsim.Config{StateFile: o.simState})
		if err != nil {
			return nil, nil, err
		}
		return sim, map[string]server.Service{simv1.EndpointName: simcontrol.New(sim)}, nil
	}
}
