// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// Contents of programs. Each is its first word and a number.
const (
	oursOld   = "ours 1"
	oursNew   = "ours 2"
	published = "published 1"
	// A build of the published daemon with another module path.
	fork = "fork 1"
	// It passes -check and starts, but its endpoints don't answer.
	sick = "sick 1"
	// It passes -check and ends when it is started.
	crashing = "crashing 1"
	// It passes -check and can't be stopped.
	foreign = "foreign 1"
)

// Contents of files of drivers.
const (
	someDrivers  = "some drivers"
	otherDrivers = "other drivers"
	// It doesn't pass -check.
	wrongDrivers = "wrong drivers"
	// It passes -check, and the daemon ends when it is started.
	crashingDrivers = "crashing drivers"
)

// node is a made-up node: a service manager, a registry, files, processes and pipes.
type node struct {
	services  map[string]*service
	files     map[string]string
	processes map[uint32]process  // those that are there
	started   uint32              // the id of the last one
	holder    uint32              // the process that has the pipes; 0 for none
	missing   bool                // -check leaves out a version
	writers   map[string][]string // of directories, beside administrators

	// dieAt is the change at which the process dies, before or after its effect; 0
	// for never.
	dieAt, steps int
	after        bool
	refuse       string // calls that fail
	failAt       int    // the call that fails, 0 for none, before or after its effect
	calls        int    // changes and questions
	cutOff       bool   // a process was ended that was about to end by itself
	log          []string
}

// process is a process as it was started.
type process struct{ program, content string }

type service struct {
	settings winservice.Settings
	// application is what the wrapper nssm starts, in the service's parameters. They stay when the
	// service gets another program.
	application string
	state       winservice.State
	process     uint32    // 0 if it is stopped
	dependsOn   []string  // other services
	first       uint32    // the process of a dependent, which must not change
	stops       time.Time // when a stop that is pending ends
	record      []byte
}

// died is what a step panics with when the process dies.
type died struct{}

// step does what changes the node, unless the process dies there.
func (n *node) step(what string, do func() error) error {
	n.steps++
	n.log = append(n.log, what)
	if n.steps == n.dieAt && !n.after {
		panic(died{})
	}
	err := n.fail(what)
	if err == nil || n.after && n.calls == n.failAt {
		err = errors.Join(err, do())
	}
	if n.steps == n.dieAt {
		panic(died{})
	}
	return err
}

// fail counts a call, and returns the error of the one that fails.
func (n *node) fail(what string) error {
	n.calls++
	if n.calls == n.failAt || n.refuse != "" && strings.HasPrefix(what, n.refuse) {
		return errors.New("failed: " + what)
	}
	return nil
}

// lives runs do, and reports whether the process has survived it.
func (n *node) lives(do func()) (alive bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(died); !ok {
				panic(r)
			}
			alive = false
		}
	}()
	do()
	return true
}

func (n *node) deployer() *Deployer {
	return &Deployer{Services: n, Programs: n, Files: n, Healthy: n.healthy, Log: slog.New(slog.DiscardHandler)}
}

func (n *node) healthy(_ context.Context, endpoints []string) error {
	switch kind(n.holds()) {
	case "ours":
		return nil
	case "published", "fork": // which has a version less
		if len(endpoints) == 0 {
			return nil
		}
	}
	return fmt.Errorf("the pipes are held by %q", n.holds())
}

// holds is the content of the program that has the pipes; empty for none.
func (n *node) holds() string { return n.processes[n.holder].content }

func kind(content string) string { first, _, _ := strings.Cut(content, " "); return first }

// run starts a process.
func (n *node) run(program, content string) uint32 {
	if n.processes == nil {
		n.processes = make(map[uint32]process)
	}
	n.started++
	n.processes[n.started] = process{program, content}
	return n.started
}

// serve starts a process that has the pipes.
func (n *node) serve(program string) uint32 {
	n.holder = n.run(program, n.files[program])
	return n.holder
}

// end ends a process; 0 is none. A service whose process ends has stopped.
func (n *node) end(id uint32) {
	delete(n.processes, id)
	if n.holder == id {
		n.holder = 0
	}
	for _, s := range n.services {
		if id != 0 && s.process == id {
			s.state, s.process = winservice.Stopped, 0
		}
	}
}

