// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logfile keeps a log in the file of one name, which stays the current
// one: those who collect logs know that name only.
//
// A file that would grow over its bound is renamed name.1, the one before it
// name.2, and so on up to a number of old files; the log goes on in a new file of
// the name. The same happens when somebody else renames or removes the file: the
// log notices within a second. Nothing is buffered, so a crash loses no line.
//
// A log must not end the program that writes it. What can't be written, on a full
// disk for one, is lost; the first line that can be written is preceded by one
// that says how many were lost and why.
package logfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"time"
)

// checkInterval is how long lines may go to a file that has lost its name. A
// check opens the file, which on Windows costs more than writing a line.
const checkInterval = time.Second

// Config says where a log goes.
type Config struct {
	// Name is the path of the current file. Its directory is made if missing.
	Name string
	// MaxBytes bounds the file; 0 is no bound. A single write that is larger
	// gets a file for itself.
	MaxBytes int64
	// OldFiles is how many old files are kept, at least 1.
	OldFiles int
	// CrashOutput sends what the Go runtime prints when it ends the program,
	// like the trace of a panic, to the log too. A service has no other place
	// for it. At most one log of a process has it.
	CrashOutput bool
}

// File is a log file. Its methods may be called concurrently.
type File struct {
	config Config

	mu       sync.Mutex // guards all below
	file     *os.File   // nil when closed, also until it can be opened again
	size     int64      // of file
	rotateAt int64      // the size that the file mustn't exceed
	checked  time.Time  // when file was last known to have its name
	torn     bool       // the file ends with a part of a line
	trouble  trouble    // to be told in the log
	closed   bool
}

// trouble is what the log didn't manage to do.
type trouble struct {
	err   error // the first cause
	since time.Time
	lost  int // writes
}

// Open opens the log, making its file and directory if they are missing. An
// existing file is continued.
func Open(config Config) (*File, error) {
	switch {
	case config.Name == "":
		return nil, errors.New("open log file: it has no name")
	case config.MaxBytes < 0:
		return nil, fmt.Errorf("open log file %s: size bound %d is negative", config.Name, config.MaxBytes)
	case config.OldFiles < 1:
		return nil, fmt.Errorf("open log file %s: cannot keep %d old files, only 1 or more", config.Name, config.OldFiles)
	}
	f := &File{config: config}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// Write appends p, whole lines, to the log. An error means that p is lost, or a
// part of it; later writes may succeed. After Close the error is fs.ErrClosed.
func (f *File) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, fmt.Errorf("write log file %s: %w", f.config.Name, fs.ErrClosed)
	}
	n, err := f.write(p)
	if err != nil {
		f.blame(err)
		f.trouble.lost++
	}
	return n, err
}

// Close closes the file. Closing again does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return f.release()
}

func (f *File) write(p []byte) (int, error) {
	if f.file != nil && (f.full(p) || time.Since(f.checked) >= checkInterval) {
		f.check()
	}
	if f.file != nil && f.full(p) {
		f.rotate()
	}
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if f.trouble.err != nil {
		if _, err := f.append(f.confession()); err != nil {
			return 0, err
		}
		f.trouble = trouble{}
	}
	return f.append(p)
}

// full reports whether the file has no room for p.
func (f *File) full(p []byte) bool {
	return f.config.MaxBytes > 0 && f.size > 0 && f.size+int64(len(p)) > f.rotateAt
}

// append writes p to the open file. After an error the file is closed: the next
// write may find that opening it again helps.
func (f *File) append(p []byte) (int, error) {
	n, err := f.file.Write(p)
	f.size += int64(n)
	if err == nil {
		f.torn = false
		return n, nil
	}
	f.torn = f.torn || n > 0
	return n, errors.Join(fmt.Errorf("write log file: %w", err), f.release())
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
	switch {
	case err != nil:
		err = fmt.Errorf("open log file: %w", err)
	case !info.Mode().IsRegular(): // renaming a device would be a disaster
		err = fmt.Errorf("open log file %s: it is no regular file", f.config.Name)
	case f.config.CrashOutput:
		if err = debug.SetCrashOutput(file, debug.CrashOptions{}); err != nil {
			err = fmt.Errorf("send crash output to log file: %w", err)
		}
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.file, f.size, f.rotateAt, f.checked = file, info.Size(), f.config.MaxBytes, time.Now()
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
func (f *File) check() {
	info, err := f.file.Stat()
	if err == nil {
		var named fs.FileInfo
		if named, err = os.Stat(f.config.Name); err == nil && os.SameFile(named, info) {
			f.size, f.checked = info.Size(), time.Now() // somebody may have emptied it
			return
		}
	}
	// Whatever err is, opening the file again will tell. A removed file may keep
	// its name on Windows, unusable, until nobody has it open.
	f.blame(f.release())
}

// rotate makes the file an old one and closes it, for a new one or the same one,
// emptied, to be opened. If that is impossible the file grows on, and rotate is
// due again when it has grown by an eighth of its bound.
func (f *File) rotate() {
	// An old file that somebody has open may stay in the way (on Windows). It is
	// one of the old ones then that is lost, never a line of the current file.
	free := 1
	for free < f.config.OldFiles && exists(f.oldName(free)) {
		free++
	}
	for i := free; i > 1; i-- {
		if err := os.Rename(f.oldName(i-1), f.oldName(i)); err != nil {
			f.blame(fmt.Errorf("rotate old log file: %w", err))
		}
	}
	// Readers that don't share deletion keep Windows from renaming the file.
	if renamed := os.Rename(f.config.Name, f.oldName(1)); renamed != nil {
		if err := f.copyAndEmpty(); err != nil {
			f.blame(fmt.Errorf("rotate log file: %w", errors.Join(renamed, err)))
			f.rotateAt = f.size + f.config.MaxBytes/8
			return
		}
	}
	f.blame(f.release())
}

// copyAndEmpty copies the file to the name of the newest old one, and empties it.
func (f *File) copyAndEmpty() error {
	from, err := os.Open(f.config.Name)
	if err != nil {
		return err
	}
	defer from.Close() // nothing was written
	to, err := os.OpenFile(f.oldName(1), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return os.Truncate(f.config.Name, 0)
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

func (f *File) oldName(i int) string { return f.config.Name + "." + strconv.Itoa(i) }

// blame keeps err, the first one if there are several, to be told in the log.
func (f *File) blame(err error) {
	if err != nil && f.trouble.err == nil {
		f.trouble.err, f.trouble.since = err, time.Now()
	}
}

// confession is the line that tells the trouble.
func (f *File) confession() []byte {
	var line []byte
	if f.torn {
		line = append(line, '\n')
	}
	return fmt.Appendf(line, "log file: trouble since %s, %d writes lost: %q\n",
		f.trouble.since.UTC().Format(time.RFC3339), f.trouble.lost, f.trouble.err)
}
