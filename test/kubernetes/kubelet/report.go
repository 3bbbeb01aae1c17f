// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// How long after the first pod was made its volume was attached, and so on; zero if never.
	attached, staged, published, running time.Duration
	// How long after the last pod was deleted its volume was detached.
	detached time.Duration
}

// result returns it.
func (s *scenario) result(d definition) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := result{definition: d, planted: s.planted, found: s.found, took: time.Since(s.began)}
	for _, v := range s.volumes {
		r.calls = append(r.calls, s.calls(v)...)
	}
	r.warnings = s.warned
	for _, c := range r.calls {
		if c.code != codes.OK {
			r.failed++
		}
	}
	if len(s.pods) == 0 {
		return r
	}
	first, last := s.pods[0], s.pods[len(s.pods)-1]
	after := func(method string) time.Duration {
		for _, c := range r.calls {
			if c.method == method && c.code == codes.OK {
				return c.began.Add(c.took).Sub(first.created)
			}
		}
		return 0
	}
	r.attached, r.staged, r.published = after(attach), after(stage), after(publish)
	if !first.running.IsZero() {
		r.running = first.running.Sub(first.created)
	}
	for _, c := range r.calls {
		if c.method == detach && c.code == codes.OK && c.began.After(last.deleted) && !last.deleted.IsZero() {
			r.detached = c.began.Add(c.took).Sub(last.deleted)
		}
	}
	return r
}

// ok reports whether all was well, or the planted fault was found.
func (r result) ok() bool {
	if r.planted.name == "" {
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
func (r result) print(w io.Writer, calls bool) {
	if r.cannot != "" {
		fmt.Fprintf(w, "%s: %s: %s\n", r.title(), r.verdict(), r.cannot)
		return
	}
	fmt.Fprintf(w, "%s: %s (%.1f s)\n", r.title(), r.verdict(), r.took.Seconds())
	for _, f := range r.found {
		fmt.Fprintf(w, "    %s\n", f)
	}
	if !calls && r.ok() {
		return
	}
	for _, c := range r.calls {
		fmt.Fprintf(w, "  %s  %6.0f ms  %s %v %s\n", c.began.Format("15:04:05.000"), float64(c.took.Microseconds())/1000, c.method, c.code, c.message)
	}
}

// report prints the table, and returns an error if anything was wrong.
func report(w io.Writer, results []result, o options) error {
	fmt.Fprintf(w, "\nIn seconds: a pod is made, its volume attached, staged, published, the pod running; the last pod is\ndeleted, its volume detached. The calls are those of the driver about volumes. Seed %d.\n\n", o.seed)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tresult\tattached\tstaged\tpublished\trunning\tdetached\tcalls\tfailed\twarnings\ttook\t")
	bad := 0
	for _, r := range results {
		if !r.ok() {
			bad++
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t\n", r.title(), r.verdict(), seconds(r.attached), seconds(r.staged),
			seconds(r.published), seconds(r.running), seconds(r.detached), len(r.calls), r.failed, r.warnings, seconds(r.took))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d scenarios went wrong; logs are in %s; -seed=%d repeats them", bad, len(results), o.dir, o.seed)
	}
	return nil
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// abandon removes what a scenario that went wrong has left in the cluster, and with kubelet, which it ends: it
// would ask the next scenario's driver who it is before that serves, and forget it.
func (s *scenario) abandon() {
	s.cluster.stopKubelet()
	defer func() {
		_ = os.RemoveAll(filepath.Join(s.cluster.root, s.kubeletsVolumes())) // then the next scenario says so
		_ = s.cluster.forget(nodeName)                                       // the same
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	at := int64(0)
	for _, p := range s.pods {
		_ = s.cluster.CoreV1().Pods(s.name).Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: &at}) // it may be gone
	}
	all, err := s.cluster.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, va := range all.Items {
		for _, v := range s.volumes {
			if *va.Spec.Source.PersistentVolumeName != v.pv {
				continue
			}
			va.Finalizers = nil
			_, _ = s.cluster.StorageV1().VolumeAttachments().Update(ctx, &va, metav1.UpdateOptions{})
			_ = s.cluster.StorageV1().VolumeAttachments().Delete(ctx, va.Name, metav1.DeleteOptions{})
		}
	}
}
