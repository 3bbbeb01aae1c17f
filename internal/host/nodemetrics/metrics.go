// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodemetrics counts failures of the operations on a node's storage, the calls to
// Windows below them, and what the node has, for Prometheus. The server counts the calls
// of drivers. docs/monitoring.md explains each metric.
package nodemetrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Node is a collector with an observer for each of its sources.
type Node struct {
	failures   *prometheus.CounterVec
	calls      *prometheus.SummaryVec
	errors     *prometheus.CounterVec
	callErrors *prometheus.CounterVec
	skipped    prometheus.Gauge
	sources    Sources
	inventory  *inventory
}

// Sources are asked when the metrics are read. Without a function, its metrics
// are missing.
type Sources struct {
	// Load is what the calls to Windows have to do.
	Load func() operation.Load
	// LogOns returns how many accounts SMB servers have refused lately, and how many log-ons
	// weren't made because of that.
	LogOns func() (refused int, heldBack uint64)

	// The inventory. Each of its functions is called from time to time, and never twice at
	// once. Disks and Mappings return how many disks and SMB global mappings there are, by
	// state; StagedVolumes how many volumes are mounted below the allowed directories; Links how
	// many links there lead to nothing, or to a directory whose volume was unmounted, and the paths
	// of those that kubelet has lost track of; ForeignRecords how many files among the records of
	// mappings are none; VolumeUse how full the volumes of PersistentVolumes are, and how many are left
	// out; and MissingVolumes, of each volume of -protected-volume, whether the node has no such volume.
	Disks, Mappings               func(context.Context) (map[string]int, error)
	StagedVolumes, ForeignRecords func(context.Context) (int, error)
	Links                         func(context.Context) (toNothing int, forgotten []string, _ error)
	VolumeUse                     func(context.Context) (use []usage.VolumeUse, leftOut int, _ error)
	MissingVolumes                func(context.Context) (map[string]bool, error)
}

// Descriptions of what is asked for when the metrics are read.
var (
	underWay = prometheus.NewDesc("csi_proxy_windows_calls",
		"Calls to Windows now: running, of these overdue, and waiting to begin.", []string{"state"}, nil)
	refused = prometheus.NewDesc("csi_proxy_windows_calls_refused_total",
		"Calls to Windows that were refused at once, since Windows hasn't answered the same call on the same object.", nil, nil)
	hanging = prometheus.NewDesc("csi_proxy_windows_hanging_call_start_time_seconds",
		"When a hanging call to Windows began, as Unix time, by call and object. Only calls that are overdue, the "+
			"oldest 32 of them.", []string{"call", "object"}, nil)
	refusedAccounts = prometheus.NewDesc("csi_proxy_smb_refused_accounts",
		"Accounts whose log-on an SMB server has refused lately.", nil, nil)
	heldBack = prometheus.NewDesc("csi_proxy_smb_log_ons_held_back_total",
		"Log-ons to SMB servers that were held back, since the server refused the same credentials shortly before.", nil, nil)
)

// causes are Windows errors about hardware, networks, accounts and the node. Their counters start at
// 0: Prometheus then sees the first error as an increase.
var causes = []winerr.Errno{
	winerr.ErrorAccessDenied, winerr.ErrorCRC, winerr.ErrorDeviceNotConnected, winerr.ErrorDiskFull, winerr.ErrorGenFailure,
	winerr.ErrorIODevice, winerr.ErrorLogonFailure, winerr.ErrorBadNetPath, winerr.ErrorNoSystemResources, winerr.ErrorNotReady,
	winerr.ErrorSemTimeout, winerr.ErrorWriteProtect,
}

// NewNode returns metrics that have counted nothing yet.
func NewNode() *Node {
	n := &Node{
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_proxy_operation_failures_total",
			Help: "Operations on the node's storage that failed, by reason. NotFound isn't counted where it is an answer.",
		}, []string{"reason"}),
		calls: prometheus.NewSummaryVec(prometheus.SummaryOpts{
			Name: "csi_proxy_windows_call_duration_seconds",
			Help: "How long calls to Windows took, by function or control code.",
		}, []string{"call"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_proxy_windows_errors_total",
			Help: "Errors that Windows has given, by name. Many are answers, such as that nothing is there.",
		}, []string{"error"}),
		callErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_proxy_windows_call_errors_total",
			Help: "Errors that Windows has given, by function or control code and name.",
		}, []string{"call", "error"}),
		skipped: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "csi_proxy_skipped_disks",
			Help: "Disks that calls on all disks skip, since they do not answer or answer with errors.",
		}),
		inventory: newInventory(),
	}
	for _, reason := range reasons {
		n.failures.WithLabelValues(reason)
	}
	for _, cause := range causes {
		n.errors.WithLabelValues(cause.Name())
	}
	return n
}

