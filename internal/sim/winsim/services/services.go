// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package services is the service manager of a simulated node: its services, their
// dependencies, and how they start, stop and fail over time.
//
// It does no locking: the owner holds one lock around every call, and around what it
// runs later.
package services

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// ISCSIInitiator is the service of the iSCSI initiator.
const ISCSIInitiator = "MSiSCSI"

// Errors of the service manager that package win has no constant for.
//
// Source: https://learn.microsoft.com/windows/win32/debug/system-error-codes--1000-1299-
const (
	errorServiceNoThread          winerr.Errno = 1054
	errorServiceDatabaseLocked    winerr.Errno = 1055
	errorInvalidServiceAccount    winerr.Errno = 1057
	errorCircularDependency       winerr.Errno = 1059
	errorServiceDependencyDeleted winerr.Errno = 1075
	errorServiceNeverStarted      winerr.Errno = 1077 // exit code: not since the node started
)

// Spec is a service of the node.
type Spec struct {
	Name        string // 1 to 256 UTF-16 units; compared without case
	DisplayName string // default: Name
	// StartType says whether a restart of the node starts it: all but demand start
	// and disabled ones.
	StartType win.ServiceStartType
	DependsOn []string // names of services; they needn't be there
	Running   bool
	// StartError is the error of a start; 0 for a service that starts. Errors of the
	// service manager, such as 2, 5, 1053 or 1069, are the answer of the starting call.
	// Any other number, such as 1066 or 1067, is the exit code of a service that stops
	// while starting.
	StartError winerr.Errno
}

// Node is what the service manager needs of the node that it is on.
type Node struct {
	// Later runs f after d, under the lock, unless the node is closed before.
	Later func(d time.Duration, f func())
	// StartTime and StopTime are how long a service is starting or stopping when it is
	// started for another one or by a restart of the node, or when the process was
	// restarted meanwhile.
	StartTime, StopTime time.Duration
	// Running is told the name of each service that has come to run.
	Running func(name string)
}

// Manager is the service manager with its services.
type Manager struct {
	node    Node
	byName  map[string]*service // by folded name
	changed map[string]struct{} // folded names, since the last Save
}

// service is a service with what is on its way.
type service struct {
	record
	delay time.Duration // how long it takes once it may start
}

// record is what the state file has of a service.
type record struct {
	Spec     Spec // Running isn't used: State tells
	State    win.ServiceState
	ExitCode winerr.Errno
}

// New returns a service manager without services.
func New(node Node) *Manager {
	return &Manager{node: node, byName: map[string]*service{}, changed: map[string]struct{}{}}
}

