// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	filesystemapi "github.com/kubernetes-csi/csi-proxy/client/api/filesystem/v1"
	filesystemclient "github.com/kubernetes-csi/csi-proxy/client/groups/filesystem/v1"

	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// failingMark is at the end of a copy of this program that acts as a daemon which passes
// -check and then doesn't serve. After it is a line that says what the service does, and
// then what -check prints.
const failingMark = "a daemon that fails:"

// What the service does.
const (
	endsAtOnce     = "ends at once"
	runsForNothing = "runs for nothing"
)

// actAsDaemon is such a daemon, if this program was started as one.
func actAsDaemon() {
	if len(os.Args) < 2 || os.Args[1] != "-check" && os.Args[1] != "-windows-service" {
		return
	}
	self, err := os.Executable()
	if err != nil {
		os.Exit(1)
	}
	content, err := os.ReadFile(self)
	if err != nil {
		os.Exit(1)
	}
	does, report, _ := strings.Cut(string(content[bytes.LastIndex(content, []byte(failingMark))+len(failingMark):]), "\n")
	switch {
	case os.Args[1] == "-check":
		_, err = os.Stdout.WriteString(report)
	case does == runsForNothing:
		err = svc.Run("", idle{})
	default:
		err = errors.New(does)
	}
	if err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// idle is a service that runs until it is stopped.
type idle struct{}

func (idle) Execute(_ []string, controls <-chan svc.ChangeRequest, statuses chan<- svc.Status) (bool, uint32) {
	statuses <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop}
	for c := range controls {
		if c.Cmd == svc.Stop {
			break
		}
	}
	statuses <- svc.Status{State: svc.StopPending}
	return false, 0
}

// copyProgram copies a program, with text at its end, where it doesn't count, so that the
// bytes differ.
func copyProgram(t testing.TB, from, to, text string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o700)
	}
	if err == nil {
		err = os.WriteFile(to, append(content, text...), 0o700)
	}
	must(t, err)
}

// endsWith reports whether copyProgram has written text to the end of a program.
func endsWith(t testing.TB, program, text string) bool {
	t.Helper()
	content, err := os.ReadFile(program)
	must(t, err)
	return strings.HasSuffix(string(content), text)
}

// failingDaemon makes a daemon that passes -check with what like prints there, and doesn't
// serve.
func failingDaemon(t testing.TB, like, does string) string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	report, err := exec.Command(like, "-check", "-o=json").Output()
	must(t, err)
	program := filepath.Join(adminsOnly(t), "csi-proxy-that-fails.exe")
	copyProgram(t, self, program, failingMark+does+"\n"+string(report))
	return program
}

// adminsOnly makes a directory to which only administrators can write, as csi-proxyctl service install
// asks for: to one that is made directly on C: every user can.
func adminsOnly(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "admins")
	descriptor, err := windows.SecurityDescriptorFromString("O:BAD:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)")
	must(t, err)
	path, err := windows.UTF16PtrFromString(dir)
	must(t, err)
	attributes := windows.SecurityAttributes{SecurityDescriptor: descriptor}
	attributes.Length = uint32(unsafe.Sizeof(attributes))
	must(t, windows.CreateDirectory(path, &attributes))
	return dir
}

// managed is a service that csi-proxyctl service changes.
type managed struct {
	t    testing.TB
	name string
}

