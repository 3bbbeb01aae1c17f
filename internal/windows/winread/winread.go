// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winread reads Windows' state for csi-proxyctl, even without a daemon: settings in the
// registry, and volumes with their file systems. The package changes nothing and enables no
// privilege. A call lasts until Windows answers.
package winread
