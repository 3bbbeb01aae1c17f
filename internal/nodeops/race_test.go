// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package nodeops_test

func init() { underRace = true }
