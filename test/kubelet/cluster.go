// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// nodeName is the name of the node, in the cluster and in the cloud.
const nodeName = "node-1"

// cluster is Kubernetes: etcd, kube-apiserver, kube-controller-manager with what volumes need, and
// kubelet.
type cluster struct {
	*kubernetes.Clientset
	dir        string // of the logs
	root       string // kubelet's directory
	config     *rest.Config
	kubeconfig string // the file that says how to reach the API server
	programs   []*program

	mu      sync.Mutex
	kubelet *program
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
	ports, err := freePorts(3)
	if err != nil {
		return c, err
	}
	etcd, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	if err := c.start(dir, "etcd", filepath.Join(bin, "etcd"),
		"--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--listen-client-urls="+etcd, "--advertise-client-urls="+etcd,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer); err != nil {
		return c, err
	}
	const token = "admin"
	tokens, key := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "service-accounts.key")
	if err := os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return c, err
	}
	if err := writeKey(key); err != nil {
		return c, err
	}
	certificates := filepath.Join(dir, "certificates")
	if err := c.start(dir, "kube-apiserver", filepath.Join(bin, "kube-apiserver"+suffix),
		"--etcd-servers="+etcd, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1", "--secure-port="+ports[2],
		"--cert-dir="+certificates, "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+key,
		"--service-account-key-file="+key, "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--disable-admission-plugins=ServiceAccount"); err != nil { // nobody makes service accounts here
		return c, err
	}
	c.config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(certificates, "apiserver.crt")},
	}
	if err := c.await(ctx, "kube-apiserver is ready", func() (bool, error) {
		// The key is made after the certificate, of which client-go must not read and keep a part.
		if _, err := os.Stat(filepath.Join(certificates, "apiserver.key")); err != nil {
			return false, nil
		}
		if c.Clientset, err = kubernetes.NewForConfig(c.config); err != nil {
			return false, err
		}
		return c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	}); err != nil {
		return c, err
	}
	if c.kubeconfig, err = c.writeKubeconfig("kubeconfig", ""); err != nil {
		return c, err
	}
	if err := c.start(dir, "kube-controller-manager", filepath.Join(bin, "kube-controller-manager"+suffix),
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
func (c *cluster) start(dir, name string, command ...string) error {
	p, err := start(dir, name, command...)
	if err == nil {
		c.programs = append(c.programs, p)
	}
	return err
}

// startKubelet kills kubelet if it runs, and starts it with more flags. The containers, which it
// only plays, end with it.
func (c *cluster) startKubelet(flags ...string) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kubelet.kill()
	c.kubelet, err = start(c.dir, "kubelet", append(slices.Clone(c.command), flags...)...)
	return err
}

// stopKubelet kills kubelet.
func (c *cluster) stopKubelet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kubelet.kill()
	c.kubelet = nil
}

// ended returns an error if one of its programs has ended.
func (c *cluster) ended() error {
	c.mu.Lock()
	programs := append(slices.Clone(c.programs), c.kubelet)
	c.mu.Unlock()
	for _, p := range programs {
		if err := p.ended(); err != nil {
			return err
		}
	}
	return nil
}

// stop kills its programs, etcd last: their data are thrown away.
func (c *cluster) stop() {
	c.stopKubelet()
	for i := range c.programs {
		c.programs[len(c.programs)-1-i].kill()
	}
}

// patience is how long the lab waits for anything: much longer than it takes on a slow machine.
const patience = 5 * time.Minute

// await returns when something is so, or an error if a program ends before, or if it takes too long.
func (c *cluster) await(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if err := c.ended(); err != nil {
			return err
		}
		if ok, err := is(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still not: %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// writeKubeconfig writes how to reach the API server to a file; as another account, if one is given.
func (c *cluster) writeKubeconfig(file, as string) (path string, err error) {
	config := api.NewConfig()
	authority, err := filepath.Rel(c.dir, c.config.CAFile) // which isn't absolute for a Windows program
	if err != nil {
		return "", err
	}
	config.Clusters["lab"] = &api.Cluster{Server: c.config.Host, CertificateAuthority: authority}
	config.AuthInfos["lab"] = &api.AuthInfo{Token: c.config.BearerToken, Impersonate: as}
	config.Contexts["lab"] = &api.Context{Cluster: "lab", AuthInfo: "lab"}
	config.CurrentContext = "lab"
	path = filepath.Join(c.dir, file)
	return path, clientcmd.WriteToFile(*config, path)
}

// writeKey writes a new key that signs the tokens of service accounts.
func writeKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
