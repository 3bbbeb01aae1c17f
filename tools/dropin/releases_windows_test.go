// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package dropin

import (
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/system"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/utils"
	"github.com/kubernetes-csi/csi-proxy/v2/pkg/wmi"
)

// Names of v2.0.0-alpha.1 that drivers use, and that the library's branch has no more or under another
// name; and names of pkg/wmi that aren't about objects of WMI.
var (
	_ system.StartType = system.Startype(0)
	_                  = [1]int{}[utils.MaxPathLengthWindows-260]
	_                  = [1]int{}[wmi.ErrorCodeDiskIsReadOnly-41002]
	_ func(error) bool = wmi.IsDiskReadOnlyError
)
