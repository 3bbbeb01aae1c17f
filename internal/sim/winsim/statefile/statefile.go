// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package statefile is the file that a simulated node lives in: a database of
// buckets of keys and values, to which each call adds what it changed.
//
// The writes are handed to the operating system, not to the disk: they outlive the
// process, which is all that is asked.
package statefile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Format is the version of the format of state files. Another one is refused.
const Format = 2

// The one record in this bucket tells a state file from any other database. Its
// value is the format.
const (
	formatBucket = "node"
	formatKey    = "csi-proxy simulated node"
)

// Part is a part of the node that keeps its state in the file, in buckets of its own.
type Part interface {
	// Save puts what has changed since it was last called.
	Save(f *File)
	// Restore fills a new part with what Save has put over time. It refuses records
	// that make no sense.
	Restore(r *Reader) error
}

// File is an open state file. It must be used by one goroutine at a time. The zero
// value is a file that keeps nothing.
type File struct {
	path    string
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

// Open opens the state file at path and restores the parts from it, or creates it if
// nothing has that path; isNew tells that no node has been saved yet. "" opens a file
// that keeps nothing.
//
// Any other file, also an empty one, is refused and left as it is, and so is a state
// file that is damaged, of another format, or open in another process.
func Open(path string, parts ...Part) (f *File, isNew bool, err error) {
	if path == "" {
		return &File{}, true, nil
	}
	if f, isNew, err = open(path, parts); err != nil {
		return nil, false, fmt.Errorf("state file %s: %w", path, err)
	}
	return f, isNew, nil
}

// Copy is Open of a file that is there already. It leaves the file as it is, and what becomes
// of the parts isn't kept.
func Copy(path string, parts ...Part) (f *File, isNew bool, err error) {
	if isNew, _, err = restore(path, parts); err != nil {
		return nil, false, fmt.Errorf("state file %s: %w", path, err)
	}
	return &File{}, isNew, nil
}

func open(path string, parts []Part) (f *File, isNew bool, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := create(path); err != nil {
			return nil, false, err
		}
	}
	// Opening a database for writing may already write, and reads it in another
	// goroutine, where it panics if there is damage.
	isNew, read, err := restore(path, parts)
	if err != nil {
		return nil, false, err
	}
	f = &File{path: path}
	if f.db, err = openDB(path, bbolt.Options{NoSync: true, NoGrowSync: true,
		FreelistType: bbolt.FreelistMapType}); err != nil {
		return nil, false, err
	}
	err = f.db.View(func(tx *bbolt.Tx) error {
		if tx.ID() != read {
			return errors.New("another process has changed it just now")
		}
		return nil
	})
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, isNew, nil
}

// restore restores the parts from the state file at path, without changing it, and returns the
// transaction that was read.
func restore(path string, parts []Part) (isNew bool, read int, err error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return false, 0, err
	case !info.Mode().IsRegular():
		return false, 0, errors.New("it is not a regular file; name one, or one that doesn't exist yet")
	case info.Size() == 0:
		return false, 0, errors.New("it is empty, and so not the state of a simulated node; remove it, or name a file " +
			"that doesn't exist yet")
	}
	err = view(path, func(tx *bbolt.Tx) error {
		if tx.Size() > info.Size() {
			return fmt.Errorf("it is cut off at %d of %d bytes", info.Size(), tx.Size())
		}
		read = tx.ID()
		if err := checkFormat(tx); err != nil {
			return err
		}
		c := tx.Cursor()
		first, _ := c.First()
		last, _ := c.Last()
		if isNew = bytes.Equal(first, last); isNew {
			return nil
		}
		for _, p := range parts {
			if err := p.Restore(&Reader{tx}); err != nil {
				return err
			}
		}
		return nil
	})
	return isNew, read, err
}

// create makes a state file that holds only its format. It is made under another
// name first: so a process that is killed meanwhile leaves nothing at path, and
// of two processes one succeeds.
func create(path string) error {
	temp, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+".new")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp) // what is left there does no harm
	made := filepath.Join(temp, "state")
	db, err := openDB(made, bbolt.Options{NoSync: true})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(formatBucket))
		if err != nil {
			return err
		}
		return b.Put([]byte(formatKey), []byte(strconv.Itoa(Format)))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	err = os.Link(made, path)
	if err == nil || errors.Is(err, os.ErrExist) { // another process was quicker: its lock decides
		return nil
	}
	return os.Rename(made, path) // not all file systems have hard links
}