// ctl runs csi-proxyctl service with the service's name, and returns what it prints.
func (m managed) ctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	named := append([]string{"-o", "json", "service", args[0], "--name", m.name}, args[1:]...)
	out, err := exec.CommandContext(ctx, ctlProgram, named...).Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("csi-proxyctl service %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}

func (m managed) mustCtl(args ...string) string {
	m.t.Helper()
	out, err := m.ctl(args...)
	must(m.t, err)
	return out
}

// state returns what csi-proxyctl service status says.
func (m managed) state() (s struct {
	State       string
	CommandLine string `json:"command_line"`
	ProcessID   uint32 `json:"process_id"`
	Replaced    string
	Interrupted bool
}) {
	m.t.Helper()
	must(m.t, json.Unmarshal([]byte(m.mustCtl("status")), &s))
	return s
}

// wantServing checks that the service runs and a driver can call it.
func (m managed) wantServing() {
	m.t.Helper()
	if state := m.state(); state.State != "running" || state.Interrupted {
		m.t.Fatalf("the service: %+v", state)
	}
	if onWine() {
		wakeOnWine(m.t)
	}
	newest(m.t, "filesystem").call("PathExists", fields{"path": kubeletPath + `\pods`})
}

// dependent makes and starts a service that depends on another one, as kubelet does on AKS. The function that it
// returns checks that this one runs on.
func dependent(t testing.TB, on string) (undisturbed func()) {
	t.Helper()
	manager, err := mgr.Connect()
	must(t, err)
	t.Cleanup(func() { manager.Disconnect() })
	s, err := manager.CreateService(leftoverPrefix+"dependent", failingDaemon(t, simProgram, runsForNothing),
		mgr.Config{DisplayName: displayName + " (dependent)", StartType: mgr.StartManual, Dependencies: []string{on}}, "-windows-service")
	must(t, err)
	t.Cleanup(func() {
		if _, err := s.Control(svc.Stop); err != nil {
			t.Error(err)
		}
		if !eventually(func() bool { status, err := s.Query(); return err == nil && status.State == svc.Stopped }) {
			t.Error("the dependent service doesn't stop")
		}
		must(t, errors.Join(s.Delete(), s.Close()))
	})
	must(t, s.Start())
	var begun svc.Status
	if !eventually(func() bool { begun, err = s.Query(); return err == nil && begun.State == svc.Running }) {
		t.Fatalf("the dependent service: %+v, %v", begun, err)
	}
	return func() {
		t.Helper()
		if now, err := s.Query(); err != nil || now.State != svc.Running || now.ProcessId != begun.ProcessId {
			t.Errorf("the dependent service: %+v, %v; before %+v", now, err, begun)
		}
	}
}

// installedByCtl is a service with a simulated node that csi-proxyctl has installed from a
// copy of the daemon, and started.
func installedByCtl(t testing.TB) (m managed, program string) {
	t.Helper()
	installed++
	m = managed{t, fmt.Sprintf("%s%d-%d", leftoverPrefix, os.Getpid(), installed)}
	dir := adminsOnly(t)
	program = filepath.Join(dir, "programs", "csi-proxy.exe")
	copyProgram(t, simProgram, program, "old")
	log := filepath.Join(dir, "log", "csi-proxy.log")
	t.Cleanup(func() {
		m.mustCtl("uninstall")
		if written, err := os.ReadFile(log); err != nil || t.Failed() {
			t.Logf("the daemon's log: %v\n%s", err, written)
		}
	})
	m.mustCtl("install", program, "--", "-logtostderr=false", "-log_file="+log, "-sim-state="+filepath.Join(dir, "state"))
	m.mustCtl("start")
	m.wantServing()
	return m, program
}

// load are drivers that call the daemon all the time, as the published client does it.
type load struct {
	stop        chan struct{}
	callers     sync.WaitGroup
	ok          atomic.Int64
	unavailable atomic.Int64
	mu          sync.Mutex // guards the fields below
	others      []error
	succeeded   time.Time     // the last call
	gap         time.Duration // the longest time between two that have succeeded
}

// newLoad starts drivers. On Wine, where the first connection to a pipe is never served, a
// driver may get it; such a call is left out by its deadline.
func newLoad(t testing.TB, drivers int) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	for range drivers {
		c, err := filesystemclient.NewClient()
		must(t, err)
		l.callers.Go(func() {
			defer c.Close()
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				l.call(c)
			}
		})
	}
	return l
}

