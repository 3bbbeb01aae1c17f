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

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
)

// The programs under test.
var daemonProgram, ctlProgram string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the two programs, unless the environment names them, and runs the tests.
func run(m *testing.M) int {
	daemonProgram, ctlProgram = os.Getenv("CSI_PROXY_BIN"), os.Getenv("CSI_PROXYCTL_BIN")
	if daemonProgram == "" || ctlProgram == "" {
		dir, err := os.MkdirTemp("", "windows")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-o", dir+`\`, "./cmd/csi-proxy", "./cmd/csi-proxyctl")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, out)
			return 1
		}
		daemonProgram, ctlProgram = filepath.Join(dir, "csi-proxy.exe"), filepath.Join(dir, "csi-proxyctl.exe")
	}
	var err error // the service manager has a current directory of its own
	if daemonProgram, err = filepath.Abs(daemonProgram); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
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
	kubeletPath = `C:\var\lib\kubelet`
	displayName = "CSI Proxy of a test" // of the service
	// patience bounds what takes milliseconds, so that a hang is a failure that
	// says where.
	patience = 30 * time.Second
)

// service is the daemon, installed as a service for the time of a test.
type service struct {
	*mgr.Service
	t   testing.TB
	log string // file
}

// install installs the daemon as a service, with these flags beside those that
// every one has. It isn't started.
func install(t testing.TB, flags ...string) *service {
	t.Helper()
	m, err := mgr.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Disconnect()
	log := filepath.Join(t.TempDir(), "csi-proxy.log")
	flags = append([]string{"-windows-service", "-logtostderr=false", "-log_file=" + log}, flags...)
	created, err := m.CreateService("csi-proxy-test", daemonProgram, mgr.Config{DisplayName: displayName, StartType: mgr.StartManual}, flags...)
	if err != nil {
		t.Fatal(err)
	}
	s := &service{created, t, log}
	t.Cleanup(s.uninstall)
	return s
}

// installSimulated installs the daemon with a simulated node that outlives it.
func installSimulated(t testing.TB) *service {
	t.Helper()
	return install(t, "-node=simulated", "-sim-state="+filepath.Join(t.TempDir(), "state"))
}

func (s *service) uninstall() {
	s.kill()
	if err := s.Delete(); err != nil {
		s.t.Error(err)
	}
	s.Close()
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
	if err := s.Start(); err != nil {
		s.t.Fatal(err)
	}
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
	var status svc.Status
	if !eventually(func() bool {
		var err error
		if status, err = s.Query(); err != nil {
			s.t.Fatal(err)
		}
		return status.State == want
	}) {
		s.t.Fatalf("the service is in state %d (exit code %d, %d), want %d\n%s",
			status.State, status.Win32ExitCode, status.ServiceSpecificExitCode, want, s.written())
	}
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

// process opens the service's process; 0 if it has none.
func (s *service) process() windows.Handle {
	s.t.Helper()
	status, err := s.Query()
	if err != nil {
		s.t.Fatal(err)
	}
	if status.ProcessId == 0 {
		return 0
	}
	process, err := windows.OpenProcess(windows.SYNCHRONIZE|windows.PROCESS_TERMINATE, false, status.ProcessId)
	if err != nil && !errors.Is(err, windows.ERROR_INVALID_PARAMETER) { // it has just ended
		s.t.Fatal(err)
	}
	return process
}

// kill ends the service's process as nothing but a crash does, and returns when
// the manager knows.
func (s *service) kill() {
	s.t.Helper()
	process := s.process()
	if process == 0 {
		return
	}
	defer windows.CloseHandle(process)
	if err := windows.TerminateProcess(process, 1); err != nil && !errors.Is(err, windows.ERROR_ACCESS_DENIED) { // it has ended
		s.t.Error(err)
	}
	s.awaitEnd(process)
	s.await(svc.Stopped)
}

// awaitEnd waits until a process has ended.
func (s *service) awaitEnd(process windows.Handle) {
	s.t.Helper()
	event, err := windows.WaitForSingleObject(process, uint32(patience.Milliseconds()))
	if err != nil || event != windows.WAIT_OBJECT_0 {
		s.t.Fatalf("the daemon's process doesn't end (%#x, %v)", event, err)
	}
}

// pipePath is the path of an endpoint as the published module writes it.
func pipePath(group, version string) string { return `\\.\\pipe\\csi-proxy-` + group + "-" + version }

// ctl runs the operator's command and returns what it prints.
func ctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, ctlProgram, append([]string{"-o", "json"}, args...)...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("csi-proxyctl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

// sim changes or reads the simulated node.
func sim(t testing.TB, args ...string) string {
	t.Helper()
	out, err := ctl(append([]string{"sim"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// simInto is sim with the answer decoded into v.
func simInto(t testing.TB, v any, args ...string) {
	t.Helper()
	out := sim(t, args...)
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatalf("sim %s printed %q: %v", strings.Join(args, " "), out, err)
	}
}

// attach attaches a disk of 1 GiB to the simulated node and returns its number.
func attach(t testing.TB, flags ...string) uint32 {
	t.Helper()
	var attached struct {
		DiskNumber uint32 `json:"disk_number"`
	}
	simInto(t, &attached, append([]string{"disk", "attach", "--size", "1Gi"}, flags...)...)
	return attached.DiskNumber
}

// simDisk is what the simulated node says of a disk.
type simDisk struct {
	Number    *uint32 // missing while the disk is detached
	Online    bool
	SeenBytes int64 `json:"seen_bytes"`
}

func diskOfNode(t testing.TB, number uint32) simDisk {
	t.Helper()
	var all []simDisk
	simInto(t, &all, "disk", "list")
	for _, d := range all {
		if d.Number != nil && *d.Number == number {
			return d
		}
	}
	t.Fatalf("the node has no disk %d", number)
	return simDisk{}
}

// simEntry is a name in a directory of the simulated node, as a pod sees it.
type simEntry struct {
	Name      string
	Directory bool
	Reparse   bool
}

// entryOfNode returns what is at a path; the zero value if nothing is.
func entryOfNode(t testing.TB, path string) simEntry {
	t.Helper()
	cut := strings.LastIndexByte(path, '\\')
	var entries []simEntry
	simInto(t, &entries, "file", "ls", path[:cut])
	for _, e := range entries {
		if strings.EqualFold(e.Name, path[cut+1:]) {
			return e
		}
	}
	return simEntry{}
}
