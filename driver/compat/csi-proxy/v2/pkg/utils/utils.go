// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package utils has the functions of the published package of that name. RunPowershellCmd, which 2.0.0-alpha.1
// had and later versions don't, isn't here: nothing in this module runs a program.
//
// Paths are accepted in the same directories as by package filesystem, with LongPathPrefix or without.
package utils

import (
	"strings"

	filesystem "github.com/kubernetes-csi/csi-proxy/v2/pkg/filesystem/hostapi"
)

const (
	// MaxPathLengthWindows is the longest path that the filesystem group takes, in characters.
	MaxPathLengthWindows = 260
	// LongPathPrefix begins a path that Windows takes without a limit of 260 characters.
	LongPathPrefix = `\\?\`
)

// EnsureLongPath returns a path with LongPathPrefix.
func EnsureLongPath(path string) string { return LongPathPrefix + withoutPrefix(path) }

func withoutPrefix(path string) string { return strings.TrimPrefix(path, LongPathPrefix) }

// IsPathValid reports whether what is at a path can be used. An error says that this can't be found out.
func IsPathValid(path string) (bool, error) { return filesystem.New().PathValid(withoutPrefix(path)) }

// PathExists reports whether there is something at a path.
func PathExists(path string) (bool, error) { return filesystem.New().PathExists(withoutPrefix(path)) }

// IsPathSymlink reports whether there is a symlink, a junction or a mount point at a path.
func IsPathSymlink(path string) (bool, error) {
	return filesystem.New().IsSymlink(withoutPrefix(path))
}

// IsMountedFolder is IsPathSymlink: the published one, too, takes symlinks for mounted folders, since it compares
// only some bits of the tag.
func IsMountedFolder(path string) (bool, error) { return IsPathSymlink(path) }

// CreateSymlink makes link a link to target. Whether it is one to a file is decided by what is at target, not by isDir.
func CreateSymlink(link, target string, isDir bool) error {
	return filesystem.New().CreateSymlink(withoutPrefix(target), withoutPrefix(link))
}
