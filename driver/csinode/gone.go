// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// PodIsGone reports whether the pod with a UID is proven to be gone from this node: kubelet and the
// API server both answer, and neither has it. Anything else, such as an error or a refusal of one of
// them, is an error, or false. The example driver's package kube has one made with client-go.
type PodIsGone func(ctx context.Context, uid string) (bool, error)

// podPath finds the UID of a pod in the path of its directory, as kubelet makes it.
var podPath = regexp.MustCompile(`(?i)\\pods\\([^\\]+)\\volumes\\`)

// mostKept is how many links an error names that stay. An event has room for about two.
const mostKept = 5

// unpublishGone removes the links to a staged volume in the directories of pods that are proven gone.
// kept names the links that stay, and the commands that remove them. NodeUnstageVolume calls
// unpublishGone. A call at the driver's start would be too early: kubelet may not know its pods yet.
func (s *Server) unpublishGone(ctx context.Context, links []string) (removed bool, kept string) {
	var all []string
	for _, link := range links {
		m := podPath.FindStringSubmatch(link)
		if m == nil {
			all = append(all, "the volume is published outside of pods' directories; if nobody needs that, run "+
				"csi-proxyctl storage unpublish "+link)
			continue
		}
		uid := m[1]
		why := s.unpublishIfGone(ctx, link, uid)
		if why == "" {
			removed = true
			continue
		}
		all = append(all, fmt.Sprintf("the volume is published to the pod with the UID %s, and %s; if the pod and its containers "+
			"are gone, run csi-proxyctl storage unpublish %s", uid, why, link))
	}
	if more := len(all) - mostKept; more > 0 {
		all = append(all[:mostKept], fmt.Sprintf("so do %d more links: csi-proxyctl storage volumes lists all", more))
	}
	return removed, strings.Join(all, "; ")
}

// unpublishIfGone removes the link of a pod that is proven gone. If the link stays, it says why.
func (s *Server) unpublishIfGone(ctx context.Context, link, uid string) (why string) {
	if s.options.PodIsGone == nil {
		return "the driver can't tell whether the pod is gone (it has no Options.PodIsGone)"
	}
	gone, err := s.options.PodIsGone(ctx, uid)
	switch {
	case err != nil:
		return fmt.Sprintf("the driver can't tell whether the pod is gone: %v", err)
	case !gone:
		return "the pod isn't proven gone"
	}
	if err := s.options.Storage.UnpublishVolume(ctx, link); err != nil {
		return fmt.Sprintf("the pod is gone, and its link can't be removed: %v", err)
	}
	s.options.Logger.Warn("the link of a pod that is gone was removed: kubelet and the API server both answer, and neither "+
		"has the pod", "path", link, "pod", uid)
	return ""
}
