// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/winname"
)

// registry holds values below HKEY_LOCAL_MACHINE: their strings by key and name, with a
// backslash between the two, in the form in which names are compared.
type registry map[string][]string

func registryKey(key, value string) string { return winname.Upper(key + `\` + value) }

// installRegistry sets the values that tell which disks Windows runs from.
func (s *System) installRegistry() {
	s.node.Registry = registry{}
	s.node.Registry[registryKey(win.RegistrySetup, win.RegistrySystemPartition)] = []string{`\Device\HarddiskVolume1`}
	s.node.Registry[registryKey(win.RegistryMemoryManagement, win.RegistryExistingPageFiles)] = []string{`\??\C:\pagefile.sys`}
	s.changed = true
}

// SetRegistryStrings sets a value below HKEY_LOCAL_MACHINE. Without strings it is
// deleted.
func (s *System) SetRegistryStrings(key, value string, texts ...string) error {
	return s.control(func() error {
		if s.node.Registry == nil {
			s.node.Registry = registry{}
		}
		if len(texts) == 0 {
			delete(s.node.Registry, registryKey(key, value))
		} else {
			s.node.Registry[registryKey(key, value)] = slices.Clone(texts)
		}
		s.changed = true
		return nil
	})
}

// RegistryStrings implements [win.Registry].
func (s *System) RegistryStrings(ctx context.Context, key, value string) (texts []string, err error) {
	err = s.call(ctx, Call{win.CallRegistryStrings, key + `\` + value}, func() error {
		found, ok := s.node.Registry[registryKey(key, value)]
		if _, number := s.node.Numbers[registryKey(key, value)]; !ok && number {
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

// SystemWindowsDirectory implements [win.Registry].
func (s *System) SystemWindowsDirectory(ctx context.Context) (directory string, err error) {
	err = s.call(ctx, Call{Name: win.CallSystemWindowsDirectory}, func() error {
		directory = `C:\Windows`
		return nil
	})
	return directory, err
}
