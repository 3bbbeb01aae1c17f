// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"errors"
	"fmt"
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
					if !strings.Contains(text, "the pod with the UID "+pod+", ") ||
						!strings.Contains(text, "csi-proxyctl storage unpublish "+target(pod)) {
						t.Errorf("%s isn't named in %q", pod, text)
					}
					if count := strings.Count(text, target(pod)); count != 1 {
						t.Errorf("the link of %s is named %d times in %q", pod, count, text)
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

// With names as long as they are on real nodes, an event, which has 1024 bytes at most, has the
// commands of two pods whole. An error has those of five, and the number of the others.
func TestForgottenUnpublishOfManyPods(t *testing.T) {
	for _, pods := range []int{2, 30} {
		var warned claimEvents
		s, _ := newServer(t, func(o *csinode.Options) { o.Events = &warned })
		must(t, stage(t, s, ""))
		var uids []string
		for i := range pods {
			uid := fmt.Sprintf("3a9d0c5e-1f2b-4c3d-8e7f-6a5b4c3d2%03d-pvc-3a9d0c5e-1f2b-4c3d-8e7f-6a5b4c3d2e1f", i) // and the volume's name
			uids = append(uids, uid)
			must(t, publish(t, s, uid, multiWriter()))
		}
		text := unstage(t, s).Error()
		const longID = 100 // bytes that the volume's id may have
		for _, uid := range uids[:2] {
			if event := warned.claims[0]; !strings.Contains(event[:min(len(event), 1024-longID)], "unpublish "+target(uid)) {
				t.Errorf("%d pods: %s isn't named early in %q", pods, uid, event)
			}
		}
		if named := strings.Count(text, "csi-proxyctl storage unpublish C:"); named != min(pods, 5) ||
			strings.Contains(text, "so do 25 more links") != (pods == 30) {
			t.Errorf("%d of %d pods are named: %s", named, pods, text)
		}
	}
}
