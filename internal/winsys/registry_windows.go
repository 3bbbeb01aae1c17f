// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"slices"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// RegistryStrings implements [win.Registry].
func (s *System) RegistryStrings(ctx context.Context, key, value string) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, key, registry.QUERY_VALUE)
	if err != nil {
		return nil, errno(err)
	}
	defer k.Close()
	text, _, err := k.GetStringValue(value)
	texts := []string{text}
	if err == registry.ErrUnexpectedType {
		texts, _, err = k.GetStringsValue(value)
	}
	if err == registry.ErrUnexpectedType {
		err = windows.ERROR_UNSUPPORTED_TYPE
	}
	if err != nil {
		return nil, errno(err)
	}
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" }), nil
}

// SystemWindowsDirectory implements [win.Registry].
func (s *System) SystemWindowsDirectory(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	directory, err := windows.GetSystemWindowsDirectory()
	return directory, errno(err)
}
