// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodemetrics counts the operations on a node's storage and the calls to
// Windows below them, for Prometheus. The server counts the calls of drivers.
package nodemetrics

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
	"github.com/prometheus/client_golang/prometheus"
)

// buckets, in seconds, range from a control call of some microseconds to a format, or
// a server that doesn't answer, of a minute.
var buckets = []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 60}

// Node is a collector with an observer for each of its sources.
type Node struct {
	operations *prometheus.HistogramVec
	calls      *prometheus.HistogramVec
	callErrors *prometheus.CounterVec
	load       atomic.Pointer[func() []wincalls.Load]
	skipped    prometheus.Gauge
}

// Descriptions of what is asked for when the metrics are read.
var (
	underWay = prometheus.NewDesc("csi_proxy_windows_calls",
		"Calls to Windows now, by the kind of their objects: running, of these overdue, and waiting for room.", []string{"kind", "state"}, nil)
	refused = prometheus.NewDesc("csi_proxy_windows_calls_refused_total",
		"Calls to Windows that were refused, since Windows doesn't answer earlier ones, by the kind of their objects.", []string{"kind"}, nil)
	oldest = prometheus.NewDesc("csi_proxy_windows_oldest_call_seconds",
		"For how long the oldest call to Windows has been under way, by the kind of its object.", []string{"kind"}, nil)
)

// Watch takes the load of the calls to Windows from load whenever the metrics are read.
func (n *Node) Watch(load func() []wincalls.Load) { n.load.Store(&load) }

// collectLoad collects what the calls to Windows have to do now.
func (n *Node) collectLoad(ch chan<- prometheus.Metric) {
	load := n.load.Load()
	if load == nil {
		return
	}
	for _, l := range (*load)() {
		age := 0.0
		if l.Running > 0 {
			age = time.Since(l.Oldest.Since).Seconds()
		}
		gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
		}
		gauge(underWay, float64(l.Running), l.Pool, "running")
		gauge(underWay, float64(l.Overdue), l.Pool, "overdue")
		gauge(underWay, float64(l.Waiting), l.Pool, "waiting")
		gauge(oldest, age, l.Pool)
		ch <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(l.Refused), l.Pool)
	}
}

// NewNode returns metrics that have counted nothing yet.
func NewNode() *Node {
	return &Node{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "csi_proxy_operation_duration_seconds",
			Help:    "How long operations on the node's storage took, by operation and outcome.",
			Buckets: buckets,
		}, []string{"operation", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "csi_proxy_windows_call_duration_seconds",
			Help:    "How long calls to Windows took, by function or control code.",
			Buckets: buckets,
		}, []string{"call"}),
		callErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_proxy_windows_call_errors_total",
			Help: "Calls to Windows that failed, by function or control code and Windows error number.",
		}, []string{"call", "error"}),
		skipped: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "csi_proxy_skipped_disks",
			Help: "Disks that are passed over by the calls on all disks, since they do not answer or answer with errors.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (n *Node) Describe(ch chan<- *prometheus.Desc) {
	n.operations.Describe(ch)
	n.calls.Describe(ch)
	n.callErrors.Describe(ch)
	for _, desc := range []*prometheus.Desc{underWay, refused, oldest} {
		ch <- desc
	}
	n.skipped.Describe(ch)
}

// Collect implements prometheus.Collector.
func (n *Node) Collect(ch chan<- prometheus.Metric) {
	n.operations.Collect(ch)
	n.calls.Collect(ch)
	n.callErrors.Collect(ch)
	n.collectLoad(ch)
	n.skipped.Collect(ch)
}

// Operation is an observer of operations.
func (n *Node) Operation(name string, took time.Duration, err error) {
	n.operations.WithLabelValues(name, outcome(err)).Observe(took.Seconds())
}

// WindowsCall is an observer of calls to Windows.
func (n *Node) WindowsCall(call string, took time.Duration, err error) {
	n.calls.WithLabelValues(call).Observe(took.Seconds())
	if err == nil {
		return
	}
	number, _ := csiproxy.WindowsErrorOf(err) // 0: the caller gave up
	n.callErrors.WithLabelValues(call, strconv.FormatUint(uint64(number), 10)).Inc()
}

// SkippedDisks is an observer of how many disks are passed over.
func (n *Node) SkippedDisks(count int) { n.skipped.Set(float64(count)) }

// outcomes are the label values for the classes of errors: a small fixed set.
var outcomes = map[error]string{
	nil:                            "ok",
	csiproxy.ErrInvalidArgument:    "invalid_argument",
	csiproxy.ErrNotFound:           "not_found",
	csiproxy.ErrAlreadyExists:      "already_exists",
	csiproxy.ErrFailedPrecondition: "failed_precondition",
	csiproxy.ErrPermissionDenied:   "permission_denied",
	csiproxy.ErrUnauthenticated:    "unauthenticated",
	csiproxy.ErrResourceExhausted:  "resource_exhausted",
	csiproxy.ErrUnavailable:        "unavailable",
	csiproxy.ErrUnimplemented:      "unimplemented",
	csiproxy.ErrInternal:           "internal",
	context.Canceled:               "canceled",
	context.DeadlineExceeded:       "deadline_exceeded",
}

func outcome(err error) string { return outcomes[csiproxy.KindOf(err)] }

var _ prometheus.Collector = (*Node)(nil)
