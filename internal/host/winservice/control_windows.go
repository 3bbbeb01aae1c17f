// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/mgr"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

// lingerLimit is how long a process may be there after its service has stopped. Ours
// needs a second at most; the published daemon's never ends.
const lingerLimit = 5 * time.Second

// Start starts the service, and returns when it runs, which the daemon reports when it
// serves. If it ends instead, the error has its exit code.
func (Services) Start(ctx context.Context, name string) (err error) {
	defer describe("StartService", name, &err)
	s, err := open(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS|windows.SERVICE_START)
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	if err := checkOurs(s); err != nil {
		return err
	}
	started := false
	for {
		status, err := s.Query()
		if err != nil {
			return fmt.Errorf("query service: %w", err)
		}
		switch status.State {
		case svc.Running:
			return nil
		case svc.Stopped:
			if started {
				return &csiproxy.Error{Kind: csiproxy.ErrUnavailable,
					Detail: fmt.Sprintf("it has ended with exit code %d (%d); the reason is in the daemon's log and in the Event Log",
						status.Win32ExitCode, status.ServiceSpecificExitCode)}
			}
			err := s.Start()
			if err != nil && !errors.Is(err, windows.ERROR_SERVICE_ALREADY_RUNNING) {
				return fmt.Errorf("start service: %w", err)
			}
			started = err == nil
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("the service, in state %q, does not run yet: %w", State(status.State), err)
		}
	}
}

// Stop stops the service, and returns when its process has ended. A service that doesn't
// exist is stopped. A process that is there five seconds after the service has reported
// that it is stopped, as the published daemon's is, is ended.
//
// With programs it also ends the processes of these programs that hold endpoints of the
// API. If another program holds one, the error is [ErrHeld] and csiproxy.ErrFailedPrecondition.
func (Services) Stop(ctx context.Context, name string, programs ...string) (err error) {
	defer describe("StopService", name, &err)
	if err := stop(ctx, name); err != nil || len(programs) == 0 {
		return err
	}
	return release(ctx, programs)
}

func stop(ctx context.Context, name string) error {
	s, err := open(name, windows.SERVICE_QUERY_CONFIG|windows.SERVICE_QUERY_STATUS|windows.SERVICE_STOP)
	if errors.Is(err, windows.ERROR_SERVICE_DOES_NOT_EXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	defer s.Close() // nothing depends on it
	if err := checkOurs(s); err != nil {
		return err
	}
	return stopProcess(ctx, s)
}

// stopProcess stops the service and waits until its process has ended, so that its
// program can be replaced. The process may end later than the service reports to the
// manager; after lingerLimit it is ended.
func stopProcess(ctx context.Context, s *mgr.Service) error {
	var process *process
	defer func() { process.close() }()
	var stopped time.Time
	for {
		status, err := s.Query()
		if err != nil {
			return fmt.Errorf("query service: %w", err)
		}
		if process == nil && status.ProcessId != 0 {
			if process, err = openProcess(status.ProcessId); err != nil {
				return err
			}
		}
		ended := status.State == svc.Stopped
		if process != nil {
			if ended, err = process.ended(); err != nil {
				return err
			}
		}
		switch {
		case ended:
			return nil
		case status.State == svc.Stopped && stopped.IsZero():
			stopped = time.Now()
		case status.State == svc.Stopped && time.Since(stopped) > lingerLimit:
			if err := process.terminate(); err != nil {
				return err
			}
		case status.State != svc.StopPending && status.State != svc.Stopped:
			// A service that is starting accepts no controls yet.
			_, err := s.Control(svc.Stop)
			if err != nil && !errors.Is(err, windows.ERROR_SERVICE_CANNOT_ACCEPT_CTRL) &&
				!errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
				return fmt.Errorf("stop service: %w", err)
			}
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("the service, in state %q, has not ended: %w", State(status.State), err)
		}
	}
}

// release ends the processes of programs that hold endpoints, and returns when no process
// holds one.
func release(ctx context.Context, programs []string) error {
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			if err := releaseEndpoint(ctx, pipe.Address("", api.EndpointName(group, version)), programs); err != nil {
				return err
			}
		}
	}
	return nil
}

func releaseEndpoint(ctx context.Context, address string, programs []string) error {
	for {
		id, _, err := pipe.Server(ctx, address)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find out who holds %s: %w", address, err)
		}
		if err := endProgram(ctx, id, address, programs); err != nil {
			return err
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("process %d still holds %s: %w", id, address, err)
		}
	}
}

// endProgram ends a process that holds an endpoint, if it is one of programs.
func endProgram(ctx context.Context, id uint32, address string, programs []string) error {
	process, err := openProcess(id)
	if err != nil || process == nil {
		return err
	}
	defer process.close()
	image, err := process.image()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(programs, func(program string) bool { return samePath(program, image) }) {
		return &csiproxy.Error{Kind: csiproxy.ErrFailedPrecondition, Err: ErrHeld,
			Detail: fmt.Sprintf("%s is held by process %d, %s; end that process first", address, id, image)}
	}
	if err := process.terminate(); err != nil {
		return err
	}
	for {
		if ended, err := process.ended(); err != nil || ended {
			return err
		}
		if err := wait(ctx); err != nil {
			return fmt.Errorf("process %d, %s, does not end: %w", id, image, err)
		}
	}
}

// samePath reports whether two paths are those of one file, also if one of them has short
// names or goes through a link.
func samePath(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	first, err1 := os.Stat(a)
	second, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(first, second)
}

// process is another process.
type process struct {
	id     uint32
	handle windows.Handle
}

// openProcess opens a process; nil if there is none with the id.
func openProcess(id uint32) (*process, error) {
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

func (p *process) close() {
	if p != nil {
		windows.CloseHandle(p.handle) // nothing depends on it
	}
}

func (p *process) ended() (bool, error) {
	event, err := windows.WaitForSingleObject(p.handle, 0)
	if err != nil {
		return false, fmt.Errorf("wait for process %d: %w", p.id, err)
	}
	return event == windows.WAIT_OBJECT_0, nil
}

func (p *process) terminate() error {
	err := windows.TerminateProcess(p.handle, 1)
	if err != nil && !errors.Is(err, windows.ERROR_ACCESS_DENIED) { // that one if it ends already
		return fmt.Errorf("end process %d: %w", p.id, err)
	}
	return nil
}

// image returns the path of the program.
func (p *process) image() (string, error) {
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

// EndWithChildren makes the system end the programs that this process starts from now on
// when it ends for any reason: one that stays would keep its file from being replaced. The
// job is closed when its last handle is, which is at the end of this process.
//
// https://learn.microsoft.com/en-us/windows/win32/procthread/job-objects
var EndWithChildren = sync.OnceValue(func() error {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return fmt.Errorf("make a job: %w", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return fmt.Errorf("limit the job: %w", err)
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		return fmt.Errorf("enter the job: %w", err)
	}
	return nil
})
