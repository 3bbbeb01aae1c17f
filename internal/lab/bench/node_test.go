// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// testNode is a simulated node with the delays of a quick cloud node, whose calls to Windows are counted.
type testNode struct {
	*testing.T
	sim *winsim.System
	*nodeops.Node
	ended *atomic.Int64 // operations
}

// newTestNode returns a node without drivers of its own. It must be in a bubble of synctest.
func newTestNode(t *testing.T) testNode {
	return newSlowTestNode(t, winsim.RealisticDelays())
}

func newSlowTestNode(t *testing.T, delays winsim.Delays) testNode {
	n := testNode{T: t, sim: simtest.OpenNode(t, winsim.Config{Delays: delays}), ended: new(atomic.Int64)}
	must(t, n.sim.MkdirAll(simtest.Kubelet))
	n.Node = n.start()
	return n
}

// eachCallTakes returns the delays of a quick cloud node on which each other call takes a while too.
func eachCallTakes(d time.Duration) winsim.Delays {
	delays := winsim.RealisticDelays()
	for _, name := range win.CallNames() {
		if delays.Calls[name] == 0 {
			delays.Calls[name] = d
		}
	}
	return delays
}

// start returns the operations of a daemon that has just started.
func (n testNode) start(drivers ...nodeops.Driver) *nodeops.Node {
	operations, err := nodeops.New(n.sim, nodeops.Options{
		OnOperation: func(string, time.Duration, error) { n.ended.Add(1) },
	}, drivers...)
	must(n, err)
	lockFile, err := operations.KeepLockFile(n.Context())
	must(n, err)
	n.Cleanup(func() { must(n, lockFile.Close()) })
	return operations
}

// measure returns how many calls to Windows f makes, and how long it takes.
func (n testNode) measure(f func() error) cost {
	n.Helper()
	synctest.Wait()
	before, began := n.sim.Calls(), time.Now()
	must(n, f())
	took := time.Since(began)
	synctest.Wait()
	calls := 0
	for name, after := range n.sim.Calls() {
		calls += after - before[name]
	}
	return cost{calls, took}
}

// attach attaches a raw disk, which is offline.
func (n testNode) attach(serial, vendor string) {
	simtest.Attach(n, n.sim, winsim.DiskSpec{Serial: serial, VendorID: vendor, Offline: true})
	n.sim.Settle()
}

// addVolumes attaches disks with a formatted volume each, mounted at a staging path of another driver.
func (n testNode) addVolumes(count int) {
	for i := range count {
		number := simtest.Attach(n, n.sim, winsim.DiskSpec{Serial: fmt.Sprint("other-", i)})
		n.sim.Settle()
		simtest.Partition(n, n.sim, number, 1)
		n.sim.Settle()
		volume := n.sim.VolumesOfDisk(number)[0]
		must(n, n.sim.FormatVolume(n.Context(), volume, win.FormatOptions{FileSystem: "NTFS"}))
		simtest.Mount(n, n.sim, stagedBy(otherDriver, i), volume)
	}
}

// addPods makes the directories of pods as kubelet does. Each pod has the volume that every pod has, and one of
// a driver, which is another one than that of the measured operations.
func (n testNode) addPods(count int) {
	n.addVolumes(1)
	for i := range count {
		pod := fmt.Sprintf(`%s\pods\uid-%d`, simtest.Kubelet, i)
		access := pod + `\volumes\kubernetes.io~projected\kube-api-access-x7x2k`
		must(n, n.sim.MkdirAll(access+`\..2026_11_28_00_00_00.1`))
		must(n, n.sim.Symlink(access+`\..data`, `..2026_11_28_00_00_00.1`, true))
		for _, dir := range []string{`\plugins\kubernetes.io~empty-dir\wrapped_kube-api-access-x7x2k`, `\containers\app`} {
			must(n, n.sim.MkdirAll(pod+dir))
		}
		must(n, n.sim.WriteFile(pod+`\etc-hosts`, nil))
		n.addPodDirectory(pod, otherDriver)
		must(n, n.sim.Symlink(pod+published, stagedBy(otherDriver, 0), true))
	}
}

const (
	otherDriver = "other.example.com"
	published   = `\volumes\kubernetes.io~csi\pv\mount` // below a pod's directory
)

// addPodDirectory makes what kubelet makes before it has a driver publish a volume to a pod.
func (n testNode) addPodDirectory(pod, driver string) {
	directory := pod + strings.TrimSuffix(published, `\mount`)
	must(n, n.sim.MkdirAll(directory))
	must(n, n.sim.WriteFile(directory+`\vol_data.json`, fmt.Appendf(nil, `{"driverName":%q}`, driver)))
}

func stagedBy(driver string, i int) string {
	return fmt.Sprintf(simtest.Kubelet+`\plugins\kubernetes.io\csi\%s\vol-%d\globalmount`, driver, i)
}

func bySerial(serial string) csiproxy.Selector { return csiproxy.Selector{SerialNumber: serial} }
