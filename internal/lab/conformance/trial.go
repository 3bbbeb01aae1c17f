// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csi-proxy/csi-proxy/api"
)

// session is one run of the suite.
type session struct {
	Options
	connections map[endpoint]*connection
	absent      map[endpoint]error // why an endpoint can't be used
	own         string             // directory below the kubelet directory; made when needed
	ownMade     bool
	stuck       string // where a volume may be left mounted; "" if nowhere
	trials      int
	disks       []*disk
}

// open connects to all endpoints. It fails if there is none at all.
func open(ctx context.Context, o Options) (*session, error) {
	s := &session{
		Options: o, connections: make(map[endpoint]*connection), absent: make(map[endpoint]error),
		own: o.KubeletPath + `\csi-proxy-conformance-` + rand.Text()[:10],
	}
	for _, group := range api.PublishedGroups() {
		for _, version := range api.Versions(group) {
			e := endpoint{group, version}
			c, err := connect(ctx, o, e)
			if err != nil {
				s.absent[e] = err
				continue
			}
			s.connections[e] = c
		}
	}
	if len(s.connections) == 0 {
		return nil, fmt.Errorf("%w %w", ErrNotServed, s.absent[endpoint{"disk", "v1"}])
	}
	if err := s.findDisks(ctx); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

// close puts disks back as they were, removes the run's directory and disconnects.
func (s *session) close(ctx context.Context) error {
	t := s.newTrial(context.WithoutCancel(ctx), selected{})
	var errs []error
	guarded := func(what string, f func()) {
		if outcome, why := t.guarded(f); outcome != Passed {
			errs = append(errs, fmt.Errorf("%s: %s", what, why))
		}
	}
	for _, d := range s.disks {
		if d.wasOffline {
			guarded("take a disk offline again", func() { t.do("SetDiskState", fields{"disk": d.number, "online": false}) })
		}
	}
	switch {
	case s.stuck != "":
		errs = append(errs, fmt.Errorf("a volume may be left mounted at %s: unmount it, then remove %s", s.stuck, s.own))
	case s.ownMade:
		guarded("remove the directory of this run", func() { t.do("Rmdir", fields{"path": s.own, "force": true}) })
	}
	for _, c := range s.connections {
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}

// newest returns the newest served endpoint that has a method.
func (s *session) newest(method string) (endpoint, bool) {
	for _, group := range api.PublishedGroups() {
		for _, version := range api.Versions(group) {
			e := endpoint{group, version}
			service, _ := api.Service(group, version)
			if s.connections[e] != nil && methodOf(service, method) != nil {
				return e, true
			}
		}
	}
	return endpoint{}, false
}

// trial is one check on its way for one version.
type trial struct {
	*session
	selected
	ctx     context.Context
	cleanup []func()
	dirs    int // made for this trial
	number  int // of this trial
}

func (s *session) newTrial(ctx context.Context, c selected) *trial {
	s.trials++
	return &trial{session: s, selected: c, ctx: ctx, number: s.trials}
}

// ended is what a trial panics with to end early.
type ended struct {
	outcome Outcome
	why     string
}

// try runs a check for a version.
func (s *session) try(ctx context.Context, c selected) (outcome Outcome, why string) {
	if c.Crashes && !s.CrashChecks {
		return NotApplicable, "it could end or harm a daemon that doesn't keep this promise: allow it with --crash-checks"
	}
	t := s.newTrial(ctx, c)
	outcome, why = t.guarded(func() { c.run(t) })
	// What the trial made goes also after a failure or an interruption, last things first.
	t.ctx = context.WithoutCancel(ctx)
	for _, f := range slices.Backward(t.cleanup) {
		if o, w := t.guarded(f); o != Passed && outcome == Passed {
			outcome, why = Failed, "clean-up: "+w
		}
	}
	return outcome, why
}

// guarded runs f up to its early end.
func (t *trial) guarded(f func()) (outcome Outcome, why string) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case ended:
			outcome, why = e.outcome, e.why
		default:
			panic(e)
		}
	}()
	f()
	return Passed, ""
}

func (t *trial) failf(format string, args ...any) {
	panic(ended{Failed, fmt.Sprintf(format, args...)})
}

func (t *trial) notApplicable(format string, args ...any) {
	panic(ended{NotApplicable, fmt.Sprintf(format, args...)})
}

// want fails the trial unless ok.
func (t *trial) want(ok bool, format string, args ...any) {
	if !ok {
		t.failf(format, args...)
	}
}

// endpointFor returns where a method is called: in the version under trial if it has the
// method, else in the newest version that has it.
func (t *trial) endpointFor(method string) endpoint {
	groups := []string{t.Group}
	if t.Group == driversGroup {
		groups = api.PublishedGroups()
	}
	for _, group := range groups {
		if service, ok := api.Service(group, t.version); ok && methodOf(service, method) != nil {
			e := endpoint{group, t.version}
			if err := t.absent[e]; err != nil {
				t.notApplicable("%s isn't served", api.EndpointName(e.group, e.version))
			}
			return e
		}
	}
	e, ok := t.newest(method)
	if !ok {
		t.notApplicable("no version with %s is served", method)
	}
	return e
}

// call calls a method. That the daemon is gone is no answer, and fails the trial.
func (t *trial) call(method string, f fields) (answer, error) {
	e := t.endpointFor(method)
	ctx, cancel := context.WithTimeout(t.ctx, t.CallTimeout)
	defer cancel()
	a, err := t.connections[e].invoke(ctx, e, method, f)
	if err == nil {
		if field := a.Descriptor().Fields().ByName("error"); field != nil && a.Get(field).String() != "" {
			t.failf("%s %v: the old field error has %q in a success", method, f, a.Get(field).String())
		}
		return a, nil
	}
	if _, ok := status.FromError(err); !ok {
		t.failf("%s %v: %v", method, f, err)
	}
	return a, err
}

// do calls a method that has to succeed.
func (t *trial) do(method string, f fields) answer {
	a, err := t.call(method, f)
	if err != nil {
		t.failf("%s %v: %v", method, f, err)
	}
	return a
}

// refused calls a method that has to fail with a code, and returns its error. The codes of
// the published daemon aren't compared: it answers each failure with Unknown.
func (t *trial) refused(want codes.Code, method string, f fields) error {
	_, err := t.call(method, f)
	switch got := status.Code(err); {
	case got == codes.OK:
		t.failf("%s %v succeeds, and is to be refused", method, f)
	case got == want, t.Published && got == codes.Unknown:
	default:
		t.failf("%s %v is refused with %v, want the code %v", method, f, err, want)
	}
	return err
}

// later adds a step of the clean-up. Steps run in the reverse order.
func (t *trial) later(f func()) { t.cleanup = append(t.cleanup, f) }

// dir makes a directory for this trial, and returns its path.
func (t *trial) dir() string {
	path := t.path()
	t.do("Mkdir", fields{"path": path})
	t.ownMade = true
	t.later(func() {
		if t.stuck == "" {
			t.do("Rmdir", fields{"path": path, "force": true})
		}
	})
	return path
}

// path returns a path in the directory of this run that is in use nowhere else.
func (t *trial) path() string {
	t.dirs++
	return fmt.Sprintf(`%s\%d-%d`, t.own, t.number, t.dirs)
}

// service is the version under trial.
func (t *trial) service() protoreflect.ServiceDescriptor {
	service, _ := api.Service(t.Group, t.version)
	return service
}

func (t *trial) exists(path string) bool {
	return t.do("PathExists", fields{"path": path}).is("exists")
}
