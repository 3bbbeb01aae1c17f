// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"fmt"

	"github.com/csi-proxy/csi-proxy/secret"
)

// hashSecret is how passwords and CHAP secrets are kept, in memory and in the state
// file: the simulated servers compare hashes instead of computing with the texts.
func hashSecret(text secret.Text, salt []byte) ([]byte, error) {
	const rounds = 4096 // as RFC 7677 asks for at least
	hash, err := pbkdf2.Key(sha256.New, text.Reveal(), salt, rounds, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("hash a secret: %w", err)
	}
	return hash, nil
}

const saltSize = 16 // bytes

func newSalt() []byte {
	salt := make([]byte, saltSize)
	rand.Read(salt) // never fails
	return salt
}
