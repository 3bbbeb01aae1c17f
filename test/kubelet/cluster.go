// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/test/kubelet/controlplane"
)

// nodeName is the name of the node, in the cluster and in the cloud.
const nodeName = "node-1"

// cluster is Kubernetes: etcd, kube-apiserver, kube-controller-manager with what volumes need, and
// kubelet.
type cluster struct {
	*controlplane.Server
	dir        string // of the logs
	root       string // kubelet's directory
	kubeconfig string // the file that says how to reach the API server

	mu      sync.Mutex
	kubelet *controlplane.Program
	command []string // that starts kubelet
}

// startCluster starts it, and returns when the node is registered. stop must be called even if it fails.
func startCluster(ctx context.Context, o options) (*cluster, error) {
	dir, bin, suffix := o.dir, o.kubernetes, ""
	if o.control != "" {
		suffix = "-" + o.control
	}
	c := &cluster{dir: dir, root: filepath.Join(dir, "kubelet")}
	root := c.root // as kubelet calls it
	if o.windows {
		root, c.root = windowsRoot, filepath.Join(driveC(), strings.ReplaceAll(windowsRoot, `\`, "/"))
	}
	var err error
	if c.Server, err = controlplane.StartServer(ctx, dir, filepath.Join(bin, "etcd"), filepath.Join(bin, "kube-apiserver"+suffix),
		"--disable-admission-plugins=ServiceAccount"); err != nil { // nobody makes service accounts here
		return c, err
	}
	c.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := c.Kubeconfig(c.kubeconfig, c.Config.BearerToken, ""); err != nil {
		return c, err
	}
	if err := c.start("kube-controller-manager", filepath.Join(bin, "kube-controller-manager"+suffix),
		"--kubeconfig="+c.kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=persistentvolume-attach-detach-controller,persistentvolume-binder-controller,"+
			"persistentvolume-protection-controller,persistentvolumeclaim-protection-controller"); err != nil {
		return c, err
	}
	if err := os.MkdirAll(c.root, 0o750); err != nil {
		return c, err
	}
	c.command = []string{o.kubelet,
		"-kubeconfig=" + o.inNode(c.kubeconfig), "-node=" + nodeName, "-root-dir=" + root, "-sync=" + o.sync.String(), "-v=4"}
	if err := c.startKubelet(); err != nil {
		return c, err
	}
	return c, c.await(ctx, "kubelet has registered the node", func() (bool, error) {
		_, err := c.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		return err == nil, nil
	})
}

// start starts a program of the cluster.
func (c *cluster) start(name string, words ...string) error {
	cmd, err := command(words...)
	if err != nil {
		return err
	}
	return c.Start(name, cmd)
}

// startKubelet kills kubelet if it runs, and starts it with more flags. The containers, which it
// only plays, end with it.
func (c *cluster) startKubelet(flags ...string) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kubelet.Kill()
	c.kubelet, err = start(c.dir, "kubelet", append(slices.Clone(c.command), flags...)...)
	return err
}

// stopKubelet kills kubelet.
func (c *cluster) stopKubelet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kubelet.Kill()
	c.kubelet = nil
}

// ended returns an error if one of its programs has ended.
func (c *cluster) ended() error {
	c.mu.Lock()
	kubelet := c.kubelet
	c.mu.Unlock()
	return cmp.Or(c.Ended(), kubelet.Ended())
}

// stop kills its programs: their data are thrown away.
func (c *cluster) stop() {
	c.stopKubelet()
	c.Stop()
}

// patience is how long the lab waits for anything.
const patience = controlplane.Patience

// await returns when something is so, or an error if a program ends before, or if it takes too long.
func (c *cluster) await(ctx context.Context, what string, is func() (bool, error)) error {
	return controlplane.Await(ctx, what, c.ended, is)
}
