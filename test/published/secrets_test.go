// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"testing"
	"unicode/utf16"

	"google.golang.org/grpc/codes"
)

// secretMark begins every secret that a test gives to the daemon, and nothing else.
// Its length is a multiple of three, so that it is whole in base64 too.
const secretMark = "hush!!"

// newSecret returns the i-th secret, as long as CHAP wants it.
func newSecret(i int) string { return fmt.Sprintf("%s%08d", secretMark, i) }

// leaks returns the encodings in which the mark is in some bytes.
func leaks(data []byte) (found []string) {
	mark := []byte(secretMark)
	wide, err := binary.Append(nil, binary.LittleEndian, utf16.Encode([]rune(secretMark)))
	if err != nil {
		panic(err) // never: a slice of numbers
	}
	for _, form := range []struct {
		name  string
		bytes []byte
	}{
		{"as it is", mark}, {"in UTF-16", wide}, {"in hex", []byte(hex.EncodeToString(mark))},
		{"in base64", []byte(base64.StdEncoding.EncodeToString(mark))}, {"as a list of numbers", []byte("104 117 115 104 33 33")},
	} {
		if bytes.Contains(bytes.ToLower(data), bytes.ToLower(form.bytes)) {
			found = append(found, form.name)
		}
	}
	return found
}

// wantNoSecrets asserts that neither what the daemon has written nor the node's
// state has a secret.
func (n *node) wantNoSecrets() {
	n.t.Helper()
	for _, name := range []string{"log", "state"} {
		data, err := os.ReadFile(n.path(name))
		if err != nil {
			n.t.Error(err)
		}
		if found := leaks(data); found != nil {
			n.t.Errorf("the %s of the daemon has a secret: %q", name, found)
		}
	}
}

// Secrets stay where they are given to, whatever becomes of the calls, also when the
// daemon says all that it can: every test looks for them at its end, and this one
// gives the reason to.
func TestSecrets(t *testing.T) {
	t.Parallel()
	n := newNode(t, "-v=10", "-metrics-bind-address=127.0.0.1:0")
	files.add(n)
	for _, v := range versionsOf("smb", "NewSmbGlobalMapping") {
		c := n.client(v)
		request := files.mapping(files.path(), kubeletPath+`\`+v.name)
		c.succeed("NewSmbGlobalMapping", request)
		c.succeed("RemoveSmbGlobalMapping", fields{"remote_path": files.path()})
		n.sim("file", "rm", kubeletPath+`\`+v.name) // else the share stays mapped for it
		c.fail(codes.Unauthenticated, "NewSmbGlobalMapping", request.with("password", newSecret(1)))
		// In the wrong place, and as a part of what isn't one.
		for _, name := range []string{"username", "password"} {
			c.fail(codes.InvalidArgument, "NewSmbGlobalMapping", request.with(name, newSecret(2)+"\x00"))
		}
		for _, call := range []string{"MSFT_SmbGlobalMapping", "MSFT_SmbGlobalMapping.Create"} {
			n.failNext(call, errorIODevice)
			c.fail(codes.Unavailable, "NewSmbGlobalMapping", request)
		}
	}
	addTarget(n, "iqn.2026-01.example:secret", fields{"chap_user": "user"}, newSecret(3), newSecret(4))
	addLUN(n, "iqn.2026-01.example:secret", fields{"size_bytes": int64(gib)})
	for _, v := range versionsOf("iscsi", "ConnectTarget") {
		c := n.client(v)
		c.discover()
		request := fields{
			"target_portal": portal, "iqn": "iqn.2026-01.example:secret",
			"auth_type": oneWayCHAP, "chap_username": "user", "chap_secret": newSecret(3),
		}
		c.succeed("ConnectTarget", request)
		c.succeed("DisconnectTarget", request.without("auth_type", "chap_username", "chap_secret"))
		c.fail(codes.Unauthenticated, "ConnectTarget", request.with("chap_secret", newSecret(5)))
		c.fail(codes.InvalidArgument, "ConnectTarget", request.with("chap_secret", newSecret(6)+newSecret(6)))
		c.fail(codes.InvalidArgument, "ConnectTarget", request.with("auth_type", oneWayCHAP+7))
		n.failNext("LoginIScsiTargetW", errorIODevice)
		c.fail(codes.Unavailable, "ConnectTarget", request)
		if !c.has("SetMutualChapSecret") {
			continue
		}
		c.succeed("SetMutualChapSecret", fields{"MutualChapSecret": newSecret(4)})
		c.fail(codes.InvalidArgument, "SetMutualChapSecret", fields{"MutualChapSecret": newSecret(7) + newSecret(7)})
		c.succeed("ConnectTarget", request.with("auth_type", mutualCHAP))
	}

	url := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(n.log())
	response, err := http.Get("http://" + url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(metrics, []byte(`grpc_method="ConnectTarget"`)) {
		t.Errorf("the metrics tell nothing of the calls:\n%s", metrics)
	}
	if found := leaks(metrics); found != nil {
		t.Errorf("the metrics have a secret: %q", found)
	}
	if err := n.restart(); err != nil { // its state is written in full, and read
		t.Fatal(err)
	}
}
