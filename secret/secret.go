// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package secret holds passwords so that no log, error or dump shows them.
package secret

import (
	"fmt"
	"io"
	"log/slog"
)

// Text is a password or another text that must not be shown. Printing, logging or
// encoding it gives a placeholder. Only Reveal returns the text, so a review can
// check the calls of Reveal.
//
// A Go string can't be erased from memory. The buffers made of it for Windows are
// erased.
type Text struct {
	// A pointer, since fmt prints unexported fields of other structs without calling
	// their methods.
	text *string
}

// placeholder stands for every text, including an empty one: whether there is a
// secret isn't shown either.
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
