// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package privilege enables privileges that an administrator has, but that Windows
// doesn't enable by itself.
package privilege
