// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package credential keeps passwords and CHAP secrets as salted hashes, in memory
// and in the state file. The simulated servers compare hashes: they don't compute
// with the texts.
package credential

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// SaltSize is the length of a salt in bytes.
const SaltSize = 16

// NewSalt returns a random salt.
func NewSalt() []byte {
	salt := make([]byte, SaltSize)
	rand.Read(salt) // never fails
	return salt
}

// Rounds is how often a secret is hashed: as often as RFC 7677 asks for at least. Tests that
// start very many nodes lower it.
var Rounds = 4096

// Hash returns what is kept of a secret: always the same for one text and salt.
func Hash(text csiproxy.Secret, salt []byte) ([]byte, error) {
	hash, err := pbkdf2.Key(sha256.New, text.Reveal(), salt, Rounds, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("hash a secret: %w", err)
	}
	return hash, nil
}