// collectors are those that collect by themselves.
func (n *Node) collectors() []prometheus.Collector {
	return []prometheus.Collector{n.failures, n.calls, n.errors, n.callErrors, n.skipped, n.inventory}
}

// Describe implements prometheus.Collector.
func (n *Node) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range n.collectors() {
		c.Describe(ch)
	}
	for _, desc := range []*prometheus.Desc{underWay, refused, hanging, refusedAccounts, heldBack} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (n *Node) Collect(ch chan<- prometheus.Metric) {
	for _, c := range n.collectors() {
		c.Collect(ch)
	}
	n.collectLoad(ch)
	if n.sources.LogOns != nil {
		accounts, calls := n.sources.LogOns()
		ch <- prometheus.MustNewConstMetric(refusedAccounts, prometheus.GaugeValue, float64(accounts))
		ch <- prometheus.MustNewConstMetric(heldBack, prometheus.CounterValue, float64(calls))
	}
}

// Watch asks sources whenever the metrics are read, until CloseInventory. It comes before the
// metrics are registered.
func (n *Node) Watch(sources Sources) {
	n.sources = sources
	if sources.Disks != nil {
		n.inventory.queries = []*query{
			{of: "disks", every: queryInterval, ask: states(disksDesc, sources.Disks)},
			{of: "links", every: linksInterval, ask: links(sources.Links)},
			{of: admin.OfVolumes, every: queryInterval, ask: flags(protectedDesc, sources.MissingVolumes)},
			{of: "records", every: linksInterval, ask: count(recordsDesc, sources.ForeignRecords)},
			{of: "volume-use", every: useInterval, ask: volumeUse(sources.VolumeUse)},
			{of: "smb-mappings", every: queryInterval, ask: states(mappingsDesc, sources.Mappings)},
			{of: "volumes", every: queryInterval, ask: count(volumesDesc, sources.StagedVolumes)},
		}
	}
}

// collectLoad collects what the calls to Windows have to do now.
func (n *Node) collectLoad(ch chan<- prometheus.Metric) {
	if n.sources.Load == nil {
		return
	}
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...)
	}
	l := n.sources.Load()
	gauge(underWay, float64(l.Running), "running")
	gauge(underWay, float64(l.Overdue), "overdue")
	gauge(underWay, float64(l.Waiting), "waiting")
	ch <- prometheus.MustNewConstMetric(refused, prometheus.CounterValue, float64(l.Refused))
	type name struct{ call, object string }
	known := make(map[name]bool) // the calls come with the oldest first
	for _, c := range l.Hanging {
		object := name{c.Name, quote.Text(c.Object)}
		if !known[object] {
			known[object] = true
			gauge(hanging, float64(c.Since.UnixMilli())/1000, object.call, object.object)
		}
	}
}

// mayBeMissing are the operations with which drivers ask whether something is there, and
// take csiproxy.ErrNotFound for an answer.
var mayBeMissing = map[string]bool{"GetVolumeIDFromTargetPath": true, "IsSymlink": true}

// Operation is an observer of operations. Which ones there are, and how long they take, the
// calls of drivers tell.
func (n *Node) Operation(name string, _ time.Duration, err error) {
	if err != nil && !(mayBeMissing[name] && errors.Is(err, csiproxy.ErrNotFound)) {
		n.failures.WithLabelValues(reasons[csiproxy.KindOf(err)]).Inc()
	}
}

// otherError is the label of numbers without a name. Servers choose theirs, and each would leave a series for good.
const otherError = "other"

// WindowsCall is an observer of calls to Windows.
func (n *Node) WindowsCall(call string, took time.Duration, err error) {
	n.calls.WithLabelValues(call).Observe(took.Seconds())
	if err == nil {
		return
	}
	cause := reasons[csiproxy.KindOf(err)] // without a number, the caller gave up
	if number, ok := csiproxy.WindowsErrorOf(err); ok {
		cause = otherError
		if number := winerr.Errno(number); number.IsKnown() {
			cause = number.Name()
		}
	}
	n.errors.WithLabelValues(cause).Inc()
	n.callErrors.WithLabelValues(call, cause).Inc()
}

// SkippedDisks is an observer of how many disks are passed over.
func (n *Node) SkippedDisks(count int) { n.skipped.Set(float64(count)) }

// reasons are the label values for the classes of errors: a small fixed set.
var reasons = map[error]string{
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

var _ prometheus.Collector = (*Node)(nil)
