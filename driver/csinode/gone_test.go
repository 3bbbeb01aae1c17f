// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/driver/csinode"
)

// claimEvents also keeps what a driver would tell the owner of a claim.
type claimEvents struct {
	events
	claims []string
}

func (e *claimEvents) WarnClaim(_ context.Context, volumeID, reason, message string) error {
	e.claims = append(e.claims, volumeID+": "+reason+": "+message)
	return nil
}

// The link of a pod that kubelet has forgotten goes if the pod is proven gone, and only then. Otherwise
// the error and the event name the link, the pod and the command.
func TestForgottenUnpublish(t *testing.T) {
	gone := func(uids ...string) csinode.PodIsGone {
		return func(_ context.Context, uid string) (bool, error) { return slices.Contains(uids, uid), nil }
	}
	for name, test := range map[string]struct {
		isGone csinode.PodIsGone
		kept   []string // pods whose links stay
	}{
		"both are gone":  {gone("pod-a", "pod-b"), nil},
		"one is gone":    {gone("pod-a"), []string{"pod-b"}},
		"none is gone":   {gone(), []string{"pod-a", "pod-b"}},
		"nobody answers": {func(context.Context, string) (bool, error) { return true, errors.New("refused") }, []string{"pod-a", "pod-b"}},
		"nobody asks":    {nil, []string{"pod-a", "pod-b"}},
	} {
		t.Run(name, func(t *testing.T) {
			var warned claimEvents
			s, n := newServer(t, func(o *csinode.Options) { o.PodIsGone, o.Events = test.isGone, &warned })
			must(t, stage(t, s, ""))
			for _, pod := range []string{"pod-a", "pod-b"} {
				must(t, publish(t, s, pod, multiWriter()))
			}
			err := unstage(t, s)
			if len(test.kept) == 0 {
				must(t, err)
				if d := n.Disks()[1]; !d.Offline {
					t.Errorf("the disk is online: %+v", d)
				}
				return
			}
			if status.Code(err) != codes.FailedPrecondition || len(warned.events) != 1 || !slices.Equal(warned.claims, []string{"vol-1: " + warned.events[0]}) {
				t.Fatalf("%v, events %q", err, warned)
			}
			for _, text := range []string{err.Error(), warned.events[0]} {
				for _, pod := range test.kept {
					if !strings.Contains(text, "the pod with the UID "+pod+":") ||
						!strings.Contains(text, "csi-proxyctl storage unpublish "+target(pod)) {
						t.Errorf("%s isn't named in %q", pod, text)
					}
				}
			}
			for _, pod := range []string{"pod-a", "pod-b"} {
				_, err := n.ReadDir(target(pod))
				if kept := err == nil; kept != slices.Contains(test.kept, pod) {
					t.Errorf("the link of %s: %v", pod, err)
				}
			}
		})
	}
}
