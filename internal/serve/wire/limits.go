// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

// Limits of messages in their encoded form, in bytes, at both ends of a call.
const (
	// MaxRequestBytes is enough for any request of the API: the longest text in a request is a
	// path, up to 32,767 characters on Windows.
	MaxRequestBytes = 128 << 10
	// MaxResponseBytes is the default limit of gRPC clients.
	MaxResponseBytes = 4 << 20
)
