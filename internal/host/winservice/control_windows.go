// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"

	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// StartService implements [Manager].
func (Services) StartService(name string) (err error) {
	defer describe("StartService", name, &err)
	s, err := open(name, windows.SERVICE_START)
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	if err := s.Start(); !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
		return err
	}
	return nil
}

// ControlService implements [Manager].
func (Services) ControlService(name string, control Control) (err error) {
	defer describe("ControlService", name, &err)
	rights := uint32(windows.SERVICE_USER_DEFINED_CONTROL)
	if control == ControlStop {
		rights = windows.SERVICE_STOP
	}
	s, err := open(name, rights)
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	_, err = s.Control(svc.Cmd(control))
	switch {
	case errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL), errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE):
		return nil
	case errors.Is(err, windows.ERROR_DEPENDENT_SERVICES_RUNNING):
		dependents, listErr := Services{}.Dependents(name, true)
		return errors.Join(fmt.Errorf("%w: %s: %w", ErrDependents, strings.Join(dependents, ", "), err), listErr)
	}
	return err
}

// Dependents implements [Manager].
func (Services) Dependents(name string, active bool) (_ []string, err error) {
	defer describe("EnumDependentServices", name, &err)
	s, err := open(name, windows.SERVICE_ENUMERATE_DEPENDENTS)
	if err != nil {
		return nil, err
	}
	defer s.Close() // nothing depends on it
	state := svc.AnyActivity
	if active {
		state = svc.Active
	}
	return s.ListDependentServices(state)
}

// Holder implements [Manager].
func (Services) Holder(ctx context.Context, endpoint string) (uint32, error) {
	id, _, err := pipe.Server(ctx, pipe.Address("", endpoint))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("find out who holds %s: %w", endpoint, err)
	}
	return id, nil
}

// process is another process.
type process struct {
	id     uint32
	handle windows.Handle
}

// OpenProcess implements [Manager].
func (Services) OpenProcess(id uint32) (Process, error) {
	debugOthers()
	const rights = windows.SYNCHRONIZE | windows.PROCESS_TERMINATE | windows.PROCESS_QUERY_LIMITED_INFORMATION
	handle, err := windows.OpenProcess(rights, false, id)
	switch {
	case errors.Is(err, windows.ERROR_INVALID_PARAMETER): // it has just ended
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("open process %d: %w", id, err)
	}
	return &process{id, handle}, nil
}

// Close implements [Process].
func (p *process) Close() { windows.CloseHandle(p.handle) } // nothing depends on it

// Ended implements [Process].
func (p *process) Ended() (bool, error) {
	event, err := windows.WaitForSingleObject(p.handle, 0)
	if err != nil {
		return false, fmt.Errorf("wait for process %d: %w", p.id, err)
	}
	return event == windows.WAIT_OBJECT_0, nil
}

// Terminate implements [Process].
func (p *process) Terminate() error {
	err := windows.TerminateProcess(p.handle, 1)
	if err != nil && !errors.Is(err, windows.ERROR_ACCESS_DENIED) { // that one if it ends already
		return fmt.Errorf("end process %d: %w", p.id, err)
	}
	return nil
}

// Image implements [Process].
func (p *process) Image() (string, error) {
	path := make([]uint16, windows.MAX_LONG_PATH)
	length := uint32(len(path))
	if err := windows.QueryFullProcessImageName(p.handle, 0, &path[0], &length); err != nil {
		return "", fmt.Errorf("find the program of process %d: %w", p.id, err)
	}
	return windows.UTF16ToString(path[:length]), nil
}

// debugOthers enables the privilege to open processes of other accounts, which the
// Administrators hold. Without it, Windows may refuse to end one of LocalSystem; then
// that is the error.
//
// https://learn.microsoft.com/en-us/windows/win32/secauthz/privilege-constants
var debugOthers = sync.OnceFunc(func() {
	var token windows.Token
	if windows.OpenProcessToken(windows.CurrentProcess(), windows.TOKEN_ADJUST_PRIVILEGES, &token) != nil {
		return
	}
	defer token.Close()
	var state windows.Tokenprivileges
	state.PrivilegeCount = 1
	state.Privileges[0].Attributes = windows.SE_PRIVILEGE_ENABLED
	name, err := windows.UTF16PtrFromString("SeDebugPrivilege")
	if err != nil || windows.LookupPrivilegeValue(nil, name, &state.Privileges[0].Luid) != nil {
		return
	}
	_ = windows.AdjustTokenPrivileges(token, false, &state, uint32(unsafe.Sizeof(state)), nil, nil)
})
