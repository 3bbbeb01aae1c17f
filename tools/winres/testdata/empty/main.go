// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command empty is a program to stamp.
package main

func main() {}
