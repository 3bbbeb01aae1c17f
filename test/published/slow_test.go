// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The Windows calls that change something in the life of a volume with the driver
// that uses most of the API.
var changingCalls = []string{
	"CM_Reenumerate_DevNode",
	"IOCTL_DISK_CREATE_DISK",
	"IOCTL_DISK_UPDATE_PROPERTIES",
	"IOCTL_DISK_SET_DRIVE_LAYOUT_EX",
	"IOCTL_DISK_SET_DISK_ATTRIBUTES",
	"MSFT_Volume.Format",
	"SetVolumeMountPointW",
	"IOCTL_DISK_GROW_PARTITION",
	"FSCTL_EXTEND_VOLUME",
	"FSCTL_SET_REPARSE_POINT",
	"SetFileInformationByHandle",
	"FlushFileBuffers",
	"DeleteVolumeMountPointW",
}

// The daemon is killed while it is inside of a Windows call that hangs, and the
// driver's call with it. The step is repeated, and all ends well.
func TestKilledWithinCall(t *testing.T) {
	t.Parallel()
	ebs := shippedDrivers[0]
	for i, call := range changingCalls {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			var restart sync.RWMutex // held while the daemon is down
			c := ebs.claim(n, i+1, false, func(string) error {
				restart.RLock()
				defer restart.RUnlock()
				return nil
			})
			made := n.calls()[call]
			n.hangNext(call)

			killed, ended := make(chan error, 1), make(chan struct{})
			go func() {
				if err := n.awaitCall(call, made+1, ended); err != nil {
					killed <- err
					return
				}
				restart.Lock()
				defer restart.Unlock()
				killed <- n.restart()
			}()
			defer func() {
				close(ended)
				if err := <-killed; err != nil {
					t.Error(err)
				}
			}()
			live(n, ebs, c, "killed within "+call)

			if err := c.stage(c.staging); err != nil {
				t.Fatal(err)
			}
			o := n.operator()
			if size := o.size(o.mounted(c.nodeStaging)); size < 7*gib {
				t.Errorf("on a disk that grew to 8 GiB the volume has %d bytes", size)
			}
		})
	}
}

// awaitCall waits until a Windows call was made so often since the daemon was
// started. It gives up when ended is closed.
func (m *machine) awaitCall(call string, times int, ended <-chan struct{}) error {
	for {
		calls, err := m.countCalls()
		if err != nil {
			return err
		}
		if calls[call] >= times {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s isn't called", call)
		default:
		}
	}
}

// A driver that gives a call up has its answer at once, and its next call isn't
// held up by what the first left behind.
func TestCallGivenUp(t *testing.T) {
	t.Parallel()
	const call = "MSFT_Volume.Format"
	n := newNode(t)
	volume := n.operator().rawVolume(n.attach(hardware{size: gib}))
	n.hangNext(call)

	first, giveUp := context.WithCancel(context.Background())
	answer, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		answer <- n.clients(nil).format(first, volume)
	}()
	err := n.awaitCall(call, 1, ended)
	giveUp()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-answer; status.Code(err) != codes.Canceled {
		t.Errorf("the call that was given up gives %v", err)
	}

	second, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.clients(nil).format(second, volume); err != nil {
		t.Error(err)
	}
}
