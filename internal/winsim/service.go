// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"

	"go.etcd.io/bbolt"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Errors of the service manager that package win has no constant for.
//
// Source: https://learn.microsoft.com/windows/win32/debug/system-error-codes--1000-1299-
const (
	errorServiceNoThread          win.Errno = 1054
	errorServiceDatabaseLocked    win.Errno = 1055
	errorInvalidServiceAccount    win.Errno = 1057
	errorCircularDependency       win.Errno = 1059
	errorServiceDependencyDeleted win.Errno = 1075
	errorServiceNeverStarted      win.Errno = 1077 // exit code: not since the node started
)

// ServiceSpec is a service of the node.
type ServiceSpec struct {
	Name        string // 1 to 256 UTF-16 units; compared without case
	DisplayName string // default: Name
	// StartType says whether a restart of the node starts it: all but demand start
	// and disabled ones.
	StartType win.ServiceStartType
	DependsOn []string // names of services; they needn't be there
	Running   bool
	// StartError is why it can't start; 0: it can. What the service manager finds
	// itself, such as 2, 5, 1053 or 1069, is the answer of the call that starts it;
	// any other number, such as 1066 or 1067, is the exit code with which it stops
	// again while it is starting.
	StartError win.Errno
}

// service is a service with what is on its way.
type service struct {
	serviceRecord
	delay time.Duration // how long it takes once it may start
}

// serviceRecord is what the state file has of a service.
type serviceRecord struct {
	Spec     ServiceSpec // Running isn't used: State tells
	State    win.ServiceState
	ExitCode win.Errno
}

// services are those that the service manager knows.
type services struct {
	byName  map[string]*service // by serviceKey
	changed map[string]struct{} // keys, since the last commit
}

func serviceKey(name string) string { return strings.ToLower(name) }

func (ss *services) find(name string) (*service, bool) {
	v, ok := ss.byName[serviceKey(name)]
	return v, ok
}

func (ss *services) touch(name string) { ss.changed[serviceKey(name)] = struct{}{} }

// sorted gives the services in the order of their names.
func (ss *services) sorted() []*service {
	var all []*service
	for _, key := range slices.Sorted(maps.Keys(ss.byName)) {
		all = append(all, ss.byName[key])
	}
	return all
}

// dependents gives the services that depend on a service directly, also those that
// don't run.
func (ss *services) dependents(name string) []*service {
	return slices.DeleteFunc(ss.sorted(), func(v *service) bool { return !v.dependsOn(name) })
}

func (v *service) dependsOn(name string) bool {
	return slices.ContainsFunc(v.Spec.DependsOn, func(d string) bool { return strings.EqualFold(d, name) })
}

