// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"unicode/utf16"
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
		{"in base64", []byte(base64.StdEncoding.EncodeToString(mark))},
		{"as a list of numbers", []byte("104 117 115 104 33 33")},
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
