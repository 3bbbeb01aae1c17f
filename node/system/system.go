// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package system does the operations on the node as a machine: its serial number and
// its services.
//
// Each operation may be repeated, also after a process that died half-way through it.
package system

import (
	"context"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/scm"
	"github.com/csi-proxy/csi-proxy/internal/smbios"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Host is the part of Windows that the operations use.
type Host interface {
	scm.Manager
	// FirmwareTable returns RawSMBIOSData (GetSystemFirmwareTable of 'RSMB').
	FirmwareTable(ctx context.Context) ([]byte, error)
}

// Options change how the operations behave. The zero value is the default.
type Options struct {
	// Runner bounds and observes the operations. The groups of one node share it.
	// Default: its own.
	Runner *operation.Runner
}

// Machine is the node as a machine. All methods may be called concurrently.
type Machine struct {
	sys     Host
	options Options
}

// New returns the operations on the machine that sys is.
func New(sys Host, o Options) *Machine {
	if o.Runner == nil {
		o.Runner = operation.NewRunner(operation.DefaultMaximum, nil)
	}
	return &Machine{sys: sys, options: o}
}

// GetBIOSSerialNumber returns the serial number of the system as its firmware has it,
// without blanks at its end: of a VMware machine "VMware-" and 32 hex digits in pairs.
// It is empty if the firmware has none; tables that have no place for it give
// csiproxy.ErrNotFound.
//
// Source: https://learn.microsoft.com/windows/win32/cimwin32prov/win32-bios (SerialNumber)
func (m *Machine) GetBIOSSerialNumber(ctx context.Context) (string, error) {
	return operation.Get(ctx, m.options.Runner, "GetBIOSSerialNumber", "", func(ctx context.Context) (string, error) {
		table, err := m.sys.FirmwareTable(ctx)
		if err != nil {
			return "", err
		}
		serial, err := smbios.SystemSerial(table)
		if errors.Is(err, smbios.ErrNoSystem) {
			err = &csiproxy.Error{Kind: csiproxy.ErrNotFound, Err: err}
		}
		return serial, err
	})
}

// GetService returns the state and configuration of a service. An unknown one is
// csiproxy.ErrNotFound.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-queryservicestatusex
func (m *Machine) GetService(ctx context.Context, name string) (Service, error) {
	return operation.Get(ctx, m.options.Runner, "GetService", object(name), func(ctx context.Context) (Service, error) {
		if err := checkName(name); err != nil {
			return Service{}, err
		}
		s, err := m.sys.QueryService(ctx, name)
		if err != nil {
			return Service{}, err
		}
		return Service{DisplayName: s.DisplayName, StartType: StartType(s.StartType), Status: status(s.State)}, nil
	})
}

// status takes a state that Windows may get one day as Unknown.
func status(s win.ServiceState) Status {
	if s > win.ServicePaused {
		return Unknown
	}
	return Status(s)
}

// StartService starts a service and waits until it runs; a running one is a success.
// Services that it depends on are started by Windows. An unknown service is
// csiproxy.ErrNotFound; a disabled or paused one, and one that fails to start,
// csiproxy.ErrFailedPrecondition; one that doesn't answer the service manager in time
// csiproxy.ErrUnavailable. So is, without a deadline in ctx, one that doesn't run after
// two minutes.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-startservicew
func (m *Machine) StartService(ctx context.Context, name string) error {
	return operation.Do(ctx, m.options.Runner, "StartService", object(name), func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		return scm.Start(ctx, m.sys, name)
	})
}

// StopService stops a service and waits until it has stopped; a stopped one is a
// success. With force, running services that depend on it are stopped first, and stay
// so if a later step fails; without, they give csiproxy.ErrFailedPrecondition, as does
// a service that can't be stopped. An unknown service is csiproxy.ErrNotFound. Without
// a deadline in ctx, it waits two minutes for each, and then gives
// csiproxy.ErrUnavailable.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-controlservice
func (m *Machine) StopService(ctx context.Context, name string, force bool) error {
	return operation.Do(ctx, m.options.Runner, "StopService", object(name), func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		return scm.Stop(ctx, m.sys, name, force)
	})
}

// object names the service in errors.
func object(name string) string { return "service " + pathpolicy.Printable(name) }

// checkName refuses what can't be the name of a service.
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-createservicew
func checkName(name string) error {
	const longest = 256
	switch {
	case name == "":
		return invalid("the name is empty")
	case !utf8.ValidString(name):
		return invalid("the name is not valid UTF-8")
	case len(utf16.Encode([]rune(name))) > longest:
		return invalid("the name is longer than 256 characters")
	case strings.ContainsAny(name, "/\\\x00"):
		return invalid("the name has a slash, backslash or null character")
	}
	return nil
}

func invalid(detail string) error {
	return &csiproxy.Error{Kind: csiproxy.ErrInvalidArgument, Detail: detail}
}
