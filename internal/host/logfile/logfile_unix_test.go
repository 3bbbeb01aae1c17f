// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package logfile

import (
	"errors"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// The limit of a file's size stands for a full disk: a write is cut short.
func TestFullDisk(t *testing.T) {
	f := openTest(t, Config{Name: filepath.Join(t.TempDir(), "log")})
	write(t, f, "before")

	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	full := limit
	full.Cur = uint64(len("before\nlo"))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	n, first := f.Write([]byte("lost\n"))
	_, second := f.Write([]byte("lost too\n"))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	if n != 2 || !errors.Is(first, syscall.EFBIG) || !errors.Is(second, syscall.EFBIG) {
		t.Errorf("Write = %d, %v and then %v", n, first, second)
	}

	write(t, f, "after")
	wantMatch(t, read(t, f.config.Name), `^before\nlo.*after\n$`)
}

// TestFIFO: a FIFO that nobody reads is refused, not waited for.
func TestFIFO(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fifo")
	must(t, syscall.Mkfifo(name, 0o600))
	f := openTest(t, Config{Name: name})
	if n, err := f.Write([]byte("line\n")); n != 0 || err == nil {
		t.Errorf("a FIFO is a log: %d, %v", n, err)
	}
}
