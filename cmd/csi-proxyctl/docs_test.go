// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var commandInDocs = regexp.MustCompile(`\bcsi-proxyctl(?:\.exe)?(?: -o json)?((?: [a-z][a-z-]+)+)`)

// The commands that the pages name exist.
func TestCommandsInDocs(t *testing.T) {
	root := (&program{stdout: io.Discard, stderr: io.Discard, format: formatText}).root()
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	found := 0
	for _, page := range pages {
		if filepath.Base(page) == "csi-proxyctl.md" {
			continue // which the program writes
		}
		text, err := os.ReadFile(page)
		must(t, err)
		// Only what stands in code is a command: csi-proxyctl is also a word of sentences. PowerShell needs .\ before it.
		for _, code := range regexp.MustCompile("`[^`\n]+`|(?m)^ *(?:\\.\\\\)?csi-proxyctl.*$").FindAllString(string(text), -1) {
			match := commandInDocs.FindStringSubmatch(code)
			if match == nil {
				continue
			}
			found++
			cmd := root
			for _, word := range strings.Fields(match[1]) {
				if !cmd.HasSubCommands() {
					break // an argument
				}
				sub, _, err := cmd.Find([]string{word})
				if err != nil || sub == cmd {
					t.Errorf("%s: %s: %s has no command %s", filepath.Base(page), code, cmd.CommandPath(), word)
					break
				}
				cmd = sub
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d commands", found)
	}
}
