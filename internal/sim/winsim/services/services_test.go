// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/lab/seamtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// node is a service manager with a clock of its own.
type node struct {
	*Manager
	now   time.Duration
	later []event // in the order of their times
	ran   []string
}

type event struct {
	at time.Duration
	f  func()
}

// newNode returns a node whose services take d to start or stop when nothing else is
// said.
func newNode(t *testing.T, d time.Duration) *node {
	t.Helper()
	m := emptyNode(d)
	must(t, m.Install())
	return m
}

func emptyNode(d time.Duration) *node {
	m := &node{}
	m.Manager = New(Node{
		Later: func(d time.Duration, f func()) {
			m.later = append(m.later, event{m.now + d, f})
			slices.SortStableFunc(m.later, func(a, b event) int { return cmp.Compare(a.at, b.at) })
		},
		StartTime: d, StopTime: d,
		Running: func(name string) { m.ran = append(m.ran, name) },
	})
	return m
}

// pass lets time pass.
func (m *node) pass(d time.Duration) {
	end := m.now + d
	for len(m.later) > 0 && m.later[0].at <= end {
		next := m.later[0]
		m.now, m.later = next.at, m.later[1:]
		next.f()
	}
	m.now = end
}

// settle lets time pass until nothing is on its way.
func (m *node) settle() {
	for len(m.later) > 0 {
		m.pass(m.later[0].at - m.now)
	}
}

// Short names for what tests of calls share.
var (
	must    = seamtest.Must
	wantErr = seamtest.WantErrno
)

func addService(t *testing.T, m *node, spec Spec) {
	t.Helper()
	if spec.StartType == 0 {
		spec.StartType = win.ServiceDemandStart
	}
	must(t, m.Add(spec))
}

// wantService checks the state of a service and its exit code.
func wantService(t *testing.T, m *node, name string, state win.ServiceState, exitCode winerr.Errno) {
	t.Helper()
	v, err := m.Query(name)
	if err != nil || v.State != state || v.ExitCode != exitCode {
		t.Errorf("%s is in the state %d with exit code %d (%v), want %d, %d", name, v.State, v.ExitCode, err, state, exitCode)
	}
}

// TestStates goes through all states that take time.
func TestStates(t *testing.T) {
	m := newNode(t, time.Second)
	addService(t, m, Spec{Name: "Base", DisplayName: "The base"})
	addService(t, m, Spec{Name: "Top", DependsOn: []string{"base"}})
	wantService(t, m, "TOP", win.ServiceStopped, errorServiceNeverStarted)
	wantErr(t, "stop a stopped one", m.Stop("Base", 0), winerr.ErrorServiceNotActive)

	must(t, m.Start("top", time.Minute))
	wantService(t, m, "Base", win.ServiceStartPending, 0)
	wantService(t, m, "Top", win.ServiceStartPending, 0)
	wantErr(t, "start a starting one", m.Start("Top", 0), winerr.ErrorServiceAlreadyRunning)
	wantErr(t, "stop a starting one", m.Stop("Top", 0), winerr.ErrorServiceCannotAcceptCtrl)
	m.pass(time.Second)
	wantService(t, m, "Base", win.ServiceRunning, 0)
	m.pass(time.Minute - 1)
	wantService(t, m, "Top", win.ServiceStartPending, 0)
	m.pass(1)
	wantService(t, m, "Top", win.ServiceRunning, 0)
	if got := m.ran[len(m.ran)-2:]; !slices.Equal(got, []string{"Base", "Top"}) {
		t.Errorf("%q have come to run", got)
	}

	must(t, m.Stop("Top", 2*time.Second))
	wantService(t, m, "Top", win.ServiceStopPending, 0)
	wantErr(t, "stop what a stopping one needs", m.Stop("Base", 0), winerr.ErrorDependentServicesRunning)
	wantErr(t, "start a stopping one", m.Start("Top", 0), winerr.ErrorServiceAlreadyRunning)
	m.pass(2 * time.Second)
	wantService(t, m, "Top", win.ServiceStopped, 0)
	must(t, m.Stop("Base", time.Second))
	wantErr(t, "start what needs a stopping one", m.Start("Top", 0), winerr.ErrorServiceDependencyFail)
	wantService(t, m, "Top", win.ServiceStopped, winerr.ErrorServiceDependencyFail)
}

// reopen takes the services through a state file, as a restart of the process does.
func reopen(t *testing.T, m *node) *node {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	f, _, err := statefile.Open(path)
	must(t, err)
	for key := range m.byName {
		m.touch(key)
	}
	m.Save(f)
	must(t, f.Commit())
	must(t, f.Close())
	again := emptyNode(time.Second)
	f, _, err = statefile.Open(path, again)
	must(t, err)
	must(t, f.Close())
	again.Resume()
	return again
}

