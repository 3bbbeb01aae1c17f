// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"fmt"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// registry holds values below HKEY_LOCAL_MACHINE: their strings and numbers by key and name,
// with a backslash between the two, in the form in which names are compared.
type registry struct {
	Registry map[string][]string
	Numbers  map[string]uint32 `json:",omitempty"` // of type REG_DWORD
}

func registryKey(key, value string) string { return winname.Upper(key + `\` + value) }

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
			return fmt.Errorf("set %s: it follows Settings.NoAutomount: %w", key, win.ErrorAccessDenied)
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
func (s *System) RegistryStrings(ctx context.Context, key, value string) (texts []string, err error) {
	err = s.call(ctx, Call{win.CallRegistryStrings, key + `\` + value}, func() error {
		found, ok := s.registry.Registry[registryKey(key, value)]
		if _, number := s.registry.Numbers[registryKey(key, value)]; !ok && number {
			return win.ErrorUnsupportedType
		}
		if !ok {
			return win.ErrorFileNotFound
		}
		texts = slices.Clone(found)
		return nil
	})
	return texts, err
}

// RegistryNumber implements [win.Registry].
func (s *System) RegistryNumber(ctx context.Context, key, value string) (number uint32, err error) {
	err = s.call(ctx, Call{win.CallRegistryStrings, key + `\` + value}, func() error {
		k := registryKey(key, value)
		if k == automount && s.settings.NoAutomount {
			number = 1
			return nil
		}
		if _, ok := s.registry.Registry[k]; ok {
			return win.ErrorUnsupportedType
		}
		found, ok := s.registry.Numbers[k]
		if !ok {
			return win.ErrorFileNotFound
		}
		number = found
		return nil
	})
	return number, err
}

// SystemWindowsDirectory implements [win.Registry].
func (s *System) SystemWindowsDirectory(ctx context.Context) (directory string, err error) {
	err = s.call(ctx, Call{Name: win.CallSystemWindowsDirectory}, func() error {
		directory = `C:\Windows`
		return nil
	})
	return directory, err
}
