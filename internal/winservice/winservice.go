// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winservice makes the daemon a Windows service: Run runs it under the
// service manager, Install, Uninstall and Query are for who administers it. On
// other systems they return csiproxy.ErrUnimplemented.
//
// A service is known by the name that it was installed under, whatever that is.
// The Event Log's source of its entries has the same name.
package winservice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// ErrNotManaged is what Run returns in a process that the service manager didn't
// start, like one on a console.
var ErrNotManaged = errors.New("the service manager did not start this process")

// ExitFailed is the service-specific exit code that the manager is told when the
// service fails.
const ExitFailed = 1

// Options say how a service runs. The timeouts are longer than 0.
type Options struct {
	// StartTimeout is how long the service may take to be ready. Then it is
	// told to stop, and has failed.
	StartTimeout time.Duration
	// StopTimeout is how long the service may take to end after it was told to
	// stop. Then Run returns without waiting for it any longer.
	StopTimeout time.Duration
	// Log gets notes of what doesn't keep the service from running. Default:
	// none.
	Log *slog.Logger
}

// Run tells the service manager that this process is a service, calls run, and
// returns when the service has ended, with the error of run if it failed. The
// caller is then to end the process. A process can call it once.
//
// The service is starting until run calls ready, running until run returns. When
// the manager wants it to stop, or the system shuts down, the context is done; its
// cause says which.
//
// Once the service is ready, a system that shuts down waits for it as long as
// StopTimeout, also if whoever made the service, such as sc.exe, has set no such time
// or a shorter one: Run changes that setting of the service.
//
// The manager is told ExitFailed if the service fails without having been asked to
// stop. It isn't told anything, as by a crash, if the service has recovery actions
// that are for crashes only: those that sc.exe failure sets up, unless sc.exe
// failureflag does more.
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

// Config describes a service to install.
type Config struct {
	Name        string
	DisplayName string // default: Name
	Description string
	// CommandLine starts the daemon. It is what the manager keeps, to the
	// letter: see CommandLine. Its program must be there, by its full path, and
	// have a name with csi-proxy in it.
	CommandLine string
	// StopTimeout is how long a system that shuts down waits for the service.
	StopTimeout time.Duration
	// Log gets notes of what this Windows can't do. Default: none.
	Log *slog.Logger
}

// Install makes the service, or gives the one of that name this configuration,
// which a running service takes over when it is started again. It starts with the
// system, as LocalSystem if it is new, and is restarted ten seconds after a
// failure. If another service has the name, Install returns
// csiproxy.ErrFailedPrecondition. It doesn't start the service.
//
// While an earlier service of the name waits for its deletion, because somebody
// has it open, Install waits too, until ctx is done.
func Install(ctx context.Context, config Config) error {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	return install(ctx, config)
}

// Uninstall stops the service, waits until its process has ended, and removes it.
// A service that isn't there is no error; one that isn't of this daemon is
// csiproxy.ErrFailedPrecondition. If somebody has the service open, it is there
// until they close it, but can't be started.
func Uninstall(ctx context.Context, name string) error {
	return uninstall(ctx, name)
}

// Status is what the manager knows of a service.
type Status struct {
	State     State
	ProcessID uint32 // 0 if there is no process
	// ExitCode is a Windows error number, of the last time that the service has
	// stopped: 0 in good order, 1077 if it was never started since the system
	// was, 1066 if it has failed with SpecificExitCode.
	ExitCode         uint32
	SpecificExitCode uint32
	Start            StartType
	CommandLine      string
	DisplayName      string
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
	return word(uint32(s), "", "stopped", "start pending", "stop pending", "running", "continue pending", "pause pending", "paused")
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

// Query returns the status of the service; csiproxy.ErrNotFound if there is none
// of the name.
func Query(name string) (Status, error) {
	return query(name)
}

// CommandLine returns the command line that starts program with the arguments,
// each of them quoted if it must be. What no quoting can express is
// csiproxy.ErrInvalidArgument: a quotation mark in program, a NUL.
func CommandLine(program string, args ...string) (string, error) {
	return commandLine(program, args)
}

// word returns the word of a number.
func word(n uint32, words ...string) string {
	if int64(n) < int64(len(words)) && words[n] != "" {
		return words[n]
	}
	return "unknown"
}
