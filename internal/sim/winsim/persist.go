// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/settings"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Settings are the switches of the node's Windows.
type Settings = settings.Settings

// SetSettings sets all switches.
func (s *System) SetSettings(v Settings) error {
	return s.control(func() error {
		s.settings, s.changed = v, true
		return nil
	})
}

// The bucket of the state file that is the node's own, with one record. Its parts have
// others.
const (
	bucketSystem = "system" // systemKey -> nodeRecord
	systemKey    = "node"
)

// nodeRecord is what the state file has of the node itself.
type nodeRecord struct {
	disks.Kept
	Settings   Settings
	BIOSSerial string
	registry
	Processes []Process `json:",omitempty"`
}

// commit makes durable all that changed since the last time.
func (s *System) commit() error {
	s.save()
	return s.file.Commit()
}

// save hands what changed to the file.
func (s *System) save() {
	for _, p := range s.parts {
		p.Save(s.file)
	}
}

// itself is the part of the node that has no package of its own.
type itself struct{ *System }

// Save implements [statefile.Part].
func (s itself) Save(f *statefile.File) {
	if s.changed {
		f.PutJSON(bucketSystem, []byte(systemKey), s.record())
		s.changed = false
	}
}

func (s *System) record() nodeRecord {
	return nodeRecord{s.disks.Kept, s.settings, s.biosSerial, s.registry, s.processes.list()}
}

// Restore implements [statefile.Part].
func (s itself) Restore(r *statefile.Reader) error {
	var n nodeRecord
	if err := r.GetJSON(bucketSystem, systemKey, &n); err != nil {
		return err
	}
	s.disks.Kept, s.settings, s.biosSerial, s.registry, s.processes.restored = n.Kept, n.Settings, n.BIOSSerial,
		n.registry, n.Processes
	return nil
}

// install makes a new node: a system disk with the volume C:.
func (s *System) install() error {
	s.biosSerial, s.changed = defaultBIOSSerial, true
	if err := s.installDisk(); err != nil {
		return fmt.Errorf("system disk: %w", err)
	}
	s.registry.install()
	return s.services.Install()
}

func (s *System) installDisk() error {
	d, err := s.disks.Install()
	if err != nil {
		return err
	}
	v, err := s.volumes.Install(d)
	if err != nil {
		return err
	}
	for _, path := range [][]string{
		{"Windows"}, {"Windows", "System32"}, {"pagefile.sys"},
		{"var"}, {"var", "lib"}, {"var", "lib", "kubelet"},
		{"var", "lib", "kubelet", "plugins"}, {"var", "lib", "kubelet", "pods"},
	} {
		o := win.OpenOptions{Disposition: win.FileCreate, Options: win.FileDirectoryFile}
		if path[0] == "pagefile.sys" {
			o.Options = win.FileNonDirectoryFile
		}
		op, err := s.paths.OpenAt(paths.Location{Root: v, Names: path}, o)
		if err != nil {
			return err
		}
		op.Close()
	}
	return nil
}

// resume brings in what was present when the state file was written, and lets what
// was on its way arrive.
func (s *System) resume() {
	for d := range s.disks.All() {
		s.volumes.Resume(d)
	}
	s.disks.Resume()
	s.resumeProcesses()
	s.services.Resume()
}
