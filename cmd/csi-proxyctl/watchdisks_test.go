// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// watching is a disk watch that runs.
type watching struct {
	t         *testing.T
	lines     *bufio.Scanner
	interrupt context.CancelFunc
	code      chan int
	stderr    *bytes.Buffer // to be read when it has ended
}

func watch(t *testing.T, d *testDaemon, args ...string) *watching {
	out, in := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watching{t, bufio.NewScanner(out), cancel, make(chan int, 1), new(bytes.Buffer)}
	go func() {
		code := run(ctx, append([]string{"--endpoint-dir", d.dir, "disk", "watch"}, args...), nil, in, w.stderr)
		in.Close()
		w.code <- code
	}()
	return w
}

// next returns the next line.
func (w *watching) next() string {
	w.t.Helper()
	if !w.lines.Scan() {
		w.t.Fatalf("the command has ended with exit code %d: %s", <-w.code, w.stderr)
	}
	return w.lines.Text()
}

func (w *watching) want(pattern string) {
	w.t.Helper()
	if line := w.next(); !regexp.MustCompile("^" + pattern + "$").MatchString(line) {
		w.t.Errorf("line %q, want %s", line, pattern)
	}
}

// ends checks how the command ends.
func (w *watching) ends(code int, message string) {
	w.t.Helper()
	for w.lines.Scan() {
		w.t.Errorf("there is another line %q", w.lines.Text())
	}
	if got := <-w.code; got != code || !strings.Contains(w.stderr.String(), message) ||
		(message == "") != (w.stderr.Len() == 0) {
		w.t.Errorf("exit code %d, want %d: %s", got, code, w.stderr)
	}
}

func TestWatchDisks(t *testing.T) {
	d, err := newDaemon()
	simtest.Must(t, err)
	defer func() { simtest.Must(t, d.close()) }()

	all, b, inJSON := watch(t, d), watch(t, d, "--serial", "b"), watch(t, d, "-o", "json")
	all.want(`listed   disk 0: 64 GiB, online, Windows runs from it, .*`)
	b.want(`listed   no disks`)
	changes := func() (c csiproxy.DiskChanges) {
		decoder := json.NewDecoder(strings.NewReader(inJSON.next()))
		decoder.DisallowUnknownFields()
		simtest.Must(t, decoder.Decode(&c))
		if c.Removed == nil || c.Added == nil || c.Changed == nil {
			t.Errorf("a list is null: %+v", c)
		}
		return c
	}
	if c := changes(); len(c.Added) != 1 || len(c.Removed)+len(c.Changed) != 0 || c.Added[0].SystemReason == "" {
		t.Errorf("the list is %+v", c)
	}

	simtest.Attach(t, d.sys, winsim.DiskSpec{Serial: "a\x1b[31m", Offline: true})
	all.want(`added    disk 1: 10 GiB, offline: reason unknown, often the SAN policy or an administrator, SAS, LUN 0, serial number a\\x1b\[31m, identifier .*, raw`)
	if c := changes(); len(c.Added) != 1 || c.Added[0].Number != 1 {
		t.Errorf("what has come is %+v", c)
	}
	number := simtest.Attach(t, d.sys, winsim.DiskSpec{Serial: "b"})
	all.want(`added    disk 2: .*`)
	b.want(`added    disk 2: .*serial number b.*`)
	changes() // each must come before the next happens: WatchDisks may tell both in one
	simtest.Must(t, d.sys.DetachDisk(number))
	all.want(`removed  disk 2: .*`)
	b.want(`removed  disk 2: .*`)
	changes()

	b.interrupt()
	b.ends(0, "")
	watch(t, d, "--lun", "1").ends(2, "a LUN alone")
	short := watch(t, d, "--timeout", "1s", "--serial", "none")
	for short.lines.Scan() { // there is none if the time passes before the list
		simtest.Want(t, "line", short.lines.Text(), "listed   no disks")
	}
	short.ends(7, "WatchDisks")

	simtest.Must(t, d.stop())
	all.ends(6, "WatchDisks: ")
	inJSON.ends(6, `"reason":"UNAVAILABLE"`)
	watch(t, d).ends(6, "is served")
}
