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
func (s *System) RegistryStrings(ctx context.Context, key, value string) (texts []string, err error) {
	err = queryRegistry(ctx, key, func(k registry.Key) error {
		text, _, err := k.GetStringValue(value)
		texts = []string{text}
		if err == registry.ErrUnexpectedType {
			texts, _, err = k.GetStringsValue(value)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(texts, func(s string) bool { return s == "" }), nil
}

// RegistryNumber implements [win.Registry].
func (s *System) RegistryNumber(ctx context.Context, key, value string) (number uint32, err error) {
	err = queryRegistry(ctx, key, func(k registry.Key) error {
		found, valueType, err := k.GetIntegerValue(value)
		if err == nil && valueType != registry.DWORD {
			return registry.ErrUnexpectedType
		}
		number = uint32(found)
		return err
	})
	return number, err
}

// queryRegistry calls query with a key of HKEY_LOCAL_MACHINE.
func queryRegistry(ctx context.Context, key string, query func(registry.Key) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, key, registry.QUERY_VALUE)
	if err != nil {
		return errno(err)
	}
	defer k.Close()
	if err = query(k); err == registry.ErrUnexpectedType {
		err = windows.ERROR_UNSUPPORTED_TYPE
	}
	return errno(err)
}

// SystemWindowsDirectory implements [win.Registry].
func (s *System) SystemWindowsDirectory(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	directory, err := windows.GetSystemWindowsDirectory()
	return directory, errno(err)
}
