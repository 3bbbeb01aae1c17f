// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// cluster is the API server that all tests share.
var cluster *controlplane.Server

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "csi-proxy-cluster")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := start(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer cluster.Stop()
		return m.Run()
	}())
}

// start starts the server with its data in dir.
func start(dir string) (err error) {
	bin := os.Getenv("CSI_PROXY_CLUSTER")
	if bin == "" {
		return errors.New("CSI_PROXY_CLUSTER isn't set to the folder of kube-apiserver and etcd; run make test-cluster")
	}
	cluster, err = controlplane.StartServer(context.Background(), dir, filepath.Join(bin, "etcd"),
		filepath.Join(bin, "kube-apiserver"), "--allow-privileged") // as clusters do; it is about HostProcess containers too
	if err != nil {
		cluster.Stop()
	}
	return err
}

// kubeconfig writes a configuration for kubectl and its plugins with a token, and returns
// its path.
func kubeconfig(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, cluster.Kubeconfig(path, token, ""))
	return path
}
