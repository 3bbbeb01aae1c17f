// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-csi_proxy is a plugin for kubectl, "kubectl csi-proxy". It shows the state of
// CSI Proxy on the Windows nodes of a cluster, and whether they keep their volumes when the cluster is
// upgraded: docs/monitoring.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
	root.AddCommand(statusCommand(c), disksCommand(c), volumesCommand(c), doctorCommand(c), logsCommand(c),
		sysdumpCommand(c), checkCommand(c), whyCommand(c))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
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
