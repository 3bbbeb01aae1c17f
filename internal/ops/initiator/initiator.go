// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package initiator does the operations on the node's iSCSI initiator: portals, targets
// and their disks.
//
// Each operation first asks Windows for the current state and then does what is missing.
// So it may be repeated, also after a process that died half-way through it. The
// initiator is a service of Windows that isn't started by default: the first call that
// needs it starts it.
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

// System has the Windows calls that the operations on targets make.
type System interface {
	win.ISCSIInitiator
	win.Services
}

// Options change how the operations behave. The zero value is the default.
type Options struct {
	// Logger gets each change of the node, and what an operation passes over without failing. Default: none.
	Logger *slog.Logger
	// Runner runs and observes the operations. Default: one of its own.
	Runner *operation.Runner
	// ReenumerateAdapters has the node's storage adapters search for new disks. It is called while
	// disks of an iSCSI target are awaited. Default: they don't, and Windows finds the disks by
	// itself.
	ReenumerateAdapters func(context.Context) error
	// Driver is the name of the driver to whose sessions the system is limited. Default: it has those of the node.
	Driver string
	// OwnerOf returns the driver that has a portal; "" if none has. isKnown is false if that isn't known. Default: the portals of a
	// driver's initiator are the driver's, and the owners of others aren't known.
	OwnerOf func(p win.ISCSIPortal) (driver string, isKnown bool)
	// Targets serialise logging in and out. The initiators of a node and of its drivers share them. Default: those of
	// the initiator alone.
	Targets *TargetLocks
}

// Initiator is the iSCSI initiator of a node, or what of it is one driver's. All methods may be called concurrently.
type Initiator struct {
	sys     System
	options Options

	mu        sync.Mutex
	ofDrivers map[string]bool // targets that a driver has connected by ConnectTarget, by name in lower case
}

// New returns the operations on the initiator of sys.
func New(sys System, o Options) *Initiator {
	o.Logger, o.Runner = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.Runner, operation.NewRunner(nil))
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
	defer i.options.Runner.Done("SetMutualCHAPSecret", "", time.Now(), &err)
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

// call makes a call to the initiator. If its service isn't running, before the call or after
// it has failed, call starts it first. It asks the service manager, since no source lists the
// errors that the initiator's functions return without their service.
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
	if err := i.startService(ctx); err != nil { // it was stopped meanwhile
		return err
	}
	return f()
}

// startService starts the initiator's service, if it isn't running, and waits until it answers.
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
	anyError := func(error) bool { return true }
	return operation.Retry(ctx, serviceTimeout, retryInterval, anyError, func() error {
		_, err := i.sys.ISCSISessions(ctx)
		return err
	})
}

// query is call for a call with a result.
func query[T any](ctx context.Context, i *Initiator, f func(context.Context) (T, error)) (result T, err error) {
	err = i.call(ctx, func() error {
		result, err = f(ctx)
		return err
	})
	return result, err
}
