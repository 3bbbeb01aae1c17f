// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/fleet"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

// administrator is in the help of the commands that run something on nodes.
const administrator = `

It runs csi-proxyctl in CSI Proxy's pods. These run as SYSTEM, so whoever may use this command is an
administrator of the nodes. The rights are in deploy/kustomize/kubectl-plugin. On a node without a
pod of CSI Proxy, run csi-proxyctl yourself.

Exit codes: 0 if all nodes have answered; 1 if there is a problem on a node; 2 if a node gave no
answer, or nothing could be asked.`

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
calls that hang; doctor can. The rights are in deploy/kustomize/kubectl-plugin.

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
		Short: "Say whether the Windows nodes keep their volumes in an upgrade of the cluster",
		Long: `Say whether the Windows nodes keep their volumes when the cluster is upgraded to a version of
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
	selectorFlag(cmd, &r.selector)
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
		return noneMatches(r.selector)
	default:
		err = show(w, r.output, r.view(w, found))
	}
	if err == nil && !found.OK {
		err = errProblem
	}
	return err
}

func noneMatches(selector string) error {
	return fmt.Errorf("no Windows node matches --selector=%s", selector)
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

// asked is what a command has found that asks nodes.
type asked interface {
	printer
	Asked() []fleet.Asked
	Problems() int
}

// show prints what a command has found.
func show(w io.Writer, output string, found printer) error {
	if output == outputJSON {
		return table.JSON(w, found)
	}
	return found.Print(w)
}

// asker has the flags of the commands that ask nodes.
type asker struct {
	*connection
	fleet.Asker
}

func (a *asker) add(cmd *cobra.Command) {
	selectorFlag(cmd, &a.Selector)
	cmd.Flags().DurationVar(&a.Timeout, "node-timeout", 2*time.Minute, "how long a node may take to answer")
}

// connect makes the asker ready, for the nodes with these names or all.
func (a *asker) connect(stderr io.Writer, names []string) error {
	if a.Timeout <= 0 {
		return fmt.Errorf("--node-timeout=%v: it must be more than 0", a.Timeout)
	}
	config, client, err := a.connection.connect()
	if err != nil {
		return err
	}
	a.Client, a.Namespace, a.Names = client, a.namespace(), names
	a.Exec = func(ctx context.Context, pod *core.Pod, args []string, stdout, stderr io.Writer) error {
		return cluster.Exec(ctx, config, client, pod, args, stdout, stderr)
	}
	if terminal.IsTerminal(stderr) {
		a.Progress = func(done, all int) {
			end := ""
			if done == all {
				end = "\n"
			}
			fmt.Fprintf(stderr, "\r%d of %d nodes have answered%s", done, all, end)
		}
	}
	return nil
}

// askCommand makes a command that asks nodes and prints what they say.
func askCommand[T asked](c *connection, name, short, long string,
	ask func(*fleet.Asker, context.Context) (T, error)) *cobra.Command {
	a := &asker{connection: c}
	var output string
	cmd := &cobra.Command{
		Use:   name + " [NODE…]",
		Short: short,
		Long:  long + administrator,
		Example: fmt.Sprintf("  kubectl csi-proxy %s win-1 win-2\n  kubectl csi-proxy %s -l pool=storage -o json", name,
			name),
	}
	a.add(cmd)
	outputFlag(cmd, &output)
	cmd.RunE = func(cmd *cobra.Command, names []string) error {
		if err := checkOutput(output); err != nil {
			return err
		}
		if err := a.connect(cmd.ErrOrStderr(), names); err != nil {
			return err
		}
		found, err := ask(&a.Asker, cmd.Context())
		if err == nil && len(found.Asked()) == 0 {
			return a.none()
		}
		if len(found.Asked()) > 0 { // what is known, even if it was interrupted
			err = errors.Join(err, show(cmd.OutOrStdout(), output, found))
		}
		if err == nil && found.Problems() > 0 {
			err = errProblem
		}
		return errors.Join(err, a.failed(found.Asked(), err))
	}
	return cmd
}

// none says that there is no node to ask.
func (a *asker) none() error {
	if a.Selector != "" {
		return noneMatches(a.Selector)
	}
	return errors.New("the cluster has no Windows nodes")
}

// failed returns an error for nodes that gave no answer, unless there is one already.
func (a *asker) failed(asked []fleet.Asked, err error) error {
	if n := fleet.Failed(asked); n > 0 && err == nil {
		return fmt.Errorf("%d of %d nodes gave no answer", n, len(asked))
	}
	return nil
}

func disksCommand(c *connection) *cobra.Command {
	return askCommand(c, "disks", "List the disks of the nodes",
		"List the disks of the nodes, with their state and where their volumes are mounted.",
		(*fleet.Asker).Disks)
}

func volumesCommand(c *connection) *cobra.Command {
	return askCommand(c, "volumes", "List what is mounted on the nodes, and for which pod",
		`List what is mounted on the nodes: which pod, claim and PersistentVolume is behind each mount, and
