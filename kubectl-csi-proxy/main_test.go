// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/fleet"
	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/gate"
)

func TestWait(t *testing.T) {
	ready := gate.Report{Ready: true, Nodes: []gate.Node{{Name: "win-1", Ready: true}}}
	notReady := gate.Report{Nodes: []gate.Node{{Name: "win-1"}}}
	broken := errors.New("broken")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no role"))
	type look struct {
		report gate.Report
		err    error
	}
	for _, tt := range []struct {
		name  string
		wait  time.Duration
		looks []look // the last one repeats
		ready bool
		err   error
		after time.Duration
		said  int // lines of progress
	}{
		{name: "ready at once", wait: time.Minute, looks: []look{{report: ready}}, ready: true},
		{name: "looks once", looks: []look{{report: notReady}}},
		{name: "ready later", wait: time.Minute, looks: []look{{report: notReady}, {report: notReady}, {report: ready}},
			ready: true, after: 20 * time.Second, said: 1},
		{name: "never", wait: 25 * time.Second, looks: []look{{report: notReady}}, after: 25 * time.Second, said: 1},
		{name: "an error that passes", wait: time.Minute, looks: []look{{err: broken}, {report: ready}}, ready: true,
			after: 10 * time.Second, said: 1},
		{name: "an error that stays", wait: time.Minute, looks: []look{{report: notReady}, {err: broken}}, err: broken,
			after: time.Minute, said: 2},
		{name: "no rights", wait: time.Minute, looks: []look{{err: forbidden}}, err: forbidden},
		{name: "wrong flags", wait: time.Minute, looks: []look{{err: gate.ErrOptions}}, err: gate.ErrOptions},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var progress bytes.Buffer
				looks := tt.looks
				report, err := waitUntilReady(t.Context(), tt.wait, 10*time.Second, &progress,
					func(context.Context) (gate.Report, error) {
						now := looks[0]
						if len(looks) > 1 {
							looks = looks[1:]
						}
						return now.report, now.err
					})
				if report.Ready != tt.ready || !errors.Is(err, tt.err) {
					t.Errorf("ready %t, error %v", report.Ready, err)
				}
				if after := time.Since(start); after != tt.after {
					t.Errorf("after %v", after)
				}
				if said := strings.Count(progress.String(), "\n"); said != tt.said {
					t.Errorf("progress:\n%s", &progress)
				}
			})
		})
	}
}

// TestInterrupted: a signal ends the wait.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		interrupted := errors.New("interrupted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(15*time.Second, func() { cancel(interrupted) })
		_, err := waitUntilReady(ctx, time.Hour, 10*time.Second, &bytes.Buffer{}, func(context.Context) (gate.Report, error) {
			return gate.Report{}, nil
		})
		if !errors.Is(err, interrupted) {
			t.Errorf("error %v", err)
		}
	})
}

func TestFlags(t *testing.T) {
	for _, args := range []string{
		"check extra", "check -o yaml", "check --wait -1s", "check --interval 0s", "check --unknown", "unknown",
		"check --kubeconfig /dev/null/missing", "check --token secret",
		"status extra", "status -o text", "status --interval 0s", "disks -o x", "doctor --node-timeout 0s",
		"logs --kubeconfig /dev/null/missing",
		"sysdump --kubeconfig /dev/null/missing",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitUnknown {
			t.Errorf("%s: exit code %d", args, code)
		}
		if stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "kubectl csi-proxy: ") {
			t.Errorf("%s: stdout %q, stderr %q", args, &stdout, &stderr)
		}
	}
	for _, args := range []string{"", "--help", "check --help", "--version", "status --help", "disks --help",
		"sysdump --help"} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitOK || stdout.Len() == 0 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}

// TestWatch: the status is printed when it changes, and a look that fails is repeated.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks := []fleet.Status{{OK: true}, {OK: true}, {}, {OK: true}}
		var stdout, stderr bytes.Buffer
		err := watchStatus(ctx, time.Minute, outputJSON, &stdout, &stderr, func(context.Context) (fleet.Status, error) {
			if len(looks) == 0 {
				cancel()
				return fleet.Status{}, ctx.Err()
			}
			now := looks[0]
			looks = looks[1:]
			if len(looks) == 1 {
				return now, errors.New("no answer")
			}
			return now, nil
		})
		if err != nil || strings.Count(stdout.String(), `"ok"`) != 1 || strings.Count(stderr.String(), "no answer; trying again in 1m0s") != 1 {
			t.Errorf("%v\n%s\n%s", err, &stdout, &stderr)
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no role"))
		err = watchStatus(t.Context(), time.Minute, outputTable, &stdout, &stderr,
			func(context.Context) (fleet.Status, error) {
				return fleet.Status{}, forbidden
			})
		if !errors.Is(err, forbidden) {
			t.Errorf("without rights: %v", err)
		}
	})
}

// TestMistakes: a wrong command line says what is possible, in a line.
func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"statsu":                   "unknown command \"statsu\" for \"kubectl csi-proxy\"; did you mean status?\n",
		"status --wach":            "unknown flag: --wach; kubectl csi-proxy status --help lists the flags\n",
		"disks --node-timeout=5":   "missing unit in duration \"5\"; kubectl csi-proxy disks --help lists the flags\n",
		"doctor --node-timeout=0s": "--node-timeout=0s: it must be more than 0\n",
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(args), &stdout, &stderr)
		if code != exitUnknown || !strings.HasSuffix(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", args, code, &stderr)
		}
	}
}
