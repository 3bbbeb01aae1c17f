// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

func addService(t *testing.T, s *System, spec ServiceSpec) {
	t.Helper()
	if spec.StartType == 0 {
		spec.StartType = win.ServiceDemandStart
	}
	must(t, s.AddService(spec))
}

// wantService checks the state of a service and its exit code.
func wantService(t *testing.T, s *System, name string, state win.ServiceState, exitCode win.Errno) {
	t.Helper()
	v, err := s.QueryService(t.Context(), name)
	if err != nil || v.State != state || v.ExitCode != exitCode {
		t.Errorf("%s is in the state %d with exit code %d (%v), want %d, %d", name, v.State, v.ExitCode, err, state, exitCode)
	}
}

// TestServiceStates goes through all states that take time.
func TestServiceStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNode(t, Delays{Calls: map[string]time.Duration{win.CallStartService: time.Second, win.CallStopService: 2 * time.Second}})
		ctx := t.Context()
		addService(t, s, ServiceSpec{Name: "Base", DisplayName: "The base"})
		addService(t, s, ServiceSpec{Name: "Top", DependsOn: []string{"base"}})
		wantService(t, s, "TOP", win.ServiceStopped, errorServiceNeverStarted)
		wantErr(t, "stop a stopped one", s.StopService(ctx, "Base"), win.ErrorServiceNotActive)

		must(t, s.Delay(Match{Call: win.CallStartService, Object: "top", Count: 1}, time.Minute))
		must(t, s.StartService(ctx, "top"))
		wantService(t, s, "Base", win.ServiceStartPending, 0)
		wantService(t, s, "Top", win.ServiceStartPending, 0)
		wantErr(t, "start a starting one", s.StartService(ctx, "Top"), win.ErrorServiceAlreadyRunning)
		wantErr(t, "stop a starting one", s.StopService(ctx, "Top"), win.ErrorServiceCannotAcceptCtrl)
		time.Sleep(time.Second + 1)
		wantService(t, s, "Base", win.ServiceRunning, 0)
		time.Sleep(time.Minute)
		wantService(t, s, "Top", win.ServiceStartPending, 0) // a second of its own, and the rule's minute
		time.Sleep(time.Second)
		wantService(t, s, "Top", win.ServiceRunning, 0)

		must(t, s.StopService(ctx, "Top"))
		wantService(t, s, "Top", win.ServiceStopPending, 0)
		wantErr(t, "stop what a stopping one needs", s.StopService(ctx, "Base"), win.ErrorDependentServicesRunning)
		wantErr(t, "start a stopping one", s.StartService(ctx, "Top"), win.ErrorServiceAlreadyRunning)
		time.Sleep(2*time.Second + 1)
		wantService(t, s, "Top", win.ServiceStopped, 0)
		must(t, s.StopService(ctx, "Base"))
		wantErr(t, "start what needs a stopping one", s.StartService(ctx, "Top"), win.ErrorServiceDependencyFail)
		wantService(t, s, "Top", win.ServiceStopped, win.ErrorServiceDependencyFail)
	})
}

// TestServiceRestartOnTheWay: neither a restart of the process nor one of the node
// leaves a service between two states.
func TestServiceRestartOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := Config{
			StateFile: filepath.Join(t.TempDir(), "state"),
			Delays:    Delays{Calls: map[string]time.Duration{win.CallStartService: time.Second, win.CallStopService: time.Second}},
		}
		s := openNode(t, c)
		addService(t, s, ServiceSpec{Name: "Base"})
		addService(t, s, ServiceSpec{Name: "Top", DependsOn: []string{"Base"}})
		must(t, s.StartService(t.Context(), "Top"))
		must(t, s.StopService(t.Context(), "csi-proxy"))
		must(t, s.Close())

		s = openNode(t, c)
		wantService(t, s, "Top", win.ServiceStartPending, 0)
		s.Settle()
		wantService(t, s, "Top", win.ServiceRunning, 0)
		wantService(t, s, "csi-proxy", win.ServiceStopped, 0)

		must(t, s.StopService(t.Context(), "Top"))
		must(t, s.PowerLoss())
		wantService(t, s, "Top", win.ServiceStopped, errorServiceNeverStarted)
		must(t, s.Delay(Match{Call: win.CallStartService, Object: "Top"}, time.Minute))
		must(t, s.StartService(t.Context(), "Top"))
		time.Sleep(time.Minute) // also over the end of what began before the restart
		wantService(t, s, "Top", win.ServiceStartPending, 0)
		s.Settle()
		wantService(t, s, "Top", win.ServiceRunning, 0)
		wantService(t, s, "csi-proxy", win.ServiceRunning, 0)
		must(t, s.Close())
	})
}

