// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package iscsidsc tests the daemon's calls to the iSCSI initiator, with an iscsidsc.dll
// in C that acts as the initiator under Wine, which has none: see iscsidsc.c.
//
// The test is skipped unless CSI_PROXY_TEST_ISCSIDSC names the DLL that build has
// built.
package iscsidsc
