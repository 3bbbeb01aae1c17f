// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// restartDelay is the wait before a failed service is started again.
const restartDelay = 10 * time.Second

// installRights are the rights that install needs. Recovery actions that restart a
// service need the right to start it.
//
// https://learn.microsoft.com/en-us/windows/win32/services/service-security-and-access-rights
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_failure_actionsw
const installRights = windows.SERVICE_QUERY_CONFIG | windows.SERVICE_CHANGE_CONFIG | windows.SERVICE_START

// description is what the service manager's window says of a service that Configure has made.
const description = "Serves the storage operations of this node to CSI drivers"

// restarts starts a service again after any failure, whether it crashed or reported it.
var restarts = Recovery{Always: true,
	Actions: []RecoveryAction{{Type: mgr.ServiceRestart, Milliseconds: uint32(restartDelay.Milliseconds())}}}

// Services is the service manager of this Windows, for package deployment.
type Services struct{}

var _ Manager = Services{}

// Configure gives a service these settings, which the next start takes. A missing service is made, as
// LocalSystem, with a description. The service becomes a source of the Event Log. A Windows without recovery
// actions ignores these.
//
// A deleted service exists until its last handle is closed, and until then is csiproxy.ErrUnavailable.
func (Services) Configure(name string, settings Settings) (err error) {
	defer describe("InstallService", name, &err)
	if err := win.CheckServiceName(name); err != nil {
		return err
	}
	name16, err1 := windows.UTF16PtrFromString(name)
	line, err2 := windows.UTF16PtrFromString(settings.CommandLine)
	if err := errors.Join(err1, err2); err != nil {
		return invalid("text of the service: %w", err)
	}
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT|windows.SC_MANAGER_CREATE_SERVICE)
	if err != nil {
		return fmt.Errorf("open service manager: %w", err)
	}
	defer windows.CloseServiceHandle(m) // nothing depends on it
	handle, err := windows.OpenService(m, name16, installRights)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		handle, err = create(m, name16, line, settings.Start)
	}
	if err != nil {
		return fmt.Errorf("open or make service: %w", err)
	}
	s := &mgr.Service{Name: name, Handle: handle}
	defer s.Close() // what is done is done
	if err := windows.ChangeServiceConfig(handle, windows.SERVICE_NO_CHANGE, uint32(settings.Start), windows.SERVICE_NO_CHANGE,
		line, nil, nil, nil, nil, nil, nil); err != nil {
		return fmt.Errorf("change service: %w", err)
	}
	if settings.Recovery != nil {
		if err := setRecovery(s, *settings.Recovery); err != nil && !errors.Is(err, windows.ERROR_INVALID_LEVEL) {
			return fmt.Errorf("set recovery actions: %w", err)
		}
	}
	if err := installSource(name); err != nil {
		return fmt.Errorf("register event log source: %w", err)
	}
	return nil
}

func create(m windows.Handle, name, line *uint16, start StartType) (windows.Handle, error) {
	handle, err := windows.CreateService(m, name, name, installRights, windows.SERVICE_WIN32_OWN_PROCESS, uint32(start),
		windows.SERVICE_ERROR_NORMAL, line, nil, nil, nil, nil /* LocalSystem */, nil)
	if err != nil {
		return 0, err
	}
	text, err := windows.UTF16PtrFromString(description)
	if err == nil {
		err = windows.ChangeServiceConfig2(handle, windows.SERVICE_CONFIG_DESCRIPTION,
			(*byte)(unsafe.Pointer(&windows.SERVICE_DESCRIPTION{Description: text})))
	}
	if err != nil {
		return 0, errors.Join(err, windows.CloseServiceHandle(handle))
	}
	return handle, nil
}

// DeleteService implements [Manager]. It also removes the source of the Event Log.
func (Services) DeleteService(name string) (err error) {
	defer describe("UninstallService", name, &err)
	s, err := open(name, windows.DELETE)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return uninstallSource(name)
	}
	if err != nil {
		return err
	}
	if err = s.Delete(); errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
		err = nil
	}
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	return uninstallSource(name)
}