func (l *load) call(c *filesystemclient.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	response, err := c.PathExists(ctx, &filesystemapi.PathExistsRequest{Path: kubeletPath + `\plugins\kept`})
	switch {
	case err == nil && response.Exists:
		l.ok.Add(1)
		l.mu.Lock()
		defer l.mu.Unlock()
		now := time.Now()
		if !l.succeeded.IsZero() {
			l.gap = max(l.gap, now.Sub(l.succeeded))
		}
		l.succeeded = now
	case status.Code(err) == codes.Unavailable:
		l.unavailable.Add(1)
		time.Sleep(time.Millisecond) // as a driver does, or the machine would do nothing else
	case onWine() && status.Code(err) == codes.DeadlineExceeded:
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.others = append(l.others, fmt.Errorf("exists: %v, %w", response.GetExists(), err))
	}
}

// goesOn waits until the drivers' calls succeed again.
func (l *load) goesOn(t testing.TB) {
	t.Helper()
	before := l.ok.Load()
	if !eventually(func() bool { return l.ok.Load() > before+10 }) {
		t.Error("no calls of drivers succeed")
	}
}

// Drivers call the daemon while it is upgraded, upgraded to one that doesn't work, and put
// back. They see nothing but Unavailable, and keep their connections.
func TestUpgradeUnderLoad(t *testing.T) {
	m, program := installedByCtl(t)
	defer dependent(t, m.name)()
	newest(t, "filesystem").call("Mkdir", fields{"path": kubeletPath + `\plugins\kept`})
	fresh := filepath.Join(t.TempDir(), "csi-proxy.exe")
	copyProgram(t, simProgram, fresh, "new")
	l := newLoad(t, 8)
	defer func() {
		close(l.stop)
		l.callers.Wait()
		t.Logf("%d calls have succeeded, %d were unavailable, for %v at most", l.ok.Load(), l.unavailable.Load(), l.gap)
		if len(l.others) > 0 {
			t.Errorf("%d other errors, the first is %v", len(l.others), l.others[0])
		}
	}()
	l.goesOn(t)

	for _, step := range []struct{ from, want string }{
		{fresh, "new"},
		{fresh, "new"}, // again
		{filepath.Join(filepath.Dir(program), "csi-proxy.previous.exe"), "old"},
	} {
		m.mustCtl("upgrade", step.from)
		if !endsWith(t, program, step.want) {
			t.Fatalf("after the upgrade to %s the service has another program", step.from)
		}
		m.wantServing()
		l.goesOn(t)
	}

	before := m.state().ProcessID
	if _, err := m.ctl("upgrade", daemonProgram); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("a daemon that doesn't take the service's flags: %v", err)
	}
	if after := m.state().ProcessID; after != before {
		t.Errorf("the service was restarted")
	}
	for _, does := range []string{endsAtOnce, runsForNothing} {
		if _, err := m.ctl("upgrade", failingDaemon(t, simProgram, does)); err == nil ||
			!strings.Contains(err.Error(), "rolled back") {
			t.Errorf("a daemon that %s: %v", does, err)
		}
		if !endsWith(t, program, "old") {
			t.Errorf("after a daemon that %s the program before isn't back", does)
		}
		m.wantServing()
		l.goesOn(t)
	}
	for _, left := range []string{"new", "rollback"} {
		if _, err := os.Stat(filepath.Join(filepath.Dir(program), "csi-proxy."+left+".exe")); !errors.Is(err,
			fs.ErrNotExist) {
			t.Errorf("csi-proxy.%s.exe is left: %v", left, err)
		}
	}
}

