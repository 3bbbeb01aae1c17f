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
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/pipe"
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
	dir := t.TempDir()
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
			dir := t.TempDir()
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
	dir := t.TempDir()
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
	if err := <-called; status.Code(err) != codes.Unavailable {
		t.Errorf("the running call gives %v", err)
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	dir := t.TempDir()
	first := startProcess(t, "main", "-endpoint-dir", dir)
	first.log.await(served)

	log, state := startProcess(t, "main", "-endpoint-dir", dir).end()
	if state.ExitCode() != exitFailed {
		t.Errorf("%v: %q", state, log)
	}
	if last := log[len(log)-1]; !strings.Contains(last, pipe.ErrInUse.Error()) || !strings.Contains(last, dir) {
		t.Errorf("the last line is %q", last)
	}
	if err := symlinkAt(t, dir); status.Code(err) != codes.InvalidArgument { // of no path
		t.Errorf("a call of the first daemon gives %v", err)
	}
}

func TestKilledDaemonIsReplaced(t *testing.T) {
	dir := t.TempDir()
	killed := startProcess(t, "main", "-endpoint-dir", dir)
	killed.log.await(served)
	killed.signal(t, os.Kill)
	killed.end()
	if _, err := os.Lstat(pipe.Address(dir, api.EndpointName("filesystem", "v1"))); err != nil {
		t.Fatalf("the killed daemon's socket: %v", err)
	}

	next := startProcess(t, "main", "-endpoint-dir", dir)
	next.log.await(served)
	if err := symlinkAt(t, dir); status.Code(err) != codes.InvalidArgument { // of no path
		t.Errorf("a call gives %v", err)
	}
}

func TestLogFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "made", "csi-proxy.log")
	p := startProcess(t, "main", "-endpoint-dir", dir, "-logtostderr=false", "-log_file", file, "-alsologtostderr", "-v=4")
	p.log.await(served)
	if err := call(t, dir, "/grpc.health.v1.Health/Check",
		&healthgrpc.HealthCheckRequest{}, &healthgrpc.HealthCheckResponse{}); err != nil {
		t.Error(err)
	}
	p.signal(t, syscall.SIGTERM)
	if log, state := p.end(); state.ExitCode() != exitOK {
		t.Errorf("%v: %q", state, log)
	}
	written, err := os.ReadFile(file)
	must(t, err)
	if !strings.HasPrefix(string(written), "Log file created at: ") {
		t.Errorf("the log file begins without the line that OpenShift's tests look for: %s", written)
	}
	for _, text := range []string{served, `"call" method="/grpc.health.v1.Health/Check" request={"service":""} code="OK"`,
		`"csi-proxy ends"`} {
		if !strings.Contains(string(written), text) {
			t.Errorf("the log file has no %s: %s", text, written)
		}
	}
}

// Programs that read each line want no header.
func TestLogFileWithoutHeader(t *testing.T) {
	for flag, served := range map[string]string{
		"-skip_log_headers":    served,
		"-logging-format=json": `"msg":"serving","group":"volume"`,
	} {
		file := filepath.Join(t.TempDir(), "csi-proxy.log")
		p := startProcess(t, "main", "-endpoint-dir", t.TempDir(), "-logtostderr=false", "-log_file", file,
			"-alsologtostderr", flag)
		p.log.await(served)
		p.signal(t, syscall.SIGTERM)
		p.end()
		if written, err := os.ReadFile(file); err != nil || !strings.Contains(string(written), served) ||
			strings.Contains(string(written), "Log file created") {
			t.Errorf("%s: %s (%v)", flag, written, err)
		}
	}
}

func TestLogFileRotates(t *testing.T) {
	file := filepath.Join(t.TempDir(), "csi-proxy.log")
	old := strings.Repeat("an old line\n", 1<<20/12+1)
	must(t, os.WriteFile(file, []byte(old), 0o600))
	p := startProcess(t, "main", "-endpoint-dir", t.TempDir(), "-logtostderr=false", "-log_file", file,
		"-log_file_max_size=1", "-alsologtostderr")
	p.log.await(served)
	p.signal(t, syscall.SIGTERM)
	p.end()
	if rotated, err := os.ReadFile(file + ".1"); err != nil || string(rotated) != old {
		t.Errorf("the old log file has %d bytes, want %d (%v)", len(rotated), len(old), err)
	}
	if current, err := os.ReadFile(file); err != nil || !strings.Contains(string(current), served) {
		t.Errorf("the log file has no %s: %s (%v)", served, current, err)
	}
}

func TestLogFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, "main", "-endpoint-dir", dir, "-logtostderr=false", "-log_file", dir)
	if log, state := p.end(); state.ExitCode() != exitFailed || len(log) != 1 {
		t.Errorf("%v: %q", state, log)
	}
}

// At OpenShift's level, support finds in the log what was asked, by whom, how it ended, and
// what has changed; and nothing of what is no failure.
func TestLogAtVerbosity2(t *testing.T) {
	dir := t.TempDir()
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
	for name, args := range map[string][]string{"stderr": nil,
		"file": {"-logtostderr=false", "-alsologtostderr", "-log_dir", t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, "main", append(args, "-endpoint-dir", t.TempDir(), "-logging-format=json", "-v=2")...)
			p.log.await(`"group":"volume"`)
			p.signal(t, syscall.SIGTERM)
			log, _ := p.end()
			if args != nil {
				written, err := os.ReadFile(filepath.Join(args[3], "csi-proxy.log"))
				if err != nil || string(written) != strings.Join(log, "\n")+"\n" {
					t.Errorf("the log file has %s (%v), want %q", written, err, log)
				}
			}
			for _, line := range log {
				var parsed struct {
					TS  float64
					Msg string
					V   *int
				}
				if err := json.Unmarshal([]byte(line), &parsed); err != nil || parsed.TS == 0 || parsed.Msg == "" ||
					parsed.V == nil {
					t.Errorf("the line %s is %+v (%v)", line, parsed, err)
				}
			}
		})
	}
}
