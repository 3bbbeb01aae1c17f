// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/csi-proxy/csi-proxy/client"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// A full log disk fails no call, and the log goes on when there is room again.
// The limit of a file's size stands for the disk.
func TestFullLogDisk(t *testing.T) {
	for _, format := range []string{formatText, formatJSON} {
		t.Run(format, func(t *testing.T) {
			dir, logs := simtest.SocketDir(t), t.TempDir()
			p := startProcess(t, "main", "-endpoint-dir", dir, "-v=4", "-logtostderr=false", "-alsologtostderr", "-log_dir",
				logs, "-logging-format", format)
			p.log.await("volume")
			limit := func(bytes uint64) {
				t.Helper()
				if err := unix.Prlimit(p.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY},
					nil); err != nil {
					t.Fatal(err)
				}
			}
			mkdir := func(name string) {
				t.Helper()
				c := client.New(client.WithEndpointDir(dir))
				defer c.Close()
				must(t, c.Filesystem.Mkdir(t.Context(), `C:\var\lib\kubelet\plugins\`+name))
			}
			limit(1)
			mkdir("while-full")
			limit(unix.RLIM_INFINITY)
			mkdir("afterwards")
			p.signal(t, syscall.SIGTERM)
			if _, state := p.end(); state.ExitCode() != exitOK {
				t.Errorf("%v", state)
			}
			written, err := os.ReadFile(filepath.Join(logs, "csi-proxy.log"))
			must(t, err)
			if !bytes.Contains(written, []byte("afterwards")) || bytes.Contains(written, []byte("while-full")) {
				t.Errorf("the log file has %s", written)
			}
		})
	}
}

// Calls go on when nobody reads the log on standard error any more.
func TestNobodyReadsTheLog(t *testing.T) {
	dir := simtest.SocketDir(t)
	p := exec.CommandContext(t.Context(), os.Args[0], "-endpoint-dir", dir, "-v=4")
	p.Env = append(os.Environ(), nodeVariable+"=main")
	stderr, err := p.StderrPipe()
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	for lines := bufio.NewScanner(stderr); lines.Scan() && !strings.Contains(lines.Text(), served); {
	}
	must(t, stderr.Close())
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	for _, name := range []string{"first", "second"} {
		must(t, c.Filesystem.Mkdir(t.Context(), `C:\var\lib\kubelet\plugins\`+name))
	}
	must(t, p.Process.Signal(syscall.SIGTERM))
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}
