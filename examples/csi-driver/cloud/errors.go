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

// outOfRange is CSI's error for a size that can't be, which has no class in csiproxy.
func outOfRange(r Range) error {
	return status.Errorf(codes.OutOfRange, "a volume of at least %d and, if that isn't 0, at most %d bytes is impossible: "+
		"sizes are multiples of %d, from %d to %d", r.Required, r.Limit, unit, int64(minSize), int64(maxSize))
}
