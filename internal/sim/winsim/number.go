// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// SetRegistryNumber sets a value of type REG_DWORD below HKEY_LOCAL_MACHINE. Automatic
// mounting has a switch of its own, Settings.NoAutomount.
func (s *System) SetRegistryNumber(key, value string, number uint32) error {
	return s.control(func() error {
		k := registryKey(key, value)
		if k == automount {
			return fmt.Errorf("set %s: it follows Settings.NoAutomount: %w", key, win.ErrorAccessDenied)
		}
		if s.node.Numbers == nil {
			s.node.Numbers = map[string]uint32{}
		}
		s.node.Numbers[k] = number
		s.changed = true
		return nil
	})
}

// automount is the value that Settings.NoAutomount decides.
var automount = registryKey(win.RegistryMountManager, win.RegistryNoAutoMount)

// RegistryNumber implements [win.Registry].
func (s *System) RegistryNumber(ctx context.Context, key, value string) (number uint32, err error) {
	err = s.call(ctx, Call{win.CallRegistryStrings, key + `\` + value}, func() error {
		k := registryKey(key, value)
		if k == automount && s.node.Settings.NoAutomount {
			number = 1
			return nil
		}
		if _, ok := s.node.Registry[k]; ok {
			return win.ErrorUnsupportedType
		}
		found, ok := s.node.Numbers[k]
		if !ok {
			return win.ErrorFileNotFound
		}
		number = found
		return nil
	})
	return number, err
}
