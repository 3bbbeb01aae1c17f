// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// asService as the first argument makes the test binary a service. The second one
// says what it does, the third one is a directory for what it writes.
const asService = "-as-service-of-a-test"

var services Services

// exitNotManaged is the exit code of the service on a console.
const exitNotManaged = 3

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == asService {
		os.Exit(serviceMain(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

func serviceMain(does, dir string) int {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return 1
	}
	fail := func(ctx context.Context, ready func()) error {
		ready()
		for {
			if _, err := os.Stat(filepath.Join(dir, "fail")); err == nil {
				return errRun
			}
			if err := wait(ctx); err != nil {
				return err
			}
		}
	}
	run := map[string]func(ctx context.Context, ready func()) error{
		"runs": func(ctx context.Context, ready func()) error {
			ready()
			<-ctx.Done()
			return os.WriteFile(filepath.Join(dir, "cause"), []byte(context.Cause(ctx).Error()), 0o600)
		},
		"fails":          fail,
		"fails silently": fail,
		"crashes":        func(ctx context.Context, ready func()) error { fail(ctx, ready); os.Exit(1); return nil },
		// As the published daemon, which doesn't know the control.
		"ignores leave": func(ctx context.Context, ready func()) error {
			ready()
			<-ctx.Done()
			if context.Cause(ctx) == stopCauses[svc.Cmd(ControlLeave)] {
				select {}
			}
			return nil
		},
		"hangs": func(_ context.Context, ready func()) error { ready(); select {} },
	}[strings.NewReplacer("lingers", "runs", "outlives", "runs").Replace(does)]
	crashes := restartsCrashesOnly
	if does == "fails silently" {
		crashes = func(string) (bool, error) { return true, nil }
	}
	options := Options{StartTimeout: time.Minute, StopTimeout: time.Second, Log: slog.New(slog.NewTextHandler(log, nil))}
	err = newHandler(run, options, crashes, extendPreshutdown).dispatch()
	switch does {
	case "lingers":
		time.Sleep(5 * pollInterval)
	case "outlives": // as the published daemon does
		select {}
	}
	switch {
	case errors.Is(err, ErrNotManaged) && errors.Is(err, windows.ERROR_FAILED_SERVICE_CONTROLLER_CONNECT):
		return exitNotManaged
	case err != nil:
		options.Log.Error("ends", "err", err)
		return 1
	}
	return 0
}

// timeout bounds what takes seconds at most, so that a hang fails one test, whose
// service is then removed, and doesn't end the whole program.
const timeout = time.Minute

var discard = slog.New(slog.DiscardHandler)

// testService is a service that is removed at the end of its test.
type testService struct {
	Settings
	Name string
	dir  string
}

// newService returns a service to install, whose program is this one.
func newService(t *testing.T, does string) *testService {
	t.Helper()
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CREATE_SERVICE)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		t.Skip("only an administrator may install services")
	}
	must(t, err)
	windows.CloseServiceHandle(m)

	s := &testService{dir: t.TempDir()}
	program := filepath.Join(s.dir, "csi-proxy of a test.exe")
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(program, self, 0o700))
	commandLine, err := services.CommandLine(program, asService, does, s.dir)
	must(t, err)
	s.Name = fmt.Sprintf("csi-proxy-wintest-service-%d", os.Getpid())
	s.Settings = Settings{CommandLine: commandLine, Start: Automatic, Recovery: &restarts}
	t.Cleanup(func() {
		must(t, Uninstall(context.Background(), services, discard, s.Name))
	})
	return s
}

func (s *testService) install(t *testing.T) {
	t.Helper()
	must(t, services.Configure(s.Name, s.Settings))
}

func (s *testService) query(t *testing.T) Status {
	t.Helper()
	status, err := services.Query(s.Name)
	must(t, err)
	return status
}

func (s *testService) open(t *testing.T, rights uint32) *mgr.Service {
	t.Helper()
	opened, err := open(s.Name, rights)
	must(t, err)
	t.Cleanup(func() { opened.Close() })
	return opened
}

func (s *testService) start(t *testing.T) Status {
	t.Helper()
	opened, err := open(s.Name, windows.SERVICE_START)
	must(t, err)
	must(t, errors.Join(opened.Start(), opened.Close()))
	return s.await(t, Running)
}

