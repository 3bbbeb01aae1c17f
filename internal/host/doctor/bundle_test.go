// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// unzipped returns the files of a bundle, and checks that those with JSON are JSON.
func unzipped(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	simtest.Must(t, err)
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		simtest.Must(t, err)
		text, err := io.ReadAll(r)
		simtest.Must(t, errors.Join(err, r.Close()))
		if strings.HasSuffix(f.Name, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON:\n%s", f.Name, text)
		}
		if _, twice := files[f.Name]; twice {
			t.Errorf("%s comes twice", f.Name)
		}
		files[f.Name] = string(text)
	}
	return files
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	simtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func bundleOf(t *testing.T, n *doctor.Node, logs ...string) map[string]string {
	t.Helper()
	var b bytes.Buffer
	simtest.Must(t, doctor.WriteBundle(t.Context(), &b, n, doctor.Bundle{
		Program: "csi-proxyctl v1.2.3", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Logs: logs, LogBytes: 1 << 20,
		Page: func(_ context.Context, page string) (string, error) {
			if page == admin.Metrics {
				return "", errors.New("no daemon answers")
			}
			return "goroutine 1 of " + page, nil
		},
	}))
	return unzipped(t, b.Bytes())
}

// The bundle has what support asks for.
func TestBundle(t *testing.T) {
	f := newFixture(t)
	f.service[0].Args = []string{"-v=2", "-log_file=csi-proxy.log"}
	log := write(t, "csi-proxy.log",
		"I0102 03:04:05.000006 7 a.go:1] started\nE0102 03:04:06.000006 7 a.go:2] it broke\nEverything is fine\n"+
			`{"ts":1,"severity":"WARNING","msg":"careful"}`+"\n"+`{"ts":1,"severity":"INFO","msg":"fine"}`+
			"\nW0102 03:04:07.000006 7 a.go:2] at the end")
	f.service[0].Running, f.service[0].State = false, "stopped\u202e\u009b"
	files := bundleOf(t, f.Node, log, log+".1")
	if found := files["findings.json"]; strings.ContainsAny(found, "\u202e\u009b") || !strings.Contains(found, `stopped\u202e\u009b`) {
		t.Errorf("the findings turn the reader's text: %s", found)
	}
	if missing := files["missing.txt"]; !strings.Contains(missing, "metrics.txt: no daemon answers") {
		t.Errorf("missing are %s", missing)
	}
	for name, want := range map[string]string{
		"about.txt":         "by csi-proxyctl v1.2.3.\n\nfindings.json",
		"daemon.txt":        "goroutine 1 of /debug/daemon",
		"findings.json":     `"check": "silent-disks"`,
		"services.json":     "-log_file=csi-proxy.log",
		"disks.json":        `"serial_number": "SIMSYSTEM"`,
		"mounts.json":       `"path": "C:\\var\\lib\\kubelet\\share"`,
		"log/csi-proxy.log": "started",
		"missing.txt":       "csi-proxy.log.1",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %s:\n%s", name, want, files[name])
		}
	}
	for name := range files {
		if name != "about.txt" && !strings.Contains(files["about.txt"], strings.SplitAfter(name, "/")[0]) {
			t.Errorf("about.txt doesn't tell what %s is", name)
		}
	}
}

// Nothing that fails keeps the rest from the bundle.
func TestBundleWithoutAnything(t *testing.T) {
	files := bundleOf(t, &doctor.Node{System: "linux"})
	for _, name := range []string{"services.json", "disks.json", "mounts.json", "log"} {
		if !strings.Contains(files["missing.txt"], name+": ") {
			t.Errorf("nobody says why %s is missing:\n%s", name, files["missing.txt"])
		}
		if text, ok := files[name]; ok {
			t.Errorf("%s has %s", name, text)
		}
	}
	if !strings.Contains(files["findings.json"], `"unknown"`) {
		t.Errorf("the findings are %s", files["findings.json"])
	}
}

// Of a long log the end is taken.
func TestBundleOfALongLog(t *testing.T) {
	log := write(t, "long.log", "first line\n"+strings.Repeat("another line\n", 1<<17)+"last line\n")
	files := bundleOf(t, &doctor.Node{System: "linux"}, log)
	got := files["log/long.log"]
	if len(got) != 1<<20 || strings.Contains(got, "first line") || !strings.HasSuffix(got, "last line\n") {
		t.Errorf("%d bytes, from %q to %q", len(got), got[:20], got[len(got)-20:])
	}
}

