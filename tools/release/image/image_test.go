// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// builtImage builds an image of two files and returns its archive.
func builtImage(t *testing.T, flags ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	for name, contents := range map[string]string{"daemon": "the daemon", "ctl": "the command line"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(contents), 0o600))
	}
	args := append([]string{"build", "-version=v1.2.3", "-commit=0123abc", "-created=1767225600"}, flags...)
	var out bytes.Buffer
	if err := run(append(args, "windows/amd64", "csi-proxyctl.exe="+filepath.Join(dir, "ctl"),
		"csi-proxy.exe="+filepath.Join(dir, "daemon")), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unpacked returns the index of an archive, and the archive's file.
func unpacked(t *testing.T, archive []byte) (v1.ImageIndex, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	must(t, os.WriteFile(file, archive, 0o600))
	index, err := readArchive(file, t.TempDir())
	must(t, err)
	return index, file
}

// firstImage returns the image that an index names first.
func firstImage(t *testing.T, index v1.ImageIndex) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	must(t, err)
	image, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	return image
}

// TestIndex looks at which nodes find their image in the index: with containerd before 1.7 only
// those whose version it names.
func TestIndex(t *testing.T) {
	index, _ := unpacked(t, builtImage(t))
	manifest, err := index.IndexManifest()
	must(t, err)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		if m.Platform.OS == "windows" && m.Digest != manifest.Manifests[0].Digest {
			t.Errorf("%s has another image", m.Platform)
		}
	}
	want := []string{"windows/amd64:10.0.17763", "windows/amd64:10.0.20348", "windows/amd64:10.0.25398",
		"windows/amd64:10.0.26100",
		"windows/amd64", "unknown/unknown"}
	if diff := cmp.Diff(want, platforms); diff != "" {
		t.Errorf("the index (- want, + got):\n%s", diff)
	}
}

func TestConfig(t *testing.T) {
	index, _ := unpacked(t, builtImage(t))
	image := firstImage(t, index)
	if err := validate.Image(image); err != nil {
		t.Errorf("the image isn't valid: %v", err)
	}
	raw, err := image.RawConfigFile()
	must(t, err)
	if bytes.Contains(raw, []byte("os.version")) {
		t.Error("the image names a version of Windows, so it doesn't run on others")
	}
	config, err := image.ConfigFile()
	must(t, err)
	if config.OS != "windows" || config.Architecture != "amd64" || config.Created.Unix() != 1767225600 ||
		len(config.History) != 2 {
		t.Errorf("the config is %s", raw)
	}
	c := config.Config
	if !slices.Equal(c.Entrypoint, []string{`%CONTAINER_SANDBOX_MOUNT_POINT%\csi-proxy.exe`}) || len(c.Cmd) > 0 || c.User != `NT AUTHORITY\SYSTEM` {
		t.Errorf("it starts %q %q as %q", c.Entrypoint, c.Cmd, c.User)
	}
	for label, want := range map[string]string{"version": "v1.2.3", "revision": "0123abc",
		"created": "2026-01-01T00:00:00Z"} {
		if got := c.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("the label %s is %q, want %q", label, got, want)
		}
	}
}