// TestRestartOnTheWay: neither a restart of the process nor one of the node leaves a
// service between two states.
func TestRestartOnTheWay(t *testing.T) {
	m := newNode(t, time.Second)
	addService(t, m, Spec{Name: "Base"})
	addService(t, m, Spec{Name: "Top", DependsOn: []string{"Base"}})
	must(t, m.Start("Top", time.Second))
	must(t, m.Stop("csi-proxy", time.Second))

	m = reopen(t, m)
	wantService(t, m, "Top", win.ServiceStartPending, 0)
	m.settle()
	wantService(t, m, "Top", win.ServiceRunning, 0)
	wantService(t, m, "csi-proxy", win.ServiceStopped, 0)

	must(t, m.Stop("Top", time.Second))
	m.Restart()
	wantService(t, m, "Top", win.ServiceStopped, errorServiceNeverStarted)
	must(t, m.Start("Top", time.Minute))
	m.pass(time.Minute) // also over the end of what began before the restart
	wantService(t, m, "Top", win.ServiceStartPending, 0)
	m.settle()
	wantService(t, m, "Top", win.ServiceRunning, 0)
	wantService(t, m, "csi-proxy", win.ServiceRunning, 0)
}

// TestStartErrors: which failures the caller of a start is told, and which
// only the exit code tells.
func TestStartErrors(t *testing.T) {
	for name, test := range map[string]struct {
		spec           Spec
		call, exitCode winerr.Errno
		dependent      winerr.Errno // answer to the start of one that depends on it
	}{
		"logon":            {Spec{StartError: winerr.ErrorServiceLogonFailed}, 1069, 1069, 1068},
		"timeout":          {Spec{StartError: winerr.ErrorServiceRequestTimeout}, 1053, 1053, 1068},
		"no program":       {Spec{StartError: winerr.ErrorFileNotFound}, 2, 2, 1068},
		"its own error":    {Spec{StartError: winerr.ErrorServiceSpecificError}, 0, 1066, 1068},
		"crash":            {Spec{StartError: winerr.ErrorProcessAborted}, 0, 1067, 1068},
		"disabled":         {Spec{StartType: win.ServiceDisabled}, 1058, 1058, 1068},
		"lost dependency":  {Spec{DependsOn: []string{"nothing"}}, 1075, 1075, 1068},
		"nothing is wrong": {Spec{}, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newNode(t, 0)
			test.spec.Name = "It"
			addService(t, m, test.spec)
			addService(t, m, Spec{Name: "Dependent", DependsOn: []string{"It"}})
			state := win.ServiceStopped
			if test.exitCode == 0 {
				state = win.ServiceRunning
			}
			wantErr(t, "start", m.Start("It", 0), test.call)
			wantService(t, m, "It", state, test.exitCode)
			wantErr(t, "start the dependent", m.Start("Dependent", 0), test.dependent)
			wantService(t, m, "Dependent", state, test.dependent)
		})
	}
}

// TestFailsOnTheWay: who waits for a service that fails later fails with it.
func TestFailsOnTheWay(t *testing.T) {
	m := newNode(t, time.Second)
	addService(t, m, Spec{Name: "Base", StartError: winerr.ErrorServiceSpecificError})
	addService(t, m, Spec{Name: "Middle", DependsOn: []string{"Base"}})
	addService(t, m, Spec{Name: "Top", DependsOn: []string{"Middle"}})
	must(t, m.Start("Top", time.Second))
	m.pass(time.Second / 2)
	m.Restart()
	must(t, m.Start("Top", time.Second))
	m.pass(time.Second / 2) // over the failure that the restart has kept from happening
	wantService(t, m, "Top", win.ServiceStartPending, 0)
	m.settle()
	wantService(t, m, "Base", win.ServiceStopped, winerr.ErrorServiceSpecificError)
	if v, err := m.Query("Base"); err != nil || v.SpecificExitCode == 0 {
		t.Errorf("the service's own exit code is %d, %v", v.SpecificExitCode, err)
	}
	for _, name := range []string{"Middle", "Top"} {
		wantService(t, m, name, win.ServiceStopped, winerr.ErrorServiceDependencyFail)
	}

	addService(t, m, Spec{Name: "Removed"})
	addService(t, m, Spec{Name: "Waits", DependsOn: []string{"Removed"}})
	must(t, m.Start("Waits", time.Second))
	must(t, m.Remove("removed"))
	wantService(t, m, "Waits", win.ServiceStopped, winerr.ErrorServiceDependencyFail)
	_, err := m.Query("Removed")
	wantErr(t, "query a removed one", err, winerr.ErrorServiceDoesNotExist)
	addService(t, m, Spec{Name: "Removed"})
	m.settle() // over the end of its first start
	wantService(t, m, "Removed", win.ServiceStopped, errorServiceNeverStarted)
}

