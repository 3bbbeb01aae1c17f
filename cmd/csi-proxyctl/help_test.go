// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// TestHelp: each help fits 80 columns, and each command has an example, whose flags and arguments it takes.
func TestHelp(t *testing.T) {
	used := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		for line := range strings.Lines(helpOf(cmd)) {
			isExample := strings.HasPrefix(line, "  csi-proxyctl ")
			if columns := utf8.RuneCountInString(strings.TrimRight(line, "\n")); columns > helpWidth && !isExample {
				t.Errorf("%s --help has a line of %d columns: %s", cmd.CommandPath(), columns, line)
			}
		}
		for _, c := range cmd.Commands() {
			check(c)
		}
		if cmd.HasSubCommands() {
			return
		}
		lines := strings.Split(strings.TrimSuffix(exampleOf(cmd), "\n"), "\n")
		for _, line := range lines {
			if strings.Contains(examples, "\n"+strings.ReplaceAll(strings.TrimPrefix(line, "  csi-proxyctl "), "'", "")+"\n") {
				used++
			}
			// A new tree, since flags keep what they were given.
			root := (&program{stdout: io.Discard, stderr: io.Discard, format: formatText}).root()
			words := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(line, "  csi-proxyctl "), "'", ""))
			found, rest, err := root.Find(words)
			if err != nil || found.CommandPath() != cmd.CommandPath() {
				t.Errorf("%s: the example %q is of another command, or there is none", cmd.CommandPath(), line)
				continue
			}
			if cmd.HasExample() {
				continue // its words may be quoted
			}
			for word := range strings.FieldsSeq(line) {
				if strings.Contains(word, `\`) && (word[0] != '\'' || word[len(word)-1] != '\'') {
					t.Errorf("%s: a shell takes the backslashes of %s away", line, word)
				}
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: %v", line, err)
			} else if err := found.ValidateArgs(found.Flags().Args()); err != nil {
				t.Errorf("%s: %v", line, err)
			} else if err := found.ValidateRequiredFlags(); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	check((&program{stdout: io.Discard, stderr: io.Discard, format: formatText}).root())
	if all := strings.Count(strings.TrimSpace(examples), "\n") + 1; used != all {
		t.Errorf("%d of %d examples are used", used, all)
	}
}