// activeDependents gives the services that depend on a service, directly or not, and
// aren't stopped: each before those that it depends on.
func (ss *services) activeDependents(name string) []*service {
	var active []*service
	seen := map[*service]bool{}
	var visit func(name string)
	visit = func(name string) {
		for _, v := range ss.dependents(name) {
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

// QueryService is QueryServiceConfigW and QueryServiceStatusEx.
func (s *System) QueryService(ctx context.Context, name string) (win.Service, error) {
	var answer win.Service
	err := s.call(ctx, Call{win.CallQueryService, name}, func() error {
		v, ok := s.services.find(name)
		if !ok {
			return win.ErrorServiceDoesNotExist
		}
		answer = win.Service{
			DisplayName: v.Spec.DisplayName, StartType: v.Spec.StartType, State: v.State, ExitCode: v.ExitCode,
		}
		if v.ExitCode == win.ErrorServiceSpecificError {
			answer.SpecificExitCode = 1
		}
		return nil
	})
	return answer, err
}

// StartService is StartServiceW. It returns when the service is starting; a delay
// of the call is how long that takes.
func (s *System) StartService(ctx context.Context, name string) error {
	return s.serviceRequest(ctx, win.CallStartService, name, func(v *service, delay time.Duration) error {
		if v.State != win.ServiceStopped {
			return win.ErrorServiceAlreadyRunning
		}
		return s.startService(v, delay)
	})
}

// StopService is ControlService(SERVICE_CONTROL_STOP). It returns when the service
// is stopping; a delay of the call is how long that takes.
func (s *System) StopService(ctx context.Context, name string) error {
	return s.serviceRequest(ctx, win.CallStopService, name, func(v *service, delay time.Duration) error {
		switch {
		case v.State == win.ServiceStopped:
			return win.ErrorServiceNotActive
		case v.State != win.ServiceRunning:
			return win.ErrorServiceCannotAcceptCtrl
		case len(s.services.activeDependents(name)) > 0:
			return win.ErrorDependentServicesRunning
		}
		s.setServiceState(v, win.ServiceStopPending, 0)
		s.finishService(v, delay)
		return nil
	})
}

// serviceRequest runs a call that changes the state of a service. Its delay isn't
// the call's but the change's.
func (s *System) serviceRequest(ctx context.Context, call, name string, f func(v *service, delay time.Duration) error) error {
	delay, fault, err := s.gate.admit(ctx, Call{call, name})
	switch {
	case err != nil:
		return err
	case fault != 0:
		return fault
	}
	return s.control(func() error {
		v, ok := s.services.find(name)
		if !ok {
			return win.ErrorServiceDoesNotExist
		}
		return f(v, delay)
	})
}

// ActiveDependentServices is EnumDependentServicesW(SERVICE_ACTIVE).
func (s *System) ActiveDependentServices(ctx context.Context, name string) ([]string, error) {
	var names []string
	err := s.call(ctx, Call{win.CallActiveDependentServices, name}, func() error {
		if _, ok := s.services.find(name); !ok {
			return win.ErrorServiceDoesNotExist
		}
		for _, v := range s.services.activeDependents(name) {
			names = append(names, v.Spec.Name)
		}
		return nil
	})
	return names, err
}

// startService starts a stopped service, and before it those that it depends on. It
// then takes the delay until the service runs.
func (s *System) startService(v *service, delay time.Duration) error {
	if refusal := s.startRefusal(v); refusal != 0 {
		s.setServiceState(v, win.ServiceStopped, refusal)
		return refusal
	}
	v.delay = delay
	s.setServiceState(v, win.ServiceStartPending, 0)
	s.advanceService(v)
	return nil
}

// startRefusal starts what a service depends on and returns why the service manager
// can't start the service itself, 0 if it can.
func (s *System) startRefusal(v *service) win.Errno {
	if v.Spec.StartType == win.ServiceDisabled {
		return win.ErrorServiceDisabled
	}
	for _, name := range v.Spec.DependsOn {
		d, ok := s.services.find(name)
		if !ok {
			return errorServiceDependencyDeleted
		}
		if d.State == win.ServiceStopped {
			_ = s.startService(d, s.gate.delays.Calls[win.CallStartService]) // its state tells
		}
		if d.State != win.ServiceRunning && d.State != win.ServiceStartPending {
			return win.ErrorServiceDependencyFail
		}
	}
	switch v.Spec.StartError {
	case win.ErrorFileNotFound, win.ErrorPathNotFound, win.ErrorAccessDenied, win.ErrorServiceRequestTimeout,
		errorServiceNoThread, errorServiceDatabaseLocked, errorInvalidServiceAccount, win.ErrorServiceDependencyFail,
		win.ErrorServiceLogonFailed, win.ErrorServiceMarkedForDelete, errorServiceDependencyDeleted:
		return v.Spec.StartError
	}
	return 0
}

// advanceService lets a service that is starting go on, if all that it depends on
// runs. Whatever comes to run calls it again.
func (s *System) advanceService(v *service) {
	for _, name := range v.Spec.DependsOn {
		if d, ok := s.services.find(name); ok && d.State != win.ServiceRunning {
			return
		}
	}
	s.finishService(v, v.delay)
}

// finishService ends the pending state of a service after d: at once, if that is
// no time.
func (s *System) finishService(v *service, d time.Duration) {
	if d <= 0 {
		s.servicePasses(v)
		return
	}
	s.later(d, func() {
		if now, ok := s.services.find(v.Spec.Name); ok && now == v {
			s.servicePasses(v)
		}
	})
}

// servicePasses takes a service from its pending state to the next one.
func (s *System) servicePasses(v *service) {
	switch {
	case v.State == win.ServiceStopPending:
		s.setServiceState(v, win.ServiceStopped, 0)
	case v.State != win.ServiceStartPending: // what it waited for has failed
	case v.Spec.StartError != 0:
		s.serviceFails(v, v.Spec.StartError)
	default:
		s.setServiceState(v, win.ServiceRunning, 0)
		if strings.EqualFold(v.Spec.Name, initiatorService) {
			s.initiatorStarts()
		}
		for _, dependent := range s.services.dependents(v.Spec.Name) {
			if dependent.State == win.ServiceStartPending {
				s.advanceService(dependent)
			}
		}
	}
}

// serviceFails stops a service that was starting, and with it those that wait for it.
func (s *System) serviceFails(v *service, exitCode win.Errno) {
	s.setServiceState(v, win.ServiceStopped, exitCode)
	for _, dependent := range s.services.dependents(v.Spec.Name) {
		if dependent.State == win.ServiceStartPending {
			s.serviceFails(dependent, win.ErrorServiceDependencyFail)
		}
	}
}

func (s *System) setServiceState(v *service, state win.ServiceState, exitCode win.Errno) {
	v.State, v.ExitCode = state, exitCode
	s.services.touch(v.Spec.Name)
}

// serviceRuns reports whether a service is there and runs.
func (s *System) serviceRuns(name string) bool {
	v, ok := s.services.find(name)
	return ok && v.State == win.ServiceRunning
}

// bootServices is what a restart of the node does to services: all begin anew.
func (s *System) bootServices() {
	for key, v := range s.services.byName {
		v = &service{serviceRecord: v.serviceRecord} // what was on its way isn't any longer
		s.services.byName[key] = v
		s.setServiceState(v, win.ServiceStopped, errorServiceNeverStarted)
	}
	for _, v := range s.services.sorted() {
		if v.State == win.ServiceStopped && v.Spec.StartType < win.ServiceDemandStart {
			_ = s.startService(v, s.gate.delays.Calls[win.CallStartService]) // its exit code tells
		}
	}
}

// resumeServices goes on with what was on its way when the state file was written.
func (s *System) resumeServices() {
	for _, v := range s.services.sorted() {
		switch v.State {
		case win.ServiceStartPending:
			v.delay = s.gate.delays.Calls[win.CallStartService]
			s.advanceService(v)
		case win.ServiceStopPending:
			s.finishService(v, s.gate.delays.Calls[win.CallStopService])
		}
	}
}

// AddService adds a service, which runs already if the spec says so. A service with
// the name gives ErrorAlreadyExists.
func (s *System) AddService(spec ServiceSpec) error {
	return s.control(func() error {
		if err := s.addService(spec); err != nil {
			return fmt.Errorf("add service %q: %w", spec.Name, err)
		}
		return nil
	})
}

func (s *System) addService(spec ServiceSpec) error {
	const maxName = 256
	switch units := len(utf16.Encode([]rune(spec.Name))); {
	case units == 0 || units > maxName || strings.ContainsAny(spec.Name, "/\\\x00"):
		return fmt.Errorf("its name: %w", win.ErrorInvalidParameter)
	case spec.StartType > win.ServiceDisabled:
		return fmt.Errorf("a start type of %d: %w", spec.StartType, win.ErrorInvalidParameter)
	}
	if _, exists := s.services.find(spec.Name); exists {
		return win.ErrorAlreadyExists
	}
	for _, name := range spec.DependsOn {
		if strings.EqualFold(name, spec.Name) || s.services.leadsTo(name, spec.Name) {
			return fmt.Errorf("it depends on itself, by %s: %w", name, errorCircularDependency)
		}
		if spec.Running && !s.serviceRuns(name) {
			return fmt.Errorf("it runs, while %s doesn't: %w", name, win.ErrorInvalidParameter)
		}
	}
	if spec.DisplayName == "" {
		spec.DisplayName = spec.Name
	}
	spec.DependsOn = slices.Clone(spec.DependsOn)
	v := &service{serviceRecord: serviceRecord{Spec: spec, State: win.ServiceStopped, ExitCode: errorServiceNeverStarted}}
	v.Spec.Running = false
	if spec.Running {
		v.State, v.ExitCode = win.ServiceRunning, 0
	}
	s.services.byName[serviceKey(spec.Name)] = v
	s.services.touch(spec.Name)
	if spec.Running && strings.EqualFold(spec.Name, initiatorService) {
		s.initiatorStarts()
	}
	return nil
}

// leadsTo reports whether the service named from depends on the one named to,
// directly or not.
func (ss *services) leadsTo(from, to string) bool {
	v, ok := ss.find(from)
	return ok && slices.ContainsFunc(v.Spec.DependsOn, func(name string) bool {
		return strings.EqualFold(name, to) || ss.leadsTo(name, to)
	})
}

// RemoveService takes a service away at once, whatever its state. Those that depend
// on it go on, but can't start any more.
func (s *System) RemoveService(name string) error {
	return s.control(func() error {
		v, ok := s.services.find(name)
		if !ok {
			return notFound("service", name)
		}
		s.serviceFails(v, 0)
		delete(s.services.byName, serviceKey(name))
		return nil
	})
}

// Services lists the services by name. One that is on its way to another state
// isn't Running.
func (s *System) Services() []ServiceSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	var specs []ServiceSpec
	for _, v := range s.services.sorted() {
		spec := v.Spec
		spec.DependsOn, spec.Running = slices.Clone(spec.DependsOn), v.State == win.ServiceRunning
		specs = append(specs, spec)
	}
	return specs
}

// collectServices hands the services that changed to the store.
func (s *System) collectServices() {
	for key := range s.services.changed {
		if v, ok := s.services.byName[key]; ok {
			s.store.putJSON(bucketServices, []byte(key), v.serviceRecord)
		} else {
			s.store.delete(bucketServices, []byte(key))
		}
	}
	clear(s.services.changed)
}

func (s *System) restoreServices(tx *bbolt.Tx) error {
	if tx.Bucket([]byte(bucketServices)) == nil {
		return nil
	}
	s.services.byName = map[string]*service{}
	return load(tx, bucketServices, func(k, value []byte) error {
		v := &service{}
		s.services.byName[string(k)] = v
		err := json.Unmarshal(value, &v.serviceRecord)
		if err == nil && serviceKey(v.Spec.Name) != string(k) {
			err = fmt.Errorf("it is of the service %q", v.Spec.Name)
		}
		return err
	})
}

// installServices makes the firmware, the iSCSI initiator and the services of a node
// that runs Kubernetes, as far as drivers touch them.
func (s *System) installServices() error {
	s.node.BIOSSerial, s.node.Network.Salt, s.changed = defaultBIOSSerial, newSalt(), true
	s.services.byName = map[string]*service{}
	s.installRegistry()
	for _, spec := range []ServiceSpec{
		{Name: "Winmgmt", DisplayName: "Windows Management Instrumentation", StartType: win.ServiceAutoStart, Running: true},
		{Name: "LanmanWorkstation", DisplayName: "Workstation", StartType: win.ServiceAutoStart, Running: true},
		{
			Name: "SessionEnv", DisplayName: "Remote Desktop Configuration", StartType: win.ServiceAutoStart,
			DependsOn: []string{"LanmanWorkstation"}, Running: true,
		},
		{Name: "Netlogon", DisplayName: "Netlogon", StartType: win.ServiceDemandStart, DependsOn: []string{"LanmanWorkstation"}},
		{Name: initiatorService, DisplayName: "Microsoft iSCSI Initiator Service", StartType: win.ServiceDemandStart},
		{Name: "containerd", DisplayName: "containerd", StartType: win.ServiceAutoStart, Running: true},
		{
			Name: "kubelet", DisplayName: "kubelet", StartType: win.ServiceAutoStart,
			DependsOn: []string{"containerd"}, Running: true,
		},
		{Name: "csi-proxy", DisplayName: "CSI Proxy", StartType: win.ServiceAutoStart, Running: true},
	} {
		if err := s.addService(spec); err != nil {
			return fmt.Errorf("service %s: %w", spec.Name, err)
		}
	}
	return nil
}
