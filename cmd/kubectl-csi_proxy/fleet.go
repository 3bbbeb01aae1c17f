// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/fleet"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

func statusCommand(c *connection) *cobra.Command {
	r := &reader{connection: c}
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of CSI Proxy on each Windows node",
		Long: `Show the state of CSI Proxy on each Windows node: a line for each, those with problems first. On a
terminal the nodes without a problem are only counted, unless --all.

It only reads, from the API server and, by way of it, from the metrics of CSI Proxy's pods. Where
the pods serve metrics on their node only, as they do by default, it can't see volumes, disks and
calls that hang; csi-proxyctl doctor on the node can. The rights are in
deploy/kustomize/kubectl-plugin.

Exit codes: 0 if no node has a problem; 1 if one has; 2 if the cluster can't be read.`,
		Example: `  kubectl csi-proxy status
  kubectl csi-proxy status --watch
  kubectl csi-proxy status -l pool=storage -o json`,
		Args: takes(0),
	}
	r.add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print the status again each time it changes, until Ctrl-C")
	cmd.Flags().DurationVar(&interval, "interval", 10*time.Second, "how long to pause between two queries with --watch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if interval <= 0 {
			return fmt.Errorf("--interval=%v: it must be more than 0", interval)
		}
		if !watch {
			return r.status(cmd, nil)
		}
		query, err := r.connect(nil)
		if err != nil {
			return err
		}
		return watchStatus(cmd.Context(), interval, r.output, cmd.OutOrStdout(), cmd.ErrOrStderr(),
			func(ctx context.Context) (fleet.View, error) {
				s, err := query.Status(ctx)
				return r.view(cmd.OutOrStdout(), s), err
			})
	}
	return cmd
}

func checkCommand(c *connection) *cobra.Command {
	r := &reader{connection: c}
	var check fleet.Check
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether the Windows nodes keep their volumes in an upgrade of the cluster",
		Long: `Check whether the Windows nodes keep their volumes when the cluster is upgraded to a version of
Kubernetes without in-tree storage plugins: status, and for each node
- the CSI driver is registered that replaces the in-tree plugin of each volume on the node
- so is each driver of --driver; or any driver, if the node needs none of these
- CSI Proxy is there, unless --without-daemon
- where a driver has endpoints of its own, no pod mounts kubelet's directory, the published pipes, or
  what belongs to two drivers: it would void the boundary between them (docs/security.md).

It only reads. The rights are in deploy/kustomize/kubectl-plugin, those of viewers.

Exit codes: 0 if no node has a problem, or there are no Windows nodes; 1 if one has; 2 if that isn't
known, such as for lack of rights.`,
		Example: `  # Before an upgrade: is the driver on all nodes, and for each volume that needs one?
  kubectl csi-proxy check --driver disk.csi.azure.com

  # In a pipeline: give the rollout of the drivers ten minutes.
  timeout 10m sh -c 'until kubectl csi-proxy check; do sleep 10; done'`,
		Args: takes(0),
	}
	r.add(cmd)
	cmd.Flags().StringSliceVar(&check.Drivers, "driver", nil, "a CSI `driver` that each node must have; may be repeated")
	cmd.Flags().BoolVar(&check.WithoutDaemon, "without-daemon", false, "the drivers need no CSI Proxy on the nodes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.status(cmd, &check) }
	return cmd
}

// reader has the flags of the commands that only read: from the API server, and the metrics
// of CSI Proxy's pods.
type reader struct {
	*connection
	selector, output string
	all              bool
}

func (r *reader) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&r.selector, "selector", "l", "", "a label `selector`: only Windows nodes with these labels")
	outputFlag(cmd, &r.output)
	cmd.Flags().BoolVar(&r.all, "all", false, "on a terminal, list also the nodes without a problem")
}

// connect checks the flags, and returns the query.
func (r *reader) connect(check *fleet.Check) (fleet.Query, error) {
	if err := checkOutput(r.output); err != nil {
		return fleet.Query{}, err
	}
	_, client, err := r.connection.connect()
	return fleet.Query{Client: client, Namespace: r.namespace(), Selector: r.selector, Check: check}, err
}

// view returns a status as it is printed to w.
func (r *reader) view(w io.Writer, s fleet.Status) fleet.View {
	return fleet.View{Status: s, Brief: terminal.IsTerminal(w) && !r.all, Colours: terminal.HasColours(w)}
}

// status queries the nodes, and prints what it found.
func (r *reader) status(cmd *cobra.Command, check *fleet.Check) error {
	query, err := r.connect(check)
	if err != nil {
		return err
	}
	found, err := query.Status(cmd.Context())
	switch w := cmd.OutOrStdout(); {
	case err != nil:
		return err
	case len(found.Nodes) == 0 && r.selector != "":
		return fmt.Errorf("no Windows node matches --selector=%s", r.selector)
	default:
		err = show(w, r.output, r.view(w, found))
	}
	if err == nil && !found.OK {
		err = errProblem
	}
	return err
}

// watchStatus prints the status each time it changes, until ctx ends. A query that fails is
// reported, and repeated.
func watchStatus(ctx context.Context, interval time.Duration, output string, stdout, stderr io.Writer,
	query func(context.Context) (fleet.View, error)) error {
	var last string
	for {
		status, err := query(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var text bytes.Buffer
		if err == nil {
			err = show(&text, output, status)
		}
		switch {
		case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err): // it stays
			return err
		case err != nil:
			if err := table.Line(stderr, "kubectl csi-proxy: %v; trying again in %v", err, interval); err != nil {
				return err
			}
		case text.String() != last:
			last = text.String()
			if output == outputTable {
				fmt.Fprintf(stdout, "%s\n", time.Now().Format(time.TimeOnly))
			}
			if _, err := fmt.Fprintf(stdout, "%s\n", last); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// printer is what a command has found.
type printer interface{ Print(io.Writer) error }

// show prints what a command has found.
func show(w io.Writer, output string, found printer) error {
	if output == outputJSON {
		return table.JSON(w, found)
	}
	return found.Print(w)
}

// The formats of the output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

func outputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", outputTable, "the `format` of the output: table or json")
}

func checkOutput(output string) error {
	if output != outputTable && output != outputJSON {
		return fmt.Errorf("--output=%s: it is table or json", output)
	}
	return nil
}
