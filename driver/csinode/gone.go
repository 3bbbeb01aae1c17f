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
// them, is an error, or false. kubeevents.Pods has one made with client-go.
type PodIsGone func(ctx context.Context, uid string) (bool, error)

// podPath finds the UID of a pod in the path of its directory, as kubelet makes it.
var podPath = regexp.MustCompile(`(?i)\\pods\\([^\\]+)\\volumes\\`)

// unpublishGone removes those links to a staged volume that are of pods that are proven gone. kept
// says which links stay, and what a person can do about it. It is called when kubelet has asked for
// an unstage, and so takes the volume to be published nowhere: not when the driver starts, when
// kubelet may not know its pods yet, and nothing waits for the volume.
func (s *Server) unpublishGone(ctx context.Context, links []string) (removed bool, kept string) {
	var all []string
	for _, link := range links {
		m := podPath.FindStringSubmatch(link)
		if m == nil {
			all = append(all, fmt.Sprintf("the link %s isn't in a pod's directory; if nobody needs it, run "+
				"csi-proxyctl storage unpublish %[1]s", link))
			continue
		}
		uid := m[1]
		why := "whether that pod is gone isn't known, since the driver has no Options.PodIsGone"
		if s.options.PodIsGone != nil {
			gone, err := s.options.PodIsGone(ctx, uid)
			if gone && err == nil {
				if err = s.options.Storage.UnpublishVolume(ctx, link); err == nil {
					s.options.Logger.Warn("the link of a pod that is gone was removed: kubelet and the API server both answer, "+
						"and neither has the pod", "path", link, "pod", uid)
					removed = true
					continue
				}
			}
			why = "that pod isn't proven gone"
			if err != nil {
				why = fmt.Sprintf("that can't be undone: %v", err)
			}
		}
		all = append(all, fmt.Sprintf("the link %s is of the pod with the UID %s: %s; if the pod and its containers are gone, "+
			"run csi-proxyctl storage unpublish %[1]s", link, uid, why))
	}
	return removed, strings.Join(all, "; ")
}
