// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// VolumeID names a volume in the form of the mount manager: \\?\Volume{guid}\, with the backslash
// at its end. The id stays the same for as long as Windows knows the volume, also over restarts of
// the node. The hex digits may come in either case.
type VolumeID string

const (
	idPrefix = `\\?\Volume{`
	idSuffix = `}\`
)

// ParseVolumeID checks that s is a volume id; any other text is ErrInvalidArgument.
func ParseVolumeID(s string) (VolumeID, error) {
	if err := VolumeID(s).Validate(); err != nil {
		return "", &Error{Op: "ParseID", Object: strconv.Quote(s), Err: err}
	}
	return VolumeID(s), nil
}

// Validate returns ErrInvalidArgument, with the reason, for a malformed volume id.
func (id VolumeID) Validate() error {
	inner, ok := cut(string(id))
	if ok {
		_, ok = winid.ParseGUID(inner)
	}
	if _, lacks := cut(string(id) + `\`); !ok && lacks {
		return Errorf(ErrInvalidArgument, `the backslash at the end of the id is missing`)
	}
	if !ok {
		return Errorf(ErrInvalidArgument, `the id is not of the form \\?\Volume{guid}\`)
	}
	return nil
}

func cut(s string) (string, bool) {
	if len(s) < len(idPrefix) || !strings.EqualFold(s[:len(idPrefix)], idPrefix) {
		return "", false
	}
	return strings.CutSuffix(s[len(idPrefix):], idSuffix)
}

// Equal reports whether two ids name the same volume, ignoring case: Windows' calls sometimes
// differ in the case of the hex digits.
func (id VolumeID) Equal(other VolumeID) bool { return strings.EqualFold(string(id), string(other)) }