func TestRestart(t *testing.T) {
	m := newNode(t, 0)
	addService(t, m, Spec{Name: "Late", StartType: win.ServiceAutoStart, DependsOn: []string{"Needed"}})
	addService(t, m, Spec{Name: "Needed"})
	addService(t, m, Spec{Name: "Manual", Running: true})
	addService(t, m, Spec{Name: "Driver", StartType: win.ServiceSystemStart})
	addService(t, m, Spec{Name: "Broken", StartType: win.ServiceAutoStart, StartError: winerr.ErrorServiceLogonFailed})
	m.Restart()
	wantService(t, m, "Late", win.ServiceRunning, 0)
	wantService(t, m, "Needed", win.ServiceRunning, 0)
	wantService(t, m, "Driver", win.ServiceRunning, 0)
	wantService(t, m, "Manual", win.ServiceStopped, errorServiceNeverStarted)
	wantService(t, m, "Broken", win.ServiceStopped, winerr.ErrorServiceLogonFailed)
	wantService(t, m, ISCSIInitiator, win.ServiceStopped, errorServiceNeverStarted)
	m.SetStartType("msiscsi", win.ServiceAutoStart)
	m.SetStartType("nothing", win.ServiceAutoStart)
	m.Restart()
	wantService(t, m, ISCSIInitiator, win.ServiceRunning, 0)
}

// TestNames: names are the same in any case, as Windows folds it. The Kelvin sign
// isn't a K there.
func TestNames(t *testing.T) {
	m := newNode(t, 0)
	addService(t, m, Spec{Name: "\u212aubelet"})
	addService(t, m, Spec{Name: "Größe", DependsOn: []string{"\u212aUBELET"}})
	must(t, m.Start("GRÖßE", 0))
	wantService(t, m, "\u212aubelet", win.ServiceRunning, 0)
	must(t, m.Stop("größe", 0))
	must(t, m.Stop("\u212aubelet", 0))
	wantService(t, m, "KUBELET", win.ServiceRunning, 0)
	wantErr(t, "add a service in another case", m.Add(Spec{Name: "GRÖßE"}), winerr.ErrorAlreadyExists)
}

func TestErrors(t *testing.T) {
	m := newNode(t, 0)
	before := m.List()
	add := m.Add
	_, queryErr := m.Query("x")
	_, dependentsErr := m.ActiveDependents("x")
	addService(t, m, Spec{Name: "Loop", DependsOn: []string{"Future"}})
	for what, test := range map[string]struct {
		err  error
		want winerr.Errno
	}{
		"query":          {queryErr, winerr.ErrorServiceDoesNotExist},
		"start":          {m.Start("x", 0), winerr.ErrorServiceDoesNotExist},
		"stop":           {m.Stop("x", 0), winerr.ErrorServiceDoesNotExist},
		"dependents":     {dependentsErr, winerr.ErrorServiceDoesNotExist},
		"remove":         {m.Remove("x"), winerr.ErrorNotFound},
		"exists":         {add(Spec{Name: "msiscsi"}), winerr.ErrorAlreadyExists},
		"no name":        {add(Spec{}), winerr.ErrorInvalidParameter},
		"long name":      {add(Spec{Name: strings.Repeat("x", 257)}), winerr.ErrorInvalidParameter},
		"slash":          {add(Spec{Name: `a\b`}), winerr.ErrorInvalidParameter},
		"start type":     {add(Spec{Name: "x", StartType: 5}), winerr.ErrorInvalidParameter},
		"on itself":      {add(Spec{Name: "x", DependsOn: []string{"X"}}), errorCircularDependency},
		"circle":         {add(Spec{Name: "future", DependsOn: []string{"loop"}}), errorCircularDependency},
		"runs too early": {add(Spec{Name: "x", DependsOn: []string{"MSiSCSI"}, Running: true}), winerr.ErrorInvalidParameter},
	} {
		wantErr(t, what, test.err, test.want)
	}
	must(t, m.Remove("loop"))
	if diff := gocmp.Diff(before, m.List()); diff != "" {
		t.Errorf("what failed did something (-before +after):\n%s", diff)
	}
}
