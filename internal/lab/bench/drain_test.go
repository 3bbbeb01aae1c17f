// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"testing"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// BenchmarkDrain drains a node of 110 pods, each with a volume of its own: all volumes are unpublished
// and unstaged at once, with the delays of a quick cloud node. x-alone is how many times longer that
// takes than with one pod. Each unstaging searches the pods that are still there for links to its
// volume; those that run at one time share a search, and calls/pod says how well. The rest of x-alone is
// processor time.
func BenchmarkDrain(b *testing.B) {
	const pods = 110
	var alone, together time.Duration
	calls := 0
	drain := func(pods int) time.Duration {
		n := newFullNode(b, pods)
		before := total(n.Calls())
		took := atOnceTook(b, pods, func(i int) error {
			operations := n.Operations().Storage
			if err := operations.UnpublishVolume(b.Context(), podPath(i)); err != nil {
				return err
			}
			_, err := operations.UnstageVolume(b.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath(i)})
			return err
		})
		calls = total(n.Calls()) - before
		return took
	}
	for b.Loop() {
		alone += drain(1)
		together += drain(pods)
	}
	report(b, float64(together)/float64(alone), "x-alone", 0)
	b.ReportMetric(float64(alone.Milliseconds())/float64(b.N), "ms/one")
	b.ReportMetric(float64(together.Milliseconds())/float64(b.N), fmt.Sprintf("ms/%d", pods))
	report(b, float64(calls)/pods, "calls/pod", 200)
}

// BenchmarkUnstageBesidePods unstages one volume while so many other pods run, each with a volume.
func BenchmarkUnstageBesidePods(b *testing.B) {
	for _, pods := range []int{0, 110} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			var took time.Duration
			calls := 0
			for b.Loop() {
				n := newFullNode(b, pods+1)
				operations := n.Operations().Storage
				must(b, operations.UnpublishVolume(b.Context(), podPath(0)))
				before := total(n.Calls())
				took += timed(b, func() error {
					_, err := operations.UnstageVolume(b.Context(), csiproxy.UnstageVolumeRequest{StagingPath: stagingPath(0)})
					return err
				})
				calls = total(n.Calls()) - before
			}
			b.ReportMetric(float64(took.Microseconds())/1000/float64(b.N), "ms/unstage")
			b.ReportMetric(float64(calls), "calls")
		})
	}
}

// podPath is where kubelet has the volume of a pod published.
func podPath(i int) string {
	return fmt.Sprintf(`C:\var\lib\kubelet\pods\uid-%d\volumes\kubernetes.io~csi\pv-%[1]d\mount`, i)
}

// newFullNode returns a node with so many pods. Each has the volume kube-api-access and one of a driver.
func newFullNode(b *testing.B, pods int) *simnode.Node {
	n := simnode.New(b, simnode.WithRealisticDelays())
	for i := range pods {
		n.AttachDisk(simnode.Disk{SizeBytes: 10 << 30, Offline: true, Serial: fmt.Sprintf("vol-%d", i)})
		access := fmt.Sprintf(`C:\var\lib\kubelet\pods\uid-%d\volumes\kubernetes.io~projected\kube-api-access`, i)
		must(b, n.MkdirAll(access+`\..2026_11_28`))
		must(b, n.Symlink(access+`\..data`, `..2026_11_28`))
		for _, key := range []string{"ca.crt", "namespace", "token"} {
			must(b, n.WriteFile(access+`\..2026_11_28\`+key, nil))
			must(b, n.Symlink(access+`\`+key, `..data\`+key))
		}
	}
	waitForDisks(b, n, pods+1)
	atOnceTook(b, pods, func(i int) error {
		if err := stageVolume(b.Context(), n, fmt.Sprintf("vol-%d", i), stagingPath(i)); err != nil {
			return err
		}
		return n.Operations().Storage.PublishVolume(b.Context(), stagingPath(i), podPath(i))
	})
	return n
}
