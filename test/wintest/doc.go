// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-proxy-wintest proves CSI Proxy on a Windows machine, and reports what is
// so and what isn't for each row of docs/windows-proof.md. It needs an administrator, and
// neither Go nor Hyper-V:
//
//	csi-proxy-wintest.exe [-yes] [-iscsi] [-report file] [-record file]
//
// With -record it writes down what Windows answers to each call of a scenario, which
// the test of internal/winrecord compares with the simulated node.
//
// make wintest builds it: this program, with the daemon, the operator's command and the
// programs of the tests in a ZIP archive at its end.
package main
