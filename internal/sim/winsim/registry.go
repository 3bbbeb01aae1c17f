// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"fmt"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// registry holds values below HKEY_LOCAL_MACHINE: their strings and numbers by key and name,
// with a backslash between the two, in the form in which names are compared.
type registry struct {
	Registry map[string][]string
	Numbers  map[string]uint32 `json:",omitempty"` // of type REG_DWORD
}

func registryKey(key, value string) string { return win.UpperName(key + `\` + value) }

// automount is the value that Settings.NoAutomount decides.
var automount = registryKey(win.RegistryMountManager, win.RegistryNoAutoMount)

// install sets the values that tell which disks Windows runs from.
func (r *registry) install() {
	r.Registry = map[string][]string{
		registryKey(win.RegistrySetup, win.RegistrySystemPartition):              {`\Device\HarddiskVolume1`},
		registryKey(win.RegistryMemoryManagement, win.RegistryExistingPageFiles): {`\??\C:\pagefile.sys`},
	}
}

// SetRegistryStrings sets a value below HKEY_LOCAL_MACHINE. Without strings it is
// deleted.
func (s *System) SetRegistryStrings(key, value string, texts ...string) error {
	return s.control(func() error {
		if len(texts) == 0 {
			delete(s.registry.Registry, registryKey(key, value))
		} else {
			s.registry.Registry[registryKey(key, value)] = slices.Clone(texts)
		}
		s.changed = true
		return nil
	})
}

// SetRegistryNumber sets a value of type REG_DWORD below HKEY_LOCAL_MACHINE. Automatic
// mounting has a switch of its own, Settings.NoAutomount.
func (s *System) SetRegistryNumber(key, value string, number uint32) error {
	return s.control(func() error {
		k := registryKey(key, value)
		if k == automount {
			return fmt.Errorf("set %s: it follows Settings.NoAutomount: %w", key, winerr.ErrorAccessDenied)
		}
		if s.registry.Numbers == nil {
			s.registry.Numbers = map[string]uint32{}
		}
		s.registry.Numbers[k] = number
		s.changed = true
		return nil
	})
}

// RegistryStrings implements [win.Registry].
func (s *System) RegistryStrings(ctx context.Context, key, value string) ([]string, error) {
	return ask(ctx, s, Call{win.CallRegistryStrings, key + `\` + value}, func() ([]string, error) {
		found, ok := s.registry.Registry[registryKey(key, value)]
		if _, number := s.registry.Numbers[registryKey(key, value)]; !ok && number {
			return nil, winerr.ErrorUnsupportedType
		}
		if !ok {
			return nil, winerr.ErrorFileNotFound
		}
		return slices.Clone(found), nil
	})
}

// RegistryNumber implements [win.Registry].
func (s *System) RegistryNumber(ctx context.Context, key, value string) (uint32, error) {
	return ask(ctx, s, Call{win.CallRegistryStrings, key + `\` + value}, func() (uint32, error) {
		k := registryKey(key, value)
		if k == automount && s.settings.NoAutomount {
			return 1, nil
		}
		if _, ok := s.registry.Registry[k]; ok {
			return 0, winerr.ErrorUnsupportedType
		}
		number, ok := s.registry.Numbers[k]
		if !ok {
			return 0, winerr.ErrorFileNotFound
		}
		return number, nil
	})
}

// SystemWindowsDirectory implements [win.Registry].
func (s *System) SystemWindowsDirectory(ctx context.Context) (string, error) {
	return ask(ctx, s, Call{Name: win.CallSystemWindowsDirectory}, func() (string, error) { return `C:\Windows`, nil })
}
