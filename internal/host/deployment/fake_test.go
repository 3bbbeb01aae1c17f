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

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// Contents of programs. Each is its first word and a number.
const (
	oursOld   = "ours 1"
	oursNew   = "ours 2"
	published = "published 1"
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
	services map[string]*service
	files    map[string]string
	holder   string              // content of the program whose process has the pipes; empty for none
	holderOf string              // its path
	missing  bool                // -check leaves out a version
	writers  map[string][]string // of directories, beside administrators

	// dieAt is the step at which the process dies, before or after the step's effect; 0
	// for never.
	dieAt, steps int
	after        bool
	refuse       string // steps that fail
	failAt       int    // the step that fails, 0 for none, before or after its effect
	log          []string
}

type service struct {
	settings winservice.Settings
	// application is what the wrapper nssm starts, in the service's parameters. They stay when the
	// service gets another program.
	application string
	state       winservice.State
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
	if n.refuse != "" && strings.HasPrefix(what, n.refuse) {
		return errors.New("refused: " + what)
	}
	if n.steps == n.failAt && !n.after {
		return errors.New("failed: " + what)
	}
	err := do()
	if n.steps == n.dieAt {
		panic(died{})
	}
	if n.steps == n.failAt {
		err = errors.New("failed: " + what)
	}
	return err
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
	switch kind(n.holder) {
	case "ours":
		return nil
	case "published": // which has a version less
		if len(endpoints) == 0 {
			return nil
		}
	}
	return fmt.Errorf("the pipes are held by %q", n.holder)
}

func kind(content string) string { first, _, _ := strings.Cut(content, " "); return first }

func (n *node) service(name string) (*service, error) {
	s := n.services[name]
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
	return winservice.Status{State: s.state, CommandLine: s.settings.CommandLine}, nil
}

func (n *node) Settings(name string) (winservice.Settings, error) {
	s, err := n.service(name)
	if err != nil {
		return winservice.Settings{}, err
	}
	settings := s.settings
	settings.Wrapped = s.wrapped()
	return settings, nil
}

// wrapped is the command line of what the service's wrapper starts; empty if it has none.
func (s *service) wrapped() string {
	if strings.Contains(s.settings.CommandLine, "nssm.exe") {
		return s.application
	}
	return ""
}

func (s *service) daemon() string { return cmp.Or(s.wrapped(), s.settings.CommandLine) }

func (n *node) CheckOurs(name string) error {
	s, err := n.service(name)
	if err != nil {
		return err
	}
	if program, _, err := n.SplitCommandLine(s.daemon()); err != nil || !strings.Contains(program, "csi-proxy") {
		return refuse("check service", name, "it runs "+program)
	}
	return nil
}

// Install makes its changes in several steps, as Windows does.
func (n *node) Install(_ context.Context, c winservice.Config) error {
	if err := n.step("install", func() error {
		if n.services[c.Name] == nil {
			n.services[c.Name] = &service{state: winservice.Stopped}
		}
		s := n.services[c.Name]
		s.settings.CommandLine, s.settings.DisplayName, s.settings.Start = c.CommandLine, c.DisplayName, winservice.Automatic
		return nil
	}); err != nil {
		return err
	}
	return n.step("configure", func() error {
		s := n.services[c.Name]
		s.settings.Description, s.settings.Privileges = c.Description, c.Privileges
		return nil
	})
}

func (n *node) Restore(name string, settings winservice.Settings) error {
	return n.step("restore", func() error {
		s, err := n.service(name)
		if err == nil {
			s.settings = settings
			s.settings.Wrapped = ""
		}
		return err
	})
}

func (n *node) Uninstall(ctx context.Context, name string) error {
	if err := n.Stop(ctx, name); err != nil {
		return err
	}
	return n.step("delete", func() error { delete(n.services, name); return nil })
}

func (n *node) Start(ctx context.Context, name string) error {
	return n.step("start", func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s, err := n.service(name)
		if err != nil || s.state == winservice.Running {
			return err
		}
		program, _, _ := n.SplitCommandLine(s.daemon())
		content, ok := n.files[program]
		switch {
		case !ok:
			return fs.ErrNotExist
		case n.holder != "":
			return fmt.Errorf("the pipes are held by %s", n.holderOf)
		case kind(content) == "crashing":
			return errors.New("it ends at once")
		}
		if file, ok := driversOf(s.daemon()); ok && (n.files[file] == "" || n.files[file] == crashingDrivers) {
			return errors.New("it ends at once, for its file of drivers " + file)
		}
		s.state, n.holder, n.holderOf = winservice.Running, content, program
		return nil
	})
}

