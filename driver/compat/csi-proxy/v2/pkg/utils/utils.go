// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package utils has what drivers use of the published package of that name. Its RunPowershellCmd
// isn't here: nothing in this module runs a program.
package utils

// MaxPathLengthWindows is the longest path that the filesystem group takes, in characters.
const MaxPathLengthWindows = 260
