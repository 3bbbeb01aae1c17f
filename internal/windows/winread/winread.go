// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winread is the little of Windows that csi-proxyctl reads itself, also where no daemon runs:
// settings in the registry, volumes with their file systems, and the event log. It changes nothing and
// enables no privilege. A call lasts until Windows answers.
package winread
