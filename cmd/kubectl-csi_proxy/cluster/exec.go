// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// Ctl is csi-proxyctl in CSI Proxy's pods, in each mode. containerd puts the directory of the
// container's files in place of the variable.
const Ctl = `%CONTAINER_SANDBOX_MOUNT_POINT%\csi-proxyctl.exe`

// Command is what an administrator of the nodes types to run csi-proxyctl in a pod of CSI Proxy.
func Command(pod *core.Pod, args string) string {
	return fmt.Sprintf("kubectl -n %s exec %s -- '%s' %s", pod.Namespace, pod.Name, Ctl, args)
}

const (
	// doctorTimeout is how long csi-proxyctl doctor may take.
	doctorTimeout = 2 * time.Minute
	// mostAnswer is how many bytes its answer may have: far more than any has.
	mostAnswer = 16 << 20
)

// Doctor runs csi-proxyctl doctor in a pod of CSI Proxy, and returns the problems that it finds.
func Doctor(ctx context.Context, config *rest.Config, client kubernetes.Interface, pod *core.Pod) (problems []string, _ error) {
	ctx, cancel := context.WithTimeoutCause(ctx, doctorTimeout, fmt.Errorf("csi-proxyctl doctor hasn't ended within %v", doctorTimeout))
	defer cancel()
	var stdout, stderr bytes.Buffer
	ran := Exec(ctx, config, client, pod, []string{"doctor", "--output=json", "--timeout=" + doctorTimeout.String()},
		&bounded{&stdout, mostAnswer}, &bounded{&stderr, mostAnswer})
	var findings []struct{ Check, Verdict, Finding string }
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case ran != nil && stdout.Len() == 0: // if it has found problems, it fails, too
		return nil, errors.Join(ran, errors.New(strings.TrimSpace(stderr.String())))
	}
	if err := json.Unmarshal(stdout.Bytes(), &findings); err != nil {
		return nil, fmt.Errorf("read the answer of csi-proxyctl doctor: %w", err)
	}
	for _, f := range findings {
		if f.Verdict == "problem" {
			problems = append(problems, f.Check+": "+f.Finding)
		}
	}
	return problems, nil
}

// bounded passes on no more than a number of bytes.
type bounded struct {
	io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("the node's answer is too long")
	}
	return b.Writer.Write(p)
}

// Exec runs csi-proxyctl with arguments in CSI Proxy's pod, as SYSTEM. An error with a method
// ExitStatus says that it has run and failed.
func Exec(ctx context.Context, config *rest.Config, client kubernetes.Interface, pod *core.Pod, args []string, stdout,
	stderr io.Writer) error {
	request := client.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("exec").VersionedParams(&core.PodExecOptions{
		Container: pod.Spec.Containers[0].Name, Command: append([]string{Ctl}, args...), Stdout: true, Stderr: true,
	}, scheme.ParameterCodec)
	// As kubectl does: WebSockets, and SPDY for an API server or a proxy that has none.
	socket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, request.URL())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
}