func (s *testService) stop(t *testing.T) {
	t.Helper()
	opened, err := open(s.Name, windows.SERVICE_STOP)
	must(t, err)
	_, err = opened.Control(svc.Stop)
	must(t, errors.Join(err, opened.Close()))
}

// endProcess calls end, and checks that the service's process ends within some time after that.
func (s *testService) endProcess(t *testing.T, within time.Duration, end func()) {
	t.Helper()
	process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, s.query(t).ProcessID)
	must(t, err)
	defer windows.CloseHandle(process)
	end()
	if event, err := windows.WaitForSingleObject(process, uint32(within.Milliseconds())); err != nil ||
		event != windows.WAIT_OBJECT_0 {
		t.Fatalf("the process: %#x, %v", event, err)
	}
}

func (s *testService) await(t *testing.T, want State) Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for {
		status := s.query(t)
		if status.State == want {
			return status
		}
		if err := wait(ctx); err != nil {
			t.Fatalf("state %v, want %v: %v", status.State, want, err)
		}
	}
}

func (s *testService) read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, name))
	must(t, err)
	return string(content)
}

func TestServiceLife(t *testing.T) {
	s := newService(t, "runs")
	s.install(t)
	want := Status{
		Settings: s.Settings,
		State:    Stopped,
		ExitCode: uint32(windows.ERROR_SERVICE_NEVER_STARTED),
		Account:  "LocalSystem",
	}
	got := s.query(t)
	if got.Recovery == nil { // Wine keeps none
		want.Recovery = nil
	}
	if got.ExitCode == 0 { // Wine doesn't tell
		want.ExitCode = 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("installed (-want +got):\n%s", diff)
	}

	status := s.start(t)
	if status.ProcessID == 0 || status.ExitCode != 0 {
		t.Errorf("running: %+v", status)
	}
	s.endProcess(t, timeout, func() { s.stop(t) })
	if status := s.await(t, Stopped); status.ExitCode != 0 {
		t.Errorf("stopped: %+v", status)
	}
	if got, want := s.read(t, "cause"), stopCauses[svc.Stop].Error(); got != want {
		t.Errorf("stopped because %q, want %q", got, want)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], asService, "runs", s.dir)
	if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != exitNotManaged {
		t.Errorf("on a console it ends with %v: %s", err, s.read(t, "log"))
	}

	s.start(t)
}

// A service that was removed leaves neither a process nor a file in use.
func TestUninstallEndsProcess(t *testing.T) {
	for _, does := range []string{"runs", "hangs", "lingers", "outlives"} {
		t.Run(does, func(t *testing.T) {
			s := newService(t, does)
			s.install(t)
			s.start(t)
			s.endProcess(t, 0, func() {
				for range 2 { // the second one does nothing
					must(t, Uninstall(t.Context(), services, discard, s.Name))
				}
			})
			if _, err := services.Query(s.Name); !errors.Is(err, csiproxy.ErrNotFound) {
				t.Errorf("Query gives %v", err)
			}
			must(t, os.Remove(filepath.Join(s.dir, "csi-proxy of a test.exe")))
		})
	}
}

func TestFailureIsReported(t *testing.T) {
	for does, want := range map[string]Status{
		"fails":          {ExitCode: uint32(windows.ERROR_SERVICE_SPECIFIC_ERROR), SpecificExitCode: ExitFailed},
		"fails silently": {ExitCode: uint32(windows.ERROR_PROCESS_ABORTED)},
		"crashes":        {ExitCode: uint32(windows.ERROR_PROCESS_ABORTED)},
	} {
		t.Run(does, func(t *testing.T) {
			s := newService(t, does)
			s.install(t)
			s.start(t)
			s.endProcess(t, timeout, func() {
				must(t, os.WriteFile(filepath.Join(s.dir, "fail"), nil, 0o600))
			})
			if log := s.read(t, "log"); does != "crashes" && !strings.Contains(log, errRun.Error()) {
				t.Errorf("the log is %q", log)
			}
			status := s.await(t, Stopped)
			if got := (Status{ExitCode: status.ExitCode, SpecificExitCode: status.SpecificExitCode}); got != want {
				t.Errorf("exit code %d, specific %d; want %d, %d", got.ExitCode, got.SpecificExitCode, want.ExitCode,
					want.SpecificExitCode)
			}
		})
	}
}

