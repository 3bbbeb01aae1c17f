// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

const (
	// restartDelay is the wait before a failed service is started again.
	restartDelay = 10 * time.Second
	// pollInterval is how often the manager is asked about a change. Not all
	// versions of Windows announce these changes.
	pollInterval = 100 * time.Millisecond
)

// installRights are the rights that install needs. Recovery actions that restart a
// service need the right to start it.
//
// https://learn.microsoft.com/en-us/windows/win32/services/service-security-and-access-rights
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_failure_actionsw
const installRights = windows.SERVICE_QUERY_CONFIG | windows.SERVICE_CHANGE_CONFIG | windows.SERVICE_START

// restarts starts a service again after any failure, whether it crashed or reported it.
var restarts = Recovery{Always: true,
	Actions: []RecoveryAction{{Type: mgr.ServiceRestart, Milliseconds: uint32(restartDelay.Milliseconds())}}}

// Services is the service manager of this Windows, for package deployment.
type Services struct{}

// Install makes the service, or gives the existing one this configuration; if that one
// runs, the change takes effect at its next start. The service starts with the system,
// as LocalSystem if it is new, and is restarted ten seconds after a failure. If a
// service of another program has the name, Install returns
// csiproxy.ErrFailedPrecondition. It doesn't start the service.
//
// If a deleted service of the name still exists because somebody has it open, Install
// waits until it is gone or ctx ends.
func (Services) Install(ctx context.Context, config Config) (err error) {
	defer describe("InstallService", config.Name, &err)
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if err := winname.CheckService(config.Name); err != nil {
		return err
	}
	if err := checkCommandLine(config.CommandLine); err != nil {
		return err
	}
	if config.StopTimeout <= 0 {
		return invalid("the stop timeout is %v, must be longer than 0", config.StopTimeout)
	}
	s, err := createOrUpdate(ctx, config)
	if err != nil {
		return err
	}
	defer s.Close() // what is done is done

	if err := setDescription(s, config.Description); err != nil {
		return err
	}
	for _, optional := range []struct {
		what string
		err  error
	}{
		{"restart after a failure", setRecovery(s, restarts)},
		{"wait at a shutdown", setPreshutdown(s, config.StopTimeout)},
		{"delayed start", setDelayedStart(s, config.DelayedStart)},
		{"privileges", setPrivileges(s, config.Privileges)},
	} {
		switch {
		case errors.Is(optional.err, windows.ERROR_INVALID_LEVEL):
			config.Log.Warn("this Windows doesn't have a setting of services", "setting", optional.what, "err", optional.err)
		case optional.err != nil:
			return fmt.Errorf("set %q: %w", optional.what, optional.err)
		}
	}
	if err := installSource(config.Name); err != nil {
		return fmt.Errorf("register event log source: %w", err)
	}
	return nil
}

// createOrUpdate returns the service, opened with installRights. While an earlier one is
// being deleted it waits, without keeping it open.
func createOrUpdate(ctx context.Context, config Config) (*mgr.Service, error) {
	m, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT|windows.SC_MANAGER_CREATE_SERVICE)
	if err != nil {
		return nil, fmt.Errorf("open service manager: %w", err)
	}
	defer windows.CloseServiceHandle(m) // nothing depends on it
	for {
		s, err := update(m, config)
		if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
			s, err = create(m, config)
		}
		if !errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) && !errors.Is(err, windows.ERROR_SERVICE_EXISTS) {
			return s, err
		}
		if wait(ctx) != nil {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

func create(m windows.Handle, config Config) (*mgr.Service, error) {
	name, display, commandLine, err := utf16s(config)
	if err != nil {
		return nil, err
	}
	handle, err := windows.CreateService(m, name, display, installRights,
		windows.SERVICE_WIN32_OWN_PROCESS, windows.SERVICE_AUTO_START, windows.SERVICE_ERROR_NORMAL,
		commandLine, nil, nil, nil, nil /* LocalSystem */, nil)
	if err != nil {
		return nil, fmt.Errorf("create service: %w", err)
	}
	return &mgr.Service{Name: config.Name, Handle: handle}, nil
}

func update(m windows.Handle, config Config) (*mgr.Service, error) {
	name, display, commandLine, err := utf16s(config)
	if err != nil {
		return nil, err
	}
	handle, err := windows.OpenService(m, name, installRights)
	if err != nil {
		return nil, fmt.Errorf("open service: %w", err)
	}
	s := &mgr.Service{Name: config.Name, Handle: handle}
	if err = checkOurs(s); err == nil {
		err = windows.ChangeServiceConfig(handle,
			windows.SERVICE_WIN32_OWN_PROCESS, windows.SERVICE_AUTO_START, windows.SERVICE_ERROR_NORMAL,
			commandLine, nil, nil, nil, nil, nil, display)
		if err != nil {
			err = fmt.Errorf("change service: %w", err)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func utf16s(config Config) (name, display, commandLine *uint16, err error) {
	name, err1 := windows.UTF16PtrFromString(config.Name)
	display, err2 := windows.UTF16PtrFromString(cmp.Or(config.DisplayName, config.Name))
	commandLine, err3 := windows.UTF16PtrFromString(config.CommandLine)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, nil, nil, invalid("text of the service: %w", err)
	}
	return name, display, commandLine, nil
}

// Uninstall stops the service, waits until its process has ended, and removes it. It
// is no error if the service doesn't exist. A service of another program is
// csiproxy.ErrFailedPrecondition. If somebody has the service open, it exists until
// they close it, but can't be started.
func (Services) Uninstall(ctx context.Context, name string) (err error) {
	defer describe("UninstallService", name, &err)
	if err := remove(ctx, name); err != nil {
		return err
	}
	if err := uninstallSource(name); err != nil {
		return fmt.Errorf("remove event log source: %w", err)
	}
	return nil
}

// remove stops and deletes the service if it exists.
func remove(ctx context.Context, name string) error {
	s, err := open(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS|windows.SERVICE_STOP|windows.DELETE)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	if err = checkOurs(s); err == nil {
		err = stopProcess(ctx, s)
	}
	if err == nil {
		if err = s.Delete(); errors.Is(err, windows.ERROR_SERVICE_MARKED_FOR_DELETE) {
			err = nil
		}
	}
	return errors.Join(err, s.Close())
}

// wait waits for pollInterval. If ctx ends first, the error is its cause.
func wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollInterval):
		return nil
	}
}

