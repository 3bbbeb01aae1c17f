// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/kube"
)

const token = "the driver's"

// answer is what a server says to a path: a list of pods, or a status or text instead.
type answer struct {
	pods   []corev1.Pod
	status int
	text   string
}

// certificates are those that kubelet and the API server make for themselves: of a host, with a key.
var (
	ofKubelet = sync.OnceValues(func() (certificate, key []byte) { return selfSigned("node-1") })
	ofAPI     = sync.OnceValues(func() (certificate, key []byte) { return selfSigned("127.0.0.1") })
)

func selfSigned(host string) (certificate, key []byte) {
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil) // as they do
	if err != nil {
		panic(err)
	}
	return certificate, key
}

// serve returns a server with a certificate, and the file of that.
func serve(t *testing.T, of func() (certificate, key []byte), answers map[string]answer) (address, file string) {
	certificate, key := of()
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.URL.Path]
		switch {
		case r.Header.Get("Authorization") != "Bearer "+token:
			http.Error(w, "who are you?", http.StatusUnauthorized)
		case !ok || a.status != 0:
			http.Error(w, "no", max(a.status, http.StatusNotFound))
		case a.text != "":
			_, _ = w.Write([]byte(a.text))
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(corev1.PodList{
				TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: a.pods})
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	s.StartTLS()
	t.Cleanup(s.Close)
	file = filepath.Join(t.TempDir(), "server.crt")
	if err := os.WriteFile(file, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, file
}

func pod(uid, node string, annotations map[string]string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid), Annotations: annotations},
		Spec: corev1.PodSpec{NodeName: node}}
}

func TestGone(t *testing.T) {
	const uid = "pod-a"
	self, wanted := pod("driver", "node-1", nil), pod(uid, "node-1", nil)
	static := pod("mirror", "node-1", map[string]string{"kubernetes.io/config.hash": uid})
	only := answer{pods: []corev1.Pod{self}}
	both := answer{pods: []corev1.Pod{self, wanted}}
	for name, test := range map[string]struct {
		api, pods, running answer
		want, fails        bool
	}{
		"gone":                              {only, only, only, true, false},
		"nothing runs":                      {only, only, answer{}, true, false},
		"in the API":                        {both, only, only, false, false},
		"kubelet's":                         {only, both, only, false, false},
		"deleted by force, and still ends":  {only, only, answer{pods: []corev1.Pod{pod(uid, "", nil)}}, false, false},
		"static":                            {answer{pods: []corev1.Pod{self, static}}, only, only, false, false},
		"the API server fails":              {answer{status: 500}, only, only, false, true},
		"the API server refuses":            {answer{status: 403}, only, only, false, true},
		"kubelet refuses":                   {only, answer{status: 403}, only, false, true},
		"kubelet doesn't tell what runs":    {only, only, answer{status: 405}, false, true},
		"kubelet sends elsewhere":           {only, answer{status: 302}, only, false, true},
		"kubelet has begun":                 {only, answer{}, only, false, true},
		"kubelet is another node's":         {only, answer{pods: []corev1.Pod{pod("x", "node-2", nil)}}, only, false, true},
		"the API server knows no such node": {answer{}, only, only, false, true},
		"not kubelet":                       {only, answer{text: "{}"}, only, false, true},
		"not JSON":                          {only, answer{text: "ok"}, only, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			apiURL, apiCA := serve(t, ofAPI, map[string]answer{"/api/v1/pods": test.api})
			kubeletURL, kubeletCA := serve(t, ofKubelet, map[string]answer{"/pods": test.pods, "/runningpods/": test.running})
			cluster := &rest.Config{Host: apiURL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: apiCA}}
			p, err := kube.NewPods(cluster, "node-1", kubeletURL, kubeletCA)
			if err != nil {
				t.Fatal(err)
			}
			gone, err := p.Gone(t.Context(), uid)
			if gone != test.want || (err != nil) != test.fails {
				t.Errorf("gone %t, %v", gone, err)
			}
		})
	}
}

// Nobody but kubelet gets the token, and its answer counts only if its certificate does.
func TestKubeletsCertificate(t *testing.T) {
	if _, err := kube.NewPods(&rest.Config{}, "node-1", "http://192.0.2.1:10255", ""); err == nil {
		t.Error("kubelet is asked without TLS")
	}
	asked := false
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	_, wrong := serve(t, ofAPI, nil)
	p, err := kube.NewPods(&rest.Config{Host: other.URL, BearerToken: token}, "node-1", other.URL, wrong)
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := p.Gone(t.Context(), "pod-a"); err == nil || gone || asked {
		t.Errorf("gone %t, %v; asked %t", gone, err, asked)
	}
}
