// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package table

import (
	"io"
	"os"

	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal, which somebody reads.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// HasColours reports whether w is a terminal that shows colours, and nobody asked for none by
// NO_COLOR (https://no-color.org).
func HasColours(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && obeys(w.(*os.File))
}
