// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The command lines of the Windows Machine Config Operator, as docs/openshift.md has them,
// start the daemon as a service that logs to where must-gather looks, and can be checked on any system.
func TestOpenShift(t *testing.T) {
	page, err := os.ReadFile("../../docs/openshift.md")
	must(t, err)
	lines, verbosities := map[string]bool{}, map[string]bool{}
	for _, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, `{"name":"csi-proxy"`) {
			continue
		}
		var service struct {
			Name, Path string
			Bootstrap  *bool
			Priority   uint
		}
		if err := json.Unmarshal([]byte(line), &service); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if service.Bootstrap == nil || *service.Bootstrap || service.Priority != 2 {
			t.Errorf("bootstrap and priority of %s aren't the operator's", line)
		}
		// None of its arguments has blanks, so Windows splits the line as Fields does.
		words := strings.Fields(service.Path)
		if words[0] != `C:\k\csi-proxy.exe` {
			t.Errorf("the program is %s", words[0])
		}
		o, err := parseFlags(words[1:], io.Discard)
		if err != nil {
			t.Errorf("%s: %v", service.Path, err)
			continue
		}
		defer resetKlog(o.logging)
		if !o.windowsService || !asksForService(words[1:]) {
			t.Errorf("%s doesn't ask for a service", service.Path)
		}
		if got := logFile(o.logging); got != `C:\var\log\csi-proxy\csi-proxy.log` || isSet(o.logging, "logtostderr") {
			t.Errorf("%s logs to %s, to standard error: %v", service.Path, got, isSet(o.logging, "logtostderr"))
		}
		lines[service.Path] = true
		verbosities[o.logging.Lookup("v").Value.String()] = true
	}
	if !verbosities["2"] || !verbosities["4"] {
		t.Errorf("docs/openshift.md has the command lines with -v of %v, want 2 and 4", verbosities)
	}
	if runtime.GOOS == "windows" {
		t.Skip("Windows is asked then, and its pipes may be taken")
	}
	const fence = "```"
	example := regexp.MustCompile(`(?s)\n  bin/csi-proxy -check '([^']*)'\n  ` + fence + `\n  ` + fence + `\n(.*?)\n  ` + fence).FindStringSubmatch(string(page))
	if example == nil || !lines[example[1]] {
		t.Fatalf("docs/openshift.md doesn't check a command line of the operator: %q", example)
	}
	printed := strings.ReplaceAll("\n"+example[2]+"\n", "\n  ", "\n")
	if diff := cmp.Diff(printed, "\n"+checked(t, exitOK, example[1])); diff != "" {
		t.Errorf("-check prints (+) other than the page (-):\n%s", diff)
	}
}
