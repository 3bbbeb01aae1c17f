// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// extendedPath returns the `\\?\` form of a full path with a drive letter, of a UNC
// path, or of a path that has it already. Such a path may be longer than MAX_PATH,
// and Windows hands it to the file system as it is, so that what a caller has
// checked is what is opened. A relative path, one with the elements "." or "..", and
// a device path give [winerr.ErrorInvalidName].
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file
func extendedPath(path string) (string, error) {
	var extended string
	switch {
	case strings.HasPrefix(path, `\\?\`):
		extended = path
	case strings.HasPrefix(path, `\\.\`):
		return "", winerr.ErrorInvalidName
	case strings.HasPrefix(path, `\\`):
		extended = `\\?\UNC` + path[1:]
	case len(path) >= 3 && isLetter(path[0]) && path[1:3] == `:\`:
		extended = `\\?\` + path
	default:
		return "", winerr.ErrorInvalidName
	}
	for element := range strings.SplitSeq(extended[len(`\\?\`):], `\`) {
		if element == "." || element == ".." {
			return "", winerr.ErrorInvalidName
		}
	}
	return extended, nil
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// ntPath returns the name by which NtCreateFile opens a full path.
func ntPath(path string) (string, error) {
	extended, err := extendedPath(path)
	if err != nil {
		return "", err
	}
	name := extended[len(`\\?\`):]
	// A backslash at the end says "this directory", and NtCreateFile takes it for
	// the root of a drive or volume only.
	if trimmed := strings.TrimSuffix(name, `\`); strings.Contains(trimmed, `\`) {
		name = trimmed
	}
	return `\??\` + name, nil
}

// checkBelow refuses what isn't the name of a file below a directory: elements that
// lead elsewhere or nowhere, a stream.
func checkBelow(path string) error {
	for name := range strings.SplitSeq(path, `\`) {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/:\x00") {
			return winerr.ErrorInvalidName
		}
	}
	return nil
}

// maxPath is MAX_PATH: so many UTF-16 units, with the NUL at its end, a path can
// have that isn't extended.
const maxPath = 260

// directoryPath returns path with the backslash at its end that calls of the mount
// manager need, in its extended form if it is too long for the common one.
func directoryPath(path string) string {
	if !strings.HasSuffix(path, `\`) {
		path += `\`
	}
	if len(path) < maxPath {
		return path
	}
	if extended, err := extendedPath(path); err == nil {
		return extended
	}
	return path // Windows will say what is wrong with it
}

// sameInterfaces reports whether two lists hold the same device interfaces, in any
// order.
func sameInterfaces(a, b []string) bool {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	return slices.EqualFunc(a, b, strings.EqualFold)
}

// volumeOfPath returns the volume's name at the beginning of \\?\Volume{guid}\directory.
func volumeOfPath(path string) (string, error) {
	const prefix = `\\?\Volume{`
	end := strings.Index(path, `}\`)
	if !strings.HasPrefix(path, prefix) || end < 0 {
		return "", winerr.ErrorPathNotFound
	}
	return path[:end+len(`}\`)], nil
}