// launch starts a service's process, by a wrapper if it has one.
func (n *node) launch(s *service) {
	program, _, _ := n.SplitCommandLine(s.daemon())
	s.state, s.process = winservice.Running, n.serve(program)
	if r := s.settings.Recovery; kind(n.holds()) == "ours" && (r == nil || len(r.Actions) == 0) { // as winservice.Run does
		s.settings.Recovery = &restartAfter10s
	}
	if s.wrapped() != "" {
		s.process = n.run(s.settings.CommandLine, "nssm")
	}
}

// depend adds running services of which each depends on the one before, and the first on a service.
func (n *node) depend(on string, names ...string) {
	for _, name := range names {
		id := n.run(name, name)
		n.services[name] = &service{state: winservice.Running, process: id, first: id, dependsOn: []string{on}}
		on = name
	}
}

// undisturbed checks that the dependents run on, and that no daemon was cut off from calls under way.
func (n *node) undisturbed(t *testing.T) {
	t.Helper()
	if n.cutOff {
		t.Errorf("a daemon was ended while it stopped: %s", strings.Join(n.log, "; "))
	}
	for name, s := range n.services {
		if s.first != 0 && (s.state != winservice.Running || s.process != s.first) {
			t.Errorf("%s, which depends on the service, is in state %v: %s", name, s.state, strings.Join(n.log, "; "))
		}
	}
}

func (n *node) service(name string) (*service, error) {
	if err := n.fail("ask for " + name); err != nil {
		return nil, err
	}
	s := n.services[name]
	if s != nil && s.state == winservice.StopPending && !time.Now().Before(s.stops) {
		n.end(s.process)
	}
	if s == nil {
		return nil, &csiproxy.Error{Op: "open", Object: name, Kind: csiproxy.ErrNotFound}
	}
	return s, nil
}

func (n *node) Query(name string) (winservice.Status, error) {
	s, err := n.service(name)
	if err != nil {
		return winservice.Status{}, err
	}
	settings := s.settings
	settings.Wrapped = s.wrapped()
	return winservice.Status{Settings: settings, State: s.state, ProcessID: s.process}, nil
}

// wrapped is the command line of what the service's wrapper starts; empty if it has none.
func (s *service) wrapped() string {
	if strings.Contains(s.settings.CommandLine, "nssm.exe") {
		return s.application
	}
	return ""
}

func (s *service) daemon() string { return cmp.Or(s.wrapped(), s.settings.CommandLine) }

// Configure makes its changes in two steps, as Windows does.
func (n *node) Configure(name string, settings winservice.Settings) error {
	if err := n.step("configure", func() error {
		if n.services[name] == nil {
			n.services[name] = &service{state: winservice.Stopped}
		}
		s := n.services[name]
		s.settings.CommandLine, s.settings.Start = settings.CommandLine, settings.Start
		return nil
	}); err != nil {
		return err
	}
	return n.step("configure recovery", func() error {
		s := n.services[name]
		s.settings.Recovery = cmp.Or(settings.Recovery, s.settings.Recovery)
		return nil
	})
}

func (n *node) DeleteService(name string) error {
	return n.step("delete", func() error { delete(n.services, name); return nil })
}

// Dependents returns the dependents of the dependents, too, in the order in which they stop, as Windows does.
func (n *node) Dependents(name string, active bool) (names []string, err error) {
	if _, err := n.service(name); err != nil {
		return nil, err
	}
	on := []string{name}
	for i := 0; i < len(on); i++ {
		for other, s := range n.services {
			if slices.Contains(s.dependsOn, on[i]) && (s.state != winservice.Stopped || !active) {
				on = append(on, other)
			}
		}
	}
	names = on[1:]
	slices.Reverse(names)
	return names, nil
}

func (n *node) StartService(name string) error {
	return n.step("start", func() error {
		s := n.services[name]
		if s == nil || s.state == winservice.Running {
			return nil
		}
		program, _, _ := n.SplitCommandLine(s.daemon())
		content, ok := n.files[program]
		switch {
		case !ok:
			return fs.ErrNotExist
		case n.holder != 0:
			return fmt.Errorf("the pipes are held by %s", n.processes[n.holder].program)
		case kind(content) == "crashing":
			return errors.New("it ends at once")
		}
		if file, ok := driversOf(s.daemon()); ok && (n.files[file] == "" || n.files[file] == crashingDrivers) {
			return errors.New("it ends at once, for its file of drivers " + file)
		}
		n.launch(s)
		return nil
	})
}

