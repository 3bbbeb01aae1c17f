// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	diskv1 "github.com/csi-proxy/csi-proxy/api/disk/v1"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// hangs is a node with a driver that makes 1,000 calls on paths for which Windows never
// answers, repeats them every second, and sends no deadline; and with other clients.
type hangs struct {
	tb                testing.TB
	driver            *grpc.ClientConn
	sim, files, disks string
	path              func(i int) string // of a call of the driver
}

// hangingPaths are the paths of the driver: one for all its calls, or many.
var hangingPaths = map[string]func(i int) string{
	"one path":  func(int) string { return kubelet + `\pods\hangs` },
	"300 paths": func(i int) string { return fmt.Sprintf(`%s\pods\%d\hangs`, kubelet, i%300) },
}

func newHangs(tb testing.TB, path func(i int) string) *hangs {
	node := simnode.New(tb)
	for i := range hungCalls {
		must(tb, node.MkdirAll(fmt.Sprintf(`%s\pods\%d`, kubelet, i)))
	}
	node.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
	endpoint := func(name string) string { return filepath.Join(node.EndpointDir(), name+".sock") }
	files := endpoint("csi-proxy-filesystem-v1")
	return &hangs{tb, connect(tb, files), endpoint(simv1.EndpointName), files, endpoint("csi-proxy-disk-v1"), path}
}

const hungCalls = 1000

// everybody makes so many calls from four clients, and returns how long each took.
func (h *hangs) everybody() (took []time.Duration) {
	const calls = 400
	var mu sync.Mutex
	var clients sync.WaitGroup
	for c := range 4 {
		file, disk := connect(h.tb, h.files), connect(h.tb, h.disks)
		clients.Go(func() {
			for i := range calls {
				took1 := timed(h.tb, func() error {
					if i%8 == 0 {
						return disk.Invoke(h.tb.Context(), "/v1.Disk/ListDiskIDs", new(diskv1.ListDiskIDsRequest),
							new(diskv1.ListDiskIDsResponse))
					}
					return pathExists(h.tb.Context(), file, fmt.Sprintf(`%s\pods\%d`, kubelet, c))
				})
				mu.Lock()
				took = append(took, took1)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	return took
}

// besideDriver measures everybody while the driver makes its calls.
func (h *hangs) besideDriver() []time.Duration {
	ctx, cancel := context.WithCancel(h.tb.Context())
	var driver sync.WaitGroup
	for i := range hungCalls {
		driver.Go(func() {
			wait := time.Duration(i) * time.Millisecond
			for {
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return
				}
				_ = pathExists(ctx, h.driver, h.path(i))
				wait = time.Second
			}
		})
	}
	time.Sleep(time.Second) // until it has made them all
	took := h.everybody()
	cancel()
	driver.Wait()
	return took
}

// hangRounds measures everybody round by round, as long as more says: on a node on which
// Windows answers the driver, and on one on which it doesn't.
func hangRounds(tb testing.TB, path func(i int) string, more func() bool) (answers, silent []time.Duration) {
	answering, hanging := newHangs(tb, path), newHangs(tb, path)
	_, err := simv1.Call[simv1.Empty](tb.Context(), connect(tb, hanging.sim), "AddRule", &simv1.Rule{
		Call: "NtQueryAttributesFile", Object: "hangs", Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Hour)}, Uncancellable: true,
	})
	must(tb, err)
	for more() { // in turns, since the speed of machines drifts
		answers = append(answers, answering.besideDriver()...)
		silent = append(silent, hanging.besideDriver()...)
	}
	slices.Sort(answers)
	slices.Sort(silent)
	return answers, silent
}

// p99 is the 99th percentile of sorted times.
func p99(took []time.Duration) time.Duration { return took[len(took)*99/100] }

// BenchmarkHang measures how a driver whose calls hang slows down other callers. The metric
// x-p99 is the p99 of the others' calls as a ratio to that under the same load while
// Windows answers.
func BenchmarkHang(b *testing.B) {
	for name, path := range hangingPaths {
		b.Run(name, func(b *testing.B) {
			answers, silent := hangRounds(b, path, b.Loop)
			b.ReportMetric(float64(p99(silent))/float64(p99(answers)), "x-p99")
			b.ReportMetric(float64(p99(answers)), "ns/p99-without")
			b.ReportMetric(float64(p99(silent)), "ns/p99-with")
			b.ReportMetric(0, "ns/op") // of both together says nothing
		})
	}
}

// TestSoakHang shows that the p99 of everybody else stays within three times that of the
// same load without hung calls. One round alone would show what else the machine does.
func TestSoakHang(t *testing.T) {
	duration, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Skip("test/resilience --soak 2m runs it")
	}
	for name, path := range hangingPaths {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			answers, silent := hangRounds(t, path,
				func() bool { return time.Since(begun) < duration/time.Duration(len(hangingPaths)) })
			ratio := float64(p99(silent)) / float64(p99(answers))
			t.Logf("p99 %v with hung calls, %v without: %.1f times; the slowest took %v", p99(silent), p99(answers), ratio,
				silent[len(silent)-1])
			if ratio > 3 {
				t.Errorf("the p99 is %.1f times as high, want at most 3 times", ratio)
			}
		})
	}
}