// killedAfter runs csi-proxyctl service, and kills it after a time with what it has started. A daemon whose
// creator dies before its first thread runs exists for ever, and its program can't be deleted.
func killedAfter(t *testing.T, after time.Duration, args ...string) (killed bool) {
	t.Helper()
	job, err := windows.CreateJobObject(nil, nil)
	must(t, err)
	defer windows.CloseHandle(job)
	cmd := exec.Command(ctlProgram, append([]string{"service"}, args...)...)
	must(t, cmd.Start())
	process, err := windows.OpenProcess(windows.PROCESS_SET_QUOTA|windows.PROCESS_TERMINATE, false, uint32(cmd.Process.Pid))
	must(t, err)
	defer windows.CloseHandle(process)
	must(t, windows.AssignProcessToJobObject(job, process))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		must(t, err)
		return false
	case <-time.After(after):
		must(t, windows.TerminateJobObject(job, 1))
		<-ended
		return true
	}
}

// csi-proxyctl is killed at any moment of an upgrade. Whatever it has left, the next run
// ends with the new program serving.
func TestUpgradeKilled(t *testing.T) {
	m, program := installedByCtl(t)
	killed := 0
	for i := range 8 {
		text := fmt.Sprintf("new %d", i)
		fresh := filepath.Join(t.TempDir(), "csi-proxy.exe")
		copyProgram(t, simProgram, fresh, text)
		// The moments are spread over an upgrade; it doesn't matter which they are.
		if killedAfter(t, time.Duration(i+1)*150*time.Millisecond, "upgrade", "--name", m.name, fresh) {
			killed++
		}
		if content, err := os.ReadFile(program); err != nil || len(content) < 1<<20 {
			t.Fatalf("after a death the service has no whole program: %d bytes, %v", len(content), err)
		}
		m.mustCtl("upgrade", fresh)
		if !endsWith(t, program, text) {
			t.Errorf("the upgrade that was repeated has left another program")
		}
		m.wantServing()
	}
	t.Logf("%d of 8 upgrades were cut off", killed)
}

// publishedService is the published daemon, as its instructions install it. The
// environment names its program; it isn't part of this module.
func publishedService(t *testing.T) (m managed, program, log string) {
	t.Helper()
	published := os.Getenv("CSI_PROXY_PUBLISHED_BIN")
	if published == "" {
		t.Skip("CSI_PROXY_PUBLISHED_BIN doesn't name the published daemon")
	}
	dir := t.TempDir()
	must(t, os.MkdirAll(kubeletPath+`\pods`, 0o700))
	program = filepath.Join(dir, "published", "csi-proxy.exe")
	copyProgram(t, published, program, "")
	log = filepath.Join(dir, "csi-proxy.log")
	manager, err := mgr.Connect()
	must(t, err)
	defer manager.Disconnect()
	s, err := manager.CreateService("csiproxy", program,
		mgr.Config{DisplayName: displayName + " (published)", StartType: mgr.StartManual},
		"-windows-service", "-log_file="+log, "-logtostderr=false")
	must(t, err)
	m = managed{t, "csiproxy"}
	// Not by csi-proxyctl, which leaves this daemon's service where it is.
	t.Cleanup(func() {
		must(t, winservice.Uninstall(context.Background(), winservice.Services{}, slog.New(slog.DiscardHandler), m.name))
	})
	must(t, errors.Join(s.Start(), s.Close()))
	address := pipePath("filesystem", "v1")
	if !eventually(func() bool { conn, err := winio.DialPipe(address, nil); return err == nil && conn.Close() == nil }) {
		t.Fatal("the published daemon doesn't serve")
	}
	return m, program, log
}

// stopAsScripts stops the service as sc.exe does: the published daemon's process stays.
func stopAsScripts(t *testing.T, name string) {
	t.Helper()
	manager, err := mgr.Connect()
	must(t, err)
	defer manager.Disconnect()
	s, err := manager.OpenService(name)
	must(t, err)
	defer s.Close()
	if _, err := s.Control(svc.Stop); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { status, err := s.Query(); return err == nil && status.State == svc.Stopped }) {
		t.Fatal("the published daemon's service doesn't stop")
	}
	if _, err := winio.DialPipe(pipePath("filesystem", "v1"), nil); err != nil {
		t.Fatalf("the published daemon gives up its pipes when it is stopped: %v", err)
	}
}

