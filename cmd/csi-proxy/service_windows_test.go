// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// daemonName makes the test binary, when it is a file of this name, the daemon.
const daemonName = "csi-proxy.exe"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == daemonName {
		main()
	}
	os.Exit(m.Run())
}

// timeout is for what the service manager does when it has time.
const timeout = time.Minute

// installedService is a service that is removed at the end of its test.
type installedService struct {
	*mgr.Service
	t *testing.T
}

// installDaemon installs the daemon as installers in the field do, which is not
// with package service.
func installDaemon(t *testing.T, name, program string, args ...string) *installedService {
	t.Helper()
	m, err := mgr.Connect()
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		t.Skip("only an administrator may install services")
	}
	must(t, err)
	defer m.Disconnect()
	s, err := m.CreateService(name, program, mgr.Config{StartType: mgr.StartManual}, args...)
	must(t, err)
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), winservice.Uninstall(context.Background(), winservice.Services{}, slog.Default(), name)); err != nil {
			t.Error(err)
		}
	})
	return &installedService{s, t}
}

// copyDaemon makes this program the daemon at a path.
func copyDaemon(t *testing.T, path string) {
	t.Helper()
	program, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, program, 0o700)
	}
	must(t, err)
}

// start starts the service and waits until it is in the state that is wanted.
func (s *installedService) start(want svc.State) svc.Status {
	s.t.Helper()
	must(s.t, s.Start())
	return s.await(want)
}

// await waits until the service is in a state. The manager can't be asked to tell.
func (s *installedService) await(want svc.State) svc.Status {
	s.t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		status, err := s.Query()
		must(s.t, err)
		if status.State == want {
			return status
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the service is in state %v, want %v", winservice.State(status.State), winservice.State(want))
		}
	}
}

// stop stops the service and waits until its process has ended.
func (s *installedService) stop() {
	s.t.Helper()
	status, err := s.Query()
	must(s.t, err)
	process, err := windows.OpenProcess(windows.SYNCHRONIZE, false, status.ProcessId)
	must(s.t, err)
	defer windows.CloseHandle(process)
	if _, err := s.Control(svc.Stop); err != nil {
		s.t.Fatal(err)
	}
	event, err := windows.WaitForSingleObject(process, uint32(timeout.Milliseconds()))
	if err != nil || event != windows.WAIT_OBJECT_0 {
		s.t.Fatalf("the stopped process has not ended: %#x, %v", event, err)
	}
	if status := s.await(svc.Stopped); status.Win32ExitCode != 0 {
		s.t.Errorf("the service stopped with error %d", status.Win32ExitCode)
	}
}

// wantServed checks that the daemon serves a call.
func wantServed(t *testing.T) {
	t.Helper()
	c := client.New()
	defer c.Close()
	if exists, err := c.Filesystem.PathExists(t.Context(), `C:\var\lib\kubelet`); err != nil || !exists {
		t.Errorf("PathExists of the kubelet directory: %v, %v", exists, err)
	}
}

// wantNoPipes checks that nobody has the pipes.
func wantNoPipes(t *testing.T) {
	t.Helper()
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			conn, err := pipe.Dial(t.Context(), pipe.Address("", api.EndpointName(group, version)))
			if err == nil {
				conn.Close()
			}
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %s: %v", group, version, err)
			}
		}
	}
}

// The service has every name that it has in the field, with the command line of
// OpenShift, and of the scripts that use sc.exe.
func TestService(t *testing.T) {
	for name, commandLine := range map[string]string{
		"csi-proxy":        `-log_file=LOG -logtostderr=false -windows-service --v=2`,
		"csiproxy":         `-windows-service -log_file=LOG -logtostderr=false`,
		"csi-proxy-server": `-windows-service -log_file=LOG -logtostderr=false`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			program := filepath.Join(dir, "k", daemonName)
			copyDaemon(t, program)
			log := filepath.Join(dir, "var", "log", "csi-proxy", "csi-proxy.log")
			args := strings.Fields(commandLine + " -node=simulated")
			for i := range args {
				args[i] = strings.Replace(args[i], "LOG", log, 1)
			}
			s := installDaemon(t, name, program, args...)
			for range 2 {
				s.start(svc.Running)
				wantServed(t)
				s.stop()
				wantNoPipes(t)
			}
			text, err := os.ReadFile(log)
			must(t, err)
			if !strings.HasPrefix(string(text), "Log file created at: ") {
				t.Errorf("the log begins without the line that OpenShift's tests look for:\n%s", text)
			}
			for _, line := range []string{`"csi-proxy starts"`, `"stopping" cause="the service manager stops the service"`,
				`"csi-proxy ends"`} {
				if n := strings.Count(string(text), line); n != 2 {
					t.Errorf("the log has %s %d times, want 2:\n%s", line, n, text)
				}
			}
		})
	}
}

// A service that can't work says so to the manager, whatever is wrong.
func TestServiceFails(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, daemonName)
	copyDaemon(t, program)
	for name, args := range map[string][]string{
		"flag":    {"-no-such-flag", "-windows-service"},
		"metrics": {"-windows-service", "-metrics-bind-address=nowhere", "-node=simulated"},
	} {
		t.Run(name, func(t *testing.T) {
			// The manager may need a moment to free the name of a removed service, so each case has its own.
			s := installDaemon(t, fmt.Sprintf("csi-proxy-wintest-fails-%s-%d", name, os.Getpid()), program, args...)
			// Wine's StartService looks at the service's state, and fails with 1053 if it has stopped already:
			// service_wait_for_startup in its programs/services/services.c.
			if err := s.Start(); !errors.Is(err, windows.ERROR_SERVICE_REQUEST_TIMEOUT) {
				must(t, err)
			}
			// The status of a service that was never started says error 1077.
			status := s.await(svc.Stopped)
			if status.Win32ExitCode != uint32(windows.ERROR_SERVICE_SPECIFIC_ERROR) ||
				status.ServiceSpecificExitCode != winservice.ExitFailed {
				t.Errorf("the service stopped with error %d, %d", status.Win32ExitCode, status.ServiceSpecificExitCode)
			}
			wantNoPipes(t)
		})
	}
}

// On a console the flag is an error: nobody would stop the service.
func TestServiceOnConsole(t *testing.T) {
	var stdout, stderr strings.Builder
	code := run(t.Context(), []string{"-windows-service", "-node=simulated"}, &stdout, &stderr, openNode)
	if code != exitFailed {
		t.Errorf("exit code %d, want %d", code, exitFailed)
	}
	if err := symlinkAt(t, ""); !errors.Is(err, csiproxy.ErrUnavailable) {
		t.Errorf("a call gives %v", err)
	}
}
