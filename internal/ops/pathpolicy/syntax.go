// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"slices"
	"strings"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// location is an absolute path, split into its drive and its names.
type location struct {
	drive string // "C:", upper case, or a volume, \\?\Volume{guid}\
	names []string
}

func (l location) String() string {
	return strings.TrimSuffix(l.drive, `\`) + `\` + strings.Join(l.names, `\`)
}

// inside reports whether l is dir or lies below it, by its text.
func (l location) inside(dir location) bool { return l.insideBy(dir, win.SameName) }

// insideBy is inside, with isSame to compare l's names with dir's names.
func (l location) insideBy(dir location, isSame func(name, ofDir string) bool) bool {
	if !strings.EqualFold(l.drive, dir.drive) || len(l.names) < len(dir.names) {
		return false
	}
	for i, name := range dir.names {
		if !isSame(l.names[i], name) {
			return false
		}
	}
	return true
}

func (l location) equal(other location) bool { return l.inside(other) && other.inside(l) }

// split checks the text of an absolute path. A path without a drive is on defaultDrive, unless
// defaultDrive is empty.
func split(path, defaultDrive string) (location, error) {
	var l location
	if fault := faultOf(path); fault != "" {
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s", fault)
	}
	l.drive = defaultDrive
	if len(path) >= 2 && path[1] == ':' {
		letter, ok := driveLetter(path[:2])
		if !ok {
			return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path doesn't begin with a drive letter")
		}
		l.drive, path = letter, path[2:]
	}
	if l.drive == "" || !strings.HasPrefix(path, `\`) {
		return l, csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the path is not an absolute Windows path, such as %s", `C:\var\lib\kubelet`)
	}
	l.names = strings.FieldsFunc(path, func(r rune) bool { return r == '\\' })
	for _, name := range l.names {
		if err := checkName(name); err != nil {
			return l, err
		}
	}
	return l, nil
}

// faultOf says what is wrong with the text of a path before its elements are parsed; "" if nothing
// is.
func faultOf(path string) string {
	if path == "" {
		return "the path is empty"
	}
	if !utf8.ValidString(path) {
		return "the path is not valid UTF-8"
	}
	for _, prefix := range []string{`\\?\`, `\\.\`, `\??\`} {
		if strings.HasPrefix(path, prefix) {
			return `a path that begins with \\?\, \\.\ or \??\ is not allowed`
		}
	}
	if strings.HasPrefix(path, `\\`) {
		return `a path that begins with \\ is not allowed`
	}
	if strings.Contains(path, `/`) {
		return `a slash (/) is not allowed in the path; write a backslash (\) between its elements`
	}
	return ""
}

// driveLetter reads C or C: and returns C:.
func driveLetter(s string) (string, bool) {
	s = strings.TrimSuffix(s, ":")
	if len(s) != 1 {
		return "", false
	}
	upper := s[0] &^ 0x20
	if upper < 'A' || upper > 'Z' {
		return "", false
	}
	return string(rune(upper)) + ":", true
}

// checkName returns an error for an element of a path if Windows would reject or change it as the
// name of a file.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
func checkName(name string) error {
	if strings.Contains(name, ":") {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "a colon is allowed behind the drive letter only")
	}
	if reserved(name) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the element %q is the name of a device", name)
	}
	return win.CheckNameElement(name)
}

// reserved reports whether Win32 takes name as a device, whatever follows a dot in the name.
func reserved(name string) bool {
	// This quick check settles nearly all names.
	if len(name) < 3 || !slices.ContainsFunc([]string{"CON", "PRN", "AUX", "NUL", "COM", "LPT"},
		func(device string) bool { return strings.EqualFold(name[:3], device) }) {
		return false
	}
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