// A service that was made without a time to wait at a shutdown, or with a short one,
// gets the time that it needs when it has started. A longer one stays.
func TestPreshutdown(t *testing.T) {
	s := newService(t, "runs")
	s.install(t)
	opened := s.open(t, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_CHANGE_CONFIG)
	want := func(want time.Duration) {
		t.Helper()
		if got, err := preshutdown(opened); got != want || err != nil {
			t.Errorf("the system waits %v, %v; want %v", got, err, want)
		}
	}
	for _, tt := range []struct{ set, needed, want time.Duration }{
		{10 * time.Second, 30 * time.Second, 30 * time.Second},
		{30 * time.Second, 30 * time.Second, 30 * time.Second},
		{3 * time.Minute, 30 * time.Second, 3 * time.Minute},
		{10 * time.Second, 100 * 24 * time.Hour, math.MaxUint32 * time.Millisecond},
	} {
		must(t, setPreshutdown(opened, tt.set))
		if err := extendPreshutdown(s.Name, tt.needed); err != nil {
			t.Errorf("%v, then %v: %v", tt.set, tt.needed, err)
		}
		want(tt.want)
	}
	if err := extendPreshutdown(s.Name+"-missing", time.Second); !errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		t.Errorf("a missing service: %v", err)
	}
}

func TestRecovery(t *testing.T) {
	s := newService(t, "runs")
	s.install(t)
	opened := s.open(t, windows.SERVICE_QUERY_CONFIG)
	actions, err := opened.RecoveryActions()
	if errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		t.Skip("this system keeps no recovery actions, as Wine doesn't")
	}
	must(t, err)
	if diff := cmp.Diff([]mgr.RecoveryAction{{Type: mgr.ServiceRestart, Delay: 10 * time.Second}}, actions); diff != "" {
		t.Errorf("recovery actions (-want +got):\n%s", diff)
	}
	if crashesOnly, err := restartsCrashesOnly(s.Name); crashesOnly || err != nil {
		t.Errorf("restarts crashes only: %v, %v", crashesOnly, err)
	}
	for _, want := range []Recovery{
		{Actions: []RecoveryAction{{mgr.ServiceRestart, 1000}, {mgr.NoAction, 0}}, ResetSeconds: 60},
		{Actions: []RecoveryAction{{mgr.ServiceRestart, 10_000}}, Always: true},
		{}, // as of a service that sc.exe create made
		{Actions: []RecoveryAction{{mgr.ServiceRestart, 10_000}}, Always: true},
	} {
		settings := s.settings(t)
		settings.Recovery = &want
		must(t, services.Configure(s.Name, settings))
		if diff := cmp.Diff(&want, s.settings(t).Recovery); diff != "" {
			t.Errorf("restored recovery (-want +got):\n%s", diff)
		}
	}
	for _, has := range []Recovery{{}, {Actions: []RecoveryAction{{mgr.NoAction, 0}}}, restarts} {
		settings := s.settings(t)
		settings.Recovery = &has
		must(t, services.Configure(s.Name, settings))
		must(t, addRecovery(s.Name))
		want := has
		if len(has.Actions) == 0 {
			want = restarts
		}
		if diff := cmp.Diff(&want, s.settings(t).Recovery); diff != "" {
			t.Errorf("recovery at the start (-want +got):\n%s", diff)
		}
	}
	// What sc.exe failure sets.
	must(t, s.open(t, installRights).SetRecoveryActionsOnNonCrashFailures(false))
	if crashesOnly, err := restartsCrashesOnly(s.Name); !crashesOnly || err != nil {
		t.Errorf("restarts crashes only: %v, %v", crashesOnly, err)
	}
}

// A service that was removed and that somebody holds open can be made again once that is closed.
func TestInstallAfterDeletion(t *testing.T) {
	s := newService(t, "runs")
	s.install(t)
	held := s.open(t, windows.SERVICE_QUERY_STATUS)
	must(t, Uninstall(t.Context(), services, discard, s.Name))
	if err := services.Configure(s.Name, s.Settings); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("Configure while the service is held open: %v", err)
	}
	must(t, held.Close())
	s.install(t)
	s.query(t)
}

func TestInstallRefuses(t *testing.T) {
	valid := newService(t, "runs")
	for name, service := range map[string]string{"no name": "", "long name": strings.Repeat("x", 257),
		"registry path": `Application Error\x`, "path": "csi/proxy", "NUL": "csi\x00proxy"} {
		for what, err := range map[string]error{
			"Configure": services.Configure(service, valid.Settings),
			"Uninstall": Uninstall(t.Context(), services, discard, service),
		} {
			if !errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
	}
	nul := valid.Settings
	nul.CommandLine += "\x00"
	if err := services.Configure(valid.Name, nul); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Errorf("NUL in the command line: %v", err)
	}
	if _, err := services.Query(valid.Name); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("Query gives %v", err)
	}
}

