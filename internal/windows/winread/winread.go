// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winread is the little of Windows that csi-proxyctl reads itself, also where no daemon runs:
// settings in the registry, and volumes with their file systems. It changes nothing and enables no privilege. A call lasts until Windows answers.
package winread
