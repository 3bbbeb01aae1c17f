// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logfile writes a log to a file and bounds its size. The current file always has the same
// name, since log collectors know only that name. A file that is full is renamed NAME.1, in place
// of the previous one, and the log continues in a new file. If somebody else renames or removes the
// file, the log notices within a second and makes a new one. Nothing is buffered, so a crash loses
// no line.
//
// A log must not end the program that writes it. A write that fails loses its lines, and the next
// write opens the file again. That is so from the start: a file that can't be opened yet, on a full
// disk for example, is opened by a later write.
package logfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"
)

// checkInterval is the longest time for which lines may go to a file that was renamed
// or removed. A check opens the file, which on Windows costs more than writing a line.
const checkInterval = time.Second

// Config says where a log goes.
type Config struct {
	// Name is the path of the current file. If its directory is missing, it is made.
	Name string
	// MaxBytes limits the size of the file; 0 means no limit. A single write that is
	// larger gets a file of its own.
	MaxBytes int64
	// CrashOutput also sends what the Go runtime prints when it ends the program,
	// such as the trace of a panic, to the log. A service has no other output for
	// it. At most one log of a process may set it.
	CrashOutput bool
	// Header returns the lines, with their ends, that each file begins with. They come with
	// the first line of the log. Default: none.
	Header func() []byte
}

// File is a log file. Its methods may be called concurrently.
type File struct {
	config Config

	mu      sync.Mutex  // guards the fields below
	file    *os.File    // nil if it isn't open
	opened  fs.FileInfo // of file
	size    int64       // of file
	checked time.Time   // when file was last known to have its name
	err     error       // of opening the file, or of the last write
}

// Open opens the log, and makes its file and directory if they are missing. It appends
// to an existing file. Only a wrong Config is an error: if the file can't be opened, Err
// says why, and each write tries again.
func Open(config Config) (*File, error) {
	if config.Name == "" || config.MaxBytes < 0 {
		return nil, fmt.Errorf("open log file %q: it needs a name, and a size limit of at least 0 (it is %d)", config.Name,
			config.MaxBytes)
	}
	f := &File{config: config}
	f.err = f.open()
	return f, nil
}

// Err returns why the log can't be written; nil if the last write succeeded.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// Write appends p, which consists of whole lines, to the log. After an error p is lost,
// wholly or in part; later writes may succeed.
func (f *File) Write(p []byte) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, f.err = f.write(p)
	return n, f.err
}

// Close closes the file. A later write opens it again.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.release()
}

func (f *File) write(p []byte) (int, error) {
	var err error
	if f.full(p) || time.Since(f.checked) >= checkInterval {
		err = f.check()
	}
	if err == nil && f.full(p) {
		err = f.rotate()
	}
	if err == nil && f.file == nil {
		err = f.open()
	}
	if err == nil && f.size == 0 && f.config.Header != nil {
		_, err = f.append(f.config.Header())
	}
	if err != nil {
		return 0, err
	}
	return f.append(p)
}

// full reports whether the file has no room for p.
func (f *File) full(p []byte) bool {
	return f.file != nil && f.config.MaxBytes > 0 && f.size > 0 && f.size+int64(len(p)) > f.config.MaxBytes
}

// append writes p to the open file. After an error it closes the file, so that the next
// write tries to open it again.
func (f *File) append(p []byte) (int, error) {
	n, err := f.file.Write(p)
	f.size += int64(n)
	if err != nil {
		err = errors.Join(fmt.Errorf("write log file: %w", err), f.release())
	}
	return n, err
}

// open opens the file of the log's name.
func (f *File) open() error {
	if err := os.MkdirAll(filepath.Dir(f.config.Name), 0o755); err != nil {
		return fmt.Errorf("make directory of log file: %w", err)
	}
	file, err := openAppend(f.config.Name)
	if err != nil {
		return fmt.Errorf("open log file: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() { // a device must not be renamed
		err = fmt.Errorf("%s isn't a regular file", f.config.Name)
	}
	if err == nil && f.config.CrashOutput {
		err = debug.SetCrashOutput(file, debug.CrashOptions{})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("open log file: %w", err), file.Close())
	}
	f.file, f.opened, f.size, f.checked = file, info, info.Size(), time.Now()
	return nil
}

// release closes the file if it is open.
func (f *File) release() error {
	if f.file == nil {
		return nil
	}
	var crash error
	if f.config.CrashOutput {
		// The runtime has a handle of its own, which would keep a removed file.
		crash = debug.SetCrashOutput(nil, debug.CrashOptions{})
	}
	err := errors.Join(crash, f.file.Close())
	f.file = nil
	return err
}

// check closes the file if it no longer has the log's name.
func (f *File) check() error {
	if named, err := os.Stat(f.config.Name); f.file != nil && err == nil && os.SameFile(named, f.opened) {
		f.size, f.checked = named.Size(), time.Now() // somebody may have emptied it
		return nil
	}
	// Opening the file again finds any problem. On Windows, a removed file may keep its name, unusable,
	// until nobody has it open.
	return f.release()
}

// OldName is the name of the old file of a log.
func OldName(name string) string { return name + ".1" }

// rotate makes the file the old one, and closes it. A reader that doesn't share deletion keeps
// Windows from renaming the file, or the old one in its way. Then the file grows on, and is emptied
// when it has twice its limit.
func (f *File) rotate() error {
	if err := os.Rename(f.config.Name, OldName(f.config.Name)); err != nil {
		if f.size < 2*f.config.MaxBytes {
			return nil
		}
		if err := os.Truncate(f.config.Name, 0); err != nil {
			return fmt.Errorf("empty log file: %w", err)
		}
	}
	return f.release()
}
