// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simv1 is the API that controls the simulated node.
package simv1

// EndpointName is the name of the pipe or socket of this API, without directory
// and suffix.
const EndpointName = "csi-proxy-sim-v1"

// MaxData is how many bytes of a file or disk one call takes or gives.
const MaxData = 512 << 10
