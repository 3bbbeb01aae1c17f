// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	core "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/why"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

func whyCommand(c *connection) *cobra.Command {
	var namespace, daemonNamespace, output string
	var exec bool
	cmd := &cobra.Command{
		Use:   "why POD | pvc/CLAIM",
		Short: "Explain why a pod waits for its volumes",
		Long: `Explain why a pod waits for its volumes. It follows the chain from the pod to its node, claims, volumes
and their attachments, to the driver on the node, to CSI Proxy there, and to the call to Windows that
doesn't end. It marks the link that the others wait for, and says what to do. With pvc/CLAIM it
answers for the pod that uses the claim.

It only reads: from the API server and, by way of it, from the metrics of CSI Proxy's pod. What it
couldn't read it lists as not seen. With --exec it also runs csi-proxyctl doctor in CSI Proxy's pod,
which only an administrator of the nodes may do. The rights are in deploy/kustomize/kubectl-plugin.

Exit codes: 0 if nothing is wrong, or something is under way; 1 if a link is broken; 2 if the pod or
the claim can't be read, or nothing is wrong as far as could be read.`,
		Example: `  kubectl csi-proxy why web-0
  kubectl csi-proxy why -n shop pvc/data-web-0 -o json`,
		Args: takes(1),
	}
	// -n is the pod's namespace, as for kubectl. It hides the flag of the other commands.
	cmd.Flags().StringVarP(&namespace, clientcmd.FlagNamespace, "n", "",
		"the `namespace` of the pod or claim (default: that of the kubeconfig)")
	cmd.Flags().StringVar(&daemonNamespace, "csi-proxy-namespace", "csi-proxy", "the `namespace` of CSI Proxy's pods")
	cmd.Flags().BoolVar(&exec, "exec", false, "also run csi-proxyctl doctor on the pod's node")
	outputFlag(cmd, &output)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkOutput(output); err != nil {
			return err
		}
		c.overrides.Context.Namespace = namespace
		namespace, err := c.currentNamespace()
		if err != nil {
			return err
		}
		config, client, err := c.connect()
		if err != nil {
			return err
		}
		query := why.Query{Client: client, Namespace: daemonNamespace,
			Colours: terminal.HasColours(cmd.OutOrStdout())}
		if exec {
			query.Doctor = func(ctx context.Context, pod *core.Pod) ([]string, error) {
				return cluster.Doctor(ctx, config, client, pod)
			}
		}
		answer, err := askWhy(cmd.Context(), query, namespace, args[0])
		if err != nil {
			return err
		}
		if err := show(cmd.OutOrStdout(), output, answer); err != nil {
			return err
		}
		switch answer.State {
		case why.Broken:
			return errProblem
		case why.Unknown:
			return errors.New("not everything could be read")
		}
		return nil
	}
	return cmd
}

// askWhy asks about a pod, or a claim that is named as kubectl names it.
func askWhy(ctx context.Context, query why.Query, namespace, name string) (why.Answer, error) {
	kind, object, isNamed := strings.Cut(name, "/")
	if !isNamed {
		return query.Pod(ctx, namespace, name)
	}
	switch kind {
	case "po", "pod", "pods":
		return query.Pod(ctx, namespace, object)
	case "pvc", "persistentvolumeclaim", "persistentvolumeclaims":
		return query.Claim(ctx, namespace, object)
	}
	return why.Answer{}, fmt.Errorf("%s: name a pod, or a claim as pvc/CLAIM; its namespace is --namespace", name)
}

// currentNamespace returns the namespace of --namespace, or else that of the kubeconfig.
func (c *connection) currentNamespace() (string, error) {
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.loading, &c.overrides).Namespace()
	if err != nil {
		return "", clusterError(err)
	}
	return namespace, nil
}
