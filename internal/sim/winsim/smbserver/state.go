// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package smbserver

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/credential"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/ntfs"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// The buckets of the state file.
const (
	bucketServers  = "smb servers"  // folded name -> host
	bucketMappings = "smb mappings" // mapping.key -> mapping
	bucketFiles    = "smb files"    // fileKey, record id -> record
)

// fileKey begins the keys of a share's files.
func fileKey(shareKey string) []byte { return append([]byte(shareKey), 0) }

// Save implements [statefile.Part].
func (n *Network) Save(f *statefile.File) {
	statefile.PutChanged(f, bucketServers, n.changedServers, n.servers)
	statefile.PutChanged(f, bucketMappings, n.changedMappings, n.mappings)
	for _, key := range n.droppedShares {
		f.DeletePrefix(bucketFiles, fileKey(key))
	}
	n.droppedShares = nil
	for sh := range n.changedShares {
		sh.fs.Flush() // servers don't lose power, so nothing asks for older contents
		for _, r := range sh.fs.TakeChanges() {
			f.Put(bucketFiles, append(fileKey(sh.key()), statefile.Key(r.ID)...), r.Data)
		}
	}
	clear(n.changedShares)
}

// Restore implements [statefile.Part].
func (n *Network) Restore(r *statefile.Reader) error {
	files, err := readFiles(r)
	if err != nil {
		return err
	}
	err = statefile.EachJSON(r, bucketServers, func(k []byte, sv *host) error {
		return n.restoreServer(string(k), sv, files)
	})
	if err != nil {
		return err
	}
	if len(files) > 0 {
		return errors.New("there are files of a share that is unknown")
	}
	return statefile.EachJSON(r, bucketMappings, func(k []byte, m *mapping) error {
		if m.key() != string(k) {
			return errors.New("its record makes no sense")
		}
		n.mappings[string(k)] = m
		return nil
	})
}

// readFiles reads the files of all shares, by shareKey.
func readFiles(r *statefile.Reader) (map[string][]ntfs.Record, error) {
	files := map[string][]ntfs.Record{}
	err := r.Each(bucketFiles, func(k, value []byte) error {
		share, id, ok := bytes.Cut(k, []byte{0})
		if !ok {
			return errors.New("its key names no share")
		}
		number, err := statefile.Numbers(id, 1)
		if err != nil {
			return err
		}
		files[string(share)] = append(files[string(share)], ntfs.Record{ID: number[0], Data: value})
		return nil
	})
	return files, err
}

// restoreServer restores a server with its shares, and takes their files from files.
func (n *Network) restoreServer(name string, sv *host, files map[string][]ntfs.Record) error {
	if win.UpperName(sv.Name) != name || len(sv.Salt) != credential.SaltSize || sv.Users == nil || sv.Shares == nil {
		return errors.New("its record makes no sense")
	}
	n.servers[name] = sv
	for shareName, sh := range sv.Shares {
		if sh == nil || win.UpperName(sh.Name) != shareName || win.UpperName(sh.Server) != name {
			return fmt.Errorf("its share %s makes no sense", shareName)
		}
		var err error
		if sh.fs, err = ntfs.Restore(files[sh.key()]); err != nil {
			return fmt.Errorf("share %s: %w", shareName, err)
		}
		delete(files, sh.key())
		n.watchFiles(sh)
	}
	return nil
}