// Query implements [Manager].
func (Services) Query(name string) (_ Status, err error) {
	defer describe("QueryService", name, &err)
	s, err := open(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return Status{}, err
	}
	defer s.Close() // nothing depends on it
	state, err := s.Query()
	if err != nil {
		return Status{}, fmt.Errorf("query service: %w", err)
	}
	status := Status{State: State(state.State), ProcessID: state.ProcessId, ExitCode: state.Win32ExitCode,
		SpecificExitCode: state.ServiceSpecificExitCode}
	if err := queryConfig(s, &status); err != nil {
		return Status{}, err
	}
	if status.Wrapped, err = wrapped(name, status.CommandLine); err != nil {
		return Status{}, err
	}
	if err := queryRecovery(s, &status.Settings); err != nil && !errors.Is(err, windows.ERROR_INVALID_LEVEL) {
		return Status{}, err
	}
	return status, nil
}

// open opens the service with the rights given.
func open(name string, rights uint32) (*mgr.Service, error) {
	if err := win.CheckServiceName(name); err != nil {
		return nil, err
	}
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		return nil, fmt.Errorf("open service manager: %w", err)
	}
	defer windows.CloseServiceHandle(m) // nothing depends on it
	name16, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return nil, err
	}
	handle, err := windows.OpenService(m, name16, rights)
	if err != nil {
		return nil, fmt.Errorf("open service: %w", err)
	}
	return &mgr.Service{Name: name, Handle: handle}, nil
}

// queryConfig is mgr.Service.Config without the parts that Wine doesn't have.
func queryConfig(s *mgr.Service, status *Status) error {
	// No configuration is longer.
	// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/nf-winsvc-queryserviceconfigw
	var buffer [8 << 10 / 8]uint64 // aligned for pointers
	var needed uint32
	config := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buffer))
	if err := windows.QueryServiceConfig(s.Handle, config, uint32(unsafe.Sizeof(buffer)), &needed); err != nil {
		return fmt.Errorf("query service configuration: %w", err)
	}
	status.Start, status.CommandLine = StartType(config.StartType), windows.UTF16PtrToString(config.BinaryPathName)
	status.Account = windows.UTF16PtrToString(config.ServiceStartName)
	return nil
}

// CommandLine returns the command line that starts program with the arguments,
// quoted where needed. A quotation mark in program, or a NUL, can't be quoted and is
// csiproxy.ErrInvalidArgument.
func (Services) CommandLine(program string, args ...string) (_ string, err error) {
	defer describe("InstallService", "", &err)
	line := windows.ComposeCommandLine(append([]string{program}, args...))
	switch {
	case program == "":
		return "", invalid("the program is missing")
	case strings.ContainsAny(program, "\"\x00") || strings.Contains(line, "\x00"):
		return "", invalid("a quotation mark in the program, and a NUL, can't be quoted")
	}
	return line, nil
}

func invalid(format string, args ...any) error {
	return &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Err: fmt.Errorf(format, args...)}
}

// describe turns *err into an error of op on the service. Defer it.
func describe(op, name string, err *error) {
	if *err == nil {
		return
	}
	described := &csiproxy.Error{Op: op, Object: strings.TrimSpace("service " + name), Err: *err}
	if errno := windows.Errno(0); errors.As(*err, &errno) {
		described.WindowsError = uint32(errno)
		described.Kind = kinds[errno]
	}
	*err = described
}

// kinds has the classes of those errors of the manager for which csiproxy.KindOf has
// none.
var kinds = map[windows.Errno]error{
	windows.ERROR_DEPENDENT_SERVICES_RUNNING: csiproxy.ErrFailedPrecondition,
	windows.ERROR_SERVICE_DOES_NOT_EXIST:     csiproxy.ErrNotFound,
	windows.ERROR_SERVICE_MARKED_FOR_DELETE:  csiproxy.ErrUnavailable,
}
