// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volume has the types of a node's volumes, their ids and figures, and the operations on
// them.
package volume

import (
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// ID names a volume as the mount manager does: \\?\Volume{guid}\, with the
// backslash at its end. It stays the same for as long as Windows knows the
// volume, also over restarts of the node. The hex digits may come in either case.
type ID string

const (
	idPrefix = `\\?\Volume{`
	idSuffix = `}\`
)

// ParseID checks that s is a volume id; anything else is
// csiproxy.ErrInvalidArgument.
func ParseID(s string) (ID, error) {
	if err := ID(s).Validate(); err != nil {
		return "", &csiproxy.Error{Op: "ParseID", Object: strconv.Quote(s), Err: err}
	}
	return ID(s), nil
}

// Validate returns csiproxy.ErrInvalidArgument, with the reason, for what is no volume id.
func (id ID) Validate() error {
	inner, ok := cut(string(id))
	if ok {
		_, ok = winid.ParseGUID(inner)
	}
	if !ok {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, `the id is not of the form \\?\Volume{guid}\`)
	}
	return nil
}

func cut(s string) (string, bool) {
	if len(s) < len(idPrefix) || !strings.EqualFold(s[:len(idPrefix)], idPrefix) {
		return "", false
	}
	return strings.CutSuffix(s[len(idPrefix):], idSuffix)
}

// Equal reports whether two ids name the same volume: Windows' calls differ now
// and then in the case of the hex digits.
func (id ID) Equal(other ID) bool { return strings.EqualFold(string(id), string(other)) }

// Stats are the figures of a volume's file system.
type Stats struct {
	SizeBytes int64 `json:"size_bytes"` // capacity of the file system in bytes
	UsedBytes int64 `json:"used_bytes"` // bytes of it in use
}
