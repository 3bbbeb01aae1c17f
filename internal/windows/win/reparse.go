// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"fmt"
	"strings"
)

// MaximumReparseDataSize is the maximum size of a REPARSE_DATA_BUFFER, in bytes.
const MaximumReparseDataSize = 16 * 1024

// ntPrefix begins the names resolved by the object manager: `\??\C:\x`.
const ntPrefix = `\??\`

// ReparsePoint is the part of REPARSE_DATA_BUFFER used by links.
//
// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/ntifs/ns-ntifs-_reparse_data_buffer
type ReparsePoint struct {
	Tag            ReparseTag
	SubstituteName string // what Windows follows: `\??\C:\dir`, or relative
	PrintName      string // what is shown to people
	Relative       bool   // symlinks only: SYMLINK_FLAG_RELATIVE
}

// NewSymlink returns a symbolic link to target: an absolute path with a drive letter, or a UNC
// path. Any other target is relative.
func NewSymlink(target string) ReparsePoint {
	r := ReparsePoint{Tag: TagSymlink, SubstituteName: target, PrintName: target}
	switch {
	case strings.HasPrefix(target, `\\?\`):
		r.SubstituteName = ntPrefix + target[len(`\\?\`):]
	case strings.HasPrefix(target, `\\`):
		r.SubstituteName = ntPrefix + `UNC` + target[1:]
	case len(target) >= 2 && target[1] == ':':
		r.SubstituteName = ntPrefix + target
	default:
		r.Relative = true
	}
	return r
}

// NewMountPoint returns the reparse point written by the mount manager to mount a volume at a
// directory; volume is \\?\Volume{guid}\.
func NewMountPoint(volume string) ReparsePoint {
	return ReparsePoint{Tag: TagMountPoint, SubstituteName: ntPrefix + strings.TrimPrefix(volume, `\\?\`)}
}

// NewJunction returns a junction to the directory target, an absolute path with
// a drive letter.
func NewJunction(target string) ReparsePoint {
	return ReparsePoint{Tag: TagMountPoint, SubstituteName: ntPrefix + target, PrintName: target}
}

// Volume returns the volume mounted here, as \\?\Volume{guid}\. ok is false unless the reparse
// point is a mount point of a volume.
func (r ReparsePoint) Volume() (string, bool) {
	if r.Tag != TagMountPoint || !hasPrefixFold(r.SubstituteName, ntPrefix+`Volume{`) {
		return "", false
	}
	name := `\\?\` + r.SubstituteName[len(ntPrefix):]
	if !strings.HasSuffix(name, `\`) {
		name += `\`
	}
	return name, true
}

// Target returns the target of a symlink, junction or mount point in a form for Win32 calls:
// `C:\dir`, `\\server\share`, `\\?\Volume{guid}\` or, if r.Relative, a path relative to the
// directory of the link.
func (r ReparsePoint) Target() string {
	s := r.SubstituteName
	if r.Relative || !strings.HasPrefix(s, ntPrefix) {
		return s
	}
	s = s[len(ntPrefix):]
	switch {
	case hasPrefixFold(s, `UNC\`):
		return `\` + s[len(`UNC`):]
	case hasPrefixFold(s, `Volume{`):
		return `\\?\` + s
	}
	return s
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// Offsets of PathBuffer from the start of the buffer.
const (
	reparseHeader       = 8
	mountPointPathStart = 16
	symlinkPathStart    = 20
)

// Encode returns the bytes of a REPARSE_DATA_BUFFER, the input of
// FsctlSetReparsePoint.
func (r ReparsePoint) Encode() []byte {
	start := mountPointPathStart
	if r.Tag == TagSymlink {
		start = symlinkPathStart
	}
	b := make([]byte, start)
	b = appendUTF16(b, r.SubstituteName)
	substituteLen := len(b) - start
	b = append(b, 0, 0)
	printOffset := len(b) - start
	b = appendUTF16(b, r.PrintName)
	printLen := len(b) - start - printOffset
	b = append(b, 0, 0)

	le.PutUint32(b[0:], uint32(r.Tag))
	le.PutUint16(b[4:], uint16(len(b)-reparseHeader))
	le.PutUint16(b[8:], 0)
	le.PutUint16(b[10:], uint16(substituteLen))
	le.PutUint16(b[12:], uint16(printOffset))
	le.PutUint16(b[14:], uint16(printLen))
	if r.Tag == TagSymlink && r.Relative {
		le.PutUint32(b[16:], 1)
	}
	return b
}

// DecodeReparsePoint reads the output of FsctlGetReparsePoint. For tags other than symlinks and
// mount points, only Tag is set.
func DecodeReparsePoint(b []byte) (ReparsePoint, error) {
	const what = "REPARSE_DATA_BUFFER"
	if err := need(what, b, reparseHeader); err != nil {
		return ReparsePoint{}, err
	}
	r := ReparsePoint{Tag: ReparseTag(le.Uint32(b))}
	length := int(le.Uint16(b[4:]))
	if length > len(b)-reparseHeader {
		return ReparsePoint{}, fmt.Errorf("%s: its data of %d bytes are cut off", what, length)
	}
	b = b[:reparseHeader+length]

	start := mountPointPathStart
	switch r.Tag {
	case TagMountPoint:
	case TagSymlink:
		start = symlinkPathStart
	default:
		return r, nil
	}
	if err := need(what, b, start); err != nil {
		return ReparsePoint{}, err
	}
	if r.Tag == TagSymlink {
		r.Relative = le.Uint32(b[16:])&1 != 0
	}
	path := b[start:]
	name := func(offset int) (string, error) {
		offset, length := int(le.Uint16(b[offset:])), int(le.Uint16(b[offset+2:]))
		if offset+length > len(path) || length%2 != 0 {
			return "", fmt.Errorf("%s: a name at %d of %d bytes lies outside its %d bytes", what, offset, length, len(path))
		}
		return utf16String(path[offset : offset+length]), nil
	}
	var err error
	if r.SubstituteName, err = name(8); err != nil {
		return ReparsePoint{}, err
	}
	if r.PrintName, err = name(12); err != nil {
		return ReparsePoint{}, err
	}
	return r, nil
}
