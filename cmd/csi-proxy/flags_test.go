// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
)

// The command lines are those of installers in the field, which must go on
// working.
func TestParseFlags(t *testing.T) {
	defaults := options{
		output:         outputText,
		node:           defaultNode(),
		Options:        nodeops.Options{KubeletPath: `C:\var\lib\kubelet`, SilentDiskTimeout: 5 * time.Second},
		requirePrivacy: true,
		endpointDir:    pipe.DefaultDir(),
		pipeSecurity:   pipe.DefaultSecurityDescriptor,
		maxCalls:       1024,
		gracePeriod:    25 * time.Second,
		logFormat:      formatText,
	}
	service := defaults
	service.windowsService = true
	all := options{
		version:  true,
		output:   outputText,
		node:     nodeSimulated,
		simState: "node.state",
		Options: nodeops.Options{
			KubeletPath: `D:\kubelet`, WorkingDirs: []string{`C:\a`, `C:\b`}, ProtectedVolumes: []string{`D:`, `E:`},
			ReformatDirs:        []string{`C:\a\disks`, `C:\b`},
			VolumeWriters:       []string{"Users", "S-1-5-11"},
			AllowRecognizedData: true, RefuseClones: true, SilentDiskTimeout: 2 * time.Second,
		},
		endpointDir:    "e",
		pipeSecurity:   "D:P(A;;GA;;;SY)",
		maxCalls:       100,
		metricsAddress: ":9090",
		gracePeriod:    time.Minute,
		logFormat:      formatJSON,
	}
	for _, test := range []struct {
		args string
		want options
		klog map[string]string
	}{
		{"", defaults, map[string]string{"logtostderr": "true", "log_file_max_size": "100"}},
		{
			`-windows-service -log_file=C:\etc\kubernetes\logs\csi-proxy.log -logtostderr=false`,
			service,
			map[string]string{"log_file": `C:\etc\kubernetes\logs\csi-proxy.log`, "logtostderr": "false"},
		},
		{
			`-log_file=C:\var\log\csi-proxy\csi-proxy.log -logtostderr=false -windows-service --v=2`,
			service,
			map[string]string{"log_file": `C:\var\log\csi-proxy\csi-proxy.log`, "v": "2"},
		},
		{
			`--version --node simulated --sim-state node.state --kubelet-path D:\kubelet --working-dir C:\a -working-dir=C:\b --protected-volume D: -protected-volume=E: -reformat-dir C:\a\disks --reformat-dir=C:\b -volume-writer Users --volume-writer=S-1-5-11 ` +
				`--overwrite-recognized-data --refuse-clones -silent-disk-timeout 2s --require-privacy=false -endpoint-dir e -pipe-security D:P(A;;GA;;;SY) --metrics-bind-address :9090 -grace-period 1m -max-calls 100 ` +
				`-logging-format=json -log_dir d -log_file_max_size 7 -alsologtostderr -stderrthreshold 1 -vmodule serve=4`,
			all,
			map[string]string{"log_dir": "d", "log_file_max_size": "7", "alsologtostderr": "true", "stderrthreshold": "1",
				"vmodule": "serve=4"},
		},
	} {
		t.Run(test.args, func(t *testing.T) {
			got, err := parseFlags(strings.Fields(test.args), io.Discard)
			must(t, err)
			logging := got.logging
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(options{}),
				cmpopts.IgnoreFields(options{}, "logging")); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
			for name, want := range test.klog {
				if got := logging.Lookup(name).Value.String(); got != want {
					t.Errorf("-%s is %q, want %q", name, got, want)
				}
			}
			resetKlog(logging)
		})
	}
}

