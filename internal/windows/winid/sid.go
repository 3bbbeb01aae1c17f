// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winid

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// SID is a security identifier as text: S-1-5-32-545. SIDs can be compared with == only in the form
// of ParseSID and DecodeSID.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/sid-components and MS-DTYP 2.4.2
type SID string

// Well-known accounts and groups. Microsoft lists none for containers; `whoami` prints
// ContainerUser's (moby/buildkit#5791).
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/well-known-sids
const (
	SIDEveryone               SID = "S-1-1-0"
	SIDCreatorOwner           SID = "S-1-3-0"
	SIDAuthenticatedUsers     SID = "S-1-5-11"
	SIDSystem                 SID = "S-1-5-18"
	SIDAdministrators         SID = "S-1-5-32-544"
	SIDUsers                  SID = "S-1-5-32-545"
	SIDContainerAdministrator SID = "S-1-5-93-2-1"
	SIDContainerUser          SID = "S-1-5-93-2-2"
)

const (
	sidRevision    = 1
	sidHeader      = 8 // revision, number of subauthorities, authority
	maxAuthorities = 15
	maxAuthority   = 1<<48 - 1
)

// ParseSID reads a SID as text and returns the form of DecodeSID: an authority of 2^32 or more is
// hexadecimal.
func ParseSID(text string) (SID, error) {
	parts := strings.Split(text, "-")
	if len(parts) < 4 || len(parts) > 3+maxAuthorities || !strings.EqualFold(parts[0], "S") || parts[1] != "1" {
		return "", fmt.Errorf("%q isn't S-1-, an authority, and 1 to %d numbers, such as %s", text, maxAuthorities, SIDUsers)
	}
	authority, err := parseAuthority(parts[2])
	if err != nil {
		return "", fmt.Errorf("%q: its authority isn't a number of 48 bits", text)
	}
	numbers := make([]uint32, 0, maxAuthorities)
	for _, part := range parts[3:] {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || part[0] == '+' {
			return "", fmt.Errorf("%q: %q isn't a number of 32 bits", text, part)
		}
		numbers = append(numbers, uint32(n))
	}
	return sidOf(authority, numbers), nil
}

// parseAuthority reads an authority, which is decimal, or 0x and hexadecimal digits.
func parseAuthority(text string) (uint64, error) {
	base := 10
	if hex, ok := strings.CutPrefix(strings.ToLower(text), "0x"); ok {
		text, base = hex, 16
	}
	return strconv.ParseUint(text, base, 48)
}

func sidOf(authority uint64, numbers []uint32) SID {
	text := fmt.Sprintf("S-%d-%d", sidRevision, authority)
	if authority > 1<<32-1 {
		text = fmt.Sprintf("S-%d-0x%012x", sidRevision, authority)
	}
	for _, n := range numbers {
		text += fmt.Sprintf("-%d", n)
	}
	return SID(text)
}

// Encode returns the bytes of a SID, or nil for a malformed SID. SIDs from ParseSID are
// well-formed.
func (s SID) Encode() []byte {
	parts := strings.Split(string(s), "-")
	if len(parts) < 4 {
		return nil
	}
	authority, err := parseAuthority(parts[2])
	if err != nil {
		return nil
	}
	b := []byte{
		sidRevision, byte(len(parts) - 3),
		byte(authority >> 40), byte(authority >> 32), byte(authority >> 24), byte(authority >> 16), byte(authority >> 8),
		byte(authority),
	}
	for _, part := range parts[3:] {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil {
			return nil
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	return b
}

// DecodeSID reads the SID with which b begins.
func DecodeSID(b []byte) (SID, bool) {
	if len(b) < sidHeader || b[0] != sidRevision {
		return "", false
	}
	count := int(b[1])
	if count < 1 || count > maxAuthorities || len(b) < sidHeader+4*count {
		return "", false
	}
	var authority uint64
	for _, digit := range b[2:sidHeader] {
		authority = authority<<8 | uint64(digit)
	}
	numbers := make([]uint32, count)
	for i := range numbers {
		numbers[i] = binary.LittleEndian.Uint32(b[sidHeader+4*i:])
	}
	return sidOf(authority, numbers), true
}
