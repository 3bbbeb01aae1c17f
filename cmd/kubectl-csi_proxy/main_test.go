// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/fleet"
)

func TestFlags(t *testing.T) {
	for _, args := range []string{
		"check extra", "check -o yaml", "check --unknown", "unknown",
		"check --kubeconfig /dev/null/missing", "check --token secret",
		"status extra", "status -o text", "status --interval 0s", "why web -o x",
		"test", "test extra", "test --storage-class s -o x",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitUnknown {
			t.Errorf("%s: exit code %d", args, code)
		}
		if stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "kubectl csi-proxy: ") {
			t.Errorf("%s: stdout %q, stderr %q", args, &stdout, &stderr)
		}
	}
	for _, args := range []string{"", "--help", "check --help", "--version", "status --help", "why --help", "test --help"} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), &stdout, &stderr); code != exitOK || stdout.Len() == 0 {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}

// TestNoCluster: without a kubeconfig, each command says how to name the cluster.
func TestNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "missing"))
	for _, args := range []string{"status", "check", "why web", "test --storage-class s"} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(args), io.Discard, &stderr); code != exitUnknown {
			t.Errorf("%s: exit code %d", args, code)
		}
		if !strings.Contains(stderr.String(), "name it with --kubeconfig") {
			t.Errorf("%s: %s", args, &stderr)
		}
	}
}

// TestWatch: the status is printed when it changes, and a look that fails is repeated.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		looks := []fleet.Status{{OK: true}, {OK: true}, {}, {OK: true}}
		var stdout, stderr bytes.Buffer
		err := watchStatus(ctx, time.Minute, outputJSON, &stdout, &stderr, func(context.Context) (fleet.View, error) {
			if len(looks) == 0 {
				cancel()
				return fleet.View{}, ctx.Err()
			}
			now := looks[0]
			looks = looks[1:]
			if len(looks) == 1 {
				return fleet.View{Status: now}, errors.New("no answer")
			}
			return fleet.View{Status: now}, nil
		})
		if err != nil || strings.Count(stdout.String(), `"ok"`) != 1 || strings.Count(stderr.String(), "no answer; trying again in 1m0s") != 1 {
			t.Errorf("%v\n%s\n%s", err, &stdout, &stderr)
		}
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no role"))
		err = watchStatus(t.Context(), time.Minute, outputTable, &stdout, &stderr,
			func(context.Context) (fleet.View, error) {
				return fleet.View{}, forbidden
			})
		if !errors.Is(err, forbidden) {
			t.Errorf("without rights: %v", err)
		}
	})
}

// TestMistakes: a wrong command line says what is possible, in a line.
func TestMistakes(t *testing.T) {
	for args, want := range map[string]string{
		"statsu":                           "unknown command \"statsu\" for \"kubectl csi-proxy\"; did you mean status?\n",
		"status --wach":                    "unknown flag: --wach; kubectl csi-proxy status --help lists the flags\n",
		"status --interval=5":              "--interval=5: it must be a time with a unit, such as 30s or 1m30s; kubectl csi-proxy status --help lists the flags\n",
		"status -w=maybe":                  "--watch=maybe: it must be true or false; kubectl csi-proxy status --help lists the flags\n",
		"why":                              "kubectl csi-proxy: why takes POD | pvc/CLAIM, but got none\n",
		"why a b":                          "kubectl csi-proxy: why takes POD | pvc/CLAIM, but got [\"a\" \"b\"]\n",
		"test":                             "kubectl csi-proxy: --storage-class is missing: kubectl get storageclasses lists them\n",
		"test --storage-class s --wait 0s": "kubectl csi-proxy: --wait=0s: it must be more than 0\n",
		"test --storage-class s --size x":  "kubectl csi-proxy: --size=x: it must be a size such as 1Gi\n",
		"status extra":                     "kubectl csi-proxy: status takes no arguments, but got [\"extra\"]\n",
		"status --watch --interval=0s":     "--interval=0s: it must be more than 0\n",
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(args), &stdout, &stderr)
		if code != exitUnknown || !strings.HasSuffix(stderr.String(), want) || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%s: exit code %d, %q", args, code, &stderr)
		}
	}
}
