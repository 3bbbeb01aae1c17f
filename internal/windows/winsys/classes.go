// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import "context"

// classes are the WMI calls for storage management and SMB.
type classes interface {
	// find calls f with each object selected by a query. External texts never become part of a
	// query: f compares them.
	find(ctx context.Context, query string, f func(object) error) error
	// call executes a method of the object with the given path, or of the class if path is its
	// name, and calls f with the method's ReturnValue and out parameters.
	call(class, path, method string, in map[string]any, f func(out object) error) error
}

// object is an object of WMI, valid until the function that received the object returns.
type object interface {
	// Get returns a string, a bool, an int64, or nil for NULL.
	Get(property string) (any, error)
	String(property string) (string, error)
	Uint32(property string) (uint32, error)
	// Uint64 returns a property of type uint64.
	Uint64(property string) (uint64, error)
}

// execute executes a method that has no out parameters, and returns its result.
func execute(c classes, class, path, method string, in map[string]any) (result uint32, err error) {
	err = c.call(class, path, method, in, func(out object) (err error) {
		result, err = out.Uint32("ReturnValue")
		return err
	})
	return result, err
}
