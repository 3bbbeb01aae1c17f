// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

// Server is kube-apiserver with its etcd.
type Server struct {
	*kubernetes.Clientset              // as an administrator
	Config                *rest.Config // the same

	dir      string
	programs []*Program
}

// StartServer starts the programs etcd and apiserver, with their data and logs in dir, the latter with
// more flags, and returns when the server is ready. Stop must be called even if it fails.
func StartServer(ctx context.Context, dir, etcd, apiserver string, flags ...string) (*Server, error) {
	s := &Server{dir: dir}
	ports, err := FreePorts(3)
	if err != nil {
		return s, err
	}
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	if err := s.Start("etcd", exec.Command(etcd,
		"--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)); err != nil {
		return s, err
	}
	const token = "admin"
	tokens, key := filepath.Join(dir, "tokens.csv"), filepath.Join(dir, "service-accounts.key")
	if err := os.WriteFile(tokens, []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return s, err
	}
	if pem, err := keyutil.MakeEllipticPrivateKeyPEM(); err != nil {
		return s, err
	} else if err := keyutil.WriteKey(key, pem); err != nil {
		return s, err
	}
	certificates := filepath.Join(dir, "certificates")
	if err := s.Start("kube-apiserver", exec.Command(apiserver, append(flags,
		"--etcd-servers="+client, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1", "--secure-port="+ports[2],
		"--cert-dir="+certificates, "--token-auth-file="+tokens, "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+key,
		"--service-account-key-file="+key, "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none")...)); err != nil {
		return s, err
	}
	s.Config = &rest.Config{
		Host: "https://127.0.0.1:" + ports[2], BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(certificates, "apiserver.crt")},
	}
	return s, Await(ctx, "kube-apiserver is ready", s.Ended, func() (bool, error) {
		// The key is made after the certificate, of which client-go must not read and keep a part.
		if _, err := os.Stat(filepath.Join(certificates, "apiserver.key")); err != nil {
			return false, nil
		}
		if s.Clientset, err = kubernetes.NewForConfig(s.Config); err != nil {
			return false, err
		}
		return s.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
}

// Start starts a program that ends with the server.
func (s *Server) Start(name string, cmd *exec.Cmd) error {
	p, err := Start(s.dir, name, cmd)
	if err == nil {
		s.programs = append(s.programs, p)
	}
	return err
}

// Ended returns an error if one of its programs has ended.
func (s *Server) Ended() error {
	for _, p := range s.programs {
		if err := p.Ended(); err != nil {
			return err
		}
	}
	return nil
}

// Stop kills its programs, etcd last: their data are thrown away.
func (s *Server) Stop() {
	for _, p := range slices.Backward(s.programs) {
		p.Kill()
	}
}

// Kubeconfig writes how to reach the server with a token to a file; as another account, if one is given.
func (s *Server) Kubeconfig(path, token, as string) error {
	config := api.NewConfig()
	authority, err := filepath.Rel(filepath.Dir(path), s.Config.CAFile) // which isn't absolute for a Windows program
	if err != nil {
		return err
	}
	config.Clusters["test"] = &api.Cluster{Server: s.Config.Host, CertificateAuthority: authority}
	config.AuthInfos["test"] = &api.AuthInfo{Token: token, Impersonate: as}
	config.Contexts["test"] = &api.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	return clientcmd.WriteToFile(*config, path)
}

// Patience is how long tests wait for anything: much longer than it takes on a slow machine.
const Patience = 5 * time.Minute

// Await returns when something is so, or an error if ended gives one before, or if it takes too long.
func Await(ctx context.Context, what string, ended func() error, is func() (bool, error)) error {
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		if err := ended(); err != nil {
			return false, err
		}
		return is()
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("still not: %s: %w", what, err)
	}
	return err
}
