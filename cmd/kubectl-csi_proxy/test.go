// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/volumetest"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

func testCommand(c *connection) *cobra.Command {
	t := volumetest.Test{}
	var size, output string
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Test a StorageClass on the Windows nodes",
		Long: `Test a StorageClass on the Windows nodes. On each node, at the same time:
- write: a claim gets a volume, and a pod writes to it
- read: when that pod has gone, another pod reads what it has written
- grow: the claim grows, and the pod sees the new size, if the class has allowVolumeExpansion
- remove: the pods, the claim and the volume go.

It prints the time of each step. If a step fails, it prints the error and, if the node's pod waits
for its volume, what "why" answers.
It prints which assumptions of docs/windows-proof.md the run has decided, for an issue; none where the driver
has no pod that mounts the pipes of CSI Proxy, since the test then says nothing about CSI Proxy.

It makes claims of --size and pods with cmd in the namespace, and removes them also after a failure
and after Ctrl-C, unless --keep. A second Ctrl-C ends it at once, and it names what is left. All
that it makes has the label csi-proxy.dev/test. The rights are in deploy/kustomize/kubectl-plugin.

Exit codes: 0 if all steps succeeded on all nodes; 1 if one failed; 2 if nothing could be tested.`,
		Example: `  kubectl csi-proxy test --storage-class disks
  kubectl csi-proxy test --storage-class gp3 --node win-1 --wait 10m --keep`,
		Args: takes(0),
	}
	flags := cmd.Flags()
	flags.StringVar(&t.Class, "storage-class", "", "the `name` of the StorageClass (required)")
	flags.StringSliceVar(&t.Nodes, "node", nil, "the `name` of a node; may be repeated (default: all Windows nodes)")
	flags.DurationVar(&t.Wait, "wait", 5*time.Minute, "how long each step may take; the first pod of a node pulls the image")
	flags.BoolVar(&t.Keep, "keep", false, "leave the claims and pods")
	flags.StringVar(&t.Image, "image", "", "a Windows `image` with cmd (default: Nano Server of the node's version)")
	flags.StringVar(&size, "size", "1Gi", "the `size` of the claims, which grow to twice of it")
	// -n is the namespace of the claims and pods, as for kubectl. It hides the flag of the other commands.
	flags.StringVarP(&t.Namespace, clientcmd.FlagNamespace, "n", "", "the `namespace` of the claims and pods (default: that of the kubeconfig)")
	flags.StringVar(&t.DaemonNamespace, "csi-proxy-namespace", "csi-proxy", "the `namespace` of CSI Proxy's pods")
	outputFlag(cmd, &output)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := checkOutput(output); err != nil {
			return err
		}
		if t.Class == "" {
			return errors.New("--storage-class is missing: kubectl get storageclasses lists them")
		}
		if t.Wait <= 0 {
			return fmt.Errorf("--wait=%v: it must be more than 0", t.Wait)
		}
		if t.Size, err = resource.ParseQuantity(size); err != nil || t.Size.Sign() <= 0 {
			return fmt.Errorf("--size=%s: it must be a size such as 1Gi", size)
		}
		c.overrides.Context.Namespace = t.Namespace
		if t.Namespace, err = c.currentNamespace(); err != nil {
			return err
		}
		if _, t.Client, err = c.connect(); err != nil {
			return err
		}
		var mu sync.Mutex
		t.Log = func(line string) {
			mu.Lock()
			defer mu.Unlock()
			// The test goes on if nobody reads its progress.
			_ = table.Lines(cmd.ErrOrStderr(), line)
		}
		t.Colours = terminal.HasColours(cmd.OutOrStdout())
		removal, stop := untilSecond(cmd.Context(), t.Log)
		defer stop()
		report, err := t.Run(cmd.Context(), removal)
		if err != nil {
			return err
		}
		if err := show(cmd.OutOrStdout(), output, report); err != nil {
			return err
		}
		if !report.OK {
			return errProblem
		}
		return nil
	}
	return cmd
}

// untilSecond returns a context that goes on when ctx ends by Ctrl-C, and ends at the next one.
func untilSecond(ctx context.Context, log func(line string)) (context.Context, context.CancelFunc) {
	removal, stop := context.WithCancel(context.WithoutCancel(ctx))
	forget := context.AfterFunc(ctx, func() {
		second := make(chan os.Signal, 1)
		signal.Notify(second, os.Interrupt, syscall.SIGTERM)
		defer signal.Stop(second)
		log("Removing what the test has made. Ctrl-C again ends at once.")
		select {
		case <-second:
			stop()
		case <-removal.Done():
		}
	})
	return removal, func() { forget(); stop() }
}
