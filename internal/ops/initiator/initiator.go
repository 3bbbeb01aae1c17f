// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initiator has the operations on the node's iSCSI initiator: portals, targets and their
// disks.
//
// Each operation first asks Windows for the current state and then does the missing steps.
// Operations are idempotent, even after a process has died half-way. The initiator is a Windows
// service that is stopped by default: the first call on the initiator starts the service.
package initiator

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/machine"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// System has the Windows calls of the operations on targets.
type System interface {
	win.ISCSIInitiator
	win.Services
}

// Options configure the operations. The zero value is the default.
type Options struct {
	// Logger gets each change of the node, and problems that do not fail an operation. Default:
	// none.
	Logger *slog.Logger
	// Observer is called after each operation. Default: none.
	Observer operation.Observer
	// ReenumerateAdapters makes the node's storage adapters search for new disks. It is called
	// during the wait for disks of an iSCSI target. Default: none, and Windows finds the disks by
	// itself.
	ReenumerateAdapters func(context.Context) error
	// Driver is the name of the driver whose sessions the system is limited to. Default: the
	// sessions of the node.
	Driver string
	// OwnerOf returns the driver that owns a portal; "" if there is none. isKnown is false if the
	// owner is unknown. Default: a driver's initiator owns its portals, and the owners of all other
	// portals are unknown.
	OwnerOf func(p win.ISCSIPortal) (driver string, isKnown bool)
	// Targets serialise logins and logouts. The initiators of a node and of its drivers share them.
	// Default: new locks for this initiator alone.
	Targets *TargetLocks
}

// Initiator is the iSCSI initiator of a node, or a driver's part of it. All methods are safe for
// concurrent use.
type Initiator struct {
	sys     System
	options Options

	// discoveries lets concurrent calls for a portal share the answers of all targets, which take
	// much memory beside thousands of targets.
	discoveries operation.NextRun[win.ISCSIPortal, []csiproxy.IQN]

	mu        sync.Mutex
	ofDrivers map[string]bool // targets connected by a driver through ConnectTarget, by name in lower case
}

// New returns the operations on the initiator of sys.
func New(sys System, o Options) *Initiator {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Targets = cmp.Or(o.Targets, NewTargetLocks(nil))
	if o.OwnerOf == nil {
		o.OwnerOf = func(win.ISCSIPortal) (string, bool) { return o.Driver, o.Driver != "" }
	}
	return &Initiator{sys: sys, options: o, ofDrivers: make(map[string]bool)}
}

// SetMutualCHAPSecret implements [published.ISCSIOperations].
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/nf-iscsidsc-setiscsiinitiatorchapsharedsecret
func (i *Initiator) SetMutualCHAPSecret(ctx context.Context, s csiproxy.Secret) (err error) {
	defer i.options.Observer.End("SetMutualCHAPSecret", "", time.Now(), &err)
	if err := checkSecret(s); err != nil {
		return err
	}
	return i.setMutualSecret(ctx, s)
}

func (i *Initiator) setMutualSecret(ctx context.Context, s csiproxy.Secret) error {
	err := i.call(ctx, func() error { return i.sys.SetISCSIInitiatorCHAPSecret(ctx, s) })
	if err == nil {
		i.options.Logger.Info("mutual CHAP secret set")
	}
	return err
}

const (
	// serviceName is the initiator's service.
	serviceName = "MSiSCSI"
	// serviceTimeout is how long the service may need after its start until it answers.
	serviceTimeout = 10 * time.Second
	retryInterval  = 100 * time.Millisecond
)

// call makes a call to the initiator. If the initiator's service is stopped, before the call or
// after the call has failed, call starts the service first. call asks the service manager: the
// errors of the initiator's functions without their service are undocumented.
func (i *Initiator) call(ctx context.Context, f func() error) error {
	if err := i.startService(ctx); err != nil {
		return err
	}
	err := f()
	if err == nil {
		return nil
	}
	if s, queryErr := i.sys.QueryService(ctx, serviceName); queryErr != nil || s.State == win.ServiceRunning {
		return err
	}
	if err := i.startService(ctx); err != nil { // the service was stopped meanwhile
		return err
	}
	return f()
}

// startService starts the initiator's service, if stopped, and waits until the service answers.
func (i *Initiator) startService(ctx context.Context) error {
	s, err := i.sys.QueryService(ctx, serviceName)
	if err == nil && s.State == win.ServiceRunning {
		return nil
	}
	if err == nil {
		err = machine.Start(ctx, i.sys, i.options.Logger, serviceName)
	}
	if err != nil {
		return &csiproxy.Error{Object: "service " + serviceName, Err: err}
	}
	return operation.Retry(ctx, serviceTimeout, retryInterval, nil, func() error {
		_, err := i.sys.ISCSISessions(ctx)
		return err
	})
}

// query is call for a function with a result.
func query[T any](ctx context.Context, i *Initiator, f func(context.Context) (T, error)) (result T, err error) {
	err = i.call(ctx, func() error {
		result, err = f(ctx)
		return err
	})
	return result, err
}