// Install adds the services of a node that runs Kubernetes, as far as drivers touch
// them.
func (m *Manager) Install() error {
	for _, spec := range []Spec{
		{Name: "Winmgmt", DisplayName: "Windows Management Instrumentation", StartType: win.ServiceAutoStart, Running: true},
		{Name: "LanmanWorkstation", DisplayName: "Workstation", StartType: win.ServiceAutoStart, Running: true},
		{
			Name: "SessionEnv", DisplayName: "Remote Desktop Configuration", StartType: win.ServiceAutoStart,
			DependsOn: []string{"LanmanWorkstation"}, Running: true,
		},
		{Name: "Netlogon", DisplayName: "Netlogon", StartType: win.ServiceDemandStart,
			DependsOn: []string{"LanmanWorkstation"}},
		{Name: ISCSIInitiator, DisplayName: "Microsoft iSCSI Initiator Service", StartType: win.ServiceDemandStart},
		{Name: "containerd", DisplayName: "containerd", StartType: win.ServiceAutoStart, Running: true},
		{
			Name: "kubelet", DisplayName: "kubelet", StartType: win.ServiceAutoStart,
			DependsOn: []string{"containerd"}, Running: true,
		},
		{Name: "csi-proxy", DisplayName: "CSI Proxy", StartType: win.ServiceAutoStart, Running: true},
	} {
		if err := m.Add(spec); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) find(name string) (*service, bool) {
	v, ok := m.byName[win.UpperName(name)]
	return v, ok
}

func (m *Manager) touch(name string) { m.changed[win.UpperName(name)] = struct{}{} }

// sorted gives the services in the order of their names.
func (m *Manager) sorted() []*service {
	var all []*service
	for _, key := range slices.Sorted(maps.Keys(m.byName)) {
		all = append(all, m.byName[key])
	}
	return all
}

// dependents gives the services that depend on a service directly, also those that
// don't run.
func (m *Manager) dependents(name string) []*service {
	return slices.DeleteFunc(m.sorted(), func(v *service) bool { return !v.dependsOn(name) })
}

func (v *service) dependsOn(name string) bool {
	return slices.ContainsFunc(v.Spec.DependsOn, func(d string) bool { return win.SameName(d, name) })
}

// activeDependents returns the direct and indirect dependents of a service, except for
// stopped ones. Each stands before its own dependencies.
func (m *Manager) activeDependents(name string) []*service {
	var active []*service
	seen := map[*service]bool{}
	var visit func(name string)
	visit = func(name string) {
		for _, v := range m.dependents(name) {
			if seen[v] {
				continue
			}
			seen[v] = true
			visit(v.Spec.Name)
			if v.State != win.ServiceStopped {
				active = append(active, v)
			}
		}
	}
	visit(name)
	return active
}

// Query is QueryServiceConfigW and QueryServiceStatusEx.
func (m *Manager) Query(name string) (win.Service, error) {
	v, ok := m.find(name)
	if !ok {
		return win.Service{}, winerr.ErrorServiceDoesNotExist
	}
	answer := win.Service{
		DisplayName: v.Spec.DisplayName, StartType: v.Spec.StartType, State: v.State, ExitCode: v.ExitCode,
	}
	if v.ExitCode == winerr.ErrorServiceSpecificError {
		answer.SpecificExitCode = 1
	}
	return answer, nil
}

// Runs reports whether a service is there and runs.
func (m *Manager) Runs(name string) bool {
	v, ok := m.find(name)
	return ok && v.State == win.ServiceRunning
}

// Start is StartServiceW. The service is starting when it returns, for d once all runs
// that it depends on.
func (m *Manager) Start(name string, d time.Duration) error {
	v, ok := m.find(name)
	switch {
	case !ok:
		return winerr.ErrorServiceDoesNotExist
	// Guess: a service that is stopping can't be started, with error 1056, as one that runs.
	case v.State != win.ServiceStopped:
		return winerr.ErrorServiceAlreadyRunning
	}
	return m.start(v, d)
}

// Stop is ControlService(SERVICE_CONTROL_STOP). The service is stopping for d when it
// returns.
func (m *Manager) Stop(name string, d time.Duration) error {
	v, ok := m.find(name)
	switch {
	case !ok:
		return winerr.ErrorServiceDoesNotExist
	case v.State == win.ServiceStopped:
		return winerr.ErrorServiceNotActive
	case v.State != win.ServiceRunning:
		return winerr.ErrorServiceCannotAcceptCtrl
	case len(m.activeDependents(name)) > 0:
		return winerr.ErrorDependentServicesRunning
	}
	m.setState(v, win.ServiceStopPending, 0)
	m.finish(v, d)
	return nil
}

// ActiveDependents is EnumDependentServicesW(SERVICE_ACTIVE).
func (m *Manager) ActiveDependents(name string) ([]string, error) {
	if _, ok := m.find(name); !ok {
		return nil, winerr.ErrorServiceDoesNotExist
	}
	var names []string
	for _, v := range m.activeDependents(name) {
		names = append(names, v.Spec.Name)
	}
	return names, nil
}

// start starts a stopped service after its dependencies. The service runs after d.
func (m *Manager) start(v *service, d time.Duration) error {
	if refusal := m.startRefusal(v); refusal != 0 {
		m.setState(v, win.ServiceStopped, refusal)
		return refusal
	}
	v.delay = d
	m.setState(v, win.ServiceStartPending, 0)
	m.advance(v)
	return nil
}

// startRefusal starts what a service depends on and returns why the service manager
// can't start the service itself, 0 if it can.
func (m *Manager) startRefusal(v *service) winerr.Errno {
	if v.Spec.StartType == win.ServiceDisabled {
		return winerr.ErrorServiceDisabled
	}
	for _, name := range v.Spec.DependsOn {
		d, ok := m.find(name)
		if !ok {
			return errorServiceDependencyDeleted
		}
		if d.State == win.ServiceStopped {
			_ = m.start(d, m.node.StartTime) // its state tells
		}
		if d.State != win.ServiceRunning && d.State != win.ServiceStartPending {
			return winerr.ErrorServiceDependencyFail
		}
	}
	switch v.Spec.StartError {
	case winerr.ErrorFileNotFound, winerr.ErrorPathNotFound, winerr.ErrorAccessDenied, winerr.ErrorServiceRequestTimeout,
		errorServiceNoThread, errorServiceDatabaseLocked, errorInvalidServiceAccount, winerr.ErrorServiceDependencyFail,
		winerr.ErrorServiceLogonFailed, winerr.ErrorServiceMarkedForDelete, errorServiceDependencyDeleted:
		return v.Spec.StartError
	}
	return 0
}

// advance lets a service that is starting go on, if all that it depends on runs.
// When a service comes to run, advance is called again for those that wait for it.
func (m *Manager) advance(v *service) {
	for _, name := range v.Spec.DependsOn {
		if d, ok := m.find(name); ok && d.State != win.ServiceRunning {
			return
		}
	}
	m.finish(v, v.delay)
}

// finish ends the pending state of a service after d: at once, if that is no time.
func (m *Manager) finish(v *service, d time.Duration) {
	if d <= 0 {
		m.leavePending(v)
		return
	}
	m.node.Later(d, func() {
		if now, ok := m.find(v.Spec.Name); ok && now == v {
			m.leavePending(v)
		}
	})
}

// leavePending takes a service from its pending state to the next one.
func (m *Manager) leavePending(v *service) {
	switch {
	case v.State == win.ServiceStopPending:
		m.setState(v, win.ServiceStopped, 0)
	case v.State != win.ServiceStartPending: // what it waited for has failed
	case v.Spec.StartError != 0:
		m.fail(v, v.Spec.StartError)
	default:
		m.setState(v, win.ServiceRunning, 0)
		m.node.Running(v.Spec.Name)
		for _, dependent := range m.dependents(v.Spec.Name) {
			if dependent.State == win.ServiceStartPending {
				m.advance(dependent)
			}
		}
	}
}

// fail stops a service that was starting, and with it those that wait for it.
func (m *Manager) fail(v *service, exitCode winerr.Errno) {
	m.setState(v, win.ServiceStopped, exitCode)
	for _, dependent := range m.dependents(v.Spec.Name) {
		if dependent.State == win.ServiceStartPending {
			m.fail(dependent, winerr.ErrorServiceDependencyFail)
		}
	}
}

func (m *Manager) setState(v *service, state win.ServiceState, exitCode winerr.Errno) {
	v.State, v.ExitCode = state, exitCode
	m.touch(v.Spec.Name)
}

// Restart is what a restart of the node does: all services are stopped, and those
// start again that start with the node.
func (m *Manager) Restart() {
	for key, v := range m.byName {
		v = &service{record: v.record} // what was on its way isn't any longer
		m.byName[key] = v
		m.setState(v, win.ServiceStopped, errorServiceNeverStarted)
	}
	for _, v := range m.sorted() {
		if v.State == win.ServiceStopped && v.Spec.StartType < win.ServiceDemandStart {
			_ = m.start(v, m.node.StartTime) // its exit code tells
		}
	}
}

// Resume goes on with what was on its way when the state file was written.
func (m *Manager) Resume() {
	for _, v := range m.sorted() {
		switch v.State {
		case win.ServiceStartPending:
			v.delay = m.node.StartTime
			m.advance(v)
		case win.ServiceStopPending:
			m.finish(v, m.node.StopTime)
		}
	}
}

// Add adds a service, which runs already if the spec says so. A service with the name
// gives ErrorAlreadyExists.
func (m *Manager) Add(spec Spec) error {
	if err := m.add(spec); err != nil {
		return fmt.Errorf("add service %q: %w", spec.Name, err)
	}
	return nil
}

func (m *Manager) add(spec Spec) error {
	if err := win.CheckServiceName(spec.Name); err != nil {
		return fmt.Errorf("%w: %w", err, winerr.ErrorInvalidParameter)
	}
	if spec.StartType > win.ServiceDisabled {
		return fmt.Errorf("a start type of %d: %w", spec.StartType, winerr.ErrorInvalidParameter)
	}
	if _, exists := m.find(spec.Name); exists {
		return winerr.ErrorAlreadyExists
	}
	for _, name := range spec.DependsOn {
		if win.SameName(name, spec.Name) || m.leadsTo(name, spec.Name) {
			return fmt.Errorf("it depends on itself, by %s: %w", name, errorCircularDependency)
		}
		if spec.Running && !m.Runs(name) {
			return fmt.Errorf("it runs, while %s doesn't: %w", name, winerr.ErrorInvalidParameter)
		}
	}
	if spec.DisplayName == "" {
		spec.DisplayName = spec.Name
	}
	spec.DependsOn = slices.Clone(spec.DependsOn)
	v := &service{record: record{Spec: spec, State: win.ServiceStopped, ExitCode: errorServiceNeverStarted}}
	v.Spec.Running = false
	if spec.Running {
		v.State, v.ExitCode = win.ServiceRunning, 0
	}
	m.byName[win.UpperName(spec.Name)] = v
	m.touch(spec.Name)
	if spec.Running {
		m.node.Running(spec.Name)
	}
	return nil
}

// leadsTo reports whether the service named from depends on the one named to,
// directly or not.
func (m *Manager) leadsTo(from, to string) bool {
	v, ok := m.find(from)
	return ok && slices.ContainsFunc(v.Spec.DependsOn, func(name string) bool {
		return win.SameName(name, to) || m.leadsTo(name, to)
	})
}

// Remove removes a service at once, in any state. Its dependents go on, but can't start
// again. An unknown service is ErrorNotFound.
func (m *Manager) Remove(name string) error {
	v, ok := m.find(name)
	if !ok {
		return fmt.Errorf("no service %s: %w", name, winerr.ErrorNotFound)
	}
	m.fail(v, 0)
	delete(m.byName, win.UpperName(name))
	return nil
}

// SetStartType changes the start type of a service. One that isn't there is left out.
func (m *Manager) SetStartType(name string, t win.ServiceStartType) {
	if v, ok := m.find(name); ok {
		v.Spec.StartType = t
		m.touch(name)
	}
}

// List lists the services by name. One that is on its way to another state isn't
// Running.
func (m *Manager) List() []Spec {
	var specs []Spec
	for _, v := range m.sorted() {
		spec := v.Spec
		spec.DependsOn, spec.Running = slices.Clone(spec.DependsOn), v.State == win.ServiceRunning
		specs = append(specs, spec)
	}
	return specs
}