func TestLayers(t *testing.T) {
	index, _ := unpacked(t, builtImage(t))
	image := firstImage(t, index)
	layers, err := image.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}

	base := entriesOf(t, layers[0])
	names := []string{"Files/", "Files/Windows/", "Files/Windows/System32/", "Files/Windows/System32/config/"}
	for _, name := range []string{"DEFAULT", "SAM", "SECURITY", "SOFTWARE", "SYSTEM"} {
		names = append(names, "Files/Windows/System32/config/"+name)
	}
	if diff := cmp.Diff(names, namesOf(base)); diff != "" {
		t.Errorf("the first layer (- want, + got):\n%s", diff)
	}
	for _, e := range base[4:] {
		if !bytes.Equal(e.contents, emptyHive) {
			t.Errorf("%s isn't the empty hive", e.header.Name)
		}
	}

	programs := entriesOf(t, layers[1])
	if diff := cmp.Diff([]string{"Files/", "Hives/", "Files/csi-proxy.exe", "Files/csi-proxyctl.exe"},
		namesOf(programs)); diff != "" {
		t.Errorf("the second layer (- want, + got):\n%s", diff)
	}
	for _, e := range programs {
		attributes := "32" // FILE_ATTRIBUTE_ARCHIVE
		if e.header.Typeflag == tar.TypeDir {
			attributes = "16" // FILE_ATTRIBUTE_DIRECTORY
		}
		if got := e.header.PAXRecords["MSWINDOWS.fileattr"]; got != attributes {
			t.Errorf("%s has the attributes %s, want %s", e.header.Name, got, attributes)
		}
		sd, err := base64.StdEncoding.DecodeString(e.header.PAXRecords["MSWINDOWS.rawsd"])
		must(t, err)
		// The bytes are those of [MS-DTYP] for the text at programAccess.
		want := "01000480" + "60000000" + "70000000" + "00000000" + "14000000" + // header
			"02004c00" + "03000000" + // access list: size, entries
			"00031400" + "ff011f00" + "010100000000000512000000" +
			"00031800" + "ff011f00" + "01020000000000052000000020020000" +
			"00031800" + "a9001200" + "01020000000000052000000021020000" +
			"01020000000000052000000020020000" + "01020000000000052000000020020000" // owner, group
		if got := hex.EncodeToString(sd); got != want {
			t.Errorf("%s has the security descriptor %s", e.header.Name, got)
		}
	}
	if string(programs[2].contents) != "the daemon" || string(programs[3].contents) != "the command line" {
		t.Errorf("the programs are %q and %q", programs[2].contents, programs[3].contents)
	}
}

type layerEntry struct {
	header   *tar.Header
	contents []byte
}

func entriesOf(t *testing.T, layer v1.Layer) (entries []layerEntry) {
	t.Helper()
	if mediaType, err := layer.MediaType(); err != nil || mediaType != types.OCILayer {
		t.Errorf("the layer's type is %s, %v", mediaType, err)
	}
	r, err := layer.Uncompressed()
	must(t, err)
	defer r.Close()
	for archive := tar.NewReader(r); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return entries
		}
		must(t, err)
		contents, err := io.ReadAll(archive)
		must(t, err)
		if header.ModTime.Unix() != 0 {
			t.Errorf("%s has the time %v", header.Name, header.ModTime)
		}
		entries = append(entries, layerEntry{header, contents})
	}
}

// namesOf returns the names, with a slash after those of directories.
func namesOf(entries []layerEntry) (names []string) {
	for _, e := range entries {
		name := e.header.Name
		if e.header.Typeflag == tar.TypeDir {
			name += "/"
		}
		names = append(names, name)
	}
	return names
}

func TestReproducible(t *testing.T) {
	if !bytes.Equal(builtImage(t), builtImage(t)) {
		t.Error("the same files give two archives")
	}
	if bytes.Equal(builtImage(t), builtImage(t, "-version=v1.2.4")) {
		t.Error("another version gives the same archive")
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true),
		registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	index, archive := unpacked(t, builtImage(t))
	want, err := index.Digest()
	must(t, err)

	reference := strings.TrimPrefix(server.URL, "http://") + "/csi-proxy:v1.2.3"
	var out bytes.Buffer
	must(t, run([]string{"push", archive, reference}, &out))
	if got := strings.TrimSpace(out.String()); got != reference+"@"+want.String() {
		t.Errorf("it prints %q, want %s@%s", got, reference, want)
	}
	tag, err := name.NewTag(reference)
	must(t, err)
	pushed, err := remote.Get(tag)
	must(t, err)
	if pushed.MediaType != types.OCIImageIndex || pushed.Digest != want {
		t.Errorf("the tag is a %s with digest %s, want an index with %s", pushed.MediaType, pushed.Digest, want)
	}
	if err := run([]string{"push", archive, server.URL}, io.Discard); err == nil {
		t.Error("a reference without a tag is taken")
	}

	image, err := firstImage(t, index).Digest()
	must(t, err)
	statements := attached(t, tag.Digest(image.String()))
	if _, ok := statements[predicateBill]; ok || len(statements) != 1 {
		t.Errorf("an image without bills of materials has the statements %v", statements)
	}
	origin := statements[predicateOrigin][0]
	if len(origin.Subject) != 1 || origin.Subject[0].Digest["sha256"] != image.Hex || !strings.Contains(string(origin.Predicate), `"gitCommit":"0123abc"`) {
		t.Errorf("the image %s is said to come from %+v, %s", image, origin.Subject, origin.Predicate)
	}
}

