// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
)

// record is what the driver remembers of a volume from its staging to its unstaging. It is
// what CSI doesn't repeat in the calls between, and Windows can't tell:
//
//   - where the data are: NodeUnstageVolume gets a volume id and a path only. If an earlier
//     call has unmounted the volume and died, only this leads to the disk that is still online,
//     and to the target that the node is still logged in to.
//   - how the volume is staged and published: a second call with other parameters must be
//     refused, and with some access modes a second pod. Links in Windows don't have access modes.
//   - which volume a path belongs to, so that a call with one volume's id and another's path
//     changes nothing.
//
// It is written before each change on the node, so that everything that a crash leaves can
// be undone. What is mounted, mapped and connected isn't in it: that is asked of Windows, by
// CSI Proxy. The record is held against that, and what Windows doesn't have is void: see
// mounted.go. A record that can't be read is void, too.
type record struct {
	VolumeID    string `json:"volumeID"`
	Source      Source `json:"source"`
	StagingPath string `json:"stagingPath"`
	// Targets are where the volume is published.
	Targets []target `json:"targets,omitzero"`
}

// equal reports whether two sources are the same data, used in the same way.
func (s Source) equal(other Source) bool {
	a, err := json.Marshal(s)
	b, otherErr := json.Marshal(other)
	return err == nil && otherErr == nil && bytes.Equal(a, b)
}

// target is a path where a volume is published, and how.
type target struct {
	Path     string `json:"path"`
	Mode     mode   `json:"mode"`
	ReadOnly bool   `json:"readOnly"`
}

// records are the records of a node, as files in a directory of the driver's own.
type records struct {
	dir string
	log *slog.Logger
	// inUse is held while a file is read, and for writing while one is replaced or removed, which
	// Windows doesn't do with a file that is open.
	inUse sync.RWMutex
}

// file returns the path of a volume's record. A volume id may have any characters.
func (r *records) file(volumeID string) string {
	sum := sha256.Sum256([]byte(volumeID))
	return filepath.Join(r.dir, hex.EncodeToString(sum[:16])+".json")
}

// load returns the record of a volume, nil if there is none.
func (r *records) load(volumeID string) (*record, error) {
	rec, err := r.read(r.file(volumeID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return rec, err
}

// all returns the records of all volumes.
func (r *records) all() ([]*record, error) {
	files, err := filepath.Glob(filepath.Join(r.dir, "*.json"))
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, file := range files {
		switch rec, err := r.read(file); {
		case errors.Is(err, fs.ErrNotExist): // there is none, or it was removed in the meantime
		case err != nil: // one volume's record must not stop the others
			r.log.Error("a record can't be read", "err", err)
		default:
			all = append(all, rec)
		}
	}
	return all, nil
}

// stagedAt returns the record of the volume that has a staging path, nil if none has.
func (r *records) stagedAt(path string) (*record, error) {
	all, err := r.all()
	for _, rec := range all {
		if samePath(rec.StagingPath, path) {
			return rec, nil
		}
	}
	return nil, err
}

// read returns the record in a file. One that is damaged is removed, and is fs.ErrNotExist.
func (r *records) read(file string) (*record, error) {
	r.inUse.RLock()
	data, err := os.ReadFile(file)
	r.inUse.RUnlock()
	if err != nil {
		return nil, err
	}
	rec := new(record)
	err = json.Unmarshal(data, rec)
	if err == nil && (r.file(rec.VolumeID) != file || rec.StagingPath == "") {
		err = errors.New("it isn't the record of the volume that it is named after")
	}
	if err != nil {
		r.log.Error("removing a damaged record; the volume is recognised by what Windows has mounted",
			"file", file, "err", err)
		return nil, errors.Join(fs.ErrNotExist, r.removeFile(file))
	}
	return rec, nil
}

// save writes a record so that a crash leaves the old one or the new one.
func (r *records) save(rec *record) error {
	data, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(r.file(rec.VolumeID), data, &r.inUse)
}

// remove forgets a volume.
func (r *records) remove(volumeID string) error { return r.removeFile(r.file(volumeID)) }

func (r *records) removeFile(file string) error {
	r.inUse.Lock()
	defer r.inUse.Unlock()
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
