// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conformance checks that a daemon keeps the promises that CSI drivers rely on.
//
// It sees the daemon only as a driver does: it calls the methods of each published
// version at that version's endpoint, with the messages of that version. So it works on
// any daemon that serves the contract, on Windows or on a simulated node.
//
// A [Check] is one promise. It is tried once for each version that has the methods it
// needs, and each trial has one [Outcome]. What a check needs beyond the daemon, such as
// a disk that may be erased, is an input in [Options]; without it the check isn't
// applicable. A trial touches nothing but these inputs and a directory of its own below
// the kubelet directory, and cleans up also when it fails.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
)

// Check is one promise and how it is checked.
type Check struct {
	Name  string // stable: "disk.partition-twice"
	Group string // an API group, or "drivers" for the sequences of shipped drivers
	// Methods are those that the check is about, by their newest names. A version
	// without one of them isn't tried. Sequences of drivers name none.
	Methods []string
	Promise string // a sentence
	// Better marks a promise that the published daemon is known not to keep.
	Better bool
	// Crashes marks a check that is known to end the published daemon.
	Crashes bool

	only func(protoreflect.ServiceDescriptor) bool // further condition for a version; may be nil
	run  func(*trial)
}

// Versions returns the versions that the check is tried for, newest first.
func (c Check) Versions() []string {
	if c.Group == driversGroup {
		return []string{driversVersion}
	}
	return slices.DeleteFunc(api.Versions(c.Group), func(version string) bool {
		service, _ := api.Service(c.Group, version)
		for _, method := range c.Methods {
			if methodOf(service, method) == nil {
				return true
			}
		}
		return c.only != nil && !c.only(service)
	})
}

// Checks returns all checks in the order in which they run: those that could end the
// daemon come last.
func Checks() []Check {
	all := slices.Concat(endpointChecks(), errorChecks(), diskChecks, volumeChecks, filesystemChecks, pathChecks,
		plantedChecks, smbChecks, iscsiChecks, systemChecks, driverChecks)
	slices.SortStableFunc(all, func(a, b Check) int {
		switch {
		case a.Crashes == b.Crashes:
			return 0
		case a.Crashes:
			return 1
		}
		return -1
	})
	return all
}

// Outcome is how a trial ended.
type Outcome string

// Outcomes.
const (
	Passed          Outcome = "passed"
	Failed          Outcome = "failed"
	NotApplicable   Outcome = "not applicable"   // an input or an endpoint is missing
	KnownDifference Outcome = "known difference" // it failed, and that was known before
)

// Result is the result of one trial of a check.
type Result struct {
	Check   string  `json:"check"`
	Group   string  `json:"group"`
	Version string  `json:"version"`
	Outcome Outcome `json:"outcome"`
	Why     string  `json:"why,omitempty"` // unless it passed
	Promise string  `json:"promise"`
	Took    float64 `json:"seconds"`
}

// ID names the trial: "disk.partition-twice/v1".
func (r Result) ID() string { return r.Check + "/" + r.Version }

// KnownFailure is a failure that is expected in some environment, with its reason.
type KnownFailure struct {
	Trials *regexp.Regexp // matches the IDs of the trials
	Reason string
}

// Options are the daemon, the inputs and the choice of checks.
type Options struct {
	// Dial connects to the endpoint of a version of a group.
	Dial func(ctx context.Context, group, version string) (net.Conn, error)
	// KubeletPath is the daemon's. Default: C:\var\lib\kubelet.
	KubeletPath string
	// CallTimeout bounds each call. Default: two minutes.
	CallTimeout time.Duration

	// Disks are the serial numbers or page 83 identifiers of disks that may be erased.
	Disks []string
	// Erase confirms that the disks, and those of the iSCSI target, may be erased.
	Erase bool

	Share                        string // \\server\share, not mapped on the node; may be empty
	ShareUsername                string
	SharePassword                csiproxy.Secret
	Portal                       string // address or address:port of an iSCSI portal; may be empty
	Target                       string // name of a target there
	CHAPUsername                 string // empty: the target wants no CHAP
	CHAPSecret, MutualCHAPSecret csiproxy.Secret
	Service                      string // a Windows service that may be stopped and started; may be empty
	Node                         Node   // plants links, and data of another system on the disks; may be nil

	// Published says that the daemon is the published one: promises that it is known
	// not to keep become known differences, and codes of errors aren't compared.
	Published bool
	// CrashChecks also runs the checks that could end or harm a daemon that doesn't keep
	// its promises.
	CrashChecks bool
	// Known are further failures that are expected.
	Known []KnownFailure

	// Run, Groups and Versions choose trials: by ID, group and version. Nil means all.
	Run              *regexp.Regexp
	Groups, Versions []string

	// Progress is told of each result as it comes. May be nil.
	Progress func(result Result, n, total int)
}

