// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// What is taken from golang.org/x/sys/windows for services.
func TestServiceABI(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	abi.Check(abitest.Constants{
		"SC_MANAGER_CONNECT":           windows.SC_MANAGER_CONNECT,
		"SC_STATUS_PROCESS_INFO":       windows.SC_STATUS_PROCESS_INFO,
		"SERVICE_QUERY_CONFIG":         windows.SERVICE_QUERY_CONFIG,
		"SERVICE_QUERY_STATUS":         windows.SERVICE_QUERY_STATUS,
		"SERVICE_START":                windows.SERVICE_START,
		"SERVICE_STOP":                 windows.SERVICE_STOP,
		"SERVICE_ENUMERATE_DEPENDENTS": windows.SERVICE_ENUMERATE_DEPENDENTS,
		"SERVICE_ACTIVE":               windows.SERVICE_ACTIVE,
		"SERVICE_CONTROL_STOP":         windows.SERVICE_CONTROL_STOP,
		"SERVICE_BOOT_START":           uint64(win.ServiceBootStart),
		"SERVICE_SYSTEM_START":         uint64(win.ServiceSystemStart),
		"SERVICE_AUTO_START":           uint64(win.ServiceAutoStart),
		"SERVICE_DEMAND_START":         uint64(win.ServiceDemandStart),
		"SERVICE_DISABLED":             uint64(win.ServiceDisabled),
		"SERVICE_STOPPED":              uint64(win.ServiceStopped),
		"SERVICE_START_PENDING":        uint64(win.ServiceStartPending),
		"SERVICE_STOP_PENDING":         uint64(win.ServiceStopPending),
		"SERVICE_RUNNING":              uint64(win.ServiceRunning),
		"SERVICE_CONTINUE_PENDING":     uint64(win.ServiceContinuePending),
		"SERVICE_PAUSE_PENDING":        uint64(win.ServicePausePending),
		"SERVICE_PAUSED":               uint64(win.ServicePaused),
	})
	var config windows.QUERY_SERVICE_CONFIG
	var status windows.SERVICE_STATUS_PROCESS
	var dependent windows.ENUM_SERVICE_STATUS
	abi.CheckSizes(map[string]uintptr{
		"QUERY_SERVICE_CONFIGW":  unsafe.Sizeof(config),
		"SERVICE_STATUS":         unsafe.Sizeof(windows.SERVICE_STATUS{}),
		"SERVICE_STATUS_PROCESS": unsafe.Sizeof(status),
		"ENUM_SERVICE_STATUSW":   unsafe.Sizeof(dependent),
	})
	abi.CheckOffsets(map[string]uintptr{
		"QUERY_SERVICE_CONFIGW.dwStartType":                unsafe.Offsetof(config.StartType),
		"QUERY_SERVICE_CONFIGW.lpDisplayName":              unsafe.Offsetof(config.DisplayName),
		"SERVICE_STATUS_PROCESS.dwCurrentState":            unsafe.Offsetof(status.CurrentState),
		"SERVICE_STATUS_PROCESS.dwWin32ExitCode":           unsafe.Offsetof(status.Win32ExitCode),
		"SERVICE_STATUS_PROCESS.dwServiceSpecificExitCode": unsafe.Offsetof(status.ServiceSpecificExitCode),
		"ENUM_SERVICE_STATUSW.lpServiceName":               unsafe.Offsetof(dependent.ServiceName),
	})
}

// asService as the first argument makes the test binary a service. The second one
// says what it does.
const asService = "-as-service-of-a-test"

