// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build reference

package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// With the build tag reference, this isn't csi-proxyctl. It writes docs/csi-proxyctl.md and
// docs/csi-proxyctl-sim.md, which are what --help says.
func init() {
	simulated = (*program).sim // as another init does later
	node, sim, _ := strings.Cut(reference(), "\n## csi-proxyctl sim\n")
	for page, text := range map[string]string{
		"csi-proxyctl.md":     node,
		"csi-proxyctl-sim.md": simIntroduction + strings.ReplaceAll(sim, "\n### ", "\n## "),
	} {
		if err := os.WriteFile("docs/"+page, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(0)
}

const simIntroduction = `# The commands of csi-proxyctl sim

They play the cloud, a pod and the power supply of a [simulated node](test-your-driver.md). The
released program for Windows lacks them. They also have [the flags of all
commands](csi-proxyctl.md#csi-proxyctl).
` + "`make generate` writes this page.\n"

// pageWidth is how many columns a list of flags has on the page.
const pageWidth = 110

func reference() string {
	root := (&program{stdout: io.Discard, stderr: io.Discard, format: formatText}).root()
	endpointDir := root.PersistentFlags().Lookup("endpoint-dir") // of whoever runs this
	endpointDir.DefValue = ""
	endpointDir.Usage += ". Default: /run/csi-proxy for root, for others csi-proxy in $XDG_RUNTIME_DIR, or else " +
		"csi-proxy-UID in $TMPDIR or /tmp"
	var b strings.Builder
	b.WriteString("# The commands of csi-proxyctl\n\n`csi-proxyctl COMMAND --help` prints one with all its flags. `make " +
		"generate` writes this page. The\ncommands of a simulated node are in [csi-proxyctl-sim.md](csi-proxyctl-sim.md).\n\n" + secretHelp + "\n\n")
	var before []*cobra.Command // which the page has
	var write func(cmd *cobra.Command)
	write = func(cmd *cobra.Command) {
		level := "##"
		if cmd != root && cmd.Parent() != root {
			level = "###"
		}
		usage := cmd.UseLine()
		help := strings.TrimSuffix(cmp.Or(cmd.Long, cmd.Short+"."), "\n\n"+secretHelp) // which the page has once
		if cmd.HasSubCommands() {
			usage = cmd.CommandPath() + " COMMAND"
		}
		fmt.Fprintf(&b, "%s %s\n\n```\n%s\n\n%s\n", level, cmd.CommandPath(), usage,
			strings.TrimSpace(help))
		if cmd.HasExample() {
			fmt.Fprintf(&b, "\n%s\n", strings.Trim(cmd.Example, "\n"))
		}
		flags := cmd.NonInheritedFlags()
		if cmd == root {
			flags = cmd.PersistentFlags()
		}
		same, others := sameFlags(before, cmd), pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.VisitAll(func(f *pflag.Flag) {
			if same == nil || same.Flags().Lookup(f.Name) == nil {
				others.AddFlag(f)
			}
		})
		if others.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s", others.FlagUsagesWrapped(pageWidth))
		}
		b.WriteString("```\n\n")
		if same != nil {
			fmt.Fprintf(&b, "It has the flags of `%s`, too.\n\n", same.CommandPath())
		}
		before = append(before, cmd)
		// The commands that need few words come first, as a table.
		var rows, sections []*cobra.Command
		for _, c := range cmd.Commands() {
			switch {
			case c.Hidden || c.Name() == "help" || c.Name() == "completion":
			case c.Name() == "sim":
				defer write(c) // last: the released program for Windows lacks it
			case c.HasSubCommands() || c.Long != "" || c.HasExample() || len(flagsOf(c)) > 2:
				sections = append(sections, c)
			default:
				rows = append(rows, c)
			}
		}
		for i, c := range rows {
			if i == 0 {
				b.WriteString("| command | what it does |\n|---|---|\n")
			}
			fmt.Fprintf(&b, "| `%s` | %s", strings.TrimSuffix(c.UseLine(), " [flags]"), c.Short)
			for _, f := range flagsOf(c) {
				value, usage := pflag.UnquoteUsage(f)
				fmt.Fprintf(&b, "<br>`%s`: %s", strings.TrimSpace("--"+f.Name+" "+value), usage)
				if !slices.Contains([]string{"", "0", "false", "[]"}, f.DefValue) {
					fmt.Fprintf(&b, " (default %s)", f.DefValue)
				}
			}
			b.WriteString(" |\n")
		}
		if len(rows) > 0 {
			b.WriteString("\n")
		}
		for _, c := range sections {
			write(c)
		}
	}
	write(root)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// sameFlags returns the first of the commands that has ten flags or more, and none that cmd hasn't.
func sameFlags(commands []*cobra.Command, cmd *cobra.Command) *cobra.Command {
	for _, c := range commands {
		flags := flagsOf(c)
		if len(flags) >= 10 && !slices.ContainsFunc(flags, func(f *pflag.Flag) bool {
			g := cmd.Flags().Lookup(f.Name)
			return g == nil || g.Usage != f.Usage || g.DefValue != f.DefValue
		}) {
			return c
		}
	}
	return nil
}

// flagsOf returns the flags of a command itself.
func flagsOf(cmd *cobra.Command) (flags []*pflag.Flag) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			flags = append(flags, f)
		}
	})
	return flags
}
