// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package terminal is what our command lines know of terminals: csi-proxyctl and the plugin for
// kubectl mark with colours what is well and what isn't, where somebody sees them.
package terminal

import (
	"io"
	"os"
)

// Colour is one of a line on a terminal.
type Colour string

// The colours, as the number of an SGR sequence.
const (
	None   Colour = ""
	Red    Colour = "31"
	Green  Colour = "32"
	Yellow Colour = "33"
)

// Paint returns a line in a colour.
func (c Colour) Paint(line string) string {
	if c == None {
		return line
	}
	return "\x1b[" + string(c) + "m" + line + "\x1b[0m"
}

// IsTerminal reports whether w is a terminal, which somebody reads, or the null device, which is
// taken for one.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// HasColours reports whether w is a terminal that shows colours, and nobody asked for none by
// NO_COLOR (https://no-color.org).
func HasColours(w io.Writer) bool {
	return IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && obeys(w.(*os.File))
}