// controlEnd ends a service whatever it does.
const controlEnd svc.Cmd = 128

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asService {
		if err := svc.Run("", behaviour(os.Args[2])); err != nil {
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// behaviour is what a service of a test does: "runs", "does not stop" or "fails",
// which it does in the end.
type behaviour string

// failure is the exit code of a service that fails.
const failure = 7

func (b behaviour) Execute(_ []string, requests <-chan svc.ChangeRequest,
	status chan<- svc.Status) (specific bool, code uint32) {
	running := svc.Status{State: svc.Running}
	if b != "does not stop" {
		running.Accepts = svc.AcceptStop
	}
	status <- running
	for r := range requests {
		switch r.Cmd {
		case svc.Interrogate:
			status <- r.CurrentStatus
		case svc.Stop, controlEnd:
			if b == "fails" {
				return true, failure
			}
			return false, 0
		}
	}
	return false, 0
}

// createService creates a service for the time of a test, which needs others.
func createService(t *testing.T, name string, startType win.ServiceStartType, does behaviour, needs ...string) {
	t.Helper()
	manager, err := mgr.Connect()
	if err == windows.ERROR_ACCESS_DENIED {
		t.Skip("only an administrator may create services")
	}
	must(t, err)
	defer manager.Disconnect()
	program, err := os.Executable()
	must(t, err)
	config := mgr.Config{DisplayName: name + " ☃", StartType: uint32(startType), Dependencies: needs}
	var service *mgr.Service
	// A service that a test before has deleted keeps its name until the last handle to it is closed.
	must(t, operation.Retry(t.Context(), 30*time.Second, 10*time.Millisecond, nil, func() error {
		service, err = manager.CreateService(name, program, config, asService, string(does), strings.Repeat("long", 500))
		return err
	}))
	t.Cleanup(func() {
		if _, err := service.Control(controlEnd); err == nil {
			awaitState(t, name, win.ServiceStopped)
		}
		if err := service.Delete(); err != nil {
			t.Error(err)
		}
		service.Close()
	})
}

// awaitState waits until a service is in a state. What takes longer than the
// deadline hangs.
func awaitState(t *testing.T, name string, want win.ServiceState) win.Service {
	t.Helper()
	s := newSystem(t)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		got, err := s.QueryService(context.WithoutCancel(t.Context()), name) // also in a cleanup
		must(t, err)
		if got.State == want {
			return got
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is in state %d; want %d", name, got.State, want)
		}
	}
}

func TestServiceThatIsNew(t *testing.T) {
	const name = "csi-proxy-wintest-winsys"
	createService(t, name, win.ServiceDemandStart, "runs")
	// ERROR_SERVICE_NEVER_STARTED
	want := win.Service{DisplayName: name + " ☃", StartType: win.ServiceDemandStart, State: win.ServiceStopped,
		ExitCode: 1077}
	got, err := newSystem(t).QueryService(t.Context(), name)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestServiceThatFails(t *testing.T) {
	const name = "csi-proxy-wintest-winsys-fails"
	createService(t, name, win.ServiceDemandStart, "fails")
	s := newSystem(t)
	must(t, s.StartService(t.Context(), name))
	awaitState(t, name, win.ServiceRunning)
	must(t, s.StopService(t.Context(), name))
	got := awaitState(t, name, win.ServiceStopped)
	if got.ExitCode != winerr.ErrorServiceSpecificError || got.SpecificExitCode != failure {
		t.Errorf("it ended with %v, %d", got.ExitCode, got.SpecificExitCode)
	}
}

func TestServiceThatDoesNotStop(t *testing.T) {
	const name = "csi-proxy-wintest-winsys-does-not-stop"
	createService(t, name, win.ServiceDemandStart, "does not stop")
	s := newSystem(t)
	must(t, s.StartService(t.Context(), name))
	awaitState(t, name, win.ServiceRunning)
	wantErrno(t, "stopping it", s.StopService(t.Context(), name), winerr.ErrorInvalidServiceControl)
}

// Protected services answer those who ask for no more than they need.
func TestServiceOfWindows(t *testing.T) {
	got, err := newSystem(t).QueryService(t.Context(), "RpcSs")
	if err != nil || got.DisplayName == "" {
		t.Errorf("%+v, %v", got, err)
	}
}
