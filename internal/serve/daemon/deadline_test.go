// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// A call that ends by its client's deadline says which call to Windows it waited for, since when,
// whatever made it wait: the call itself, one on the same object, or another operation's lock. The
// answer comes before the client gives up.
func TestDeadlineSaysWhatWasWaitedFor(t *testing.T) {
	for name, test := range map[string]struct {
		hangs    winsim.Match
		method   string
		request  []byte
		timeout  time.Duration
		wantCall string
	}{
		"a path":   {winsim.Match{Call: "NtQueryAttributesFile", Object: "hangs"}, "/v1.Filesystem/PathExists", fieldOf(1, kubelet+`\hangs`), 500 * time.Millisecond, `NtQueryAttributesFile on C:\var\lib\kubelet\hangs`},
		"a disk":   {winsim.Match{Call: "IOCTL_DISK_GET_DRIVE_LAYOUT_EX"}, "/v1.Disk/PartitionDisk", []byte{8, 1}, 900 * time.Millisecond, `IOCTL_DISK_GET_DRIVE_LAYOUT_EX on \\.\PhysicalDrive1`},
		"a rescan": {winsim.Match{Call: "CM_Reenumerate_DevNode"}, "/v1.Disk/Rescan", nil, 5 * time.Second, `CM_Reenumerate_DevNode on \\?\`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newTarget(t)
				simtest.Attach(t, g.sys, winsim.DiskSpec{})
				g.sys.Settle()
				simtest.Must(t, g.sys.DelayUncancellable(test.hangs, time.Hour))
				group := strings.ToLower(strings.TrimPrefix(strings.Split(test.method, "/")[1], "v1."))
				conn := g.conn(group, "v1")
				begun := time.Now()
				const calls = 20
				errs := make(chan error, calls)
				for range calls {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
						defer cancel()
						errs <- conn.Invoke(ctx, test.method, test.request, new([]byte), grpc.ForceCodec(rawBytes{}))
					}()
				}
				since := " since " + begun.UTC().Format(time.RFC3339)
				for range calls {
					err := <-errs
					if text := status.Convert(err).Message(); status.Code(err) != codes.DeadlineExceeded ||
						!strings.Contains(text, "Windows has not answered "+test.wantCall) || !strings.Contains(text, since) {
						t.Errorf("got %v, want it to name %s%s", err, test.wantCall, since)
					}
				}
				if left := test.timeout - time.Since(begun); left < min(test.timeout/20, 50*time.Millisecond) ||
					left > 500*time.Millisecond {
					t.Errorf("answered %v before the deadline", left)
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}
