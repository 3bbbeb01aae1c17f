// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-proxy-wintest tests CSI Proxy on a Windows machine, and reports the result
// for each assumption of assumptions.txt, which docs/windows-proof.md explains. It must be run as an
// administrator, and needs neither Go nor Hyper-V:
//
//	csi-proxy-wintest.exe [-yes] [-quick | -iscsi] [-report file]
//
// With -quick it runs the tests that decide most, within two minutes, and its report is a table for an issue.
//
// On another system it writes the reports of such runs into the page, those of all versions
// of Windows together:
//
//	go run ./internal/lab/wintest docs/windows-proof.md report…
//
// make wintest builds it: this program, with the daemon, the operator's command and the
// programs of the tests in a ZIP archive at its end.
package main