func (n *node) Stop(ctx context.Context, name string, programs ...string) error {
	if err := n.step("stop", func() error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s := n.services[name]
		if s == nil || s.state != winservice.Running {
			return nil
		}
		s.state = winservice.Stopped
		if kind(n.holder) != "published" && kind(n.holder) != "foreign" { // which keeps the pipes
			n.holder, n.holderOf = "", ""
		}
		return nil
	}); err != nil {
		return err
	}
	return n.step("release", func() error {
		switch {
		case n.holder == "" || len(programs) == 0:
			return nil
		case !slices.Contains(programs, n.holderOf):
			return &csiproxy.Error{Op: "stop", Object: name, Kind: csiproxy.ErrFailedPrecondition, Err: winservice.ErrHeld,
				Detail: "the pipes are held by " + n.holderOf}
		}
		n.holder, n.holderOf = "", ""
		return nil
	})
}

func (n *node) Record(name string) ([]byte, error) {
	s, err := n.service(name)
	if err != nil {
		return nil, err
	}
	return s.record, nil
}

func (n *node) SetRecord(name string, record []byte) error {
	return n.step("record", func() error {
		s, err := n.service(name)
		if err == nil {
			s.record = record
		}
		return err
	})
}

func (n *node) SplitCommandLine(line string) (string, []string, error) {
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "", nil, errors.New("empty")
	}
	if strings.HasPrefix(fields[0], `\`) {
		fields[0] = "C:" + fields[0]
	}
	return fields[0], fields[1:], nil
}

func (n *node) CommandLine(program string, args ...string) (string, error) {
	return strings.Join(append([]string{program}, args...), " "), nil
}

func (n *node) MakeLogDirectory(dir string) error {
	return n.step("make "+dir, func() error { return nil })
}

func (n *node) Writers(dir string) ([]string, error) { return n.writers[dir], nil }

func (n *node) Check(_ context.Context, program string, args []string) (winservice.Report, error) {
	content, ok := n.files[program]
	if !ok || kind(content) == "published" || slices.Contains(args, "-unknown") {
		return winservice.Report{}, errors.New("exit status 2")
	}
	if file, ok := driversOf(strings.Join(args, " ")); ok && (n.files[file] == "" || n.files[file] == wrongDrivers) {
		return winservice.Report{}, errors.New("exit status 2: wrong file of drivers " + file)
	}
	report := winservice.Report{Version: content, StopSeconds: 30, Privileges: []string{"SeBackupPrivilege"},
		LogDirectory: `C:\log`}
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
	switch kind(n.files[program]) {
	case "published":
		return Published, nil
	case "":
		return Unknown, nil
	}
	return Ours, nil
}

// Copy leaves a part behind if it dies.
func (n *node) Copy(_ context.Context, from, to string) error {
	if _, ok := n.files[from]; !ok {
		return fs.ErrNotExist
	}
	if err := n.step("copy a part to "+to, func() error { n.files[to+".part"] = ""; return nil }); err != nil {
		return err
	}
	return n.step("copy to "+to, func() error { n.files[to] = n.files[from]; delete(n.files, to+".part"); return nil })
}

// Write leaves a part behind if it dies.
func (n *node) Write(_ context.Context, path string, content []byte) error {
	if err := n.step("write a part of "+path, func() error { n.files[path+".part"] = ""; return nil }); err != nil {
		return err
	}
	return n.step("write "+path, func() error { n.files[path] = string(content); delete(n.files, path+".part"); return nil })
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
		if n.holderOf == to {
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

func (n *node) Exists(path string) (bool, error) { _, ok := n.files[path]; return ok, nil }

func (n *node) Same(a, b string) (bool, error) {
	first, ok1 := n.files[a]
	second, ok2 := n.files[b]
	if !ok1 || !ok2 {
		return false, fs.ErrNotExist
	}
	return first == second, nil
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
		}
		died := func(n *node) {
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
	m.files = maps.Clone(n.files)
	m.log = slices.Clone(n.log)
	return &m
}
