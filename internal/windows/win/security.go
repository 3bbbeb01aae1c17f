// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// ACEType is the kind of an entry of an access list.
type ACEType uint8

// Kinds of entries. Further kinds have conditions, or are about single properties.
const (
	AccessAllowed ACEType = 0
	AccessDenied  ACEType = 1
)

// ACEFlags control the inheritance of an entry of an access list.
//
// Source: https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-ace_header
type ACEFlags uint8

// Flags of entries, and how icacls writes them.
const (
	ObjectInherit      ACEFlags = 0x01 // (OI): files below
	ContainerInherit   ACEFlags = 0x02 // (CI): directories below
	NoPropagateInherit ACEFlags = 0x04 // (NP): only what is directly below
	InheritOnly        ACEFlags = 0x08 // (IO): not the directory itself
	InheritedACE       ACEFlags = 0x10 // (I): it comes from the directory above
)

// ACE is an entry of an access list.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/ace
type ACE struct {
	Type  ACEType
	Flags ACEFlags
	// Rights and SID are set only for the kinds above.
	Rights Access
	SID    winid.SID
}
