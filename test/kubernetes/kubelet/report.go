// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// result is what a scenario led to.
type result struct {
	definition
	planted  plant
	cannot   string   // why it isn't for the driver, and wasn't run
	found    []string // what was wrong
	calls    []call
	failed   int // of the calls
	warnings int // events
	took     time.Duration
}

// result returns it.
func (s *scenario) result(d definition) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := result{definition: d, planted: s.planted, found: s.found, warnings: s.warned, took: time.Since(s.began)}
	for _, v := range s.volumes {
		r.calls = append(r.calls, s.calls(v)...)
	}
	for _, c := range r.calls {
		if c.code != codes.OK {
			r.failed++
		}
	}
	return r
}

// ok reports whether all was well, or the planted fault was found.
func (r result) ok() bool {
	if r.planted.name == "" || r.cannot != "" {
		return len(r.found) == 0
	}
	return strings.Contains(strings.Join(r.found, "\n"), r.planted.found)
}

func (r result) title() string {
	if r.planted.name != "" {
		return "planted: " + r.planted.name
	}
	return r.name
}

func (r result) verdict() string {
	switch {
	case r.cannot != "":
		return "not applicable"
	case r.planted.name == "" && r.ok():
		return "passed"
	case r.planted.name == "":
		return "FAILED"
	case r.ok():
		return "found"
	default:
		return "NOT FOUND"
	}
}

// print tells how the scenario went, with its calls if it went wrong.
func (r result) print() {
	if r.cannot != "" {
		fmt.Printf("%s: %s: %s\n", r.title(), r.verdict(), r.cannot)
		return
	}
	fmt.Printf("%s (%s): %s (%.1f s)\n", r.title(), r.what, r.verdict(), r.took.Seconds())
	for _, f := range r.found {
		fmt.Printf("    %s\n", f)
	}
	if r.ok() {
		return
	}
	for _, c := range r.calls {
		fmt.Printf("  %s  %6d ms  %s %v %s\n", c.began.Format("15:04:05.000"), c.took.Milliseconds(), c.method, c.code, c.message)
	}
}

// report prints the table, and returns an error if anything was wrong.
func report(results []result, o options) error {
	fmt.Printf("\nThe calls are those of the driver about volumes. Seed %d.\n\n", o.seed)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tresult\tcalls\tfailed\twarnings\tseconds\t")
	bad := 0
	for _, r := range results {
		if !r.ok() {
			bad++
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%.1f\t\n", r.title(), r.verdict(), len(r.calls), r.failed, r.warnings, r.took.Seconds())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d scenarios went wrong; logs are in %s; -seed=%d repeats them", bad, len(results), o.dir, o.seed)
	}
	return nil
}

// abandon removes what a scenario that went wrong has left in the cluster, and with kubelet, which it ends: it
// would ask the next scenario's driver who it is before that serves, and forget it.
func (s *scenario) abandon() {
	s.cluster.stopKubelet()
	defer func() {
		_ = os.RemoveAll(filepath.Join(s.cluster.root, s.kubeletsVolumes())) // then the next scenario says so
		_ = s.cluster.forget(nodeName)                                       // the same
	}()
	for _, p := range s.pods {
		_ = s.cluster.CoreV1().Pods(s.name).Delete(s.ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) // it may be gone
	}
	all, patch := s.cluster.StorageV1().VolumeAttachments(), []byte(`{"metadata": {"finalizers": null}}`)
	for _, v := range s.volumes {
		for _, a := range s.attachments(v) {
			_, _ = all.Patch(s.ctx, a.Name, types.MergePatchType, patch, metav1.PatchOptions{}) // the same
			_ = all.Delete(s.ctx, a.Name, metav1.DeleteOptions{})
		}
	}
}
