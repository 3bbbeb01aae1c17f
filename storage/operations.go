// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storage has whole tasks of a CSI node in one call each: find a disk. It stands on
// the operations of the other groups, and has no second way to do what they do. Errors are
// of the classes in package csiproxy.
//
// The package is v1alpha1, as the API group is: names and fields may still change.
package storage

import "context"

// Operations are the operations of this group, with the same meaning in process (package
// node) and over the pipe (package client). All methods may be called concurrently.
type Operations interface {
	// ListDisks returns the disks that the selector means, in the order of their numbers;
	// all disks for the zero value. None is no error. Disks that Windows runs from are
	// listed, with System set. A disk that doesn't answer, or doesn't within
	// node.Options.SilentDiskTimeout, is listed with its Error if Windows has told its
	// number before. If the selector asks for more than a number, such a disk isn't listed,
	// since it doesn't tell whether it is the one.
	ListDisks(ctx context.Context, s Selector) ([]Disk, error)
}
