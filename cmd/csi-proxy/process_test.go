// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// nodeVariable makes the test binary a daemon: "main" is the real one, "stuck"
// one whose CreateSymlink says so on stderr and never ends.
const nodeVariable = "CSI_PROXY_TEST_NODE"

func TestMain(m *testing.M) {
	switch os.Getenv(nodeVariable) {
	case "main":
		main()
	case "stuck":
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, fakeNode(func(context.Context) error {
			os.Stderr.WriteString("stuck\n")
			select {}
		})))
	}
	os.Exit(m.Run())
}

// process is a daemon in a process of its own.
type process struct {
	*exec.Cmd
	stdout strings.Builder
	log    *logLines
}

// startProcess starts a daemon that is killed at the test's end at the latest.
func startProcess(t *testing.T, kind string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	p.Env = append(os.Environ(), nodeVariable+"="+kind)
	p.Stdout = &p.stdout
	stderr, err := p.StderrPipe()
	must(t, err)
	must(t, p.Start())
	t.Cleanup(func() { p.Process.Kill(); p.Wait() })
	p.log = readLog(t, stderr)
	return p
}

// end waits until the process ends, and returns what it has logged.
func (p *process) end() (log []string, state *os.ProcessState) {
	log = p.log.drain()
	p.Wait()
	return log, p.ProcessState
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	must(t, p.Process.Signal(s))
}

const served = `"serving" group="volume"` // the last group

func TestDaemonServesEveryVersion(t *testing.T) {
	dir := simtest.SocketDir(t)
	startProcess(t, "main", "-endpoint-dir", dir).log.await(served)
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	for _, e := range c.Endpoints(t.Context()) {
		if !e.Served {
			t.Errorf("%s %s isn't served: %v", e.Group, e.Version, e.Err)
		}
	}
}

func TestSignalEndsDaemon(t *testing.T) {
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(s.String(), func(t *testing.T) {
			dir := simtest.SocketDir(t)
			p := startProcess(t, "main", "-endpoint-dir", dir)
			p.log.await(served)
			p.signal(t, s)
			if log, state := p.end(); state.ExitCode() != exitOK {
				t.Errorf("%v: %q", state, log)
			}
			wantNoEndpoints(t, dir)
			if p.stdout.Len() > 0 {
				t.Errorf("stdout is %q", &p.stdout)
			}
		})
	}
}

func TestSecondSignalEndsDaemonAtOnce(t *testing.T) {
	dir := simtest.SocketDir(t)
	p := startProcess(t, "stuck", "-endpoint-dir", dir, "-grace-period", "1h")
	p.log.await(`"serving"`)
	called := make(chan error, 1)
	go func() { called <- symlinkAt(t, dir) }()
	p.log.await("stuck")
	p.signal(t, syscall.SIGTERM)
	p.log.await(`"stopping"`)
	p.signal(t, syscall.SIGTERM)
	if log, state := p.end(); state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("%v: %q", state, log)
	}
	if err := <-called; !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("the running call gives %v", err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	dir := simtest.SocketDir(t)
	first := startProcess(t, "main", "-endpoint-dir", dir)
	first.log.await(served)

	log, state := startProcess(t, "main", "-endpoint-dir", dir).end()
	if state.ExitCode() != exitFailed {
		t.Errorf("%v: %q", state, log)
	}
	if last := log[len(log)-1]; !strings.Contains(last, pipe.ErrInUse.Error()) || !strings.Contains(last, dir) {
		t.Errorf("the last line is %q", last)
	}
	if err := symlinkAt(t, dir); !errors.Is(err, csiproxy.ErrInvalidArgument) { // of no path
		t.Errorf("a call of the first daemon gives %v", err)
	}
}

func TestKilledDaemonIsReplaced(t *testing.T) {
	dir := simtest.SocketDir(t)
	killed := startProcess(t, "main", "-endpoint-dir", dir)
	killed.log.await(served)
	killed.signal(t, os.Kill)
	killed.end()
	if _, err := os.Lstat(pipe.Address(dir, api.EndpointName("filesystem", "v1"))); err != nil {
		t.Fatalf("the killed daemon's socket: %v", err)
	}

	next := startProcess(t, "main", "-endpoint-dir", dir)
	next.log.await(served)
	if err := symlinkAt(t, dir); !errors.Is(err, csiproxy.ErrInvalidArgument) { // of no path
		t.Errorf("a call gives %v", err)
	}
}

// runProcess runs a daemon on a node that nobody calls, and returns what it logs.
func runProcess(t *testing.T, args ...string) (log []string) {
	t.Helper()
	p := startProcess(t, "main", append(args, "-endpoint-dir", simtest.SocketDir(t))...)
	p.log.await("volume") // the last group
	p.signal(t, syscall.SIGTERM)
	log, state := p.end()
	if state.ExitCode() != exitOK {
		t.Errorf("%v: %q", state, log)
	}
	return log
}

