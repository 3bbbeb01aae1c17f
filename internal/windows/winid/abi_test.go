// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winid

import (
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
)

func TestABI(t *testing.T) {
	abi := abitest.Load(t, "../win/testdata/abi")
	abi.Check(abitest.Constants{"SID_MAX_SUB_AUTHORITIES": maxAuthorities})
}
