// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestMSIVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":            "1.2.3",
		"v1.2.3-rc.1":       "1.2.3",
		"v1.2.3-5-g0123abc": "1.2.3",
		"0123abc-dirty":     "0.0.0",
		"unknown":           "0.0.0",
		"v256.0.0":          "",
		"v0.0.65536":        "",
	} {
		got, err := msiVersion(version)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v, want %q", version, got, err, want)
		}
	}
}

func TestGUID(t *testing.T) {
	a, again, b := guid("a"), guid("a"), guid("b")
	if a != again || a == b {
		t.Errorf("the ids are %s, %s and %s", a, again, b)
	}
	if !regexp.MustCompile(`^\{[0-9A-F]{8}-[0-9A-F]{4}-5[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}\}$`).MatchString(a) {
		t.Errorf("%s isn't a UUID of version 5", a)
	}
}

// The MSI of the same files is the same. What it does is tested by make test-msi.
func TestBuild(t *testing.T) {
	for _, program := range []string{"wixl", "msibuild", "msiinfo", "faketime"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs Debian's wixl, msitools and faketime: ", err)
		}
	}
	dir := t.TempDir()
	files := filepath.Join(dir, "files")
	if err := os.Mkdir(files, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"csi-proxy.exe", "csi-proxyctl.exe", "LICENSE", "LICENSES.txt"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := func(version string) (file string, contents []byte) {
		t.Helper()
		file = filepath.Join(dir, version+".msi")
		p := product{version: version, created: 1767225600, source: "../../../packaging/msi", files: files}
		if err := p.build(file); err != nil {
			t.Fatal(err)
		}
		contents, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return file, contents
	}
	file, first := build("v1.2.3")
	if _, again := build("v1.2.3"); !bytes.Equal(first, again) {
		t.Error("building again gives another MSI")
	}
	if _, other := build("v1.2.4"); bytes.Equal(first, other) {
		t.Error("another version gives the same MSI")
	}

	// table returns the rows of a table that begin with a key.
	table := func(name, key string) string {
		t.Helper()
		out, err := exec.Command("msiinfo", "export", file, name).Output()
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, key+"\t") {
				rows = append(rows, strings.TrimSpace(line))
			}
		}
		return strings.Join(rows, "\n")
	}
	for _, row := range []struct{ table, key, want string }{
		{"Property", "ProductVersion", "ProductVersion\t1.2.3"},
		{"Property", "ProductCode", "ProductCode\t" + guid("product v1.2.3")},
		{"File", "csiproxy.exe", "csiproxy.exe\tDaemon\tcsi-proxy.exe\t13\t1.2.3.0\t1033\t512\t4"},
		{"InstallExecuteSequence", "RemoveExistingProducts", "RemoveExistingProducts\t\t1501"},
		{"InstallExecuteSequence", "UninstallService", "UninstallService\tREMOVE=\"ALL\" AND NOT UPGRADINGPRODUCTCODE\t1601"},
		{"LaunchCondition", `Installed OR WINDOWSBUILD >= 17763`, "Installed OR WINDOWSBUILD >= 17763\t" +
			"CSI Proxy needs Windows Server 2019 (build 17763) or later. This is build [WINDOWSBUILD]."},
		{"InstallExecuteSequence", "AppSearch", "AppSearch\t\t50"},
		{"InstallExecuteSequence", "LaunchConditions", "LaunchConditions\t\t100"},
		{"Property", "ARPPRODUCTICON", "ARPPRODUCTICON\ticon.ico"},
		{"CreateFolder", "APPLICATIONFOLDER", "APPLICATIONFOLDER\tCommandLine"},
		{"MsiLockPermissionsEx", "Folder", "Folder\tAPPLICATIONFOLDER\tCreateFolder\t" +
			"D:P(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;0x1200a9;;;BU)"},
		{"Environment", "Path", "Path\t=-*PATH\t[~];[APPLICATIONFOLDER]\tCommandLine"},
	} {
		if got := table(row.table, row.key); got != row.want {
			t.Errorf("%s has %q, want %q", row.table, got, row.want)
		}
	}
	streams, err := exec.Command("msiinfo", "streams", file).Output()
	if err != nil || !strings.Contains(string(streams), "Icon.icon.ico") {
		t.Errorf("the icon isn't among the streams: %s, %v", streams, err)
	}
}