// A log file has what standard error has, after a header for people. OpenShift's tests look for
// that, and programs that read each line want none.
func TestLogFile(t *testing.T) {
	for _, test := range []struct{ args, header string }{
		{"", `Log file created at: .*\n.*\n.*\n`}, {"-skip_log_headers", ""}, {"-logging-format=json -v=2", ""},
	} {
		file := filepath.Join(t.TempDir(), "made", logFileName)
		args := append(strings.Fields(test.args), "-logtostderr=false", "-log_dir", filepath.Dir(file), "-alsologtostderr")
		log := strings.Join(runProcess(t, args...), "\n") + "\n"
		written, err := os.ReadFile(file)
		must(t, err)
		if !regexp.MustCompile("^"+test.header+regexp.QuoteMeta(log)+"$").Match(written) ||
			!strings.Contains(log, "csi-proxy ends") {
			t.Errorf("%s: the log file has %s, want it after the header %q: %s", test.args, written, test.header, log)
		}
	}
}

func TestLogFileRotates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "csi-proxy.log")
	old := strings.Repeat("an old line\n", 1<<20/12+1)
	must(t, os.WriteFile(file, []byte(old), 0o600))
	runProcess(t, "-logtostderr=false", "-log_file", file, "-log_file_max_size=1", "-alsologtostderr")
	if rotated, err := os.ReadFile(file + ".1"); err != nil || string(rotated) != old {
		t.Errorf("the old log file has %d bytes, want %d (%v)", len(rotated), len(old), err)
	}
	if current, err := os.ReadFile(file); err != nil || !strings.Contains(string(current), served) {
		t.Errorf("the log file has no %s: %s (%v)", served, current, err)
	}
}

// Storage doesn't wait for the log: its file is made once it can be.
func TestLogFileThatCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "csi-proxy.log")
	must(t, os.Mkdir(file, 0o700))
	dir := simtest.SocketDir(t)
	p := startProcess(t, "main", "-endpoint-dir", dir, "-logtostderr=false", "-log_file", file)
	p.log.await("the log file can't be written")
	p.log.await(served)
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	_, err := c.Filesystem.PathExists(t.Context(), `C:\var\lib\kubelet`)
	must(t, err)
	must(t, os.Remove(file))
	p.signal(t, syscall.SIGTERM)
	if log, state := p.end(); state.ExitCode() != exitOK || slices.ContainsFunc(log,
		func(line string) bool { return strings.Contains(line, "stopping") }) {
		t.Errorf("%v: %q", state, log)
	}
	if log, err := os.ReadFile(file); err != nil || !strings.Contains(string(log), "stopping") {
		t.Errorf("the log file: %s (%v)", log, err)
	}
}

// At OpenShift's level, support finds in the log what was asked, by whom, how it ended, and
// what has changed; and nothing of what is no failure.
func TestLogAtVerbosity2(t *testing.T) {
	dir := simtest.SocketDir(t)
	p := startProcess(t, "main", "-endpoint-dir", dir, "-v=2")
	p.log.await(served)
	c := client.New(client.WithEndpointDir(dir))
	defer c.Close()
	const path = `C:\var\lib\kubelet\plugins\new`
	must(t, c.Filesystem.Mkdir(t.Context(), path))
	if _, err := c.Volume.GetVolumeIDFromTargetPath(t.Context(), path); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Fatal(err)
	}
	if err := c.Filesystem.Mkdir(t.Context(), `D:\elsewhere`); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGTERM)
	log, _ := p.end()
	caller := fmt.Sprintf(` pid=%d program=%q`, os.Getpid(), os.Args[0])
	for pattern, want := range map[string]int{
		`^I.*"directory made" path="C:\\\\var\\\\lib\\\\kubelet\\\\plugins\\\\new"$`:                                                                                                                      1,
		`^I.*"call" method="/v2alpha1.Filesystem/Mkdir" request={"path":"C:\\\\var\\\\lib\\\\kubelet\\\\plugins\\\\new"} code="OK" duration="\S+"` + regexp.QuoteMeta(caller) + "$":                       1,
		`^W.*"call failed" method="/v2alpha1.Filesystem/Mkdir" request={"path":"D:\\\\elsewhere"} code="InvalidArgument" duration="\S+"` + regexp.QuoteMeta(caller) + ` err="Mkdir D:\\\\elsewhere: .*"$`: 1,
		`GetVolumeIDFromTargetPath`: 0, // the answer was what the caller asked for
		`Windows call`:              0,
	} {
		found := 0
		for _, line := range log {
			if regexp.MustCompile(pattern).MatchString(line) {
				found++
			}
		}
		if found != want {
			t.Errorf("%d lines match %s, want %d:\n%s", found, pattern, want, strings.Join(log, "\n"))
		}
	}
}

func TestLogAsJSON(t *testing.T) {
	for _, line := range runProcess(t, "-logging-format=json", "-v=2") {
		var parsed struct {
			TS  float64
			Msg string
			V   *int
		}
		if err := json.Unmarshal([]byte(line), &parsed); err != nil || parsed.TS == 0 || parsed.Msg == "" || parsed.V == nil {
			t.Errorf("the line %s is %+v (%v)", line, parsed, err)
		}
	}
}