// A registry that isn't there, or that takes nothing, is noticed before anything is built for it, and
// none gets anything by being asked.
func TestCheck(t *testing.T) {
	var requests []string
	var mu sync.Mutex // guards requests
	takes := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, r.Method)
		if strings.Contains(r.URL.Path, "/forbidden/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		takes.ServeHTTP(w, r)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	must(t, run([]string{"check", host + "/csi-proxy:v1.2.3", host + "/charts/csi-proxy"}, io.Discard))
	if slices.Contains(requests, "PUT") || slices.Contains(requests, "PATCH") || !slices.Contains(requests, "POST") {
		t.Errorf("it asks by %q", requests)
	}
	err := run([]string{"check", host + "/csi-proxy", host + "/forbidden/csi-proxy"}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), host+"/forbidden/csi-proxy can't be pushed to") {
		t.Errorf("a registry that takes nothing: %v", err)
	}
	server.Close()
	if err := run([]string{"check", host + "/csi-proxy"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), host+"/csi-proxy can't be pushed to") {
		t.Errorf("a registry that isn't there: %v", err)
	}
}

// statement is what an attestation says of an image.
type statement struct {
	PredicateType string
	Subject       []struct{ Digest map[string]string }
	Predicate     json.RawMessage
}

// attached returns what a registry lists for an image, by the kind of statement.
func attached(t *testing.T, image name.Digest) map[string][]statement {
	t.Helper()
	list, err := remote.Referrers(image)
	must(t, err)
	manifest, err := list.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the registry lists %+v for %s, %v", manifest, image, err)
	}
	attestation, err := remote.Image(image.Digest(manifest.Manifests[0].Digest.String()))
	must(t, err)
	if m, err := attestation.Manifest(); err != nil || m.ArtifactType != attestationType ||
		m.Subject.Digest.String() != image.DigestStr() {
		t.Errorf("it lists %+v for %s, %v", m, image, err)
	}
	layers, err := attestation.Layers()
	must(t, err)
	statements := map[string][]statement{}
	for _, layer := range layers {
		content, err := layer.Compressed()
		must(t, err)
		var s statement
		must(t, errors.Join(json.NewDecoder(content).Decode(&s), content.Close()))
		statements[s.PredicateType] = append(statements[s.PredicateType], s)
	}
	return statements
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{
		{}, {"build"}, {"push", "archive"}, {"build", "-unknown"}, {"build", "-version=v1"},
		{"build", "a.exe=image.go"}, {"build", "linux/amd64", "a"}, {"build", "linux/amd64", `x\a=image.go`}, {"build", "linux/amd64", "a=missing"},
		{"build", "plan9/amd64", "a=image.go"}, {"check"}, {"check", "a b"},
	} {
		if err := run(args, io.Discard); err == nil {
			t.Errorf("run(%q) succeeds", args)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Programs of others read the hive: libhivex and reglookup, from Debian.
func TestEmptyHive(t *testing.T) {
	t.Run("hivexml", func(t *testing.T) {
		out := output(t, "hivexml", "empty.hive")
		if !strings.Contains(out, `<node name="SYSTEM" root="1">`) || strings.Count(out, "<node") != 1 || strings.Contains(out, "<value") {
			t.Errorf("it must have the root key only:\n%s", out)
		}
	})
	t.Run("reglookup", func(t *testing.T) {
		all := "QRY_VAL SET_VAL CREATE_KEY ENUM_KEYS NOTIFY CREATE_LNK DELETE R_CONT W_DAC W_OWNER:CI"
		want := "/,KEY,,1970-01-01 00:00:00,S-1-5-32-544,S-1-5-18,,S-1-5-32-544:ALLOW:" + all + "|S-1-5-18:ALLOW:" + all + ","
		if out := strings.TrimSpace(output(t, "reglookup", "-H", "-s", "empty.hive")); out != want {
			t.Errorf("it has\n%s\nwant\n%s", out, want)
		}
	})
}

// output returns what a program prints, and fails if it complains.
func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("SKIPPED") != "" {
			t.Fatal(err) // CI, which installs them
		}
		t.Skip("needs Debian's libhivex-bin and reglookup: ", err)
	}
	var stderr strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%s: %v\n%s", program, err, &stderr)
	}
	return string(out)
}
