// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package simv1 is the API that controls the simulated node.
package simv1

// EndpointName is the name of the pipe or socket of this API, without directory
// and suffix.
const EndpointName = "csi-proxy-sim-v1"

// MaxData limits the bytes of a file or disk in one request or response.
const MaxData = 512 << 10
