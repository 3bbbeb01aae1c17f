// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// startKubelet answers exec for a node as kubelet does, with Kubernetes' own streaming library. What is
// run is csi-proxyctl, against the daemon. It returns how often that was.
func startKubelet(t *testing.T, node string, d *daemonProcess) (ran *atomic.Int32) {
	t.Helper()
	ran = new(atomic.Int32)
	program := build(t, "cmd/csi-proxyctl", "csi-proxyctl")
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		options, err := remotecommand.NewOptions(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		remotecommand.ServeExec(w, r, executor{program, d.endpoints, ran}, r.PathValue("pod"), "", r.PathValue("container"),
			r.URL.Query()["command"], options, time.Minute, remotecommand.DefaultStreamCreationTimeout,
			remotecommand.SupportedStreamingProtocols)
	})
	l, err := net.Listen("tcp", net.JoinHostPort(d.ip, "0"))
	must(t, err)
	s := httptest.NewUnstartedServer(mux)
	s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(s.Close)

	n, err := cluster.CoreV1().Nodes().Get(t.Context(), node, meta.GetOptions{})
	must(t, err)
	n.Status.Addresses = []core.NodeAddress{{Type: core.NodeInternalIP, Address: d.ip}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(l.Addr().(*net.TCPAddr).Port)
	if _, err := cluster.CoreV1().Nodes().UpdateStatus(t.Context(), n, meta.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return ran
}

// executor runs csi-proxyctl, and nothing else.
type executor struct {
	program, endpoints string
	ran                *atomic.Int32
}

// ExecInContainer implements remotecommand.Executor.
func (e executor) ExecInContainer(ctx context.Context, _, _, container string, command []string, _ io.Reader,
	stdout, stderr io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if command[0] != `%CONTAINER_SANDBOX_MOUNT_POINT%\csi-proxyctl.exe` || container != "csi-proxy" {
		return fmt.Errorf("%q in the container %s isn't csi-proxyctl", command, container)
	}
	e.ran.Add(1)
	c := exec.CommandContext(ctx, e.program, slices.Concat([]string{"--endpoint-dir", e.endpoints}, command[1:])...)
	c.Stdout, c.Stderr = stdout, stderr
	err := c.Run()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return utilexec.CodeExitError{Err: err, Code: failed.ExitCode()}
	}
	return err
}
