// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// RegistryNumber implements [win.Registry].
func (s *System) RegistryNumber(ctx context.Context, key, value string) (uint32, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	k, err := registry.OpenKey(registry.LOCAL_MACHINE, key, registry.QUERY_VALUE)
	if err != nil {
		return 0, errno(err)
	}
	defer k.Close()
	number, valueType, err := k.GetIntegerValue(value)
	if err == registry.ErrUnexpectedType || err == nil && valueType != registry.DWORD {
		err = windows.ERROR_UNSUPPORTED_TYPE
	}
	if err != nil {
		return 0, errno(err)
	}
	return uint32(number), nil
}
