// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// TestProgram runs the program on one simulated node, in this order.
func TestProgram(t *testing.T) {
	n := simnode.New(t)
	n.AttachDisk(simnode.Disk{Serial: "expendable", SizeBytes: 1 << 30})
	n.AttachDisk(simnode.Disk{Serial: "raw", SizeBytes: 1 << 30})
	n.AddSMBShare(simnode.SMBShare{Server: "nas", Name: "data"})
	n.SetSMBUser("nas", "me", csiproxy.NewSecret("open-sesame"))
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	password, known := file("password", "open-sesame\n"), file("known", "# a comment\nsmb\\.map/v.* this share has gone\n")
	share := func(name string, more ...string) []string {
		return append([]string{"--share", `\\nas\` + name, "--share-username", "me", "--share-password-file", password,
			"--run", "smb.map/v1$"}, more...)
	}
	served := n.EndpointDir()
	for _, test := range []struct {
		name        string
		args        []string
		code        int
		out, errs   string // regexps that match
		without     string // a regexp that doesn't match the output
		endpointDir string // the node's if empty
	}{
		{name: "checks", args: []string{"--list", "--group", "disk", "--version", "v1"},
			out:     `(?m)^disk.partition-twice +v1 +PartitionDisk of a disk that is partitioned succeeds `,
			without: "v1beta"},
		{name: "checks in JSON", args: []string{"-o", "json", "--list", "--run", "^volume.mount/"},
			out:     `"check":"volume.mount","group":"volume","versions":\["v2alpha1","v1",.*"promise":"MountVolume `,
			without: "volume.mount-"},
		{name: "without inputs", args: []string{"--group", "filesystem", "--version", "v1beta1"},
			out: `(?ms)^CHECK +OUTCOME +WHY$.*^filesystem.mkdir/v1beta1 +passed +-$.*` +
				`^filesystem.rmdir-mount-point/v1beta1 +not applicable +it needs a disk .* --disk$.*` +
				`^\d+ passed, 0 failed, 0 known difference, 3 not applicable$`,
			errs: `(?m)^1/\d+ filesystem.served/v1beta1: passed$`},
		{name: "nothing chosen", args: []string{"--group", "disk", "--version", "v2alpha1"}, code: 2, errs: "no check matches all of them"},
		{name: "no user", args: []string{"--share", `\\nas\data`}, code: 2, errs: "it needs --share-username"},
		{name: "not confirmed", args: []string{"--disk", "expendable", "--run", "disk.partition"}, code: 2,
			errs: "confirm that with --erase-disks"},
		{name: "no such disk", args: []string{"--disk", "other", "--erase-disks", "--run", "disk.partition"}, code: 2},
		{name: "a disk", args: []string{"--disk", "expendable", "--erase-disks", "--run", "disk.partition|drivers.ebs", "-o", "json"},
			out: `"check":"disk.partition-raw","group":"disk","version":"v1","outcome":"passed","promise":".*"outcome":"not applicable"` +
				`.*"check":"drivers.ebs",.*"outcome":"passed"`},
		{name: "nothing is planted", args: []string{"--run", "planted-links"},
			out: `(?m)^filesystem.planted-links/v1 +not applicable +it needs links .* --plant$`},
		{name: "planted", args: []string{"--plant", "--disk", "raw", "--erase-disks",
			"--run", "filesystem.planted-links|volume.planted-links|foreign-data"},
			out: `(?ms)^disk.foreign-data/v1 +passed .*^filesystem.planted-links/v1 +passed .*^volume.planted-links/v2alpha1 +passed `},
		{name: "a share", args: share("data", "-o", "junit"),
			out:     `(?s)^.*<testsuite name="smb/v1" tests="1" failures="0" skipped="0">.*<testcase name="smb.map" classname="smb.v1" time="`,
			without: "open-sesame"},
		{name: "a failure", args: share("none"), code: 1,
			out:  `(?m)^smb.map/v1 +failed +NewSmbGlobalMapping .*remote: "\\\\nas\\none"`,
			errs: `(?m)^csi-proxy-conformance: 1 of 1 checks failed$`, without: "open-sesame"},
		{name: "a failure in JUnit", args: share("none", "-o", "junit"), code: 1,
			out: `(?s)tests="1" failures="1" skipped="0">.*<failure message="failed: NewSmbGlobalMapping `},
		{name: "a known failure", args: share("none", "--known-failures", known),
			out: `(?m)^smb.map/v1 +known difference +this share has gone: NewSmbGlobalMapping `},
		{name: "an expected failure that is none", args: share("data", "--known-failures", known),
			errs: `(?m)^csi-proxy-conformance: expected to fail, and nothing does: `},
		{name: "an argument", args: []string{"volume"}, code: 2, errs: "unknown argument"},
		{name: "no such group", args: []string{"--group", "files"}, code: 2},
		{name: "no regexp", args: []string{"--run", "("}, code: 2},
		{name: "no known failures", args: []string{"--known-failures", password}, code: 2},
		{name: "unknown known failures", args: []string{"--known-failures", file("unknown", "disk\\.none there is none\n")}, code: 2,
			errs: `no check has a name that disk\\\.none matches`},
		{name: "no such format", args: []string{"-o", "xml"}, code: 2},
		{name: "nobody serves", code: 6, errs: "is the daemon running", endpointDir: t.TempDir()},
		{name: "help", args: []string{"--help"}, out: `(?s)Exit codes: .*--erase-disks`},
	} {
		if test.endpointDir == "" {
			test.endpointDir = served
		}
		var out, errs strings.Builder
		code := run(t.Context(), slices.Concat([]string{"--endpoint-dir", test.endpointDir}, test.args), &out, &errs)
		if code != test.code || !regexp.MustCompile(test.out).MatchString(out.String()) ||
			!regexp.MustCompile(test.errs).MatchString(errs.String()) ||
			test.without != "" && regexp.MustCompile(test.without).MatchString(out.String()) {
			t.Errorf("%s: exit code %d\n%s%s", test.name, code, &out, &errs)
		}
	}
	names, err := n.ReadDir(`C:\var\lib\kubelet`)
	if err != nil || slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "conformance") }) {
		t.Errorf("what is left: %q, %v", names, err)
	}
}
