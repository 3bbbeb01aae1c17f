// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package drivers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// VolumesOnShares is what the SMB driver keeps in files of the node, to remove a
// mapping with the last volume on a share.
type VolumesOnShares struct {
	mu  sync.Mutex
	ids map[string]map[string]bool // by share
}

func (v *VolumesOnShares) add(share, id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ids == nil {
		v.ids = map[string]map[string]bool{}
	}
	if v.ids[share] == nil {
		v.ids[share] = map[string]bool{}
	}
	v.ids[share][id] = true
}

// remove returns how many are left. It can't remove one twice.
func (v *VolumesOnShares) remove(share, id string) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ids[share][id] {
		return 0, errors.New("the file of the volume can't be removed: there is none")
	}
	delete(v.ids[share], id)
	return len(v.ids[share]), nil
}

// SMB is the SMB driver, and Azure File's, which lets mappings be.
type SMB struct {
	Calls
	SMBVolume
}

// SMBVolume is a share or a directory of one.
type SMBVolume struct {
	// Source is the volume as its storage class writes it, with slashes.
	Source string
	ID     string
	// Credentials returns kubelet's, which may be others for each call.
	Credentials func() (username, password string)
	// Volumes counts those on each share; nil if the driver lets mappings be.
	Volumes *VolumesOnShares
	// Container is what the driver sees of the node without CSI Proxy.
	Container Container
}

// Container is the driver's own, which has kubelet's directory and the node's mappings.
type Container interface {
	// Sees fails if a directory can't be listed.
	Sees(path string) error
	MakeDirectory(path string) error
	ReadLink(path string) (target string, err error)
}

// NewSMB returns the driver of a volume.
func NewSMB(n Node, v SMBVolume) SMB { return SMB{Calls{n}, v} }

func (d SMB) Stage(staging string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 110*time.Second)
	defer cancel()
	s := d.Step(ctx)
	if d.ensureMountPoint(s, staging) {
		return s.Err
	}
	s.clear(staging)
	s.ensureDir(parent(staging))
	source := strings.TrimSuffix(strings.ReplaceAll(d.Source, "/", `\`), `\`)
	username, password := d.Credentials()
	s.do("NewSmbGlobalMapping", Fields{
		"remote_path": source, "local_path": staging, "username": username, "password": password,
	})
	if s.Err == nil && d.Volumes != nil {
		d.Volumes.add(shareOf(source), d.ID)
	}
	return s.Err
}

// ensureMountPoint reports whether a path is a link that works. One that doesn't is
// removed, and a path that isn't there is made a directory.
func (d SMB) ensureMountPoint(s *Step, path string) bool {
	exists := s.PathExists(path)
	if s.Err != nil {
		return false
	}
	if !exists {
		s.Err = d.Container.MakeDirectory(path)
		return false
	}
	var is bool
	err := s.attempt(func(s *Step) { is = s.IsSymlink(path) })
	works := d.Container.Sees(path) == nil
	if err != nil {
		if works {
			s.Err = err
			return false
		}
		is = true // what its own os.Stat says of the path tells that it is corrupted
	}
	if !is || works {
		return is
	}
	s.Rmdir(path, true)
	return false
}

// shareOf returns the share of a remote path with backslashes, as the driver counts
// by it.
func shareOf(remotePath string) string {
	names := strings.FieldsFunc(remotePath, func(r rune) bool { return r == '\\' })
	return strings.ToLower(`\\` + names[0] + `\` + names[1])
}

func (d SMB) Publish(staging, target string) error {
	s := d.Step(context.Background())
	if d.ensureMountPoint(s, target) {
		return s.Err
	}
	s.clear(target)
	s.CreateSymlink(staging, target)
	return s.Err
}

func (d SMB) Unstage(staging string) error {
	s := d.Step(context.Background())
	link, err := d.Container.ReadLink(staging)
	if err == nil && d.Volumes != nil { // else it goes on: there is nothing to count
		remotePath := strings.TrimSuffix(link, `\`)
		left, err := d.Volumes.remove(shareOf(remotePath), d.ID)
		if err != nil {
			return err
		}
		if left == 0 {
			s.do("RemoveSmbGlobalMapping", Fields{"remote_path": remotePath})
		}
	}
	s.Rmdir(staging, true)
	return s.Err
}

// Trident unlinks a volume before it unmaps its share, which it names with one backslash.
//
// Source: https://github.com/NetApp/trident/blob/master/core/node/detach.go
type Trident struct{ SMB }

func (d Trident) Unstage(staging string) error {
	s := d.Step(context.Background())
	s.Rmdir(staging, true)
	s.passOver("No MSFT_SmbGlobalMapping objects found", func(s *Step) {
		s.do("RemoveSmbGlobalMapping", Fields{"remote_path": `\` + strings.Trim(strings.ReplaceAll(d.Source, "/", `\`), `\`)})
	})
	return s.Err
}

// passOver makes calls, and passes over an error with a text.
func (s *Step) passOver(text string, calls func(*Step)) {
	if err := s.attempt(calls); err != nil && !strings.Contains(err.Error(), text) {
		s.Err = err
	}
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '\\')] }