// Logs of the same name, in two directories, are both there.
func TestBundleOfTwoLogs(t *testing.T) {
	files := bundleOf(t, &doctor.Node{System: "linux"}, write(t, "csi-proxy.log", "one"), write(t, "csi-proxy.log", "two"))
	if files["log/csi-proxy.log"] != "one" || files["log/other-csi-proxy.log"] != "two" {
		t.Errorf("%v", files)
	}
}

// Secrets stand in every source that a bundle has, and in none of its files.
func TestBundleHasNoSecrets(t *testing.T) {
	marks := 0
	mark := func() string { marks++; return fmt.Sprintf("Gehe1m-%d", marks) }

	f := newFixture(t)
	password := mark()
	simtest.Must(t, f.sim.SMB().SetUser("filer", "user2", csiproxy.NewSecret(password)))
	simtest.Must(t, f.sim.RemoveSMBGlobalMapping(t.Context(), `\\filer\data`))
	simtest.Must(t, f.sim.CreateSMBGlobalMapping(t.Context(), `\\filer\data`,
		win.SMBMappingOptions{Username: "user2", Password: csiproxy.NewSecret(password)}))
	simtest.Must(t, f.sim.StartService(t.Context(), "MSiSCSI"))
	simtest.Must(t, f.sim.SetISCSIInitiatorCHAPSecret(t.Context(), csiproxy.NewSecret(mark()+"-long")))
	f.service[0].Args = []string{
		"-v=2", "-kubelet-path=kept", "--api-token", mark(), "-proxy-password=" + mark(),
		"-proxy=http://user:" + mark() + "@example.com/kept", "-v=2",
	}
	f.endpoints = append(f.endpoints,
		client.Endpoint{Group: "smb", Version: "v1", Address: "smb-v1",
			Err: errors.New(`refused: password="` + mark() + `" kept`)})
	owner := f.Node.Server
	f.Node.Server = func(ctx context.Context, address string) (uint32, string, error) {
		if address == "smb-v1" {
			return 0, "", errors.New("password=" + mark())
		}
		return owner(ctx, address)
	}
	dir := t.TempDir()
	lines := []string{
		`I0102 03:04:05.000006 7 a.go:1] "kept" password="` + mark() + ` with blanks"`,
		`E0102 03:04:05.000006 7 a.go:1] failed with password ` + `= ` + mark() + ` kept`,
		`W0102 03:04:05.000006 7 a.go:1] request {username:kept  password:"` + mark() + `\" and more ` + mark() + `"}`,
		`I0102 03:04:05.000006 7 a.go:1] request="{\"remotePath\":\"kept\",\"password\":\"` + mark() + `\"}"`,
		`{"severity":"ERROR","msg":"kept","CHAPSecret":"` + mark() + `","v":0}`,
		`{"severity":"INFO","msg":"kept","err":"chap_secret: ` + mark() + `"}`,
		`Authorization-Token: ` + mark() + ` kept`,
		`get https://admin:` + mark() + `@example.com/kept`,
	}
	log := filepath.Join(dir, "csi-proxy.log")
	simtest.Must(t, os.WriteFile(log, []byte(strings.Join(lines, "\n")), 0o600))
	// What lies beside the log isn't taken.
	simtest.Must(t, os.WriteFile(filepath.Join(dir, "web.yml"), []byte("basic_auth_users: "+mark()), 0o600))
	missing := filepath.Join(dir, "password="+mark(), "missing.log")
	t.Setenv("CSI_PROXY_PASSWORD", mark())

	files := bundleOf(t, f.Node, log, missing)
	for name, text := range files {
		if i := strings.Index(text, "Gehe1m"); i >= 0 {
			t.Errorf("%s has a secret: %s", name, text[max(0, i-60):min(len(text), i+20)])
		}
	}
	kept := strings.Split(files["log/csi-proxy.log"], "\n")
	if len(kept) != len(lines) {
		t.Errorf("the log has %d lines, want %d", len(kept), len(lines))
	}
	for _, line := range kept {
		if !strings.Contains(line, "kept") {
			t.Errorf("lost more than the secret: %s", line)
		}
		if strings.HasPrefix(line, "{") && !json.Valid([]byte(line)) {
			t.Errorf("no JSON any more: %s", line)
		}
	}
	if strings.Count(files["services.json"], "***") != 3 ||
		!strings.Contains(files["services.json"], "-kubelet-path=kept") {
		t.Errorf("the flags are %s", files["services.json"])
	}
}
