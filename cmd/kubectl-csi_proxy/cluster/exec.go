// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"io"
	"net/http"

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
