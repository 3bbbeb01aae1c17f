// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// kubelet answers exec as kubelet does, by way of the API server, with Kubernetes' own
// streaming library: the program prints its arguments, and ends with code 3 if they have
// "fail".
func kubelet(t *testing.T, asked *http.Request) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = *r
		conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{"v5.channel.k8s.io": {
			Binary: true, Channels: []wsstream.ChannelType{
				wsstream.IgnoreChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.WriteChannel, wsstream.IgnoreChannel,
			},
		}})
		_, streams, err := conn.Open(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		args := strings.Join(r.URL.Query()["command"], " ")
		status := meta.Status{Status: meta.StatusSuccess}
		if strings.Contains(args, "fail") {
			status = meta.Status{Status: meta.StatusFailure, Reason: "NonZeroExitCode", Message: "exit code 3",
				Details: &meta.StatusDetails{Causes: []meta.StatusCause{{Type: "ExitCode", Message: "3"}}}}
		}
		text, err := json.Marshal(status)
		_, out := streams[1].Write([]byte(args))
		_, problem := streams[2].Write([]byte("to stderr"))
		_, last := streams[3].Write(text)
		if err := errors.Join(err, out, problem, last, conn.Close()); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestExec(t *testing.T) {
	var asked http.Request
	config := &rest.Config{Host: kubelet(t, &asked).URL}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "csi-proxy", Name: "csi-proxy-1"}}
	pod.Spec.Containers = []core.Container{{Name: "daemon"}}
	var stdout, stderr bytes.Buffer
	if err := Exec(t.Context(), config, client, pod, []string{"disk", "list", "a b"}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != Ctl+" disk list a b" || stderr.String() != "to stderr" {
		t.Errorf("stdout %q, stderr %q", &stdout, &stderr)
	}
	command := asked.URL.Query()["command"]
	if asked.URL.Path != "/api/v1/namespaces/csi-proxy/pods/csi-proxy-1/exec" ||
		asked.URL.Query().Get("container") != "daemon" ||
		!slices.Equal(command, []string{Ctl, "disk", "list", "a b"}) {
		t.Errorf("asked %s", asked.URL)
	}
	var exit interface{ ExitStatus() int }
	if err := Exec(t.Context(), config, client, pod, []string{"fail"}, &stdout, &stderr); !errors.As(err, &exit) ||
		exit.ExitStatus() != 3 {
		t.Errorf("a program that fails: %v", err)
	}
}