func TestServiceDependents(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	addService(t, s, ServiceSpec{Name: "A"})
	addService(t, s, ServiceSpec{Name: "B", DependsOn: []string{"a"}})
	addService(t, s, ServiceSpec{Name: "C", DependsOn: []string{"a", "b"}})
	addService(t, s, ServiceSpec{Name: "Idle", DependsOn: []string{"A"}})
	must(t, s.StartService(ctx, "C"))
	names, err := s.ActiveDependentServices(ctx, "a")
	must(t, err)
	if diff := cmp.Diff([]string{"C", "B"}, names); diff != "" {
		t.Errorf("dependents in the order to stop them (-want +got):\n%s", diff)
	}
	wantErr(t, "stop B", s.StopService(ctx, "B"), win.ErrorDependentServicesRunning)
	for _, name := range append(names, "A") {
		must(t, s.StopService(ctx, name))
	}
	if names, err := s.ActiveDependentServices(ctx, "A"); err != nil || len(names) != 0 {
		t.Errorf("dependents that run: %q, %v", names, err)
	}
}

// TestServiceStartErrors: which failures the caller of a start is told, and which
// only the exit code tells.
func TestServiceStartErrors(t *testing.T) {
	for name, test := range map[string]struct {
		spec           ServiceSpec
		call, exitCode win.Errno
		dependent      win.Errno // answer to the start of one that depends on it
	}{
		"logon":            {ServiceSpec{StartError: win.ErrorServiceLogonFailed}, 1069, 1069, 1068},
		"timeout":          {ServiceSpec{StartError: win.ErrorServiceRequestTimeout}, 1053, 1053, 1068},
		"no program":       {ServiceSpec{StartError: win.ErrorFileNotFound}, 2, 2, 1068},
		"its own error":    {ServiceSpec{StartError: win.ErrorServiceSpecificError}, 0, 1066, 1068},
		"crash":            {ServiceSpec{StartError: win.ErrorProcessAborted}, 0, 1067, 1068},
		"disabled":         {ServiceSpec{StartType: win.ServiceDisabled}, 1058, 1058, 1068},
		"lost dependency":  {ServiceSpec{DependsOn: []string{"nothing"}}, 1075, 1075, 1068},
		"nothing is wrong": {ServiceSpec{}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newNode(t, Delays{})
			test.spec.Name = "It"
			addService(t, s, test.spec)
			addService(t, s, ServiceSpec{Name: "Dependent", DependsOn: []string{"It"}})
			state := win.ServiceStopped
			if test.exitCode == 0 {
				state = win.ServiceRunning
			}
			wantErr(t, "start", s.StartService(t.Context(), "It"), test.call)
			wantService(t, s, "It", state, test.exitCode)
			wantErr(t, "start the dependent", s.StartService(t.Context(), "Dependent"), test.dependent)
			wantService(t, s, "Dependent", state, test.dependent)
		})
	}
}

// TestServiceFailsOnTheWay: who waits for a service that fails later fails with it.
func TestServiceFailsOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNode(t, Delays{Calls: map[string]time.Duration{win.CallStartService: time.Second}})
		addService(t, s, ServiceSpec{Name: "Base", StartError: win.ErrorServiceSpecificError})
		addService(t, s, ServiceSpec{Name: "Middle", DependsOn: []string{"Base"}})
		addService(t, s, ServiceSpec{Name: "Top", DependsOn: []string{"Middle"}})
		must(t, s.StartService(t.Context(), "Top"))
		time.Sleep(time.Second / 2)
		must(t, s.PowerLoss())
		must(t, s.StartService(t.Context(), "Top"))
		time.Sleep(time.Second / 2) // over the failure that the loss of power has kept from happening
		wantService(t, s, "Top", win.ServiceStartPending, 0)
		s.Settle()
		wantService(t, s, "Base", win.ServiceStopped, win.ErrorServiceSpecificError)
		if v, err := s.QueryService(t.Context(), "Base"); err != nil || v.SpecificExitCode == 0 {
			t.Errorf("the service's own exit code is %d, %v", v.SpecificExitCode, err)
		}
		for _, name := range []string{"Middle", "Top"} {
			wantService(t, s, name, win.ServiceStopped, win.ErrorServiceDependencyFail)
		}

		addService(t, s, ServiceSpec{Name: "Removed"})
		addService(t, s, ServiceSpec{Name: "Waits", DependsOn: []string{"Removed"}})
		must(t, s.StartService(t.Context(), "Waits"))
		must(t, s.RemoveService("removed"))
		wantService(t, s, "Waits", win.ServiceStopped, win.ErrorServiceDependencyFail)
		_, err := s.QueryService(t.Context(), "Removed")
		wantErr(t, "query a removed one", err, win.ErrorServiceDoesNotExist)
		addService(t, s, ServiceSpec{Name: "Removed"})
		s.Settle() // over the end of its first start
		wantService(t, s, "Removed", win.ServiceStopped, errorServiceNeverStarted)
	})
}