// The published daemon runs, or was stopped and holds the pipes all the same. Ours takes
// its place, and gives it back.
func TestReplacePublished(t *testing.T) {
	for name, stopped := range map[string]bool{"running": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			m, program, log := publishedService(t)
			before := m.state()
			if stopped {
				stopAsScripts(t, m.name)
			} else {
				defer dependent(t, m.name)()
				process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, before.ProcessID)
				must(t, err)
				defer func() {
					if err := processEnds(process); err != nil {
						t.Error(err)
					}
					windows.CloseHandle(process)
				}()
			}
			ours := filepath.Join(adminsOnly(t), "csi-proxy.exe")
			copyProgram(t, daemonProgram, ours, "")
			m.name = "" // csi-proxyctl finds it

			if _, err := m.ctl("install", ours); err == nil || !strings.Contains(err.Error(), "--replace") {
				t.Errorf("install without --replace: %v", err)
			}
			if _, err := m.ctl("install", failingDaemon(t, daemonProgram, endsAtOnce), "--replace"); err == nil ||
				!strings.Contains(err.Error(), "rolled back") {
				t.Errorf("a daemon that doesn't serve: %v", err)
			}
			if after := m.state(); after.CommandLine != before.CommandLine ||
				after.State != map[bool]string{true: "stopped", false: "running"}[stopped] {
				t.Errorf("after the rollback %+v, before %+v", after, before)
			}

			for range 2 {
				m.mustCtl("install", ours, "--replace", "--", "-v=2")
			}
			m.wantServing()
			after := m.state()
			if want := ours + " -windows-service -log_file=" + log + " -logtostderr=false -v=2"; after.CommandLine != want ||
				after.Replaced != before.CommandLine {
				t.Errorf("replaced: %+v, want the command line %s", after, want)
			}
			if versions, err := exec.Command(ctlProgram, "versions").CombinedOutput(); err != nil ||
				!strings.Contains(string(versions), "storage") {
				t.Errorf("the versions that are served: %v\n%s", err, versions)
			}

			m.mustCtl("uninstall", "--restore")
			if restored := m.state(); restored.CommandLine != before.CommandLine || (restored.State == "running") == stopped ||
				restored.Replaced != "" {
				t.Errorf("restored %+v, before %+v", restored, before)
			}
			if _, err := os.Stat(program); err != nil {
				t.Error(err)
			}
			m.name = "csiproxy"
		})
	}
}

// csi-proxyctl is killed at any moment of a replacement. The node is never without both
// daemons' programs, and the next run ends with ours serving.
func TestReplaceKilled(t *testing.T) {
	m, program, _ := publishedService(t)
	before := m.state()
	ours := filepath.Join(adminsOnly(t), "csi-proxy.exe")
	copyProgram(t, daemonProgram, ours, "")
	killed := 0
	// The published daemon's process is ended some seconds after its service has stopped.
	for _, after := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second, 6 * time.Second} {
		if killedAfter(t, after, "install", "--name", m.name, "--replace", ours) {
			killed++
		}
		if now := m.state().CommandLine; now != before.CommandLine && !strings.HasPrefix(now, ours) {
			t.Errorf("after a death the service's command line is %s", now)
		}
	}
	t.Logf("%d of 4 replacements were cut off", killed)
	m.mustCtl("install", "--replace", ours)
	m.wantServing()
	if after := m.state(); !strings.HasPrefix(after.CommandLine, ours) || after.Replaced != before.CommandLine {
		t.Errorf("replaced: %+v", after)
	}
	m.mustCtl("uninstall", "--restore")
	if restored := m.state(); restored.CommandLine != before.CommandLine || restored.State != "running" {
		t.Errorf("restored %+v, before %+v", restored, before)
	}
	if _, err := os.Stat(program); err != nil {
		t.Error(err)
	}
}