// stopTakes is how long ours takes to stop: the calls under way end.
const stopTakes = 6 * time.Second

// ControlService is as Windows: nobody stops what a running service depends on. Only ours knows ControlLeave.
// The published daemon outlives its stop.
func (n *node) ControlService(name string, control winservice.Control) error {
	return n.step(map[winservice.Control]string{winservice.ControlStop: "stop", winservice.ControlLeave: "leave"}[control],
		func() error {
			s := n.services[name]
			if s == nil || s.state != winservice.Running {
				return nil
			}
			content := n.processes[s.process].content
			if control == winservice.ControlLeave {
				switch kind(content) {
				case "nssm":
					return errors.New("the control is unknown")
				case "published", "fork":
				default:
					s.state, s.stops = winservice.StopPending, time.Now().Add(stopTakes)
				}
				return nil
			}
			for _, other := range n.services {
				if slices.Contains(other.dependsOn, name) && other.state != winservice.Stopped {
					return &csiproxy.Error{Op: "ControlService", Object: name, Kind: csiproxy.ErrFailedPrecondition,
						Err: winservice.ErrDependents}
				}
			}
			switch kind(content) {
			case "published", "fork", "foreign":
				s.state, s.process = winservice.Stopped, 0
			case "nssm":
				n.end(n.holder)
				n.end(s.process)
			default:
				s.state, s.stops = winservice.StopPending, time.Now().Add(stopTakes)
			}
			return nil
		})
}

func (n *node) OpenProcess(id uint32) (winservice.Process, error) {
	if err := n.fail("open process"); err != nil {
		return nil, err
	}
	p, ok := n.processes[id]
	if !ok {
		return nil, nil
	}
	return opened{n, id, p}, nil
}

// opened is an open process.
type opened struct {
	*node
	id uint32
	process
}

func (o opened) Ended() (bool, error) {
	_, there := o.processes[o.id]
	return !there, o.fail("wait for process")
}

func (o opened) Terminate() error {
	return o.step("terminate "+o.program, func() error {
		for _, s := range o.services {
			o.cutOff = o.cutOff || s.process == o.id && s.state == winservice.StopPending
		}
		o.end(o.id)
		return nil
	})
}

func (o opened) Image() (string, error) { return o.program, o.fail("image of process") }

func (opened) Close() {}

func (n *node) Holder(context.Context, string) (uint32, error) { return n.holder, n.fail("holder") }

func (n *node) Record(name string) ([]byte, error) {
	s, err := n.service(name)
	if err != nil {
		return nil, err
	}
	return s.record, nil
}

func (n *node) SetRecord(name string, record []byte) error {
	return n.step("record", func() error {
		if s := n.services[name]; s != nil {
			s.record = record
		}
		return nil
	})
}

