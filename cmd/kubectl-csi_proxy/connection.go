// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
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
	flags.StringVar(&c.overrides.Timeout, clientcmd.FlagTimeout, "30s", "how `long` a single request may take; 0 for ever")
}

func (c *connection) namespace() string { return c.overrides.Context.Namespace }

// connect returns what asks the API server.
func (c *connection) connect() (*rest.Config, kubernetes.Interface, error) {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(c.loading, &c.overrides).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("find the cluster: %w; name it with --kubeconfig and --context, as for kubectl", err)
	}
	config.QPS, config.Burst = 100, 200 // a few requests for each node
	client, err := kubernetes.NewForConfig(config)
	return config, client, err
}

// scraping are the flags that say how nodes are asked for their metrics.
type scraping struct{ ca, user, passwordFile string }

func (m *scraping) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.ca, "metrics-ca", "",
		"a PEM `file` of the authority that has signed the nodes' certificates: ask the nodes themselves for their metrics, "+
			"over TLS. Without it they are asked through the API server, which checks no certificates of nodes")
	cmd.Flags().StringVar(&m.user, "metrics-user", "", "the `name` for the nodes' metrics; with --metrics-ca")
	cmd.Flags().StringVar(&m.passwordFile, "metrics-password-file", "", "the `file` with the password for them")
}

func (m *scraping) scraper() (cluster.Scraper, error) {
	switch {
	case m.ca == "" && m.user+m.passwordFile != "":
		return cluster.Scraper{}, errors.New(
			"--metrics-user and --metrics-password-file go with --metrics-ca: the API server passes no password on")
	case m.ca == "":
		return cluster.Scraper{}, nil
	case (m.user == "") != (m.passwordFile == ""):
		return cluster.Scraper{}, errors.New("--metrics-user and --metrics-password-file go together")
	}
	authority, err := os.ReadFile(m.ca)
	if err != nil {
		return cluster.Scraper{}, fmt.Errorf("--metrics-ca: %w", err)
	}
	s := cluster.Scraper{Roots: x509.NewCertPool(), User: m.user}
	if !s.Roots.AppendCertsFromPEM(authority) {
		return cluster.Scraper{}, fmt.Errorf("--metrics-ca=%s: it has no certificate in PEM", m.ca)
	}
	if m.passwordFile != "" {
		password, err := os.ReadFile(m.passwordFile)
		if err != nil {
			return cluster.Scraper{}, fmt.Errorf("--metrics-password-file: %w", err)
		}
		s.Password = strings.TrimRight(string(password), "\r\n")
	}
	return s, nil
}
