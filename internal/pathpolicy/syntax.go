// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"strings"
	"unicode"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// location is an absolute path with a drive letter, split up.
type location struct {
	drive string // "C:", upper case
	names []string
}

func (l location) String() string { return l.drive + `\` + strings.Join(l.names, `\`) }

// inside reports whether l is dir or lies below it, by its text.
func (l location) inside(dir location) bool {
	if l.drive != dir.drive || len(l.names) < len(dir.names) {
		return false
	}
	for i, name := range dir.names {
		if !sameName(l.names[i], name) {
			return false
		}
	}
	return true
}

// split checks the text of an absolute path. One without a drive is taken on
// defaultDrive, unless that is empty.
func split(path, defaultDrive string) (location, error) {
	var l location
	switch {
	case path == "":
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path is empty")
	case !utf8.ValidString(path):
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path is not valid UTF-8")
	case strings.HasPrefix(path, `\\?\`), strings.HasPrefix(path, `\\.\`), strings.HasPrefix(path, `\??\`):
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "device and verbatim paths are not allowed")
	case strings.HasPrefix(path, `\\`), strings.HasPrefix(path, `//`):
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "UNC paths are not allowed")
	case len(path) >= 2 && path[1] == ':':
		letter := path[0] &^ 0x20
		if letter < 'A' || letter > 'Z' {
			return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path doesn't begin with a drive letter")
		}
		l.drive, path = string(letter)+":", path[2:]
	default:
		l.drive = defaultDrive
	}
	if l.drive == "" || !strings.HasPrefix(path, `\`) {
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path is relative")
	}
	for name := range strings.SplitSeq(path, `\`) {
		if name == "" {
			continue
		}
		if err := checkName(name); err != nil {
			return l, err
		}
		l.names = append(l.names, name)
	}
	return l, nil
}

// maxName is the length of one element in UTF-16 units.
const maxName = 255

// checkName refuses an element of a path that Windows wouldn't take as the name of
// one file of just that name.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
func checkName(name string) error {
	if name == "." || name == ".." {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the element %q is not allowed", name)
	}
	for _, r := range name {
		switch {
		case r == ':':
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "a colon is allowed behind the drive letter only")
		case r == '/':
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "a slash is not allowed; the separator is the backslash")
		case unicode.IsControl(r) || strings.ContainsRune(`"<>|?*`, r):
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the character %q is not allowed", r)
		}
	}
	switch {
	case strings.HasSuffix(name, "."), strings.HasSuffix(name, " "):
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the element %q ends in a dot or blank", name)
	case reserved(name):
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the element %q is the name of a device", name)
	case units(name) > maxName:
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "an element is longer than %d characters", maxName)
	}
	return nil
}

// reserved reports whether Win32 takes name as a device, with whatever behind a
// dot.
func reserved(name string) bool {
	name, _, _ = strings.Cut(name, ".")
	name = strings.ToUpper(strings.TrimRight(name, " "))
	switch name {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$":
		return true
	}
	port, ok := strings.CutPrefix(name, "COM")
	if !ok {
		port, ok = strings.CutPrefix(name, "LPT")
	}
	return ok && utf8.RuneCountInString(port) == 1 && strings.Contains("123456789¹²³", port)
}

// sameName reports whether NTFS takes two names as the same. It is narrower than
// strings.EqualFold, to which the Kelvin sign is a k: what differs for NTFS must
// never be the same here.
func sameName(a, b string) bool {
	return a == b || strings.Map(fold, a) == strings.Map(fold, b)
}

// fold is Unicode's simple upper case as the $UpCase table of NTFS has it: only
// within the basic plane, and never from another script's block into ASCII.
func fold(r rune) rune {
	upper := unicode.ToUpper(r)
	if r > 0xFFFF || upper > 0xFFFF || r >= 0x80 && upper < 0x80 || r == 'µ' {
		return r
	}
	return upper
}

// units is the length of s in UTF-16 units. Bytes that aren't UTF-8 count as one
// each.
func units(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}