func (n *node) SplitCommandLine(line string) (string, []string, error) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "", nil, errors.New("empty")
	}
	if quoted, ok := strings.CutPrefix(line, `"`); ok {
		program, rest, _ := strings.Cut(quoted, `"`)
		fields = append([]string{program}, strings.Fields(rest)...)
	}
	if strings.HasPrefix(fields[0], `\`) {
		fields[0] = "C:" + fields[0]
	}
	return fields[0], fields[1:], nil
}

func (n *node) CommandLine(program string, args ...string) (string, error) {
	return strings.Join(append([]string{program}, args...), " "), nil
}

func (n *node) MakeDirectory(dir string) error {
	return n.step("make "+dir, func() error { return nil })
}

func (n *node) Writers(dir string) ([]string, error) { return n.writers[dir], n.fail("writers") }

func (n *node) Check(_ context.Context, program string, args []string) (winservice.Report, error) {
	if err := n.fail("check"); err != nil {
		return winservice.Report{}, err
	}
	content, ok := n.files[program]
	if !ok || kind(content) == "published" || slices.Contains(args, "-unknown") {
		return winservice.Report{}, errors.New("exit status 2")
	}
	if file, ok := driversOf(strings.Join(args, " ")); ok && (n.files[file] == "" || n.files[file] == wrongDrivers) {
		return winservice.Report{}, errors.New("exit status 2: wrong file of drivers " + file)
	}
	report := winservice.Report{Version: content, LogDirectory: `C:\log`}
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			report.Endpoints = append(report.Endpoints, api.EndpointName(group, version))
		}
	}
	if n.missing {
		report.Endpoints = report.Endpoints[1:]
	}
	return report, nil
}

func (n *node) Origin(program string) (Origin, error) {
	if err := n.fail("origin"); err != nil {
		return Unknown, err
	}
	switch kind(n.files[program]) {
	case "published":
		return Published, nil
	case "", "fork":
		return Unknown, nil
	}
	return Ours, nil
}

// runsFrom reports whether a process of a program is there.
func (n *node) runsFrom(program string) bool {
	for _, p := range n.processes {
		if p.program == program {
			return true
		}
	}
	return false
}

// Write leaves a part behind if it dies.
func (n *node) Write(_ context.Context, path string, content []byte) error {
	if err := n.step("write a part of "+path, func() error { n.files[path+".part"] = ""; return nil }); err != nil {
		return err
	}
	return n.step("write "+path, func() error {
		if n.runsFrom(path) {
			return errors.New("a program that runs can't be replaced")
		}
		n.files[path] = string(content)
		delete(n.files, path+".part")
		return nil
	})
}

func (n *node) List(dir string) (paths []string, _ error) {
	for path := range n.files {
		if directoryOf(path) == dir {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths, nil
}

// driversOf returns the file that -drivers names in a command line.
func driversOf(line string) (file string, ok bool) {
	for arg := range strings.FieldsSeq(line) {
		if value, found := strings.CutPrefix(arg, "-drivers="); found {
			file, ok = value, true
		}
	}
	return file, ok
}

func (n *node) Rename(_ context.Context, from, to string) error {
	return n.step("rename to "+to, func() error {
		content, ok := n.files[from]
		if !ok {
			return fs.ErrNotExist
		}
		if n.runsFrom(to) {
			return errors.New("a program that runs can't be replaced")
		}
		n.files[to] = content
		delete(n.files, from)
		return nil
	})
}

func (n *node) Remove(path string) error {
	return n.step("remove "+path, func() error { delete(n.files, path); return nil })
}

func (n *node) Read(path string) ([]byte, error) {
	content, ok := n.files[path]
	if err := n.fail("read"); err != nil || !ok {
		return nil, err
	}
	return []byte(content), nil
}

// everyDeath runs do once without a death, and then on a new node for each of its steps: with
// a death before and after it, and then again to its end, also with a second death in between.
// A run to the end must fail with fails, nil for success; then check judges the node. At a death
// keeps does, if it isn't nil.
func everyDeath(t *testing.T, begin func() *node, do func(context.Context, *Deployer) error, fails error,
	keeps, check func(*testing.T, *node)) {
	synctest.Test(t, func(t *testing.T) {
		ended := func(n *node, err error) {
			if !errors.Is(err, fails) {
				t.Errorf("%v, want %v", err, fails)
			}
			check(t, n)
			n.undisturbed(t)
		}
		died := func(n *node) {
			n.undisturbed(t)
			if keeps != nil {
				keeps(t, n)
			}
			n.steps, n.dieAt = 0, 0
			n.log = append(n.log, "died")
		}
		n := begin()
		ended(n, do(t.Context(), n.deployer()))
		total := n.steps
		if total < 2 {
			t.Fatalf("%d steps: %v", total, n.log)
		}
		for at := 1; at <= total; at++ {
			for _, after := range []bool{false, true} {
				n := begin()
				n.dieAt, n.after = at, after
				if n.lives(func() { do(t.Context(), n.deployer()) }) {
					t.Fatalf("no death at step %d of %d", at, total)
				}
				died(n)
				for second := 0; second <= total+3; second++ { // 0 is no second death
					if testing.Short() && second > 0 && second%5 != at%5 {
						continue
					}
					n := n.clone()
					n.dieAt, n.after = second, second%2 == at%2
					var err error
					if !n.lives(func() { err = do(t.Context(), n.deployer()) }) {
						died(n)
						err = do(t.Context(), n.deployer())
					}
					ended(n, err)
					if t.Failed() {
						t.Fatalf("death at step %d, after its effect %v, then at %d: %s", at, after, second,
							strings.Join(n.log, "; "))
					}
				}
			}
		}
	})
}

func (n *node) clone() *node {
	m := *n
	m.services = make(map[string]*service)
	for name, s := range n.services {
		copied := *s
		m.services[name] = &copied
	}
	m.files, m.processes = maps.Clone(n.files), maps.Clone(n.processes)
	m.log = slices.Clone(n.log)
	return &m
}
