// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// toysOf is the environment variable with the name of the test whose toys a process runs.
const toysOf = "CSI_PROXY_TOYS"

// TryToys shows that a harness can fail. A toy is a test that the harness runs on a small operation
// which is broken on purpose. Each toy must fail, but those whose names begin with "sound" must pass.
// The toys run in a process of their own, where their failures fail no other test.
func TryToys(t *testing.T, toys map[string]func(t *testing.T)) {
	t.Helper()
	names := slices.Sorted(maps.Keys(toys))
	if os.Getenv(toysOf) == t.Name() {
		for _, name := range names {
			t.Run(name, toys[name])
		}
		return
	}
	var levels []string
	for level := range strings.SplitSeq(t.Name(), "/") {
		levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
	}
	program, err := os.Executable()
	Must(t, err)
	run := exec.CommandContext(t.Context(), program, "-test.v", "-test.run="+strings.Join(levels, "/"),
		fmt.Sprintf("-test.short=%v", testing.Short()))
	run.Env = append(os.Environ(), toysOf+"="+t.Name())
	out, err := run.CombinedOutput() // which has an error, since toys fail
	defer func() {
		if t.Failed() {
			t.Logf("%v\n%s", err, out)
		}
	}()
	for _, name := range names {
		want := "FAIL"
		if strings.HasPrefix(name, "sound") {
			want = "PASS"
		}
		if !strings.Contains(string(out), fmt.Sprintf("--- %s: %s/%s (", want, t.Name(), name)) {
			t.Errorf("the toy %q has no %s", name, want)
		}
	}
}
