// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1"
)

// A call whose deadline comes while Windows doesn't answer is told so, with the call and the
// object, before its client gives up: Kubernetes shows that text in an event.
func TestDeadlineNamesTheCallThatHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.attach(hardware{size: 1 << 30})
	n.sim("delay", "--call", "IOCTL_DISK_GET_DRIVE_LAYOUT_EX", "--duration", time.Hour.String(), "--uncancellable")
	disks := n.clients(nil).disk
	call := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, err := disks.PartitionDisk(ctx, &diskv1.PartitionDiskRequest{DiskNumber: 1})
		return err
	}
	var calls sync.WaitGroup
	var mu sync.Mutex
	for i := range 20 {
		if i == 1 { // the connection is made
			time.Sleep(100 * time.Millisecond)
		}
		calls.Add(1)
		go func() {
			defer calls.Done()
			err := call(2 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if err == nil || !strings.Contains(err.Error(), `IOCTL_DISK_GET_DRIVE_LAYOUT_EX on \\.\PhysicalDrive1 since `) {
				t.Errorf("call %d: %v", i, err)
			}
		}()
	}
	calls.Wait()
}
