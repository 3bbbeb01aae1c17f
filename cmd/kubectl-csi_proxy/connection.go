// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// connection is how to reach the cluster.
type connection struct {
	loading   *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func newConnection() *connection {
	return &connection{loading: clientcmd.NewDefaultClientConfigLoadingRules()}
}

// add adds kubectl's flags. There are none for secrets: these belong in the kubeconfig.
func (c *connection) add(flags *pflag.FlagSet) {
	flags.StringVar(&c.loading.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "the kubeconfig `file` to use")
	flags.StringVar(&c.overrides.CurrentContext, clientcmd.FlagContext, "", "the `context` of the kubeconfig to use")
	flags.StringVar(&c.overrides.Context.Cluster, clientcmd.FlagClusterName, "", "the `cluster` of the kubeconfig to use")
	flags.StringVar(&c.overrides.Context.AuthInfo, clientcmd.FlagAuthInfoName, "", "the `user` of the kubeconfig to use")
	flags.StringVarP(&c.overrides.Context.Namespace, clientcmd.FlagNamespace, "n", "csi-proxy",
		"the `namespace` of CSI Proxy's pods")
	flags.StringVar(&c.overrides.AuthInfo.Impersonate, clientcmd.FlagImpersonate, "",
		"the `name` of the user to impersonate")
	flags.StringArrayVar(&c.overrides.AuthInfo.ImpersonateGroups, clientcmd.FlagImpersonateGroup, nil,
		"a `group` to impersonate; may be repeated")
	flags.StringVar(&c.overrides.Timeout, clientcmd.FlagTimeout, "30s", "`time` that a single request may take; 0 for no limit")
}

func (c *connection) namespace() string { return c.overrides.Context.Namespace }

// clusterError adds what to do to an error of the kubeconfig.
func clusterError(err error) error {
	return fmt.Errorf("find the cluster: %w; name it with --kubeconfig and --context, as for kubectl", err)
}

// connect returns what asks the API server.
func (c *connection) connect() (*rest.Config, kubernetes.Interface, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.loading, &c.overrides).ClientConfig()
	if err != nil {
		return nil, nil, clusterError(err)
	}
	config.QPS, config.Burst = 100, 200 // a few requests for each node
	client, err := kubernetes.NewForConfig(config)
	return config, client, err
}
