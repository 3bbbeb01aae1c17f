// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// The buckets of the state file.
const (
	bucketNode    = "node"    // nodeKey -> nodeRecord
	bucketDisks   = "disks"   // disk id -> diskRecord
	bucketBlocks  = "blocks"  // disk id, block number -> contents
	bucketVolumes = "volumes" // unique id of a partition -> volumeRecord
	bucketMounts  = "mounts"  // host volume, directory -> mountRecord
	bucketTrees   = "trees"   // disk id, serial -> treeRecord
	bucketFiles   = "files"   // disk id, serial, record id -> record

	bucketServices = "services" // serviceKey -> serviceRecord

	bucketSMBServers  = "smb servers"  // folded name -> smbServer
	bucketSMBMappings = "smb mappings" // smbKey -> smbMapping
	bucketSMBFiles    = "smb files"    // smbFileKey, record id -> record
)

// nodeKey is the key of the one record that also tells a state file from any
// other database.
const nodeKey = "csi-proxy simulated node"

// store is the state file: a database of keys and values to which each call adds
// what it changed. The writes are handed to the operating system, not to the
// disk: they outlive the process, which is all that is asked.
//
// Without a file the changes are dropped.
type store struct {
	db      *bbolt.DB
	changes []change
}

// change puts a value or, if that is nil, deletes the key, or all keys that begin
// with it.
type change struct {
	bucket     string
	key, value []byte
	prefix     bool
}

// openStore opens or creates the state file at path. What is in it already, it
// gives to restore; isNew tells that there is nothing yet. A file that isn't a
// sound state file is left as it is.
func openStore(path string, restore func(*bbolt.Tx) error) (st *store, isNew bool, err error) {
	if path == "" {
		return &store{}, true, nil
	}
	wrap := func(err error) error { return fmt.Errorf("state file %s: %w", path, err) }
	info, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, wrap(err)
	}
	isNew = true
	read := 0 // the transaction that restore saw
	if err == nil && info.Size() > 0 {
		// Opening a database for writing may already write, and reads it in another
		// goroutine, where it panics if there is damage.
		err := view(path, func(tx *bbolt.Tx) error {
			if tx.Size() > info.Size() {
				return fmt.Errorf("it is cut off at %d of %d bytes", info.Size(), tx.Size())
			}
			read = tx.ID()
			if first, _ := tx.Cursor().First(); first == nil {
				return nil
			}
			isNew = false
			if b := tx.Bucket([]byte(bucketNode)); b == nil || b.Get([]byte(nodeKey)) == nil {
				return errors.New("it is not the state of a simulated node")
			}
			return restore(tx)
		})
		if err != nil {
			return nil, false, wrap(err)
		}
	}
	st = &store{}
	st.db, err = openDB(path, bbolt.Options{NoSync: true, NoGrowSync: true, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, false, wrap(err)
	}
	err = st.db.View(func(tx *bbolt.Tx) error {
		if read > 0 && tx.ID() != read {
			return errors.New("another process has changed it just now")
		}
		return nil
	})
	if err != nil {
		return nil, false, errors.Join(wrap(err), st.close())
	}
	return st, isNew, nil
}

// view reads a database without changing its file.
func view(path string, f func(*bbolt.Tx) error) error {
	db, err := openDB(path, bbolt.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	return errors.Join(damageToError(func() error { return db.View(f) }), db.Close())
}

// openDB opens a database. If that panics, which only a damaged list of free pages
// brings about here, the file stays locked until the process ends.
func openDB(path string, o bbolt.Options) (db *bbolt.DB, err error) {
	o.Timeout = time.Nanosecond // a lock that is held is an error at once
	o.NoStatistics = true
	err = damageToError(func() error {
		db, err = bbolt.Open(path, 0o600, &o)
		return err
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = errors.New("another process has it open")
	}
	return db, err
}

// damageToError turns what the database does about a damaged file into an error:
// it panics, or faults on pages that the file lacks.
func damageToError(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it is damaged: %v", r)
		}
	}()
	return f()
}

func (st *store) close() error {
	if st.db == nil {
		return nil
	}
	return st.db.Close()
}

func (st *store) add(c change) {
	if st.db != nil {
		st.changes = append(st.changes, c)
	}
}

func (st *store) put(bucket string, key, value []byte) {
	st.add(change{bucket: bucket, key: key, value: value})
}

func (st *store) putJSON(bucket string, key []byte, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("winsim: " + err.Error()) // the records are numbers, bytes and strings
	}
	st.put(bucket, key, b)
}

func (st *store) delete(bucket string, key []byte) { st.add(change{bucket: bucket, key: key}) }

func (st *store) deletePrefix(bucket string, prefix []byte) {
	st.add(change{bucket: bucket, key: prefix, prefix: true})
}

// commit writes the changes into the file, all or none. After an error they are
// kept for the next time.
func (st *store) commit() error {
	if len(st.changes) == 0 {
		return nil
	}
	err := st.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range st.changes {
			b, err := tx.CreateBucketIfNotExists([]byte(c.bucket))
			if err != nil {
				return err
			}
			switch {
			case c.value != nil:
				err = b.Put(c.key, c.value)
			case c.prefix:
				err = deletePrefix(b, c.key)
			default:
				err = b.Delete(c.key)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("state file: %w", err)
	}
	st.changes = nil
	return nil
}

func deletePrefix(b *bbolt.Bucket, prefix []byte) error {
	c := b.Cursor()
	for k, _ := c.Seek(prefix); bytes.HasPrefix(k, prefix); k, _ = c.Seek(prefix) {
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// load gives each record of a bucket in the order of the keys. The bytes belong
// to the database.
func load(tx *bbolt.Tx, bucket string, each func(key, value []byte) error) error {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, v []byte) error {
		if err := each(k, v); err != nil {
			return fmt.Errorf("%s %x: %w", bucket, k, err)
		}
		return nil
	})
}

// key joins numbers to a key that sorts like them.
func key(numbers ...uint64) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// numbers takes a key of n numbers apart.
func numbers(key []byte, n int) ([]uint64, error) {
	if len(key) != 8*n {
		return nil, fmt.Errorf("a key of %d bytes instead of %d", len(key), 8*n)
	}
	var v []uint64
	for ; len(key) > 0; key = key[8:] {
		v = append(v, binary.BigEndian.Uint64(key))
	}
	return v, nil
}