// While a service that depends on this one runs, Stop alone is refused. With leave, this one ends in an orderly way,
// or by force if it doesn't know the control, and the other one runs on. Uninstall is refused until that is gone.
func TestDependents(t *testing.T) {
	for _, does := range []string{"runs", "ignores leave"} {
		t.Run(does, func(t *testing.T) {
			s := newService(t, does)
			s.install(t)
			s.start(t)
			dependent := newService(t, "runs")
			dependent.Name += "-dependent"
			manager, err := mgr.Connect()
			must(t, err)
			defer manager.Disconnect()
			program, args, err := services.SplitCommandLine(dependent.CommandLine)
			must(t, err)
			created, err := manager.CreateService(dependent.Name, program,
				mgr.Config{StartType: mgr.StartManual, Dependencies: []string{s.Name}}, args...)
			must(t, err)
			must(t, created.Close())
			before := dependent.start(t)

			var m Manager = services
			if names, err := services.Dependents(s.Name, false); len(names) == 0 && err == nil {
				t.Log("this system looks at no dependents, as Wine doesn't")
				m = refusing{dependent: dependent.Name}
			}
			for _, active := range []bool{false, true} {
				if names, err := m.Dependents(s.Name, active); !slices.Equal(names, []string{dependent.Name}) || err != nil {
					t.Errorf("active %v: %q, %v", active, names, err)
				}
			}
			for what, err := range map[string]error{
				"Uninstall": Uninstall(t.Context(), m, discard, s.Name),
				"Stop":      Stop(t.Context(), m, discard, s.Name, false),
			} {
				if !errors.Is(err, ErrDependents) || !errors.Is(err, csiproxy.ErrFailedPrecondition) ||
					!strings.Contains(err.Error(), dependent.Name) {
					t.Errorf("%s: %v", what, err)
				}
			}
			s.endProcess(t, 0, func() {
				must(t, Stop(t.Context(), m, discard, s.Name, true))
			})
			if want := stopCauses[svc.Cmd(ControlLeave)].Error(); does == "runs" && s.read(t, "cause") != want {
				t.Errorf("it ends because %q, want %q", s.read(t, "cause"), want)
			}
			must(t, Start(t.Context(), services, s.Name))
			if after := dependent.query(t); after.State != Running || after.ProcessID != before.ProcessID {
				t.Errorf("the dependent %+v, before %+v", after, before)
			}
			must(t, Uninstall(t.Context(), services, discard, dependent.Name))
		})
	}
}

// refusing is a system that looks at the dependents of a service.
type refusing struct {
	Services
	dependent string
}

func (r refusing) Dependents(string, bool) ([]string, error) { return []string{r.dependent}, nil }

func (r refusing) ControlService(name string, control Control) error {
	if control == ControlStop {
		return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Detail: r.dependent, Err: ErrDependents}
	}
	return r.Services.ControlService(name, control)
}

func TestCommandLine(t *testing.T) {
	// OpenShift compares the line with this one.
	const openShift = `C:\k\csi-proxy.exe -log_file=C:\var\log\csi-proxy\csi-proxy.log -logtostderr=false -windows-service --v=2`
	fields := strings.Fields(openShift)
	if got, err := services.CommandLine(fields[0], fields[1:]...); got != openShift || err != nil {
		t.Errorf("got %s, %v", got, err)
	}

	args := []string{`C:\Program Files\csi-proxy.exe`, `-a=b c\`, `-d="e"`, ``, `\\?\f\`}
	line, err := services.CommandLine(args[0], args[1:]...)
	must(t, err)
	got, err := windows.DecomposeCommandLine(line)
	must(t, err)
	if diff := cmp.Diff(args, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", line, diff)
	}

	for _, args := range [][]string{{""}, {`C:\a"b.exe`}, {"C:\\a\x00.exe"}, {`C:\a.exe`, "\x00"}} {
		if line, err := services.CommandLine(args[0], args[1:]...); !errors.Is(err, csiproxy.ErrInvalidArgument) ||
			strings.Contains(err.Error(), "CommandLine") { // a name of no command
			t.Errorf("%q: %q, %v", args, line, err)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
