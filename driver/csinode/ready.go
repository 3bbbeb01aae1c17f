// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// readyTimeout is how long the readiness probe waits for CSI Proxy.
const readyTimeout = 2 * time.Second

// Ready returns nil if CSI Proxy can be used, and csiproxy.ErrUnavailable while it isn't there,
// as during an upgrade. A library in process is always there. The log has a line when that
// changes.
func (s *Server) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	daemon, ok := s.options.Storage.(interface{ Ready(context.Context) error })
	if !ok {
		return nil
	}
	err := daemon.Ready(ctx)
	before := s.ready.Swap(&err)
	switch {
	case err != nil && (before == nil || *before == nil):
		s.options.Logger.Warn("CSI Proxy isn't there; calls fail until it is", "err", err)
	case err == nil && before != nil && *before != nil:
		s.options.Logger.Info("CSI Proxy is there again")
	}
	return err
}

// ServeHTTP answers the readiness probe of the driver's container at any path, with status 200
// or 503, and at /metrics the metrics in Prometheus' text format: csi_node_csi_proxy_ready, and
// csi_node_calls_total with the labels call and code.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.Ready(r.Context())
	if r.URL.Path == "/metrics" {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		s.writeMetrics(w, err == nil)
		return
	}
	if err != nil {
		why := "CSI Proxy can't be used"
		if errors.Is(err, csiproxy.ErrUnavailable) {
			why = "CSI Proxy isn't there"
		}
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) writeMetrics(w http.ResponseWriter, ready bool) {
	value := 0
	if ready {
		value = 1
	}
	fmt.Fprintf(w, "# HELP csi_node_csi_proxy_ready Whether CSI Proxy can be used.\n# TYPE csi_node_csi_proxy_ready "+
		"gauge\ncsi_node_csi_proxy_ready %d\n", value)
	fmt.Fprintf(w, "# HELP csi_node_calls_total Calls of the CSI services, by their result.\n# TYPE "+
		"csi_node_calls_total counter\n")
	for _, c := range s.calls.all() {
		fmt.Fprintf(w, "csi_node_calls_total{call=%q,code=%q} %d\n", c.call, c.code.String(), c.count)
	}
}

// calls counts calls by their results.
type calls struct {
	mu     sync.Mutex
	counts map[counted]int64
}

type counted struct {
	call string
	code codes.Code
}

type count struct {
	counted
	count int64
}

func (c *calls) add(call string, code codes.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[counted]int64)
	}
	c.counts[counted{call, code}]++
}

// all returns the counts in order.
func (c *calls) all() (all []count) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(c.counts), func(a, b counted) int {
		return cmp.Or(cmp.Compare(a.call, b.call), cmp.Compare(a.code, b.code))
	})
	for _, k := range keys {
		all = append(all, count{k, c.counts[k]})
	}
	return all
}
