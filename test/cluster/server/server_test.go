// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// adminToken is the token of an administrator of the cluster.
const adminToken = "admin"

// cluster is the API server that all tests share.
var cluster struct {
	config *rest.Config // as its administrator
	client *kubernetes.Clientset
}

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "csi-proxy-cluster")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		stop, err := start(dir)
		defer stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// start starts etcd and kube-apiserver, with their data in dir, and waits until the server
// is ready. stop must be called even if start fails.
func start(dir string) (stop func(), err error) {
	var programs []*program
	stop = func() {
		for _, p := range programs {
			p.stop()
		}
	}
	bin := os.Getenv("CSI_PROXY_CLUSTER")
	if bin == "" {
		return stop, errors.New("CSI_PROXY_CLUSTER isn't set to the folder of kube-apiserver and etcd; run make test-cluster")
	}
	ports, err := freePorts(3)
	if err != nil {
		return stop, err
	}
	etcdURL := "http://127.0.0.1:" + ports[0]
	peerURL := "http://127.0.0.1:" + ports[1]
	etcd, err := run(dir, filepath.Join(bin, "etcd"),
		"--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+etcdURL, "--advertise-client-urls="+etcdURL,
		"--listen-peer-urls="+peerURL, "--initial-advertise-peer-urls="+peerURL, "--initial-cluster=default="+peerURL)
	if err != nil {
		return stop, err
	}
	programs = append(programs, etcd)

	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(adminToken+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return stop, err
	}
	key := filepath.Join(dir, "service-accounts.key")
	if err := writeKey(key); err != nil {
		return stop, err
	}
	apiserver, err := run(dir, filepath.Join(bin, "kube-apiserver"),
		"--etcd-servers="+etcdURL, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1", "--secure-port="+ports[2],
		"--cert-dir="+filepath.Join(dir, "certificates"), "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+key,
		"--service-account-key-file="+key, "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
		"--allow-privileged") // as clusters do; it is about HostProcess containers too
	if err != nil {
		return stop, err
	}
	// The server first, etcd last.
	programs = append([]*program{apiserver}, programs...)

	cluster.config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: adminToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "certificates", "apiserver.crt")},
	}
	err = wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, 2*time.Minute, true,
		func(ctx context.Context) (bool, error) {
			for _, p := range programs {
				if ended, reason := p.ended(); ended {
					return false, reason
				}
			}
			// The key is made after the certificate, of which client-go must not read and keep a part.
			if _, err := os.Stat(filepath.Join(dir, "certificates", "apiserver.key")); err != nil {
				return false, nil
			}
			if cluster.client, err = kubernetes.NewForConfig(cluster.config); err != nil {
				return false, err
			}
			return cluster.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
		})
	if err != nil {
		return stop, fmt.Errorf("kube-apiserver isn't ready: %w; its log ends with\n%s", err, apiserver.lastLog())
	}
	return stop, nil
}

// program is a program that runs until it is stopped.
type program struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when it has ended
	err    error         // then
}

func run(dir, path string, args ...string) (*program, error) {
	p := &program{log: filepath.Join(dir, filepath.Base(path)+".log"), exited: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// They must not outlive a test that is killed.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *program) ended() (bool, error) {
	select {
	case <-p.exited:
		return true, fmt.Errorf("%s ended: %v; its log ends with\n%s", p.cmd.Path, p.err, p.lastLog())
	default:
		return false, nil
	}
}

// stop kills it: its data is thrown away.
func (p *program) stop() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.exited
}

func (p *program) lastLog() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-2000):])
}

// freePorts returns ports of 127.0.0.1 that nobody used a moment ago.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

// kubeconfig writes a configuration for kubectl and its plugins with a token, and returns
// its path.
func kubeconfig(t *testing.T, token string) string {
	t.Helper()
	config := api.NewConfig()
	config.Clusters["test"] = &api.Cluster{Server: cluster.config.Host, CertificateAuthority: cluster.config.CAFile}
	config.AuthInfos["test"] = &api.AuthInfo{Token: token}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	must(t, clientcmd.WriteToFile(*config, path))
	return path
}
