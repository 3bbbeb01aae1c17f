// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machine has the operations on the node as a machine: its serial number and its services.
//
// The operations are idempotent, even after a process has died half-way.
package machine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/csi-proxy/csi-proxy/published"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// System has the Windows calls of the operations on the machine.
type System interface {
	win.Services
	win.Firmware
}

// Options configure the operations. The zero value is the default.
type Options struct {
	// Logger gets each change of the node, and problems that do not fail an operation. Default:
	// none.
	Logger *slog.Logger
	// Observer is called after each operation. Default: none.
	Observer operation.Observer
}

// Machine is the node as a machine. All methods are safe for concurrent use.
type Machine struct {
	sys     System
	options Options
}

// New returns the operations on the machine sys.
func New(sys System, o Options) *Machine {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Machine{sys: sys, options: o}
}

// GetBIOSSerialNumber implements [published.SystemOperations].
//
// Source: https://learn.microsoft.com/windows/win32/cimwin32prov/win32-bios (SerialNumber)
func (m *Machine) GetBIOSSerialNumber(ctx context.Context) (_ string, err error) {
	defer m.options.Observer.End("GetBIOSSerialNumber", "", time.Now(), &err)
	table, err := m.sys.FirmwareTable(ctx)
	if err != nil {
		return "", err
	}
	serial, err := SystemSerial(table)
	if errors.Is(err, ErrNoSystem) {
		err = &csiproxy.Error{Kind: csiproxy.ErrNotFound, Err: err}
	}
	return serial, err
}

// GetService implements [published.SystemOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-queryservicestatusex
func (m *Machine) GetService(ctx context.Context, name string) (_ published.Service, err error) {
	defer m.options.Observer.End("GetService", object(name), time.Now(), &err)
	if err := win.CheckServiceName(name); err != nil {
		return published.Service{}, err
	}
	s, err := m.sys.QueryService(ctx, name)
	if err != nil {
		return published.Service{}, err
	}
	return published.Service{DisplayName: s.DisplayName, StartType: published.StartType(s.StartType), Status: status(s.State)},
		nil
}

// status maps states unknown to this version to ServiceUnknown.
func status(s win.ServiceState) published.ServiceStatus {
	if s > win.ServicePaused {
		return published.ServiceUnknown
	}
	return published.ServiceStatus(s)
}

// StartService implements [published.SystemOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-startservicew
func (m *Machine) StartService(ctx context.Context, name string) (err error) {
	defer m.options.Observer.End("StartService", object(name), time.Now(), &err)
	if err := win.CheckServiceName(name); err != nil {
		return err
	}
	return Start(ctx, m.sys, m.options.Logger, name)
}

// StopService implements [published.SystemOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/winsvc/nf-winsvc-controlservice
func (m *Machine) StopService(ctx context.Context, name string, force bool) (err error) {
	defer m.options.Observer.End("StopService", object(name), time.Now(), &err)
	if err := win.CheckServiceName(name); err != nil {
		return err
	}
	return Stop(ctx, m.sys, m.options.Logger, name, force)
}

// object names the service in errors.
func object(name string) string { return "service " + quote.Text(name) }
