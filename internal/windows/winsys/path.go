// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// extendedPath returns the `\\?\` form of a full path with a drive letter, of a UNC path, or of an
// extended path. An extended path may be longer than MAX_PATH, and Windows hands the path to the
// file system unchanged: the checked path is the opened path. A relative path, a path with the
// elements "." or "..", and a device path give [winerr.ErrorInvalidName].
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

// ntPath returns NtCreateFile's name of a full path.
func ntPath(path string) (string, error) {
	extended, err := extendedPath(path)
	if err != nil {
		return "", err
	}
	name := extended[len(`\\?\`):]
	// A backslash at the end means "this directory", which NtCreateFile accepts only for the root
	// of a drive or volume.
	if trimmed := strings.TrimSuffix(name, `\`); strings.Contains(trimmed, `\`) {
		name = trimmed
	}
	return `\??\` + name, nil
}

// checkBelow refuses everything but the name of a file below a directory: streams, and elements
// that lead elsewhere or nowhere.
func checkBelow(path string) error {
	for name := range strings.SplitSeq(path, `\`) {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/:\x00") {
			return winerr.ErrorInvalidName
		}
	}
	return nil
}

// maxPath is MAX_PATH: the longest plain path in UTF-16 units, including the NUL at its end.
const maxPath = 260

// directoryPath returns path with the final backslash required by calls of the mount manager, in
// its extended form if too long for the plain form.
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

// sameInterfaces reports whether two lists hold the same device interfaces, in any order.
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
