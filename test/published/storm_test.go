// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/test/published/drivers"
)

const stormSize = 64

// storm makes the same call from many clients at once, each with connections of
// its own, and returns how often each code was the answer.
func (n *node) storm(call func(drivers.Calls) error) map[codes.Code]int {
	n.t.Helper()
	answers := map[codes.Code]int{}
	var mu sync.Mutex // guards answers
	var done sync.WaitGroup
	begin := make(chan struct{})
	for range stormSize {
		c := n.clients(nil)
		done.Go(func() {
			<-begin
			err := call(c)
			mu.Lock()
			defer mu.Unlock()
			answers[status.Code(err)]++
		})
	}
	close(begin)
	done.Wait()
	return answers
}

// Many stage the same volume at once, with whole sequences of calls. One may spoil
// another's, but together they leave nothing that the next doesn't get over.
func TestStormsOfStaging(t *testing.T) {
	t.Parallel()
	for _, s := range shippedDrivers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			c := s.claim(n, 1, false, nil)
			answers := n.storm(func(cl drivers.Calls) error { return c.storage.driver(cl).Stage(c.staging) })
			for code := range answers {
				switch code {
				case codes.OK, codes.FailedPrecondition, codes.AlreadyExists, codes.Unavailable:
				case codes.NotFound: // asking about what another has just removed, as SMB drivers do first
					if _, smb := c.storage.(*smbVolume); !smb {
						t.Errorf("%d of the drivers get %v", answers[code], code)
					}
				default:
					t.Errorf("%d of the drivers get %v", answers[code], code)
				}
			}
			live(n, s, c, "after a storm")
			must(t, c.Stage(c.staging))
			if a, ok := c.storage.(attached); ok {
				if volumes := n.operator().volumes(a.disk); len(volumes) != 1 {
					t.Errorf("the disk has the volumes %q", volumes)
				}
			}
		})
	}
}
