// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// nodeName is the name of the node, in the cluster and in the cloud, and secondName that of the other
// one, which few scenarios have.
const (
	nodeName   = "node-1"
	secondName = "node-2"
)

// cluster is Kubernetes: etcd, kube-apiserver, kube-controller-manager with what volumes need, and
// kubelet.
type cluster struct {
	*controlplane.Server
	*kubelet          // of the first node
	dir        string // of the logs
	kubeconfig string // the file that says how to reach the API server
}

// kubelet is that of a node.
type kubelet struct {
	of      options
	logs    string   // the directory of its log
	root    string   // its own
	command []string // that starts it

	mu      sync.Mutex
	program *controlplane.Program
}

// startCluster starts it, and returns when the node is registered. stop must be called even if it fails.
func startCluster(ctx context.Context, o options) (*cluster, error) {
	dir, bin, suffix := o.dir, o.kubernetes, ""
	if o.control != "" {
		suffix = "-" + o.control
	}
	c := &cluster{dir: dir}
	var err error
	if c.Server, err = controlplane.StartServer(ctx, dir, filepath.Join(bin, "etcd"), filepath.Join(bin, "kube-apiserver"+suffix),
		"--disable-admission-plugins=ServiceAccount"); err != nil { // nobody makes service accounts here
		return c, err
	}
	c.kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := c.Kubeconfig(c.kubeconfig, c.Config.BearerToken, ""); err != nil {
		return c, err
	}
	if err := c.Start("kube-controller-manager", exec.Command(filepath.Join(bin, "kube-controller-manager"+suffix),
		"--kubeconfig="+c.kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=persistentvolume-attach-detach-controller,persistentvolume-binder-controller,"+
			"persistentvolume-protection-controller,persistentvolumeclaim-protection-controller,"+
			"pod-garbage-collector-controller")); err != nil {
		return c, err
	}
	c.kubelet, err = c.newKubelet(ctx, nodeName, dir, o)
	return c, err
}

// newKubelet starts the kubelet of a node, with its directory and its log in dir, and returns when it
// has registered the node.
func (c *cluster) newKubelet(ctx context.Context, node, dir string, o options) (*kubelet, error) {
	k := &kubelet{of: o, logs: dir, root: o.kubeletRoot(dir)}
	root := k.root // as kubelet calls it
	if o.windows {
		root = windowsRoot
	}
	k.command = []string{o.kubelet,
		"-kubeconfig=" + o.inNode(c.kubeconfig), "-node=" + node, "-root-dir=" + root, "-v=4"}
	if err := errors.Join(os.MkdirAll(k.root, 0o750), k.startKubelet()); err != nil {
		return k, err
	}
	return k, c.await(ctx, "kubelet has registered the node", func() (bool, error) {
		_, err := c.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
		return err == nil, nil
	})
}

// startKubelet kills kubelet if it runs, and starts it with more flags. The containers, which it
// only plays, end with it.
func (k *kubelet) startKubelet(flags ...string) (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.program.Kill()
	k.program, err = k.of.start(k.logs, "kubelet", append(slices.Clone(k.command), flags...)...)
	return err
}

// stopKubelet kills kubelet, if there is one.
func (k *kubelet) stopKubelet() {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.program.Kill()
	k.program = nil
}

// stopped reports whether it was stopped.
func (k *kubelet) stopped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.program == nil
}

// ended returns an error if kubelet has ended by itself.
func (k *kubelet) ended() error {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.program.Ended()
}

// ended returns an error if one of its programs has ended.
func (c *cluster) ended() error { return cmp.Or(c.Ended(), c.kubelet.ended()) }

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
