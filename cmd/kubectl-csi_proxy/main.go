// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-csi_proxy is a plugin for kubectl, "kubectl csi-proxy". It shows the state of
// CSI Proxy on the Windows nodes of a cluster, whether they keep their volumes when the cluster is
// upgraded, why a pod waits, and whether a StorageClass works: docs/monitoring.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// version is set at link time.
var version = "unknown"

// Exit codes.
const (
	exitOK      = 0
	exitProblem = 1
	exitUnknown = 2 // the cluster could not be read, or the flags are wrong
)

// errProblem ends a command that has printed a problem of a node.
var errProblem = errors.New("a node has a problem")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "kubectl csi-proxy",
		Short:         "Manage CSI Proxy on the Windows nodes of a cluster",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl csi-proxy"},
	}
	c := newConnection()
	c.add(root.PersistentFlags())
	root.AddCommand(statusCommand(c), checkCommand(c), whyCommand(c), testCommand(c))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if invalid := new(pflag.InvalidValueError); errors.As(err, &invalid) {
			f := invalid.GetFlag()
			if must, ok := values[f.Value.Type()]; ok {
				err = fmt.Errorf("--%s=%s: it must be %s", f.Name, invalid.GetValue(), must)
			}
		}
		return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
	})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitOK
	case errors.Is(err, errProblem):
		return exitProblem
	default:
		// Cobra suggests a command in lines of their own.
		text, meant, _ := strings.Cut(strings.TrimSpace(err.Error()), "\n\nDid you mean this?\n\t")
		if meant != "" {
			text += "; did you mean " + meant + "?"
		}
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintf(stderr, "kubectl csi-proxy: %s\n", quote.Terminal(line))
		}
		return exitUnknown
	}
}

// values says what the value of a flag must be, by its type.
var values = map[string]string{
	"bool":     "true or false",
	"duration": "a time with a unit, such as 30s or 1m30s",
}

// takes checks that a command has n arguments, which its usage names.
func takes(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		_, names, _ := strings.Cut(cmd.Use, " ")
		got := "none"
		if len(args) > 0 {
			got = fmt.Sprintf("%q", args)
		}
		return fmt.Errorf("%s takes %s, but got %s", cmd.Name(), cmp.Or(names, "no arguments"), got)
	}
}
