// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import (
	"fmt"
	"io"
	"log/slog"
)

// Secret is a password or another confidential text. Printing, logging or encoding a Secret gives a
// placeholder. Only Reveal returns the text, so a review can check the calls of Reveal.
//
// A Go string stays in memory. The buffers made from the string for Windows are erased.
type Secret struct {
	// A pointer, because fmt prints unexported fields of other structs without calling their
	// methods.
	text *string
}

// placeholder stands for every text, including an empty text: the presence of a secret is
// confidential too.
const placeholder = "[secret]"

// NewSecret returns text as a secret.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text.
func (t Secret) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// Equal reports whether two secrets are the same text.
func (t Secret) Equal(other Secret) bool { return t.Reveal() == other.Reveal() }

// String returns a placeholder.
func (Secret) String() string { return placeholder }

// GoString returns a placeholder.
func (Secret) GoString() string { return placeholder }

// Format writes a placeholder for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue returns a placeholder.
func (Secret) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalText returns a placeholder.
func (Secret) MarshalText() ([]byte, error) { return []byte(placeholder), nil }
