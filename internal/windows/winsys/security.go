// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"bytes"
	"math"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// errorInvalidACL is ERROR_INVALID_ACL.
const errorInvalidACL win.Errno = 1336

// Sizes and offsets of SECURITY_DESCRIPTOR_RELATIVE, of ACL and of ACE_HEADER.
//
// Source: https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-security_descriptor,
// https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-acl and
// https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-ace_header
const (
	descriptorSize    = 20
	descriptorControl = 2
	descriptorOwner   = 4
	descriptorDACL    = 16

	aclHeader = 8
	aclSize   = 2
	aclCount  = 4

	aceHeader = 4
	aceSize   = 2
	aceSID    = 8 // behind the rights

	sidHeader = 8
	sidCount  = 1
)

// Types of access list entries.
const (
	accessAllowed = 0
	accessDenied  = 1
)

// privateSDDL is the security descriptor of [win.OpenOptions].Private.
const privateSDDL = "O:BAD:P(A;;FA;;;SY)(A;;FA;;;BA)"

// The accounts of privateSDDL: S-1-5-18 and S-1-5-32-544.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/well-known-sids
var (
	systemSID         = []byte{1, 1, 0, 0, 0, 0, 0, 5, 18, 0, 0, 0}
	administratorsSID = []byte{1, 2, 0, 0, 0, 0, 0, 5, 32, 0, 0, 0, 0x20, 2, 0, 0}
)

// Bits of SECURITY_DESCRIPTOR_CONTROL.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/security-descriptor-control
const (
	daclPresent        = 0x0004
	daclAutoInheritReq = 0x0100
	daclAutoInherited  = 0x0400
	daclProtected      = 0x1000
	selfRelative       = 0x8000
)

// denyCreationACE is an ACCESS_DENIED_ACE without flags, so that nothing inherits it: it
// denies FILE_ADD_FILE and FILE_ADD_SUBDIRECTORY to Everyone, S-1-1-0.
//
// Source: https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-access_denied_ace and
// https://learn.microsoft.com/windows/win32/secauthz/well-known-sids
var denyCreationACE = []byte{
	1, 0, 20, 0, // ACCESS_DENIED_ACE_TYPE, no flags, the size
	byte(win.FileAddFile | win.FileAddSubdirectory), 0, 0, 0,
	1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, // revision 1, one number after the authority 1
}

// accessList returns the header and the entries of the access list in a self-relative
// security descriptor. A descriptor without a list lets everybody do everything: it gives
// no header.
func accessList(descriptor []byte) (header []byte, entries [][]byte, err error) {
	if len(descriptor) < descriptorSize {
		return nil, nil, errorInvalidACL
	}
	at := le.Uint32(descriptor[descriptorDACL:])
	if le.Uint16(descriptor[descriptorControl:])&daclPresent == 0 || at == 0 {
		return nil, nil, nil
	}
	if int64(at) > int64(len(descriptor)-aclHeader) {
		return nil, nil, errorInvalidACL
	}
	acl := descriptor[at:]
	size, count := int(le.Uint16(acl[aclSize:])), le.Uint16(acl[aclCount:])
	if size < aclHeader || size > len(acl) {
		return nil, nil, errorInvalidACL
	}
	header, acl = acl[:aclHeader], acl[aclHeader:size]
	for range count {
		if len(acl) < aceHeader {
			return nil, nil, errorInvalidACL
		}
		length := int(le.Uint16(acl[aceSize:]))
		if length < aceHeader || length > len(acl) {
			return nil, nil, errorInvalidACL
		}
		entries, acl = append(entries, acl[:length]), acl[length:]
	}
	return header, entries, nil
}

func isDenyCreation(ace []byte) bool { return bytes.Equal(ace, denyCreationACE) }

// creationDenied reports whether the list of a security descriptor has denyCreationACE.
func creationDenied(descriptor []byte) (bool, error) {
	_, entries, err := accessList(descriptor)
	return slices.ContainsFunc(entries, isDenyCreation), err
}

// denyCreation returns a self-relative security descriptor that has only an access list:
// that of a descriptor with denyCreationACE before all others, or without it. It returns nil
// if nothing is to change.
//
// Entries that deny stand before those that allow. That a list is protected, and that
// entries in it were inherited, stays as it was: for the latter both bits must be set.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/order-of-aces-in-a-dacl and
// MS-DTYP 2.4.6
func denyCreation(descriptor []byte, deny bool) ([]byte, error) {
	header, entries, err := accessList(descriptor)
	if err != nil {
		return nil, err
	}
	switch {
	case slices.ContainsFunc(entries, isDenyCreation) == deny:
		return nil, nil
	case header == nil: // a list of this entry alone would deny everything else, too
		return nil, errorInvalidACL
	}
	entries = slices.DeleteFunc(entries, isDenyCreation)
	if deny {
		entries = slices.Insert(entries, 0, denyCreationACE)
	}
	control := le.Uint16(descriptor[descriptorControl:])&(daclProtected|daclAutoInherited) | daclPresent | selfRelative
	if control&daclAutoInherited != 0 {
		control |= daclAutoInheritReq
	}
	changed := make([]byte, descriptorSize, descriptorSize+aclHeader+len(entries)*len(denyCreationACE))
	changed[0] = descriptor[0]
	le.PutUint16(changed[descriptorControl:], control)
	le.PutUint32(changed[descriptorDACL:], descriptorSize)
	changed = append(changed, header...)
	for _, ace := range entries {
		changed = append(changed, ace...)
	}
	size := len(changed) - descriptorSize
	if size > math.MaxUint16 {
		return nil, errorInvalidACL
	}
	le.PutUint16(changed[descriptorSize+aclSize:], uint16(size))
	le.PutUint16(changed[descriptorSize+aclCount:], uint16(len(entries)))
	return changed, nil
}

// isPrivate reports whether the owner of a self-relative security descriptor, and everybody to whom
// its list allows something, is SYSTEM, the Administrators or self.
func isPrivate(descriptor, self []byte) (bool, error) {
	header, entries, err := accessList(descriptor)
	if err != nil || header == nil { // without a list everybody may do everything
		return false, err
	}
	isTrusted := func(b []byte) bool {
		sid := leadingSID(b)
		return sid != nil && (bytes.Equal(sid, systemSID) || bytes.Equal(sid, administratorsSID) || bytes.Equal(sid, self))
	}
	owner := le.Uint32(descriptor[descriptorOwner:])
	if int64(owner) > int64(len(descriptor)) || !isTrusted(descriptor[owner:]) {
		return false, nil
	}
	for _, ace := range entries {
		switch {
		case ace[0] == accessDenied:
		case ace[0] != accessAllowed, len(ace) < aceSID, !isTrusted(ace[aceSID:]):
			return false, nil
		}
	}
	return true, nil
}

// leadingSID returns the SID with which b begins, or nil.
func leadingSID(b []byte) []byte {
	if len(b) < sidHeader {
		return nil
	}
	size := sidHeader + 4*int(b[sidCount])
	if size > len(b) {
		return nil
	}
	return b[:size]
}
