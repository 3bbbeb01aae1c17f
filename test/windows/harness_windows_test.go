// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unsafe"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// The programs under test: the daemon as it is released, the one with a simulated node,
// and the command line: as it is released, and with the control of a simulated node.
var daemonProgram, simProgram, ctlProgram, ctlSimProgram string

func TestMain(m *testing.M) {
	actAsDaemon()
	os.Exit(run(m))
}

// run builds the programs, unless the environment names their directory, and runs the tests.
func run(m *testing.M) (code int) {
	// Windows lets an administrator end a process of LocalSystem only with this.
	if err := winio.EnableProcessPrivileges([]string{"SeDebugPrivilege"}); err != nil {
		fmt.Fprintln(os.Stderr, "SeDebugPrivilege:", err)
		return 1
	}
	// The directory for temporary files can be on another drive, and often has a short
	// name in its path, such as RUNNER~1. Paths of drivers have neither.
	temp, err := os.MkdirTemp(`C:\`, "csi-proxy-wintest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := os.RemoveAll(temp); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}()
	for _, name := range []string{"TMP", "TEMP"} {
		if err := os.Setenv(name, temp); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	dir := os.Getenv("CSI_PROXY_PROGRAMS")
	if dir == "" {
		dir = filepath.Join(temp, "programs")
		tags, err := os.ReadFile(filepath.Join("..", "..", "cmd", "build-tags"))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		for _, program := range []struct{ file, tags, pkg string }{
			{"csi-proxy.exe", "", "./cmd/csi-proxy"},
			{"csi-proxy-sim.exe", ",simulated", "./cmd/csi-proxy"},
			{"csi-proxyctl.exe", "", "./cmd/csi-proxyctl"},
			{"csi-proxyctl-sim.exe", ",simulated", "./cmd/csi-proxyctl"},
		} {
			build := exec.Command("go", "build", "-tags="+strings.TrimSpace(string(tags))+program.tags,
				"-o", filepath.Join(dir, program.file), program.pkg)
			build.Dir = filepath.Join("..", "..")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, out)
				return 1
			}
		}
	}
	if dir, err = filepath.Abs(dir); err != nil { // the service manager has a current directory of its own
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	daemonProgram, simProgram = filepath.Join(dir, "csi-proxy.exe"), filepath.Join(dir, "csi-proxy-sim.exe")
	ctlProgram, ctlSimProgram = filepath.Join(dir, "csi-proxyctl.exe"), filepath.Join(dir, "csi-proxyctl-sim.exe")
	return m.Run()
}

// onWine reports whether this Windows is Wine.
func onWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

// notOnWine skips a test of what Wine doesn't have.
func notOnWine(t *testing.T, why string) {
	t.Helper()
	if onWine() {
		t.Skip("Wine: " + why)
	}
}

const (
	// leftoverPrefix is that of all names that the tests give to what they make outside
	// of their directory: services, users, shares, targets. csi-proxy-wintest removes
	// what a run left behind that was cut off.
	leftoverPrefix = "csi-proxy-wintest-"
	kubeletPath    = `C:\var\lib\kubelet`
	// displayName begins the display names of services. Windows wants each of these names
	// to be different too.
	displayName = "CSI Proxy of a test"
	// patience bounds what takes milliseconds, so that a hang is a failure that
	// says where.
	patience = 30 * time.Second
)

// service is the daemon, installed as a service for the time of a test.
type service struct {
	*mgr.Service
	t           testing.TB
	displayName string
	log         string // file
}

// installed counts the services: each has a name of its own, since one that was
// deleted is there until the last handle to it is closed.
var installed int

// install installs the daemon as a service, with these flags beside those that
// every one has, and with all privileges of LocalSystem, as by csi-proxyctl service install. It
// isn't started.
func install(t testing.TB, flags ...string) *service {
	t.Helper()
	return installProgram(t, daemonProgram, flags...)
}

// limit limits the service of the daemon to the privileges that -check tells, as by
// csi-proxyctl service install --restrict-privileges.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_required_privileges_infow
func limit(s *mgr.Service) error {
	out, err := exec.Command(daemonProgram, "-check", "-o=json").Output()
	if err != nil {
		return fmt.Errorf("csi-proxy -check: %w", err)
	}
	var needs struct{ Privileges []string }
	if err := json.Unmarshal(out, &needs); err != nil || len(needs.Privileges) == 0 {
		return fmt.Errorf("csi-proxy -check printed %q: %w", out, err)
	}
	list := utf16.Encode([]rune(strings.Join(needs.Privileges, "\x00") + "\x00\x00"))
	first := &list[0] // SERVICE_REQUIRED_PRIVILEGES_INFO
	return windows.ChangeServiceConfig2(s.Handle, windows.SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO,
		(*byte)(unsafe.Pointer(&first)))
}

// installSimulated installs a daemon with a simulated node that outlives it.
func installSimulated(t testing.TB) *service {
	t.Helper()
	return installProgram(t, simProgram, "-sim-state="+filepath.Join(t.TempDir(), "state"))
}

func installProgram(t testing.TB, program string, flags ...string) *service {
	t.Helper()
	m, err := mgr.Connect()
	must(t, err)
	defer m.Disconnect()
	log := filepath.Join(t.TempDir(), "csi-proxy.log")
	flags = append([]string{"-windows-service", "-logtostderr=false", "-log_file=" + log}, flags...)
	installed++
	name := fmt.Sprintf("%s%d-%d", leftoverPrefix, os.Getpid(), installed)
	display := fmt.Sprintf("%s (%s)", displayName, name)
	created, err := m.CreateService(name, program, mgr.Config{DisplayName: display, StartType: mgr.StartManual}, flags...)
	must(t, err)
	s := &service{created, t, display, log}
	t.Cleanup(s.uninstall)
	return s
}

// uninstall removes the service, whatever state it is in: one that is left behind would
// keep the pipes from all tests that follow.
func (s *service) uninstall() {
	if err := errors.Join(s.kill(), s.Delete(), s.Close()); err != nil {
		s.t.Error(err)
	}
	written := s.written()
	for _, fault := range []string{"panic", "fatal error"} {
		if strings.Contains(written, fault) {
			s.t.Errorf("the daemon's log tells of a %s", fault)
		}
	}
	if s.t.Failed() {
		lines := strings.Split(written, "\n")
		s.t.Logf("the end of the daemon's log:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
}

// written returns what the daemon has logged so far, in all its lives.
func (s *service) written() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// start starts the service and returns when the manager takes it for running,
// which the daemon says when it serves.
func (s *service) start() {
	s.t.Helper()
	must(s.t, s.Start())
	s.await(svc.Running)
	if onWine() {
		wakeOnWine(s.t)
	}
}

// wakeOnWine connects to each endpoint: on Wine the first connection to a pipe is
// never served, and a driver that gets it takes 20 seconds to try another.
func wakeOnWine(t testing.TB) {
	t.Helper()
	paths := []string{pipePath("sim", "v1")} // which only a simulated node has
	for _, group := range versions {
		for _, v := range group {
			paths = append(paths, pipePath(v.group, v.name))
		}
	}
	for _, path := range paths {
		conn, err := winio.DialPipe(path, nil)
		switch {
		case err == nil:
			conn.Close()
		case !errors.Is(err, os.ErrNotExist):
			t.Fatal(err)
		}
	}
}

// stop stops the service and returns when the manager takes it for stopped.
func (s *service) stop() {
	s.t.Helper()
	if _, err := s.Control(svc.Stop); err != nil {
		s.t.Fatal(err)
	}
	s.await(svc.Stopped)
}

// await waits until the service is in a state.
func (s *service) await(want svc.State) {
	s.t.Helper()
	if err := s.awaitState(want); err != nil {
		s.t.Fatalf("%v\n%s", err, s.written())
	}
}

func (s *service) awaitState(want svc.State) error {
	var status svc.Status
	var err error
	if !eventually(func() bool {
		status, err = s.Query()
		return err != nil || status.State == want
	}) {
		return fmt.Errorf("the service is in state %d (exit code %d, %d), want %d",
			status.State, status.Win32ExitCode, status.ServiceSpecificExitCode, want)
	}
	return err
}

// eventually reports whether ok becomes true.
func eventually(ok func() bool) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
	}
	return ok()
}

// process opens the service's process, which must be there.
func (s *service) process() windows.Handle {
	s.t.Helper()
	process, err := s.openProcess()
	must(s.t, err)
	if process == 0 {
		s.t.Fatal("the service has no process")
	}
	return process
}

// openProcess opens the service's process; 0 if it has none.
func (s *service) openProcess() (windows.Handle, error) {
	status, err := s.Query()
	if err != nil || status.ProcessId == 0 {
		return 0, err
	}
	process, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_TERMINATE|
		windows.PROCESS_QUERY_INFORMATION|windows.PROCESS_VM_READ, false, status.ProcessId)
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) { // it has just ended
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("open the service's process: %w", err)
	}
	return process, nil
}

// kill ends the service's process as nothing but a crash does, and returns when
// the manager knows.
func (s *service) kill() error {
	process, err := s.openProcess()
	if err != nil || process == 0 {
		return err
	}
	defer windows.CloseHandle(process)
	// it has ended
	if err := windows.TerminateProcess(process, 1); err != nil && !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return fmt.Errorf("terminate the service's process: %w", err)
	}
	return errors.Join(processEnds(process), s.awaitState(svc.Stopped))
}

// processEnds waits until a process has ended.
func processEnds(process windows.Handle) error {
	event, err := windows.WaitForSingleObject(process, uint32(patience.Milliseconds()))
	if err != nil || event != windows.WAIT_OBJECT_0 {
		return fmt.Errorf("the daemon's process doesn't end (%#x, %v)", event, err)
	}
	return nil
}

// steps are parts of a test that need each other, each a subtest.
type steps struct {
	t      *testing.T
	failed string // the first that did
}

// run runs a step, unless one before it has failed.
func (s *steps) run(name string, step func(t *testing.T)) {
	if !s.t.Run(name, func(t *testing.T) {
		if s.failed != "" {
			t.Skipf("it needs the step %s, which failed", s.failed)
		}
		step(t)
	}) {
		s.failed = name
	}
}

// kubeletDirectory makes one for a daemon of a test: below Windows' own may be a
// node's.
func kubeletDirectory(t testing.TB) string {
	t.Helper()
	kubelet := filepath.Join(t.TempDir(), "kubelet")
	must(t, os.Mkdir(kubelet, 0o700))
	return kubelet
}

// pipePath is the path of an endpoint as the published module writes it.
func pipePath(group, version string) string { return `\\.\\pipe\\csi-proxy-` + group + "-" + version }

// attach attaches a disk of 1 GiB to the simulated node and returns its number.
func attach(t testing.TB) uint32 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, ctlSimProgram, "-o", "json", "sim", "disk", "attach", "--size", "1Gi").Output()
	if err != nil {
		t.Fatalf("csi-proxyctl sim disk attach: %v", err)
	}
	var attached struct {
		DiskNumber uint32 `json:"disk_number"`
	}
	if err := json.Unmarshal(out, &attached); err != nil {
		t.Fatalf("csi-proxyctl sim disk attach printed %q: %v", out, err)
	}
	return attached.DiskNumber
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