func checkFormat(tx *bbolt.Tx) error {
	b := tx.Bucket([]byte(formatBucket))
	if b == nil || b.Get([]byte(formatKey)) == nil {
		return errors.New("it is not the state of a simulated node; name a file that doesn't exist yet")
	}
	value := b.Get([]byte(formatKey))
	var older struct{ Format int } // formats before 2 had it among other things
	format, err := strconv.Atoi(string(value))
	if err != nil && json.Unmarshal(value, &older) == nil {
		format, err = older.Format, nil
	}
	switch {
	case err != nil:
		return errors.New("it is damaged: its format is no number")
	case format != Format:
		return fmt.Errorf("it has the format %d, and this version reads the format %d only; remove it, or name another file",
			format, Format)
	}
	return nil
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
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		err = errors.New("another process has it open; end that one, or name another file")
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrVersionMismatch),
		errors.Is(err, bolterrors.ErrChecksum):
		err = fmt.Errorf("it is not the state of a simulated node, or it is damaged: move it away, or name another file, "+
			"to begin with a new node: %w", err)
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

// Close closes the file. What wasn't committed is lost.
func (f *File) Close() error {
	if f.db == nil {
		return nil
	}
	return f.db.Close()
}

func (f *File) add(c change) {
	if f.db != nil {
		f.changes = append(f.changes, c)
	}
}

// Put sets a value with the next Commit; one that is nil deletes the key, if it is there. The
// caller must not change key and value afterwards.
func (f *File) Put(bucket string, key, value []byte) {
	f.add(change{bucket: bucket, key: key, value: value})
}

// PutJSON sets a value to the JSON form of v, which must have one.
func (f *File) PutJSON(bucket string, key []byte, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic("statefile: " + err.Error()) // the records are numbers, bytes and strings
	}
	f.Put(bucket, key, b)
}

// PutChanged puts the JSON forms of the records with some keys, and deletes the keys that have no
// record. None is left to put then.
func PutChanged[V any](f *File, bucket string, changed map[string]struct{}, records map[string]V) {
	if len(changed) == 0 {
		return
	}
	for k := range changed {
		if v, ok := records[k]; ok {
			f.PutJSON(bucket, []byte(k), v)
		} else {
			f.Put(bucket, []byte(k), nil)
		}
	}
	clear(changed)
}

// DeletePrefix deletes all keys that begin with prefix with the next Commit.
func (f *File) DeletePrefix(bucket string, prefix []byte) {
	f.add(change{bucket: bucket, key: prefix, prefix: true})
}

// Pending returns how many changes the next Commit will write.
func (f *File) Pending() int { return len(f.changes) }

// Commit writes the changes into the file, all or none. After an error they are
// kept for the next time.
func (f *File) Commit() error {
	if len(f.changes) == 0 {
		return nil
	}
	err := f.db.Update(func(tx *bbolt.Tx) error {
		for _, c := range f.changes {
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
		return fmt.Errorf("state file %s: %w", f.path, err)
	}
	f.changes = nil
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

// Reader reads a state file that is being opened.
type Reader struct{ tx *bbolt.Tx }

// Each gives each record of a bucket in the order of the keys. The bytes must not be
// used after Restore has returned.
func (r *Reader) Each(bucket string, each func(key, value []byte) error) error {
	b := r.tx.Bucket([]byte(bucket))
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

// EachJSON is [Reader.Each] of a bucket with records in JSON.
func EachJSON[V any](r *Reader, bucket string, each func(key []byte, v V) error) error {
	return r.Each(bucket, func(key, value []byte) error {
		var v V
		if err := json.Unmarshal(value, &v); err != nil {
			return err
		}
		return each(key, v)
	})
}

// GetJSON reads the one record of a bucket with a key into v. That it isn't there is
// an error.
func (r *Reader) GetJSON(bucket, key string, v any) error {
	var value []byte
	if b := r.tx.Bucket([]byte(bucket)); b != nil {
		value = b.Get([]byte(key))
	}
	if value == nil {
		return fmt.Errorf("%s: it has no record %q", bucket, key)
	}
	if err := json.Unmarshal(value, v); err != nil {
		return fmt.Errorf("%s: %w", bucket, err)
	}
	return nil
}

// Key joins numbers to a key that sorts like them.
func Key(numbers ...uint64) []byte {
	var b []byte
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// Numbers takes a key of n numbers apart.
func Numbers(key []byte, n int) ([]uint64, error) {
	if len(key) != 8*n {
		return nil, fmt.Errorf("a key of %d bytes instead of %d", len(key), 8*n)
	}
	var v []uint64
	for ; len(key) > 0; key = key[8:] {
		v = append(v, binary.BigEndian.Uint64(key))
	}
	return v, nil
}
