// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-csi_proxy is a plugin for kubectl, "kubectl csi-proxy". Its command check
// says whether the Windows nodes of a cluster are ready for CSI, as a gate before the
// cluster is upgraded; see docs/upgrade-gate.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/gate"
)

// version is set at link time.
var version = "unknown"

// Exit codes of check.
const (
	exitReady    = 0
	exitNotReady = 1
	exitUnknown  = 2 // the cluster could not be looked at, or the flags are wrong
)

// errNotReady ends the command when the report has been printed.
var errNotReady = errors.New("not ready")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "kubectl csi-proxy",
		Short:         "Look after CSI Proxy on the Windows nodes of a cluster",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl csi-proxy"},
	}
	root.AddCommand(checkCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitReady
	case errors.Is(err, errNotReady):
		return exitNotReady
	default:
		fmt.Fprintf(stderr, "kubectl csi-proxy: %v\n", err)
		return exitUnknown
	}
}

// checker is the command check.
type checker struct {
	options  gate.Options
	output   string
	wait     time.Duration
	interval time.Duration

	loading   *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func checkCommand() *cobra.Command {
	c := &checker{loading: clientcmd.NewDefaultClientConfigLoadingRules()}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the Windows nodes are ready for CSI",
		Long: `Say whether the Windows nodes of the cluster are ready for CSI, and so whether the cluster may
be upgraded to a version of Kubernetes without in-tree storage plugins.

A node is ready if
- it is Ready, and has an object CSINode, which its kubelet makes with the first driver
- it has each driver of --driver, or any driver if there are none
- it has the driver for each volume of an in-tree plugin that is used or attached on it
- CSI Proxy is there: its pod is ready and tells its version, or the node has the annotation
  ` + gate.VersionAnnotation + `; unless --without-daemon
- with --no-in-tree, the volumes of in-tree plugins are all handled by their CSI drivers

Exit codes: 0 if all nodes are ready, or there are no Windows nodes; 1 if one isn't; 2 if that
isn't known, such as for lack of rights. The rights that are needed are in
deploy/kustomize/upgrade-gate.`,
		Example: `  # Before an upgrade: is the driver on all nodes, and for each volume that needs one?
  kubectl csi-proxy check --driver disk.csi.azure.com --min-version v0.1.0

  # In a pipeline, give the rollout of the drivers ten minutes.
  kubectl csi-proxy check --driver disk.csi.azure.com --wait 10m -o json

  # After it: is anything left with an in-tree plugin?
  kubectl csi-proxy check --no-in-tree`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&c.options.Drivers, "driver", nil, "a CSI `driver` that each node must have; may be repeated")
	flags.StringVarP(&c.options.Selector, "selector", "l", "", "a label `selector`: look only at these Windows nodes")
	flags.StringVar(&c.options.MinVersion, "min-version", "", "the least `version` of CSI Proxy. Only its numbers count, not what follows them")
	flags.BoolVar(&c.options.WithoutDaemon, "without-daemon", false, "the drivers need no CSI Proxy on the nodes")
	flags.BoolVar(&c.options.NoInTree, "no-in-tree", false, "a volume that an in-tree plugin handles is a problem")
	flags.StringVarP(&c.output, "output", "o", "table", "the `format` of the output: table or json")
	flags.DurationVar(&c.wait, "wait", 0, "how long to wait until the nodes are ready; 0 looks once")
	flags.DurationVar(&c.interval, "interval", 5*time.Second, "how long to pause between two looks with --wait")
	flags.StringVar(&c.loading.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "the kubeconfig `file` to use")
	// kubectl's names. There are none for secrets: these belong in the kubeconfig.
	flags.StringVar(&c.overrides.CurrentContext, clientcmd.FlagContext, "", "the `context` of the kubeconfig to use")
	flags.StringVar(&c.overrides.Context.Cluster, clientcmd.FlagClusterName, "", "the `cluster` of the kubeconfig to use")
	flags.StringVar(&c.overrides.Context.AuthInfo, clientcmd.FlagAuthInfoName, "", "the `user` of the kubeconfig to use")
	flags.StringVarP(&c.overrides.Context.Namespace, clientcmd.FlagNamespace, "n", "csi-proxy", "the `namespace` of CSI Proxy's pods")
	flags.StringVar(&c.overrides.AuthInfo.Impersonate, clientcmd.FlagImpersonate, "", "the `name` of the user to impersonate")
	flags.StringArrayVar(&c.overrides.AuthInfo.ImpersonateGroups, clientcmd.FlagImpersonateGroup, nil, "a `group` to impersonate; may be repeated")
	flags.StringVar(&c.overrides.Timeout, clientcmd.FlagTimeout, "30s", "how `long` a single request may take; 0 for ever")
	return cmd
}

func (c *checker) run(ctx context.Context, stdout, stderr io.Writer) error {
	switch {
	case c.output != "table" && c.output != "json":
		return fmt.Errorf("--output=%s: it is table or json", c.output)
	case c.wait < 0:
		return fmt.Errorf("--wait=%v: it must not be negative", c.wait)
	case c.interval <= 0:
		return fmt.Errorf("--interval=%v: it must be more than 0", c.interval)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.loading, &c.overrides).ClientConfig()
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 50, 100 // one request for each node
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	c.options.Namespace = c.overrides.Context.Namespace
	report, err := waitUntilReady(ctx, c.wait, c.interval, stderr, func(ctx context.Context) (gate.Report, error) {
		return gate.Check(ctx, client, c.options)
	})
	if err != nil {
		return err
	}
	if c.options.Selector != "" && len(report.Nodes) == 0 {
		return fmt.Errorf("no Windows node matches --selector=%s", c.options.Selector)
	}
	if c.output == "json" {
		encoder := json.NewEncoder(stdout)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = gate.Print(stdout, report)
	}
	if err != nil {
		return err
	}
	if !report.Ready {
		return errNotReady
	}
	return nil
}

// waitUntilReady checks until all nodes are ready, and for wait at most. It returns the last
// report; or, if the cluster couldn't be looked at the last time, that error. What changes
// meanwhile goes to progress.
func waitUntilReady(ctx context.Context, wait, interval time.Duration, progress io.Writer,
	check func(context.Context) (gate.Report, error)) (gate.Report, error) {
	deadline := time.Now().Add(wait)
	said := ""
	for {
		report, err := check(ctx)
		pause := min(interval, time.Until(deadline))
		if err == nil && report.Ready || ctx.Err() != nil || pause <= 0 || isFinal(err) {
			return report, err
		}
		now := report.Summary()
		if err != nil {
			now = err.Error()
		}
		if now != said {
			fmt.Fprintf(progress, "%s Waiting.\n", now)
			said = now
		}
		select {
		case <-ctx.Done():
			return report, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// isFinal reports whether an error stays however often the check is repeated.
func isFinal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || errors.Is(err, gate.ErrOptions)
}
