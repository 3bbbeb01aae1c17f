// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package ntfs

import (
	"strings"
	"unicode/utf8"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// maxName is the length of a name in UTF-16 units.
const maxName = 255

// CheckName refuses what NTFS doesn't take as the name of a file. A dot or blank
// at the end is a matter of Win32, not of NTFS.
func CheckName(name string) error {
	switch {
	case name == "" || name == "." || name == "..":
		return winerr.ErrorInvalidName
	case !utf8.ValidString(name) && win.StringFromUTF16(win.AppendUTF16(nil, name)) != name: // not WTF-8
		return winerr.ErrorInvalidName
	case strings.ContainsAny(name, `"*/:<>?\|`), strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 }):
		return winerr.ErrorInvalidName
	case len(name) > maxName && len(win.AppendUTF16(nil, name)) > maxName: // a unit takes a byte at least
		return winerr.ErrorInvalidName
	}
	return nil
}
