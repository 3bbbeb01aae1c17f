// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/cluster"
	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/gate"
	"github.com/csi-proxy/csi-proxy/kubectl-csi-proxy/table"
)

func checkCommand(c *connection) *cobra.Command {
	r := &reader{connection: c}
	var options gate.Options
	var wait time.Duration
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
  ` + cluster.VersionAnnotation + `; unless --without-daemon
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
	}
	r.add(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&options.Drivers, "driver", nil, "a CSI `driver` that each node must have; may be repeated")
	flags.StringVar(&options.MinVersion, "min-version", "",
		"the least `version` of CSI Proxy. Only its numbers count, not what follows them")
	flags.BoolVar(&options.WithoutDaemon, "without-daemon", false, "the drivers need no CSI Proxy on the nodes")
	flags.BoolVar(&options.NoInTree, "no-in-tree", false, "a volume that an in-tree plugin handles is a problem")
	flags.DurationVar(&wait, "wait", 0, "how long to wait until the nodes are ready; 0 looks once")
	flags.DurationVar(&r.interval, "interval", 5*time.Second, "how long to pause between two looks with --wait")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if wait < 0 {
			return fmt.Errorf("--wait=%v: it must not be negative", wait)
		}
		client, scraper, err := r.connect()
		if err != nil {
			return err
		}
		options.Scraper, options.Namespace, options.Selector = scraper, c.namespace(), r.selector
		found, err := waitUntilReady(cmd.Context(), wait, r.interval, cmd.ErrOrStderr(),
			func(ctx context.Context) (gate.Report, error) { return gate.Check(ctx, client, options) })
		if err != nil {
			return err
		}
		return r.report(cmd.OutOrStdout(), found, len(found.Nodes), found.Ready)
	}
	return cmd
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
			if err := table.Line(progress, "%s Waiting.", now); err != nil {
				return report, err
			}
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
