// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

// Limits of messages in their encoded form, in bytes, at both ends of a call.
const (
	// MaxRequestBytes is enough for any request of the API: the longest text in one is a
	// path, for which Windows allows 32,767 characters.
	MaxRequestBytes = 128 << 10
	// MaxResponseBytes is what a gRPC client accepts by default.
	MaxResponseBytes = 4 << 20
)