// Query returns the status of the service. If it doesn't exist, the error is
// csiproxy.ErrNotFound.
func (Services) Query(name string) (_ Status, err error) {
	defer describe("QueryService", name, &err)
	s, err := open(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS)
	if err != nil {
		return Status{}, err
	}
	defer s.Close() // nothing depends on it
	status, err := s.Query()
	if err != nil {
		return Status{}, fmt.Errorf("query service: %w", err)
	}
	config, err := queryConfig(s)
	if err != nil {
		return Status{}, err
	}
	return Status{
		State:            State(status.State),
		ProcessID:        status.ProcessId,
		ExitCode:         status.Win32ExitCode,
		SpecificExitCode: status.ServiceSpecificExitCode,
		Start:            StartType(config.StartType),
		CommandLine:      config.BinaryPathName,
		Account:          config.ServiceStartName,
	}, nil
}

// open opens the service with the rights given.
func open(name string, rights uint32) (*mgr.Service, error) {
	if err := winname.CheckService(name); err != nil {
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
func queryConfig(s *mgr.Service) (mgr.Config, error) {
	// No configuration is longer.
	// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/nf-winsvc-queryserviceconfigw
	var buffer [8 << 10 / 8]uint64 // aligned for pointers
	var needed uint32
	config := (*windows.QUERY_SERVICE_CONFIG)(unsafe.Pointer(&buffer))
	if err := windows.QueryServiceConfig(s.Handle, config, uint32(unsafe.Sizeof(buffer)), &needed); err != nil {
		return mgr.Config{}, fmt.Errorf("query service configuration: %w", err)
	}
	return mgr.Config{
		StartType:        config.StartType,
		BinaryPathName:   windows.UTF16PtrToString(config.BinaryPathName),
		ServiceStartName: windows.UTF16PtrToString(config.ServiceStartName),
		DisplayName:      windows.UTF16PtrToString(config.DisplayName),
	}, nil
}

// checkCommandLine checks that the command line starts a program of ours. If a path has
// a space but no quotation marks, Windows would try other programs first.
func checkCommandLine(commandLine string) error {
	program, _, err := Services{}.SplitCommandLine(commandLine)
	if err != nil {
		return err
	}
	info, err := os.Stat(program)
	switch {
	case !filepath.IsAbs(program):
		return invalid("command line: the program %q must be a full path", program)
	case err != nil:
		return invalid("command line: %w", err)
	case !info.Mode().IsRegular():
		return invalid("command line: %s isn't a file", program)
	case !isOurProgram(program):
		return invalid("command line: the name of %s doesn't contain csi-proxy", program)
	}
	return nil
}

// CheckOurs returns csiproxy.ErrFailedPrecondition if the service runs another program than a CSI
// Proxy.
func (Services) CheckOurs(name string) (err error) {
	defer describe("CheckService", name, &err)
	s, err := open(name, windows.SERVICE_QUERY_CONFIG)
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	return checkOurs(s)
}

// checkOurs checks that the service runs a CSI Proxy, also by a wrapper, so that no other service is
// replaced or removed.
func checkOurs(s *mgr.Service) error {
	config, err := queryConfig(s)
	if err != nil {
		return err
	}
	line, err := wrapped(s.Name, config.BinaryPathName)
	if err != nil {
		return err
	}
	program, _, err := Services{}.SplitCommandLine(cmp.Or(line, config.BinaryPathName))
	if err != nil || !isOurProgram(program) {
		return &csiproxy.Error{
			Kind:   csiproxy.ErrFailedPrecondition,
			Detail: fmt.Sprintf("the service runs another program, %s; choose another name", config.BinaryPathName),
			Err:    err,
		}
	}
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
	windows.ERROR_DUPLICATE_SERVICE_NAME:     csiproxy.ErrAlreadyExists,
}
