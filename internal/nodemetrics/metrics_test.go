// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodemetrics

import (
	"context"
	"fmt"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/internal/wincalls"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestObservers(t *testing.T) {
	n := NewNode()
	n.Operation("PartitionDisk", time.Millisecond, nil)
	n.Operation("PartitionDisk", time.Millisecond, &csiproxy.Error{Err: win.ErrorAccessDenied})
	n.Operation("Rescan", time.Millisecond, fmt.Errorf("x: %w", context.Canceled))
	n.WindowsCall("CreateFileW", time.Microsecond, nil)
	n.WindowsCall("CreateFileW", time.Microsecond, win.ErrorSharingViolation)

	n.SkippedDisks(3)

	registry := prometheus.NewRegistry()
	registry.MustRegister(n)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, family := range families {
		for _, m := range family.Metric {
			series := family.GetName()
			for _, label := range m.Label {
				series += " " + label.GetValue()
			}
			got[series] = m.GetHistogram().GetSampleCount() + uint64(m.GetCounter().GetValue()) + uint64(m.GetGauge().GetValue())
		}
	}
	want := map[string]uint64{
		"csi_proxy_operation_duration_seconds PartitionDisk ok":                1,
		"csi_proxy_operation_duration_seconds PartitionDisk permission_denied": 1,
		"csi_proxy_operation_duration_seconds Rescan canceled":                 1,
		"csi_proxy_skipped_disks":                                              3,
		"csi_proxy_windows_call_duration_seconds CreateFileW":                  2,
		"csi_proxy_windows_call_errors_total CreateFileW 32":                   1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	n := NewNode()
	n.Watch(func() []wincalls.Load {
		return []wincalls.Load{{Pool: "disks", Running: 3, Overdue: 2, Waiting: 1, Refused: 7, Oldest: wincalls.Call{Since: time.Now().Add(-time.Minute)}}}
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(n)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.Metric {
			series := family.GetName()
			for _, label := range m.Label {
				series += " " + label.GetValue()
			}
			got[series] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if age := got["csi_proxy_windows_oldest_call_seconds disks"]; age < 60 || age > 120 {
		t.Errorf("the oldest call is %v s old", age)
	}
	delete(got, "csi_proxy_windows_oldest_call_seconds disks")
	want := map[string]float64{
		"csi_proxy_skipped_disks":                     0,
		"csi_proxy_windows_calls disks running":       3,
		"csi_proxy_windows_calls disks overdue":       2,
		"csi_proxy_windows_calls disks waiting":       1,
		"csi_proxy_windows_calls_refused_total disks": 7,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
