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
	"strconv"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// kubelet answers exec as kubelet does, by way of the API server, with Kubernetes' own
// streaming library: the program prints what answer returns for its arguments, and ends with that code.
func kubelet(t *testing.T, asked *http.Request, answer func(args string) (stdout string, code int)) *httptest.Server {
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
		out, code := answer(strings.Join(r.URL.Query()["command"], " "))
		status := meta.Status{Status: meta.StatusSuccess}
		if code != 0 {
			status = meta.Status{Status: meta.StatusFailure, Reason: "NonZeroExitCode", Message: "exit code",
				Details: &meta.StatusDetails{Causes: []meta.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}}}
		}
		text, err := json.Marshal(status)
		_, answered := streams[1].Write([]byte(out))
		_, problem := streams[2].Write([]byte("to stderr"))
		_, last := streams[3].Write(text)
		if err := errors.Join(err, answered, problem, last, conn.Close()); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// newPod returns a pod of CSI Proxy, and a client of the API server with that kubelet.
func newPod(t *testing.T, asked *http.Request, answer func(string) (string, int)) (*core.Pod, *rest.Config, kubernetes.Interface) {
	config := &rest.Config{Host: kubelet(t, asked, answer).URL}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: "csi-proxy", Name: "csi-proxy-1"}}
	pod.Spec.Containers = []core.Container{{Name: "daemon"}}
	return pod, config, client
}

func TestExec(t *testing.T) {
	var asked http.Request
	pod, config, client := newPod(t, &asked, func(args string) (string, int) {
		if strings.Contains(args, "fail") {
			return "", 3
		}
		return args, 0
	})
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

// TestDoctor: findings count even if csi-proxyctl ends with the code that says that there are problems.
func TestDoctor(t *testing.T) {
	const found = `[{"check":"disks","verdict":"problem","finding":"disk 3 hangs"},{"check":"a","verdict":"unknown","finding":"b"}]`
	for name, tt := range map[string]struct {
		stdout string
		code   int
		want   []string
		err    string
	}{
		"well":            {"[]", 0, nil, ""},
		"a problem":       {found, 1, []string{"disks: disk 3 hangs"}, ""},
		"it fails":        {"", 6, nil, "to stderr"},
		"another program": {"<html>", 0, nil, "read the answer of csi-proxyctl doctor"},
		"endless":         {strings.Repeat(" ", mostAnswer+1), 0, nil, "read the answer of csi-proxyctl doctor"},
	} {
		t.Run(name, func(t *testing.T) {
			pod, config, client := newPod(t, new(http.Request), func(args string) (string, int) {
				if args != Ctl+" doctor --output=json --timeout=2m0s" {
					t.Errorf("%s was run", args)
				}
				return tt.stdout, tt.code
			})
			problems, err := Doctor(t.Context(), config, client, pod)
			if !slices.Equal(problems, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q, %v", problems, err)
			}
		})
	}
}
