// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

func versionIn(text []byte) (string, error) {
	metrics, err := ParseMetrics(text)
	if err != nil {
		return "", err
	}
	return metrics.Version()
}

func TestVersionIn(t *testing.T) {
	for _, metrics := range []string{"", "csi_proxy_build_info 1\n", "csi_proxy_build_info{version=\"\"} 1\n", "<html>"} {
		if v, err := versionIn([]byte(metrics)); err == nil {
			t.Errorf("%q: version %q", metrics, v)
		}
	}
}

func FuzzVersionIn(f *testing.F) {
	f.Add([]byte("csi_proxy_build_info{version=\"v1\"} 1\n"))
	f.Fuzz(func(t *testing.T, metrics []byte) {
		if v, err := versionIn(metrics); err == nil && v == "" {
			t.Error("an empty version")
		}
	})
}

// TestScrapeDirectly: the node's own certificate counts, and only it gets the password.
func TestScrapeDirectly(t *testing.T) {
	asked := 0
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if user, password, _ := r.BasicAuth(); user != "me" || password != "open sesame" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		fmt.Fprintln(w, `csi_proxy_build_info{version="v1.2.3"} 1`)
	}))
	defer s.Close()
	address := s.Listener.Addr().(*net.TCPAddr)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate()) // of example.com
	for name, test := range map[string]struct {
		scraper    Scraper
		node, port string
		asks       int
		err        string
	}{
		"all is well":    {Scraper{roots, "me", "open sesame"}, "example.com", tlsMetricsPort, 1, ""},
		"wrong password": {Scraper{roots, "me", "wrong"}, "example.com", tlsMetricsPort, 1, "401 Unauthorized"},
		"another node":   {Scraper{roots, "me", "open sesame"}, "win-2", tlsMetricsPort, 0, "not win-2"},
		"other authority": {Scraper{x509.NewCertPool(), "me", "open sesame"}, "example.com", tlsMetricsPort, 0,
			"unknown authority"},
		"without TLS":      {Scraper{roots, "me", "open sesame"}, "example.com", metricsPort, 0, "without TLS"},
		"on the node only": {Scraper{roots, "me", "open sesame"}, "example.com", "local-metrics", 0, ErrLocal.Error()},
	} {
		asked = 0
		p := &core.Pod{}
		p.Spec.NodeName, p.Status.PodIP = test.node, address.IP.String()
		p.Spec.Containers = []core.Container{{Ports: []core.ContainerPort{{Name: test.port,
			ContainerPort: int32(address.Port)}}}}
		metrics, err := test.scraper.Metrics(t.Context(), nil, p)
		if asked != test.asks || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: asked %d times, %v", name, asked, err)
		}
		if v, _ := metrics.Version(); err == nil && v != "v1.2.3" {
			t.Errorf("%s: version %q", name, v)
		}
	}
}
