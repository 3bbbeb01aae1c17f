// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodemetrics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/operation"
	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// values returns what n shows, without what is 0: by name and label values.
func values(t *testing.T, n *Node) map[string]float64 {
	t.Helper()
	all := series(t, n)
	maps.DeleteFunc(all, func(_ string, v float64) bool { return v == 0 })
	return all
}

func series(t *testing.T, n *Node) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(n)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.Metric {
			name := family.GetName()
			for _, label := range m.Label {
				name += " " + label.GetValue()
			}
			got[name] = float64(m.GetSummary().GetSampleCount()) + m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

func TestObservers(t *testing.T) {
	n := NewNode()
	n.Operation("PartitionDisk", time.Millisecond, nil)
	n.Operation("PartitionDisk", time.Millisecond, &csiproxy.Error{Err: winerr.ErrorAccessDenied})
	n.Operation("Rescan", time.Millisecond, fmt.Errorf("x: %w", context.Canceled))
	n.Operation("IsSymlink", time.Millisecond, &csiproxy.Error{Err: winerr.ErrorFileNotFound})
	n.Operation("GetDiskStats", time.Millisecond, &csiproxy.Error{Err: winerr.ErrorFileNotFound})
	n.WindowsCall("CreateFileW", time.Microsecond, nil)
	n.WindowsCall("CreateFileW", time.Microsecond, winerr.ErrorSharingViolation)
	n.WindowsCall("LoginIScsiTargetW", time.Microsecond, winerr.ISDSCServiceNotRunning)
	n.WindowsCall("LoginIScsiTargetW", time.Microsecond, context.DeadlineExceeded)
	n.WindowsCall("NtCreateFile", time.Microsecond, winerr.Errno(0xE0000001)) // of a server's own
	n.WindowsCall("NtCreateFile", time.Microsecond, winerr.Errno(64999))
	n.SkippedDisks(3)

	want := map[string]float64{
		"csi_proxy_operation_failures_total permission_denied": 1,
		"csi_proxy_operation_failures_total canceled":          1,
		"csi_proxy_operation_failures_total not_found":         1,
		"csi_proxy_skipped_disks":                              3,

		"csi_proxy_windows_call_duration_seconds CreateFileW":                             2,
		"csi_proxy_windows_call_duration_seconds LoginIScsiTargetW":                       2,
		"csi_proxy_windows_call_duration_seconds NtCreateFile":                            2,
		"csi_proxy_windows_errors_total other":                                            2,
		"csi_proxy_windows_call_errors_total NtCreateFile other":                          2,
		"csi_proxy_windows_errors_total ERROR_SHARING_VIOLATION":                          1,
		"csi_proxy_windows_errors_total ISDSC_SERVICE_NOT_RUNNING":                        1,
		"csi_proxy_windows_errors_total deadline_exceeded":                                1,
		"csi_proxy_windows_call_errors_total CreateFileW ERROR_SHARING_VIOLATION":         1,
		"csi_proxy_windows_call_errors_total LoginIScsiTargetW ISDSC_SERVICE_NOT_RUNNING": 1,
		"csi_proxy_windows_call_errors_total LoginIScsiTargetW deadline_exceeded":         1,
	}
	if diff := cmp.Diff(want, values(t, n)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The first failure is an increase only of a counter that was 0 before.
func TestFailuresStartAtZero(t *testing.T) {
	all := series(t, NewNode())
	for _, reason := range []string{"internal", "unavailable", "canceled", "deadline_exceeded"} {
		if value, ok := all["csi_proxy_operation_failures_total "+reason]; !ok || value != 0 {
			t.Errorf("the failures with reason %s: %v, %v", reason, value, ok)
		}
	}
	if _, ok := all["csi_proxy_windows_errors_total ERROR_IO_DEVICE"]; !ok {
		t.Error("the I/O errors don't start at 0")
	}
	for name := range all {
		if strings.HasPrefix(name, "csi_proxy_windows_call") {
			t.Errorf("%s is shown before there is one", name)
		}
	}
}

func TestRefusals(t *testing.T) {
	n := NewNode()
	n.Watch(Sources{LogOns: func() (int, uint64) { return 2, 30 }})
	all := values(t, n)
	if all["csi_proxy_smb_refused_accounts"] != 2 || all["csi_proxy_smb_log_ons_held_back_total"] != 30 {
		t.Errorf("got %v", all)
	}
}

func TestLoad(t *testing.T) {
	n := NewNode()
	since := time.UnixMilli(1795284778500)
	n.Watch(Sources{Load: func() operation.Load {
		return operation.Load{Running: 3, Overdue: 2, Waiting: 1, Refused: 7, Hanging: []operation.Call{
			{Name: "CreateFileW", Object: `\\.\PhysicalDrive1`, Since: since},
			{Name: "CreateFileW", Object: `\\.\PhysicalDrive1`, Since: since.Add(time.Second)},
		}}
	}})
	want := map[string]float64{
		"csi_proxy_windows_calls running":                                                  3,
		"csi_proxy_windows_calls overdue":                                                  2,
		"csi_proxy_windows_calls waiting":                                                  1,
		"csi_proxy_windows_calls_refused_total":                                            7,
		`csi_proxy_windows_hanging_call_start_time_seconds CreateFileW \\.\PhysicalDrive1`: 1795284778.5,
	}
	if diff := cmp.Diff(want, values(t, n)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNode()
		defer n.CloseInventory()
		var asked, staged, links int
		long := strings.Repeat("a", 4<<10)
		forgotten := []string{long + "1", long + "2"} // their labels are the same
		for i := range 300 {
			forgotten = append(forgotten, fmt.Sprintf(`C:\k\pods\%03d`, i))
		}
		hang := make(chan struct{})
		n.Watch(Sources{
			Disks: func(context.Context) (map[string]int, error) {
				asked++
				return map[string]int{"online": 2, "offline": asked}, nil
			},
			StagedVolumes: func(ctx context.Context) (int, error) {
				if staged++; staged > 1 {
					select {
					case <-hang:
					case <-ctx.Done():
						return 0, ctx.Err()
					}
				}
				return 4, nil
			},
			Mappings: func(context.Context) (map[string]int, error) { return nil, errors.New("no WMI") },
			Links: func(context.Context) (int, []string, error) {
				links++
				return links, forgotten, nil
			},
			VolumeUse: func(context.Context) ([]usage.VolumeUse, int, error) {
				return []usage.VolumeUse{
					{PersistentVolume: "pv-1", Driver: "disk.example.com", UsedBytes: 1 << 30, SizeBytes: 5 << 40},
					{PersistentVolume: "pv\x80\u202e", Driver: `"d`, UsedBytes: 1, SizeBytes: 2},
				}, 7, nil
			},
			ForeignRecords: func(context.Context) (int, error) { return 3, nil },
			MissingVolumes: func(context.Context) (map[string]bool, error) {
				return map[string]bool{"D:": false, "X:": true}, nil
			},
		})
		begin := float64(time.Now().UnixMilli()) / 1000
		want := map[string]float64{
			"csi_proxy_disks online":                                  2,
			"csi_proxy_disks offline":                                 1,
			"csi_proxy_staged_volumes":                                4,
			"csi_proxy_links_to_nothing":                              1, // and again in five minutes
			"csi_proxy_forgotten_links others":                        270,
			"csi_proxy_foreign_mapping_records":                       3,
			"csi_proxy_protected_volume_missing X:":                   1,
			"csi_proxy_inventory_timestamp_seconds protected-volumes": begin,
			"csi_proxy_inventory_timestamp_seconds links":             begin,
			"csi_proxy_inventory_timestamp_seconds records":           begin,
			"csi_proxy_inventory_timestamp_seconds disks":             begin,
			"csi_proxy_inventory_timestamp_seconds volumes":           begin,
			"csi_proxy_inventory_timestamp_seconds volume-use":        begin,

			"csi_proxy_volume_used_bytes disk.example.com pv-1": 1 << 30, // labels in the order of their names
			"csi_proxy_volume_size_bytes disk.example.com pv-1": 5 << 40,
			`csi_proxy_volume_used_bytes "d "pv\x80\u202e"`:     1,
			`csi_proxy_volume_size_bytes "d "pv\x80\u202e"`:     2,
			"csi_proxy_volumes_left_out":                        7,
		}
		for _, path := range forgotten[1:33] { // the others are counted
			want["csi_proxy_forgotten_links "+quote.Text(path)] = 1
		}
		for range 2 { // a second scrape soon after asks nothing
			if diff := cmp.Diff(want, values(t, n)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		}
		time.Sleep(queryInterval)
		later := time.Now()
		got := values(t, n) // of what hangs the last answer is shown
		if waited := time.Since(later); waited != scrapeWait {
			t.Errorf("a scrape waited for %v, want %v", waited, scrapeWait)
		}
		want["csi_proxy_disks offline"] = 2
		for _, of := range []string{"disks", admin.OfVolumes} {
			want["csi_proxy_inventory_timestamp_seconds "+of] = float64(later.UnixMilli()) / 1000
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		n.CloseInventory() // doesn't wait for queryTimeout
		if waited := time.Since(later); waited != scrapeWait {
			t.Errorf("closing took %v", waited-scrapeWait)
		}
	})
}
