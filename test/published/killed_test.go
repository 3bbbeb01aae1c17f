// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// The Windows calls that change something in the life of a volume, or wait for
// somebody elsewhere: with the driver of disks that uses most of the API, and with
// those of storage that isn't attached.
var killedWithin = map[string][]string{
	"EBS": {
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
	},
	"local iSCSI": {
		"AddIScsiSendTargetPortalW",
		"RefreshIScsiSendTargetPortalW",
		"LoginIScsiTargetW",
		"GetDevicesForIScsiSessionW",
		"IOCTL_DISK_SET_DISK_ATTRIBUTES",
		"LogoutIScsiTarget",
	},
	"SMB": {
		"MSFT_SmbGlobalMapping",
		"MSFT_SmbGlobalMapping.Create",
		"FSCTL_SET_REPARSE_POINT",
		"GetFileAttributesW",
		"SetFileInformationByHandle",
		"MSFT_SmbGlobalMapping.Remove",
	},
}

// The daemon is killed while it is inside of a Windows call that hangs, and the
// driver's call with it: in the first such call of a volume's life, then in the
// second, and so on. The step is repeated, and all ends well.
func TestKilledWithinCall(t *testing.T) {
	t.Parallel()
	for _, s := range shippedDrivers {
		for _, call := range killedWithin[s.name] {
			t.Run(s.name+"/"+call, func(t *testing.T) {
				t.Parallel()
				n := newNode(t)
				for k := 1; ; k++ {
					if !testKilledWithinCall(n, s, call, k) {
						if k == 1 {
							t.Errorf("%s isn't called", call)
						}
						return
					}
					if testing.Short() {
						return
					}
				}
			})
		}
	}
}

// testKilledWithinCall reports whether the k-th volume's life had as many calls as k.
func testKilledWithinCall(n *node, s shipped, call string, k int) bool {
	n.t.Helper()
	c := s.claim(n, k, false, nil)
	if s.name == "SMB" { // so that there is a mapping to ask about
		n.operator().must(c.Stage(c.staging))
	}
	end := n.killWithin(call, k)
	defer end()
	live(n, s, c, fmt.Sprintf("killed within call %d of %s", k, call))

	must(n.t, retried(func() error { return c.Stage(c.staging) }))
	if s.grows {
		o := n.operator()
		if size := o.size(o.mounted(c.nodeStaging)); size < 7*gib {
			n.t.Errorf("on a disk that grew to 8 GiB the volume has %d bytes", size)
		}
	}
	killed, err := end()
	must(n.t, err)
	n.simCall("ClearRules", nil)
	must(n.t, c.Unstage(c.staging))
	c.remove(n)
	return killed
}

// killWithin lets the k-th call of a name from now on hang, and then kills the daemon
// and starts it again. The function that it returns ends the wait for that, and tells
// whether it came.
func (n *node) killWithin(call string, k int) (end func() (killed bool, err error)) {
	n.t.Helper()
	made := n.calls()[call]
	n.simCall("AddRule", fields{"call": call, "delay_ns": int64(time.Hour), "skip": k - 1, "count": 1})

	ended, done := make(chan struct{}), make(chan struct{})
	var killed bool
	var err error
	go func() {
		defer close(done)
		if killed, err = n.awaitCall(call, made+k, ended); killed {
			err = n.restart()
		}
	}()
	return sync.OnceValues(func() (bool, error) {
		close(ended)
		<-done
		return killed, err
	})
}

// awaitCall waits until a Windows call was made so often since the daemon was
// started, and reports whether it was: it gives up when ended is closed.
func (n *node) awaitCall(call string, times int, ended <-chan struct{}) (bool, error) {
	for {
		last := false
		select {
		case <-ended:
			last = true
		case <-time.After(time.Millisecond): // between two looks
		}
		calls, err := n.countCalls()
		if err != nil || last || calls[call] >= times {
			return calls[call] >= times, err
		}
	}
}
