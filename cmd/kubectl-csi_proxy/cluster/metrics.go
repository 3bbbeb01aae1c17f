// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
)

// metricsPort is the name of the port that serves metrics, in CSI Proxy's pods: see deploy. A pod
// that serves them on its node only has a port of another name.
const metricsPort = "metrics"

// ErrLocal is that a pod serves metrics on its node only.
var ErrLocal = errors.New("it serves metrics on its node only")

const (
	// metricsTimeout is how long a daemon may take to answer.
	metricsTimeout = 10 * time.Second
	// mostMetrics is how many bytes an answer may have: some hundred times what a daemon says.
	mostMetrics = 16 << 20
)

// Metrics are those of a daemon, by name.
type Metrics map[string]*dto.MetricFamily

// ReadMetrics asks the daemon of a pod for its metrics, by way of the API server. It returns ErrLocal
// if the pod serves none to the network.
func ReadMetrics(ctx context.Context, client kubernetes.Interface, p *core.Pod) (Metrics, error) {
	port := int32(0)
	for _, container := range p.Spec.Containers {
		for _, candidate := range container.Ports {
			if candidate.Name == metricsPort {
				port = candidate.ContainerPort
			}
		}
	}
	if port == 0 {
		return nil, ErrLocal
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
	defer cancel()
	metrics, err := parseAnswer(client.CoreV1().Pods(p.Namespace).ProxyGet("http", p.Name, strconv.Itoa(int(port)),
		"metrics", nil).Stream(ctx))
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("%w; deploy/kustomize/metrics-reader gives that right", err)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics of the pod %s: %w", p.Name, err)
	}
	return metrics, nil
}

func parseAnswer(answer io.ReadCloser, err error) (Metrics, error) {
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(answer, mostMetrics+1))
	switch err := errors.Join(err, answer.Close()); {
	case err != nil:
		return nil, err
	case len(text) > mostMetrics:
		return nil, fmt.Errorf("the answer has more than %d bytes", mostMetrics)
	}
	return ParseMetrics(text)
}

// ParseMetrics parses what a daemon says.
func ParseMetrics(text []byte) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// Labels are the labels of a series, by name.
type Labels map[string]string

// Series returns the value of each series of a gauge, a counter or an untyped metric, with
// its labels.
func (m Metrics) Series(name string) []Series {
	var all []Series
	for _, metric := range m[name].GetMetric() {
		s := Series{Labels: make(Labels), Value: metric.GetGauge().GetValue() + metric.GetCounter().GetValue() +
			metric.GetUntyped().GetValue()}
		for _, label := range metric.GetLabel() {
			s.Labels[label.GetName()] = label.GetValue()
		}
		all = append(all, s)
	}
	return all
}

// Series is a metric with certain labels.
type Series struct {
	Labels Labels
	Value  float64
}

// Value returns the value of the series that has the label, or of the only one if label is
// empty; false if there is none.
func (m Metrics) Value(name, label, value string) (float64, bool) {
	for _, s := range m.Series(name) {
		if label == "" || s.Labels[label] == value {
			return s.Value, true
		}
	}
	return 0, false
}

const buildInfo = "csi_proxy_build_info"

// Version returns the version of the daemon that says these metrics.
func (m Metrics) Version() (string, error) {
	for _, s := range m.Series(buildInfo) {
		if v := s.Labels["version"]; v != "" {
			return v, nil
		}
	}
	return "", fmt.Errorf("there is no %s with a version", buildInfo)
}
