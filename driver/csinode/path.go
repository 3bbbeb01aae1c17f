// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import "strings"

// windowsPath returns a path in the form that CSI Proxy accepts. Windows allows slashes,
// and some callers use them: "C:\pods/target" is "C:\pods\target".
//
// A path that isn't absolute is invalid. Kubelet's staging paths are absolute but have no
// drive, as in "\var\lib\kubelet\plugins". CSI Proxy takes them to be on the drive of the
// kubelet directory.
func windowsPath(field, path string) (string, error) {
	if err := required(field, path); err != nil {
		return "", err
	}
	p := strings.ReplaceAll(path, "/", `\`)
	if !strings.HasPrefix(withoutDrive(p), `\`) {
		return "", invalid("%s %q isn't an absolute path", field, path)
	}
	return p, nil
}

// withoutDrive returns a path without its drive.
func withoutDrive(path string) string {
	if len(path) >= 2 && path[1] == ':' {
		return path[2:]
	}
	return path
}

// samePath reports whether two paths are equal, ignoring case. A path without a drive
// equals the same path on any drive.
func samePath(a, b string) bool {
	if bare, other := withoutDrive(a), withoutDrive(b); bare == a || other == b {
		a, b = bare, other
	}
	return strings.EqualFold(a, b)
}
