// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// On a node without any daemon.
func TestReplaceFromNothing(t *testing.T) {
	everyDeath(t, func() *node {
		return &node{services: map[string]*service{}, files: map[string]string{newFile: oursNew}}
	}, replaceFrom("-v=2"), nil, nil, func(t *testing.T, n *node) {
		n.runs(t, "csi-proxy", oursNew)
		n.hasFiles(t, map[string]string{newFile: oursNew, program: oursNew})
		if !slices.Contains(n.log, `make C:\k`) && !slices.Contains(n.log, "write a part of "+program) {
			t.Errorf("no directory for the program: %v", n.log)
		}
		if line := n.services["csi-proxy"].settings.CommandLine; !strings.HasSuffix(line, " -v=2") {
			t.Errorf("command line %s", line)
		}
	})
}

func replaceFrom(args ...string) func(context.Context, *Deployer) error {
	return func(ctx context.Context, d *Deployer) error {
		in := installation(args...)
		in.From = newFile
		_, err := d.Replace(ctx, in)
		return err
	}
}

// In the place of the published daemon.
func TestReplaceFromPublished(t *testing.T) {
	everyDeath(t, func() *node {
		n := withPublished()
		delete(n.files, program)
		n.files[newFile] = oursNew
		return n
	}, replaceFrom(), nil, keepsPublished, func(t *testing.T, n *node) {
		n.runs(t, "csiproxy", oursNew)
		n.replaced(t, oldDaemon+flags)
	})
}

// Ours is upgraded, and gets the flags.
func TestReplaceFromOurs(t *testing.T) {
	args := []string{"-windows-service", `-log_file=C:\log\csi-proxy.log`, "-v=4"}
	everyDeath(t, withOurs, replaceFrom(args...), nil, keeps(oursOld), func(t *testing.T, n *node) {
		n.runs(t, "csi-proxy", oursNew)
		want := program + " " + strings.Join(args, " ")
		if got := n.services["csi-proxy"].settings.CommandLine; got != want {
			t.Errorf("command line %s, want %s", got, want)
		}
	})
}

// A second run stops nothing.
func TestReplaceFromAgain(t *testing.T) {
	n := withOurs()
	for range 2 {
		n.does(t, replaceFrom(), nil)
	}
	n.runs(t, "csi-proxy", oursNew)
	n.stopsOnce(t)
}

// A program that doesn't work doesn't stay.
func TestReplaceFromRollsBack(t *testing.T) {
	for _, bad := range []string{sick, crashing} {
		everyDeath(t, func() *node {
			n := withOurs()
			n.files[newFile] = bad
			return n
		}, replaceFrom("-v=4"), csiproxy.ErrFailedPrecondition, keeps(oursOld), func(t *testing.T, n *node) {
			n.runs(t, "csi-proxy", oursOld)
			if got := n.services["csi-proxy"].settings.CommandLine; got != program+flags {
				t.Errorf("%s: command line %s", bad, got)
			}
		})
	}
}

// A program that can't be copied changes nothing.
func TestReplaceFromMissing(t *testing.T) {
	for _, begin := range []func() *node{withOurs, withPublished} {
		n := begin()
		delete(n.files, newFile)
		if n.holds() == published {
			delete(n.files, program)
		}
		n.does(t, replaceFrom(), csiproxy.ErrInvalidArgument)
		if slices.Contains(n.log, "stop") || slices.Contains(n.log, "install") {
			t.Errorf("steps: %v", n.log)
		}
	}
}

// Our service at another path moves to DAEMON.
func TestReplaceFromElsewhere(t *testing.T) {
	n := withOurs()
	n.end(n.holder)
	delete(n.files, program)
	n.files[oldDaemon] = oursOld
	n.services["csi-proxy"].settings.CommandLine = oldDaemon + flags
	n.launch(n.services["csi-proxy"])
	n.does(t, replaceFrom(), nil)
	n.runs(t, "csi-proxy", oursNew)
	if got := n.services["csi-proxy"].settings.CommandLine; got != program+flags {
		t.Errorf("command line %s", got)
	}
	if n.files[oldDaemon] != oursOld {
		t.Error("the program before is gone")
	}
}

// A program that is there already isn't written again: it may run, without a service.
func TestReplaceFromSame(t *testing.T) {
	n := withPublished()
	n.files[newFile] = oursOld
	n.does(t, replaceFrom(), nil)
	n.runs(t, "csiproxy", oursOld)
	if slices.Contains(n.log, "write "+program) {
		t.Errorf("steps: %v", n.log)
	}
}
