// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package virtdisk is a copy of internal/lab/virtdisk, which this module can't import.
package virtdisk
