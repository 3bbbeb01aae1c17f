// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command recording makes a picture that moves of a program's output. From the repository's root:
//
//	test/demo | go -C tools run ./recording 'make run' >docs/images/make-run.svg
//
// The lines appear one after the other, at a pace of its own. The identifiers of volumes, which
// Windows makes up, are replaced by others, always the same. So the same program has the same
// picture, and CI notices when the demo says something else. Readers that ask for reduced motion
// see all lines at once.
package main

import (
	"fmt"
	"html"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

const (
	columns = 116
	height  = 18 // pixels of a line
	// Seconds before a line, and before one that begins a chapter.
	pace, pause = 0.05, 0.2
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: program | recording TITLE >picture.svg")
		os.Exit(2)
	}
	output, err := io.ReadAll(os.Stdin)
	if err == nil && len(output) == 0 {
		err = fmt.Errorf("the program has printed nothing")
	}
	if err == nil {
		_, err = os.Stdout.WriteString(picture(os.Args[1], string(output)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

var volume = regexp.MustCompile(`Volume\{[0-9a-f-]{36}\}`)

func picture(title, output string) string {
	var volumes []string
	output = volume.ReplaceAllStringFunc(output, func(id string) string {
		if !slices.Contains(volumes, id) {
			volumes = append(volumes, id)
		}
		return fmt.Sprintf("Volume{5d3b7a10-94c2-4e68-b1f7-%012d}", slices.Index(volumes, id)+1)
	})
	lines := []string{"$ " + title}
	for line := range strings.Lines(output) {
		lines = append(lines, wrap(strings.TrimRight(line, "\n"))...)
	}

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.1f %d" role="img" aria-label="the output of %s">
<!-- Made by tools/recording from a run. Copyright The CSI Proxy Authors. SPDX-License-Identifier: Apache-2.0 -->
<style>
text { font: 12px 'DejaVu Sans Mono', Consolas, monospace; fill: #d7deea; white-space: pre }
.head { fill: #8fd0ff; font-weight: bold } .end { fill: #9be28f }
@media (prefers-reduced-motion: no-preference) { text { opacity: 0; animation: appear 0.2s forwards } }
@keyframes appear { to { opacity: 1 } }
</style>
<rect width="100%%" height="100%%" rx="8" fill="#16202e"/>
`, columns*7.3+32, len(lines)*height+32, html.EscapeString(title))
	seconds := 0.0
	for i, line := range lines {
		class := ""
		switch {
		case strings.HasPrefix(line, "All went"):
			class = ` class="end"`
		case line != "" && line[0] != ' ':
			class = ` class="head"`
		}
		if seconds += pace; class != "" {
			seconds += pause
		}
		fmt.Fprintf(&b, "<text x=\"16\" y=\"%d\"%s style=\"animation-delay:%.2fs\">%s</text>\n", i*height+28, class, seconds,
			html.EscapeString(line))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// wrap breaks a line at a space, if there is one to break it at; what follows is indented.
func wrap(line string) (lines []string) {
	const indent = "            "
	for len(line) > columns {
		end := strings.LastIndexByte(line[:columns+1], ' ')
		if end <= 30 {
			end = columns
		}
		lines = append(lines, line[:end])
		line = indent + strings.TrimLeft(line[end:], " ")
	}
	return append(lines, line)
}