what is wrong with it, such as a pod's link that leads nowhere.`,
		(*fleet.Asker).Volumes)
}

func doctorCommand(c *connection) *cobra.Command {
	return askCommand(c, "doctor", "Run csi-proxyctl doctor on the nodes",
		"Run csi-proxyctl doctor on the nodes, and print what isn't well, with what to do about it.",
		(*fleet.Asker).Doctor)
}

func logsCommand(c *connection) *cobra.Command {
	lines := 200
	cmd := askCommand(c, "logs", "Print the end of the daemons' logs",
		"Print the end of the daemons' logs: a container's, or the log file of the service.",
		func(a *fleet.Asker, ctx context.Context) (fleet.Logs, error) {
			if lines <= 0 {
				return fleet.Logs{}, fmt.Errorf("--tail=%d: it must be more than 0", lines)
			}
			return a.Logs(ctx, lines)
		})
	cmd.Flags().IntVar(&lines, "tail", lines, "how many `lines` of each log")
	return cmd
}

func sysdumpCommand(c *connection) *cobra.Command {
	a := &asker{connection: c}
	var name string
	cmd := &cobra.Command{
		Use:   "sysdump [NODE…]",
		Short: "Write one zip of the whole cluster for support",
		Long: `Write one zip for support, and print its name: the support bundle of each node, the objects of CSI
Proxy, of the Windows nodes and of their volumes in the API server, and the logs of CSI Proxy's and
the drivers' pods. A file that exists is an error.

No Secret is read, values of containers' variables are left out, and what looks like a password is
masked. But the zip has names of disks, servers, directories and pods: read it before you send it to
others. missing.txt in it lists what couldn't be read, and why.` + administrator,
		Example: "  kubectl csi-proxy sysdump\n  kubectl csi-proxy sysdump win-1 --file dump.zip",
	}
	a.add(cmd)
	cmd.Flags().StringVar(&name, "file", "",
		"the `file` to write (default csi-proxy-sysdump-TIME.zip in the current directory)")
	cmd.RunE = func(cmd *cobra.Command, names []string) (err error) {
		if err := a.connect(cmd.ErrOrStderr(), names); err != nil {
			return err
		}
		now := time.Now()
		if name == "" {
			name = "csi-proxy-sysdump-" + now.UTC().Format("20060102T150405Z") + ".zip"
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		about := fmt.Sprintf("Made at %s by kubectl csi-proxy %s.\n", now.UTC().Format(time.RFC3339), version)
		asked, err := a.Sysdump(cmd.Context(), f, about, now)
		if err := errors.Join(err, f.Close()); err != nil {
			return errors.Join(err, os.Remove(name))
		}
		if err := table.Line(cmd.OutOrStdout(), "%s", name); err != nil {
			return err
		}
		return a.failed(asked, nil)
	}
	return cmd
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

func selectorFlag(cmd *cobra.Command, selector *string) {
	cmd.Flags().StringVarP(selector, "selector", "l", "", "a label `selector`: only Windows nodes with these labels")
}
