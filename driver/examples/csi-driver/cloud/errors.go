// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func failure(op, volume string, kind error, detail string) error {
	return &csiproxy.Error{Op: op, Object: "volume " + volume, Kind: kind, Detail: detail}
}

// outOfRange is CSI's error for an impossible size, for which csiproxy has no class.
func outOfRange(r Range) error {
	return status.Errorf(codes.OutOfRange, "no volume can have required_bytes %d and limit_bytes %d: "+
		"sizes are multiples of %d, from %d to %d", r.Required, r.Limit, unit, int64(minSize), int64(maxSize))
}
