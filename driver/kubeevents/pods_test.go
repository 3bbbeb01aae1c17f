// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeevents_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-proxy/csi-proxy/driver/kubeevents"
)

const token = "the driver's"

// answer is what a server says to a path: a list of pods, or a status or text instead.
type answer struct {
	pods   []corev1.Pod
	status int
	text   string
}

// serve returns a server with a certificate of its own, and the file of its authority.
func serve(t *testing.T, answers map[string]answer) (address, ca string) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	t.Cleanup(s.Close)
	ca = filepath.Join(t.TempDir(), "ca.crt")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(ca, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return s.URL, ca
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
			apiURL, apiCA := serve(t, map[string]answer{"/api/v1/pods": test.api})
			kubeletURL, kubeletCA := serve(t, map[string]answer{"/pods": test.pods, "/runningpods/": test.running})
			cluster := &rest.Config{Host: apiURL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: apiCA}}
			p, err := kubeevents.NewPods(cluster, "node-1", kubeletURL, kubeletCA)
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
	if _, err := kubeevents.NewPods(&rest.Config{}, "node-1", "http://192.0.2.1:10255", ""); err == nil {
		t.Error("kubelet is asked without TLS")
	}
	asked := false
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	wrong := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(wrong, []byte(strangersCA), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := kubeevents.NewPods(&rest.Config{Host: other.URL, BearerToken: token}, "node-1", other.URL, wrong)
	if err != nil {
		t.Fatal(err)
	}
	if gone, err := p.Gone(t.Context(), "pod-a"); err == nil || gone || asked {
		t.Errorf("gone %t, %v; asked %t", gone, err, asked)
	}
}

// strangersCA is an authority that has signed nothing here.
const strangersCA = `-----BEGIN CERTIFICATE-----
MIIBfDCCASOgAwIBAgIULgTZ6eMhz/lbw0I7ET8bTvnPW5EwCgYIKoZIzj0EAwIw
EzERMA8GA1UEAwwIc3RyYW5nZXIwIBcNMjYxMTIzMjAyNzM0WhgPMjEyNjEwMzAy
MDI3MzRaMBMxETAPBgNVBAMMCHN0cmFuZ2VyMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAElwbF25WhTtH44qLvK3FBrHIC0MmFnOytoJ3nxuyADeK2n0B/yVMTq16J
MbDayD0SrCL7SFvASpyKkGluYbt7z6NTMFEwHQYDVR0OBBYEFF67NzzDXulXbKxf
+GK/hSCw/2mKMB8GA1UdIwQYMBaAFF67NzzDXulXbKxf+GK/hSCw/2mKMA8GA1Ud
EwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgZrgfl9kbkh32jt7+k9zBrClr
NkkAKeSRc81euybOLcoCIC3PEkAATyZo8HKA+4HlCKcmCK40x9QPVB+A4fHbwQQr
-----END CERTIFICATE-----
`
