// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// kubeletDirectory is where kubelet is on the Windows nodes, as hostPath writes it here.
const kubeletDirectory = `c:\var\lib\kubelet`

// ownPipe matches the pipe of one driver, whose name it has; pipes with the published names are all drivers'.
var ownPipe = regexp.MustCompile(`^\\\\\.\\pipe\\csi-proxy-(.+)-[a-z]+-v[0-9]+(?:(?:alpha|beta)[0-9]+)?$`)

// hostPath returns a path of a node as Windows takes it, in lower case: /var/lib/kubelet/ is c:\var\lib\kubelet.
func hostPath(path string) string {
	path = strings.ToLower(strings.ReplaceAll(path, "/", `\`))
	if strings.HasPrefix(path, `\`) && !strings.HasPrefix(path, `\\`) {
		path = "c:" + path
	}
	return strings.TrimRight(path, `\`)
}

// hostPathsOf returns the paths of the node that a pod mounts.
func hostPathsOf(pod *core.Pod) []string {
	var paths []string
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			paths = append(paths, hostPath(v.HostPath.Path))
		}
	}
	return paths
}

// tooMuch returns which of the paths that a pod mounts void the boundary between drivers: all in kubelet's directory but the
// registrations and one driver's own plugins directory, what is above it, and pipes but those of that driver.
func tooMuch(pod *core.Pod) (paths []string) {
	driver := "" // the one whose directory or pipe the pod has
	isOther := func(name string) bool {
		if driver == "" {
			driver = name
		}
		return name != driver
	}
	for _, path := range hostPathsOf(pod) {
		inside, isInside := strings.CutPrefix(path, kubeletDirectory+`\`)
		plugin, isPlugin := strings.CutPrefix(inside, `plugins\`)
		pipe := ownPipe.FindStringSubmatch(path)
		switch {
		case pipe != nil:
			if pipe[1] != "administrators" && !isOther(pipe[1]) {
				continue
			}
		case strings.HasPrefix(path, `\\.\pipe\csi-proxy-`):
		case isInside && inside == "plugins_registry",
			isInside && isPlugin && !strings.Contains(plugin, `\`) && plugin != "kubernetes.io" && !isOther(plugin):
			continue
		case isInside, path == kubeletDirectory, strings.HasPrefix(kubeletDirectory, path+`\`):
		default:
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

// mostPods is how many pods a problem names.
const mostPods = 5

// checkHostPaths adds the pods on a node that can reach what belongs to another driver. That is a problem only where a driver has
// its own endpoints: elsewhere nothing keeps drivers apart.
func (s *NodeStatus) checkHostPaths(pods []core.Pod) {
	hasOwn := func(pod core.Pod) bool { return slices.ContainsFunc(hostPathsOf(&pod), ownPipe.MatchString) }
	if !slices.ContainsFunc(pods, hasOwn) {
		return
	}
	var found []string
	for i := range pods {
		if paths := tooMuch(&pods[i]); len(paths) > 0 {
			found = append(found, pods[i].Namespace+"/"+pods[i].Name+" "+strings.Join(paths, ", "))
		}
	}
	if len(found) > 0 {
		slices.Sort(found)
		more := ""
		if len(found) > mostPods {
			found, more = found[:mostPods], " and others"
		}
		s.problem("pods mount more of the node than one driver's own, so drivers with endpoints of their own aren't kept apart from "+
			"them: %s%s; docs/security.md says what drivers need", quote.Text(strings.Join(found, "; ")), more)
	}
}