// ErrNotServed is in the error of a run that found no endpoint at all.
var ErrNotServed = errors.New("no endpoint is served: is the daemon running?")

// Chosen is a check with those of its versions that were chosen.
type Chosen struct {
	Check
	Versions []string
}

// Chosen returns the checks that Run would run.
func (o Options) Chosen() []Chosen {
	var all []Chosen
	for _, c := range Checks() {
		versions := slices.DeleteFunc(c.Versions(), func(version string) bool {
			return o.Groups != nil && !slices.Contains(o.Groups, c.Group) ||
				o.Versions != nil && !slices.Contains(o.Versions, version) ||
				o.Run != nil && !o.Run.MatchString(c.Name+"/"+version)
		})
		if len(versions) > 0 {
			all = append(all, Chosen{c, versions})
		}
	}
	return all
}

// selected is one check for one version.
type selected struct {
	Check
	version string
}

func (o Options) selection() []selected {
	var all []selected
	for _, c := range o.Chosen() {
		for _, version := range c.Versions {
			all = append(all, selected{c.Check, version})
		}
	}
	return all
}

// Run runs the chosen checks. An error means that they couldn't be run, or not to the
// end: nobody serves an endpoint, an input is wrong, or ctx has ended. The results so
// far are returned with it.
func Run(ctx context.Context, o Options) (results []Result, err error) {
	if o.KubeletPath == "" {
		o.KubeletPath = `C:\var\lib\kubelet`
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 2 * time.Minute
	}
	s, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()

	chosen := o.selection()
	for i, c := range chosen {
		began := time.Now()
		outcome, why := s.try(ctx, c)
		if err := ctx.Err(); err != nil {
			return results, fmt.Errorf("stopped in %s/%s: %w", c.Name, c.version, context.Cause(ctx))
		}
		r := Result{Check: c.Name, Group: c.Group, Version: c.version, Outcome: outcome, Why: why,
			Promise: c.Promise, Took: time.Since(began).Seconds()}
		o.judge(c.Check, &r)
		results = append(results, r)
		if o.Progress != nil {
			o.Progress(r, i+1, len(chosen))
		}
	}
	return results, nil
}

// judge turns failures that were known before into known differences.
func (o Options) judge(c Check, r *Result) {
	if r.Outcome != Failed {
		return
	}
	if o.Published && c.Better {
		r.Outcome, r.Why = KnownDifference, "the published daemon doesn't promise this: "+r.Why
		return
	}
	for _, known := range o.Known {
		if known.Trials.MatchString(r.ID()) {
			r.Outcome, r.Why = KnownDifference, known.Reason+": "+r.Why
			return
		}
	}
}

// ParseKnownFailures reads a list of failures that are expected, with a line for each: a
// regular expression for the IDs of trials, blanks, and the reason. Empty lines and those
// that begin with # are passed over.
func ParseKnownFailures(text string) ([]KnownFailure, error) {
	var all []KnownFailure
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, reason, _ := strings.Cut(line, " ")
		if reason = strings.TrimSpace(reason); reason == "" {
			return nil, fmt.Errorf("the line %q has no reason", line)
		}
		trials, err := regexp.Compile("^(?:" + pattern + ")$")
		if err != nil {
			return nil, err
		}
		if len(Options{Run: trials}.Chosen()) == 0 {
			return nil, fmt.Errorf("no check has a name that %s matches", pattern)
		}
		all = append(all, KnownFailure{trials, reason})
	}
	return all, nil
}

// Unused returns those of the known failures of which something was tried, and nothing
// failed.
func Unused(known []KnownFailure, results []Result) []KnownFailure {
	return slices.DeleteFunc(slices.Clone(known), func(k KnownFailure) bool {
		tried := false
		for _, r := range results {
			if k.Trials.MatchString(r.ID()) {
				if r.Outcome == KnownDifference {
					return true
				}
				tried = tried || r.Outcome == Passed
			}
		}
		return !tried
	})
}
