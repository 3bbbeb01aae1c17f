// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package logfile writes a log to a file and rotates it. The current file always has
// the same name, since log collectors know only that name.
//
// When the file would exceed its limit, it is renamed name.1, the previous name.1
// becomes name.2, and so on up to a number of old files. The log continues in a new
// file. If somebody else renames or removes the file, the log notices within a second
// and makes a new one. Nothing is buffered, so a crash loses no line.
//
// A log must not end the program that writes it. Lines that can't be written, on a
// full disk for example, are lost. When writing works again, the log first gets a
// line that says how many writes were lost and why. That is so from the start: a file that
// can't be opened yet is opened by a later write.
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
	// OldFiles is how many old files are kept, at least 1.
	OldFiles int
	// CrashOutput also sends what the Go runtime prints when it ends the program,
	// such as the trace of a panic, to the log. A service has no other output for
	// it. At most one log of a process may set it.
	CrashOutput bool
	// Header returns the lines, with their ends, that each file begins with. They come with
	// the first line of the log. Default: none.
	Header func() []byte
	// Report returns the line, with its end, that says after a problem since when there was
	// one, how many writes were lost, and what the first cause was. Default: plain text.
	Report func(since time.Time, lost int, err error) []byte
}

// File is a log file. Its methods may be called concurrently.
type File struct {
	config Config

	mu       sync.Mutex // guards the fields below
	file     *os.File   // nil if closed, or not yet opened again
	size     int64      // of file
	rotateAt int64      // the size above which the file is rotated
	checked  time.Time  // when file was last known to have its name
	torn     bool       // the file ends with a part of a line
	trouble  trouble    // not yet reported in the log
	lost     int        // writes, since the log was opened
	closed   bool
}

// trouble is what has failed since the log last reported it.
type trouble struct {
	err   error // the first cause
	since time.Time
	lost  int // writes
}

// Open opens the log, and makes its file and directory if they are missing. It appends
// to an existing file. Only a wrong Config is an error: if the file can't be opened, Err
// says why, and each write tries again.
func Open(config Config) (*File, error) {
	switch {
	case config.Name == "":
		return nil, errors.New("open log file: it has no name")
	case config.MaxBytes < 0:
		return nil, fmt.Errorf("open log file %s: the size limit %d is negative", config.Name, config.MaxBytes)
	case config.OldFiles < 1:
		return nil, fmt.Errorf("open log file %s: the number of old files to keep is %d, must be at least 1", config.Name,
			config.OldFiles)
	}
	if config.Report == nil {
		config.Report = plainReport
	}
	f := &File{config: config}
	f.blame(f.open())
	return f, nil
}

// Check returns nil if a log file is there. It changes nothing.
func Check(name string) error {
	info, err := os.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s isn't a regular file", name)
	}
	return err
}

// Err returns the first cause of the problem that the log has; nil if there is none.
func (f *File) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.trouble.err
}

// Lost returns how many writes were lost since the log was opened.
func (f *File) Lost() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

// Write appends p, which consists of whole lines, to the log. After an error p is lost,
// wholly or in part; later writes may succeed. After Close the error is fs.ErrClosed.
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
		f.lost++
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
	if f.size == 0 && f.config.Header != nil {
		if _, err := f.append(f.config.Header()); err != nil {
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

// append writes p to the open file. After an error it closes the file, so that the next
// write tries to open it again.
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
	case !info.Mode().IsRegular(): // a device must not be renamed
		err = fmt.Errorf("open log file: %s isn't a regular file", f.config.Name)
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
	// err needn't be looked at: opening the file again finds the problem. On Windows,
	// a removed file may keep its name, unusable, until nobody has it open.
	f.blame(f.release())
}

// rotate turns the file into an old one and closes it. Then a new file, or the same
// one emptied, is to be opened. If rotation fails, the file keeps growing, and is
// rotated again when it has grown by an eighth of its limit.
func (f *File) rotate() {
	// On Windows, an old file that somebody has open may be impossible to rename.
	// Then one of the old files is lost, but never a line of the current file.
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
	// A link there would lead the copy elsewhere.
	if info, err := os.Lstat(f.oldName(1)); err == nil && !info.Mode().IsRegular() {
		if err := os.Remove(f.oldName(1)); err != nil {
			return err
		}
	}
	to, err := openItself(f.oldName(1))
	if err != nil {
		return err
	}
	if err = to.Truncate(0); err == nil {
		_, err = io.Copy(to, from)
	}
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

// blame keeps err to be reported in the log. Of several errors it keeps the first.
func (f *File) blame(err error) {
	if err != nil && f.trouble.err == nil {
		f.trouble.err, f.trouble.since = err, time.Now()
	}
}

// confession returns the line that reports the trouble.
func (f *File) confession() []byte {
	var line []byte
	if f.torn {
		line = append(line, '\n')
	}
	return append(line, f.config.Report(f.trouble.since, f.trouble.lost, f.trouble.err)...)
}

// plainReport is the default of Config.Report.
func plainReport(since time.Time, lost int, err error) []byte {
	return fmt.Appendf(nil, "log file: problems since %s, %d writes were lost: %q\n", since.UTC().Format(time.RFC3339),
		lost, err)
}
