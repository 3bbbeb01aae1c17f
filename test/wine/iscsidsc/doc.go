// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iscsidsc proves what the daemon asks of the iSCSI initiator, by an
// iscsidsc.dll in C that plays one under Wine, which has none: see iscsidsc.c.
//
// The test is skipped unless CSI_PROXY_TEST_ISCSIDSC names the DLL that build has
// built.
package iscsidsc
