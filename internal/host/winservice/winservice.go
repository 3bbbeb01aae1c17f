// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winservice makes the daemon a Windows service. Run runs it under the
// service manager. Services, which only Windows has, makes the calls to the service manager, of which
// Start, Stop and Uninstall, and package deployment, are made. On other systems Run returns
// csiproxy.ErrUnimplemented.
//
// A service has the name with which it was installed. The Event Log source of its
// entries has the same name.
package winservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// ErrNotManaged is the error of Run in a process that the service manager didn't
// start, such as one on a console.
var ErrNotManaged = errors.New("the service manager did not start this process")

// ExitFailed is the service-specific exit code that is reported to the manager when the
// service fails.
const ExitFailed = 1

// Options say how a service runs. The timeouts are longer than 0.
type Options struct {
	// StartTimeout is how long the service may take to be ready. After that it is
	// told to stop, and counts as failed.
	StartTimeout time.Duration
	// StopTimeout is how long the service may take to end after it was told to
	// stop. After that, Run returns without waiting any longer.
	StopTimeout time.Duration
	// Warning is written to the Event Log when the service starts; empty for nothing.
	Warning string
	// Log logs problems that don't keep the service from running. Default: they
	// aren't logged.
	Log *slog.Logger
}

// Run tells the service manager that this process is a service, calls run, and
// returns when the service has ended, with the error of run if it failed. The caller
// must then end the process. A process can call Run once.
//
// The service is starting until run calls ready, and running until run returns. When
// the manager stops it or the system shuts down, the context ends; its cause says
// which.
//
// Once the service is ready, Windows waits for it at a shutdown as long as StopTimeout.
// If the service was made with no such time or a shorter one, as by sc.exe, Run changes
// that setting of the service. A service without recovery actions is from then on started again ten
// seconds after any failure.
//
// If the service fails without having been asked to stop, ExitFailed is reported to the
// manager. But if the service's recovery actions are for crashes only, nothing is
// reported, as in a crash. Those that sc.exe failure sets up are for crashes only,
// unless sc.exe failureflag changes that.
func Run(run func(ctx context.Context, ready func()) error, options Options) error {
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	if options.StartTimeout <= 0 || options.StopTimeout <= 0 {
		return fmt.Errorf("run as a service: start timeout %v and stop timeout %v must be longer than 0",
			options.StartTimeout, options.StopTimeout)
	}
	return runManaged(run, options)
}

// Unsupported is the error of what only Windows has.
func Unsupported(op, name string) error {
	return &csiproxy.Error{Op: op, Object: name, Kind: csiproxy.ErrUnimplemented,
		Detail: "this system is " + runtime.GOOS + ", which has no Windows services"}
}

// Settings are the settings of a service that an installation changes. A nil field is a setting that this
// Windows doesn't have, or that stays as it is.
type Settings struct {
	// CommandLine starts the daemon. Windows stores it unchanged.
	CommandLine string `json:"command_line"`
	// Wrapped is the daemon's command line if the service runs nssm or srvany, which start the daemon; else
	// empty. The wrapper's own settings never change: once the service has its command line again, it starts
	// what it started before.
	Wrapped string    `json:"wrapped,omitempty"`
	Start   StartType `json:"start"`
	// Recovery is only ever restored: the daemon sees to its own when it starts.
	Recovery *Recovery `json:"recovery,omitempty"`
}

// Daemon is the daemon's own command line.
func (s Settings) Daemon() string { return cmp.Or(s.Wrapped, s.CommandLine) }

// Recovery is what Windows does when the service fails.
type Recovery struct {
	Actions      []RecoveryAction `json:"actions"`
	ResetSeconds uint32           `json:"reset_seconds"` // after which failures are forgotten
	// Always is true if the actions are also taken when the service reports its failure,
	// instead of crashing.
	Always bool `json:"always"`
}

// RecoveryAction is an action after a failure.
type RecoveryAction struct {
	Type         int    `json:"type"` // of SC_ACTION
	Milliseconds uint32 `json:"milliseconds"`
}

// Status is the state and configuration of a service.
type Status struct {
	Settings
	State     State
	ProcessID uint32 // 0 if there is no process
	// ExitCode is the Windows error number with which the service last stopped: 0 for
	// no error, 1077 if it hasn't been started since the system was started, 1066 if
	// it failed with SpecificExitCode.
	ExitCode         uint32
	SpecificExitCode uint32
	Account          string // LocalSystem
}

// State is the state of a service.
type State uint32

// States, with the numbers of SERVICE_STATUS_PROCESS.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-service_status_process
const (
	Stopped State = 1 + iota
	StartPending
	StopPending
	Running
	ContinuePending
	PausePending
	Paused
)

// String returns the state in words: "start pending".
func (s State) String() string {
	return word(uint32(s), "", "stopped", "start pending", "stop pending", "running", "continue pending", "pause pending",
		"paused")
}

// StartType says when a service is started.
type StartType uint32

// Start types, with the numbers of QUERY_SERVICE_CONFIG.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winsvc/ns-winsvc-query_service_configw
const (
	Automatic StartType = 2 + iota
	Manual
	Disabled
)

// String returns the start type in a word: "automatic".
func (t StartType) String() string {
	return word(uint32(t), "boot", "system", "automatic", "manual", "disabled")
}

// word returns the word for a number.
func word(n uint32, words ...string) string {
	if int64(n) < int64(len(words)) && words[n] != "" {
		return words[n]
	}
	return "unknown"
}

// WritableText says who can write to a directory.
func WritableText(contents, dir string, names []string) string {
	return fmt.Sprintf("others than administrators can write to the directory of %s, %s: %s", contents, dir,
		strings.Join(names, ", "))
}

// WritableAdvice says what to do about a directory that others can write to.
func WritableAdvice(dir string) string {
	return fmt.Sprintf(`take another one, such as C:\Program Files\csi-proxy, or leave it to the administrators: `+
		`icacls "%s" /setowner *S-1-5-32-544, then `+
		`icacls "%[1]s" /inheritance:r /grant *S-1-5-18:(OI)(CI)F *S-1-5-32-544:(OI)(CI)F`, dir)
}

// IsOurProgram reports whether a program is a CSI Proxy, by its name.
func IsOurProgram(path string) bool {
	name := strings.ToLower(path[strings.LastIndexAny(path, `\/`)+1:])
	return strings.Contains(name, "csi-proxy") || strings.Contains(name, "csiproxy")
}

// onDrive takes a path without a drive, which Windows takes against that of the working directory,
// against a drive. The published daemon's first instructions have such paths.
func onDrive(drive, path string) string {
	if path == "" || path[0] != '\\' && path[0] != '/' || len(path) > 1 && (path[1] == '\\' || path[1] == '/') {
		return path
	}
	return drive + path
}