func TestServiceReboot(t *testing.T) {
	s := newNode(t, Delays{})
	addService(t, s, ServiceSpec{Name: "Late", StartType: win.ServiceAutoStart, DependsOn: []string{"Needed"}})
	addService(t, s, ServiceSpec{Name: "Needed"})
	addService(t, s, ServiceSpec{Name: "Manual", Running: true})
	addService(t, s, ServiceSpec{Name: "Driver", StartType: win.ServiceSystemStart})
	addService(t, s, ServiceSpec{Name: "Broken", StartType: win.ServiceAutoStart, StartError: win.ErrorServiceLogonFailed})
	must(t, s.Reboot())
	wantService(t, s, "Late", win.ServiceRunning, 0)
	wantService(t, s, "Needed", win.ServiceRunning, 0)
	wantService(t, s, "Driver", win.ServiceRunning, 0)
	wantService(t, s, "Manual", win.ServiceStopped, errorServiceNeverStarted)
	wantService(t, s, "Broken", win.ServiceStopped, win.ErrorServiceLogonFailed)
	wantService(t, s, initiatorService, win.ServiceStopped, errorServiceNeverStarted)
}

func TestServiceErrors(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	before := s.Services()
	add := func(spec ServiceSpec) error { return s.AddService(spec) }
	_, queryErr := s.QueryService(ctx, "x")
	_, dependentsErr := s.ActiveDependentServices(ctx, "x")
	addService(t, s, ServiceSpec{Name: "Loop", DependsOn: []string{"Future"}})
	for what, test := range map[string]struct {
		err  error
		want win.Errno
	}{
		"query":          {queryErr, win.ErrorServiceDoesNotExist},
		"start":          {s.StartService(ctx, "x"), win.ErrorServiceDoesNotExist},
		"stop":           {s.StopService(ctx, "x"), win.ErrorServiceDoesNotExist},
		"dependents":     {dependentsErr, win.ErrorServiceDoesNotExist},
		"remove":         {s.RemoveService("x"), win.ErrorNotFound},
		"exists":         {add(ServiceSpec{Name: "msiscsi"}), win.ErrorAlreadyExists},
		"no name":        {add(ServiceSpec{}), win.ErrorInvalidParameter},
		"long name":      {add(ServiceSpec{Name: strings.Repeat("x", 257)}), win.ErrorInvalidParameter},
		"slash":          {add(ServiceSpec{Name: `a\b`}), win.ErrorInvalidParameter},
		"start type":     {add(ServiceSpec{Name: "x", StartType: 5}), win.ErrorInvalidParameter},
		"on itself":      {add(ServiceSpec{Name: "x", DependsOn: []string{"X"}}), errorCircularDependency},
		"circle":         {add(ServiceSpec{Name: "future", DependsOn: []string{"loop"}}), errorCircularDependency},
		"runs too early": {add(ServiceSpec{Name: "x", DependsOn: []string{"MSiSCSI"}, Running: true}), win.ErrorInvalidParameter},
	} {
		wantErr(t, what, test.err, test.want)
	}
	must(t, s.RemoveService("loop"))
	if diff := cmp.Diff(before, s.Services()); diff != "" {
		t.Errorf("what failed did something (-before +after):\n%s", diff)
	}
	must(t, s.Fail(Match{Call: win.CallStopService, Object: "kubelet", Count: 1}, win.ErrorInvalidServiceControl))
	wantErr(t, "a call that a rule is for", s.StopService(ctx, "kubelet"), win.ErrorInvalidServiceControl)
	must(t, s.StopService(ctx, "kubelet"))
}

// TestStateFileWithoutServices: a state file from before there were services has
// those of a new node.
func TestStateFileWithoutServices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	want := s.Services()
	must(t, s.Close())
	db, err := bbolt.Open(file, 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bbolt.Tx) error {
		node := tx.Bucket([]byte(bucketNode))
		return errors.Join(tx.DeleteBucket([]byte(bucketServices)), node.Put([]byte(nodeKey), []byte(`{"Format":1,"NextDisk":1}`)))
	}))
	must(t, db.Close())
	s = openNode(t, Config{StateFile: file})
	if diff := cmp.Diff(want, s.Services()); diff != "" {
		t.Errorf("services (-new node +old state file):\n%s", diff)
	}
	if serial := s.node.BIOSSerial; serial != defaultBIOSSerial {
		t.Errorf("serial number %q", serial)
	}
	if len(s.node.Network.Salt) == 0 {
		t.Error("there is no salt")
	}
	must(t, s.Close())
}