// What is wrong with a flag says what was given, and what is possible.
func TestFlagErrors(t *testing.T) {
	for args, want := range map[string]string{
		"-grace-period=5":        `-grace-period="5": it must be a time with a unit, such as 5s or 1m30s`,
		"-v=abc":                 `-v="abc": it must be a whole number`,
		"-max-calls=many":        `-max-calls="many": it must be a whole number`,
		"-require-privacy=of":    `-require-privacy="of": it must be true or false`,
		"-kubelet-pth=C":         "unknown flag -kubelet-pth; did you mean -kubelet-path?",
		"-nothing-like-it":       "unknown flag -nothing-like-it",
		"-working-dir=":          `-working-dir="": it must not be empty`,
		"start":                  `unknown argument "start": csi-proxy takes flags only; csi-proxyctl has the commands`,
		"-log_file_max_size=-1":  `-log_file_max_size="-1": it must be a whole number, 0 or more`,
		"-require-privacy false": `unknown argument "false": write -require-privacy=false`,
		"-log_dir x true":        `unknown argument "true": csi-proxy takes flags only; csi-proxyctl has the commands`,
		"true":                   `unknown argument "true": csi-proxy takes flags only; csi-proxyctl has the commands`,
	} {
		if _, err := parseFlags(strings.Fields(args), io.Discard); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range []string{
		"-no-such-flag",
		"-node=real",
		"-node=windows -sim-state=node.state",
		"-kubelet-path=",
		"-kubelet-path=kubelet",
		`-working-dir=C:\csi:stream`,
		`-protected-volume=D:\data`,
		"-grace-period=-1s",
		"-silent-disk-timeout=0s",
		"-metrics-bind-address=14810",
		"-metrics-bind-address=127.0.0.1:99999",
		"-max-calls=0",
		"-pipe-security=SYSTEM",
		"-logging-format=xml",
		"-logging-format=json -vmodule=serve=4",
	} {
		wantUsageError(t, args)
	}
	if runtime.GOOS != "windows" {
		wantUsageError(t, "-node=windows")
		wantUsageError(t, "-windows-service")
		wantUsageError(t, "-pipe-security=D:P(A;;GA;;;SY)")
	}
}

// The released daemon for Windows has no simulated node, and says what has.
func TestWithoutSimulatedNode(t *testing.T) {
	defer func(open func(options) (system, map[string]server.Service, error)) { openSimulated = open }(openSimulated)
	openSimulated = nil
	if got := defaultNode(); got != nodeWindows {
		t.Errorf("the default node is %s, want %s", got, nodeWindows)
	}
	wantUsageError(t, "-node=simulated")
	wantUsageError(t, "-node=simulated -sim-state=node.state")
}

func TestAsksForService(t *testing.T) {
	for args, want := range map[string]bool{
		"-v=much -windows-service":      true,
		"--windows-service --wrong":     true,
		"-windows-service=true":         true,
		"-windows-service=maybe":        false,
		"-windows-service=false":        false,
		"-windows-services":             false,
		"-working-dir=-windows-service": false,
		"":                              false,
	} {
		if got := asksForService(strings.Fields(args)); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
}

func TestMaxLogBytes(t *testing.T) {
	for size, want := range map[string]int64{
		"0":                    0,
		"100":                  100 << 20,
		"8796093022207":        8796093022207 << 20,
		"8796093022208":        8796093022207 << 20,
		"18446744073709551615": 8796093022207 << 20,
	} {
		o, err := parseFlags([]string{"-log_file_max_size", size}, io.Discard)
		must(t, err)
		if got := maxLogBytes(o.logging); got != want {
			t.Errorf("%s MB: %d bytes, want %d", size, got, want)
		}
		resetKlog(o.logging)
	}
}

// resetKlog gives klog's flags, which outlive a test, their defaults.
func resetKlog(flags *flag.FlagSet) {
	flags.VisitAll(func(f *flag.Flag) { flags.Set(f.Name, f.DefValue) })
}

// keepKlog has klog's flags at the test's end as they are now.
func keepKlog(t *testing.T) {
	logging := addLoggingFlags(flag.NewFlagSet("", flag.ContinueOnError))
	t.Cleanup(func() { resetKlog(logging) })
}

func wantUsageError(t *testing.T, args string) {
	t.Helper()
	var stdout, stderr strings.Builder
	if code := run(t.Context(), strings.Fields(args), &stdout, &stderr, nil); code != exitUsage {
		t.Errorf("%s: exit code %d, want %d", args, code, exitUsage)
	}
	if stdout.Len() > 0 || stderr.Len() == 0 {
		t.Errorf("%s: stdout %q, stderr %q", args, &stdout, &stderr)
	}
}
