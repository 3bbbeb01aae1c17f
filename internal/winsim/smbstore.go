// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/csi-proxy/csi-proxy/internal/winsim/ntfs"
)

// smbFileKey begins the keys of a share's files.
func smbFileKey(share string) []byte { return append([]byte(share), 0) }

// collectSMB hands what changed to the store.
func (s *System) collectSMB() {
	for name := range s.smb.changedServers {
		s.store.putJSON(bucketSMBServers, []byte(name), s.smb.servers[name])
	}
	clear(s.smb.changedServers)
	for k := range s.smb.changedMappings {
		if m, ok := s.smb.mappings[k]; ok {
			s.store.putJSON(bucketSMBMappings, []byte(k), m)
		} else {
			s.store.delete(bucketSMBMappings, []byte(k))
		}
	}
	clear(s.smb.changedMappings)
	for _, share := range s.smb.droppedShares {
		s.store.deletePrefix(bucketSMBFiles, smbFileKey(share))
	}
	s.smb.droppedShares = nil
	for sh := range s.smb.changedShares {
		sh.fs.Flush() // what was there before is of no use
		for _, r := range sh.fs.TakeChanges() {
			k := append(smbFileKey(sh.key()), key(r.ID)...)
			if r.Data == nil {
				s.store.delete(bucketSMBFiles, k)
			} else {
				s.store.put(bucketSMBFiles, k, r.Data)
			}
		}
	}
	clear(s.smb.changedShares)
}

func (s *System) restoreSMB(tx *bbolt.Tx) error {
	files := map[string][]ntfs.Record{} // by smbKey
	err := load(tx, bucketSMBFiles, func(k, value []byte) error {
		share, id, ok := bytes.Cut(k, []byte{0})
		if !ok {
			return errors.New("its key names no share")
		}
		n, err := numbers(id, 1)
		if err != nil {
			return err
		}
		files[string(share)] = append(files[string(share)], ntfs.Record{ID: n[0], Data: value})
		return nil
	})
	if err != nil {
		return err
	}
	err = load(tx, bucketSMBServers, func(k, value []byte) error {
		sv := &smbServer{}
		if err := json.Unmarshal(value, sv); err != nil {
			return err
		}
		if foldSMB(sv.Name) != string(k) || len(sv.Salt) != saltSize || sv.Users == nil || sv.Shares == nil {
			return errors.New("its record makes no sense")
		}
		s.smb.servers[string(k)] = sv
		for name, sh := range sv.Shares {
			if sh == nil || foldSMB(sh.Name) != name || foldSMB(sh.Server) != string(k) {
				return fmt.Errorf("its share %s makes no sense", name)
			}
			var err error
			if sh.fs, err = ntfs.Restore(files[sh.key()]); err != nil {
				return fmt.Errorf("share %s: %w", name, err)
			}
			delete(files, sh.key())
			s.smb.addFiles(sh)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return errors.New("there are files of a share that is unknown")
	}
	return load(tx, bucketSMBMappings, func(k, value []byte) error {
		m := &smbMapping{}
		if err := json.Unmarshal(value, m); err != nil {
			return err
		}
		if m.key() != string(k) {
			return errors.New("its record makes no sense")
		}
		s.smb.mappings[string(k)] = m
		return nil
	})
}
