// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secret holds passwords so that no log, error or dump shows them.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// Text is a password or another text that must not be shown. Whatever prints,
// logs or encodes it gets a placeholder. Only Reveal gives the text: its calls are
// the places to review.
//
// A Go string can't be erased from memory; the buffers that are made of it for
// Windows are.
type Text struct {
	// A pointer, since fmt prints an unexported field of somebody's struct without
	// asking its methods.
	text *string
}

// placeholder is what stands for every text, also an empty one: whether there is
// one is nobody's business either.
const placeholder = "[secret]"

// New returns text as a secret.
func New(text string) Text { return Text{&text} }

// Reveal returns the text.
func (t Text) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// Equal reports whether two secrets are the same text.
func (t Text) Equal(other Text) bool { return t.Reveal() == other.Reveal() }

// String returns a placeholder.
func (Text) String() string { return placeholder }

// GoString returns a placeholder.
func (Text) GoString() string { return placeholder }

// Format writes a placeholder, whatever the verb.
func (Text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, placeholder) }

// LogValue returns a placeholder.
func (Text) LogValue() slog.Value { return slog.StringValue(placeholder) }

// MarshalText returns a placeholder.
func (Text) MarshalText() ([]byte, error) { return []byte(placeholder), nil }
