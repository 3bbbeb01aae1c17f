// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import "strings"

// windowsPath returns a path as CSI Proxy takes it. Callers join with slashes now
// and then, as Windows allows; "C:\pods/target" is "C:\pods\target".
//
// A path that isn't absolute is the caller's mistake. Kubelet's staging paths are
// absolute but name no drive, as in "\var\lib\kubelet\plugins": CSI Proxy takes them
// on the drive of the kubelet directory.
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

// withoutDrive returns a path less the drive that it names.
func withoutDrive(path string) string {
	if len(path) >= 2 && path[1] == ':' {
		return path[2:]
	}
	return path
}

// parent returns the directory that holds what is at a Windows path.
func parent(path string) string { return path[:strings.LastIndexByte(path, '\\')] }

// samePath reports whether two paths are spelled the same for Windows, which doesn't
// mind the case. A path without a drive is the same as one on a drive.
func samePath(a, b string) bool {
	if bare, other := withoutDrive(a), withoutDrive(b); bare == a || other == b {
		a, b = bare, other
	}
	return strings.EqualFold(a, b)
}
