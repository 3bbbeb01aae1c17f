// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"bytes"
	"math"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// errorInvalidACL is ERROR_INVALID_ACL.
const errorInvalidACL winerr.Errno = 1336

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
	aceFlags  = 1
	aceSize   = 2
	aceSID    = 8 // behind the rights

	sidHeader = 8
	sidCount  = 1
)

// Types of access list entries.
const (
	accessAllowed = byte(win.AccessAllowed)
	accessDenied  = byte(win.AccessDenied)
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

// denyCreationACE is an ACCESS_DENIED_ACE without flags, and so without inheritance: the entry
// denies FILE_ADD_FILE and FILE_ADD_SUBDIRECTORY to Everyone, S-1-1-0.
//
// Source: https://learn.microsoft.com/windows/win32/api/winnt/ns-winnt-access_denied_ace and
// https://learn.microsoft.com/windows/win32/secauthz/well-known-sids
var denyCreationACE = []byte{
	1, 0, 20, 0, // ACCESS_DENIED_ACE_TYPE, no flags, the size
	byte(win.FileAddFile | win.FileAddSubdirectory), 0, 0, 0,
	1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, // revision 1, one number after the authority 1
}

// accessList returns the header and the entries of the access list in a self-relative security
// descriptor. A descriptor without a list, giving everybody all rights, has no header.
func accessList(descriptor []byte) (header []byte, entries [][]byte, err error) {
	if len(descriptor) < descriptorSize {
		return nil, nil, errorInvalidACL
	}
	offset := le.Uint32(descriptor[descriptorDACL:])
	if le.Uint16(descriptor[descriptorControl:])&daclPresent == 0 || offset == 0 {
		return nil, nil, nil
	}
	if int64(offset) > int64(len(descriptor)-aclHeader) {
		return nil, nil, errorInvalidACL
	}
	acl := descriptor[offset:]
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

// denyCreation returns a self-relative security descriptor with only an access list: the
// descriptor's list with denyCreationACE before all other entries, or without denyCreationACE. If
// the list is already as wanted, the result is nil.
//
// Entries that deny stand before entries that allow.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/order-of-aces-in-a-dacl
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
	return withEntries(descriptor, header, entries)
}

// withEntries returns a self-relative security descriptor with only an access list: the header of a
// descriptor's list, and the given entries. The control bits for protection and for inherited
// entries are kept: the latter needs both bits set.
//
// Source: MS-DTYP 2.4.6
func withEntries(descriptor, header []byte, entries [][]byte) ([]byte, error) {
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

// decodeAccess returns the entries of the list of a self-relative security descriptor.
func decodeAccess(descriptor []byte) ([]win.ACE, error) {
	header, entries, err := accessList(descriptor)
	if err != nil {
		return nil, err
	}
	if header == nil {
		return nil, errorInvalidACL
	}
	list := make([]win.ACE, len(entries))
	for i, entry := range entries {
		list[i] = win.ACE{Type: win.ACEType(entry[0]), Flags: win.ACEFlags(entry[aceFlags])}
		if entry[0] != accessAllowed && entry[0] != accessDenied {
			continue
		}
		if len(entry) < aceSID {
			return nil, errorInvalidACL
		}
		list[i].Rights = win.Access(le.Uint32(entry[aceHeader:]))
		var ok bool
		if list[i].SID, ok = winid.DecodeSID(entry[aceSID:]); !ok {
			return nil, errorInvalidACL
		}
	}
	return list, nil
}

// encodeACE returns the bytes of an entry that allows or denies.
func encodeACE(e win.ACE) []byte {
	sid := e.SID.Encode()
	b := []byte{byte(e.Type), byte(e.Flags), byte(aceSID + len(sid)), 0} // a SID has 68 bytes at most
	return append(le.AppendUint32(b, uint32(e.Rights)), sid...)
}

// addAccess returns a self-relative security descriptor with only an access list: the descriptor's
// list with entries inserted before inherited ones. If the list has all of them already, the result
// is nil.
func addAccess(descriptor []byte, entries []win.ACE) ([]byte, error) {
	list, err := decodeAccess(descriptor)
	if err != nil {
		return nil, err
	}
	var missing [][]byte
	for _, e := range entries {
		if !slices.Contains(list, e) {
			missing, list = append(missing, encodeACE(e)), append(list, e)
		}
	}
	if missing == nil {
		return nil, nil
	}
	header, old, err := accessList(descriptor)
	if err != nil {
		return nil, err
	}
	index := slices.IndexFunc(old, func(ace []byte) bool { return win.ACEFlags(ace[aceFlags])&win.InheritedACE != 0 })
	if index < 0 {
		index = len(old)
	}
	return withEntries(descriptor, header, slices.Insert(old, index, missing...))
}

// isPrivate reports whether SYSTEM, the Administrators or self own a self-relative security
// descriptor, and whether its list allows something only to these accounts.
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

// leadingSID returns the SID at the beginning of b, or nil.
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
