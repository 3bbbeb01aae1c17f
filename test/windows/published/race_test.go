// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package published

// raceDetector: the programs under test are built as the test itself is.
const raceDetector = true
