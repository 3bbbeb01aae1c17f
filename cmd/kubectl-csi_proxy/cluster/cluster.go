// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster reads what all commands need of a cluster: its Windows nodes, the pods of
// CSI Proxy on them, and their answers.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// VersionAnnotation is the annotation of a node that says the version of the CSI Proxy on
// it. It counts only if no pod of CSI Proxy is on the node, for nodes on which something
// else installs it.
const VersionAnnotation = "csi-proxy.dev/version"

// daemonLabels select CSI Proxy's pods: see deploy.
const daemonLabels = "app.kubernetes.io/name=csi-proxy,app.kubernetes.io/component=daemon"

// Parallel is how many nodes are asked at a time.
const Parallel = 32

// Nodes returns the Windows nodes, of those that a label selector matches unless it is empty,
// by name.
func Nodes(ctx context.Context, client kubernetes.Interface, selector string) ([]*core.Node, error) {
	windows := core.LabelOSStable + "=windows"
	if selector != "" {
		windows += "," + selector
	}
	var nodes []*core.Node
	err := Each(ctx, "nodes", client.CoreV1().Nodes().List, meta.ListOptions{LabelSelector: windows}, func(n *core.Node) {
		nodes = append(nodes, n)
	})
	slices.SortFunc(nodes, func(a, b *core.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes, err
}

// DaemonPods returns CSI Proxy's pod on each node that has one, by the node's name.
func DaemonPods(ctx context.Context, client kubernetes.Interface, namespace string) (map[string]*core.Pod, error) {
	pods := make(map[string]*core.Pod)
	labels := meta.ListOptions{LabelSelector: daemonLabels}
	err := Each(ctx, "pods of CSI Proxy", client.CoreV1().Pods(namespace).List, labels, func(p *core.Pod) {
		// A pod that is being deleted counts only until there is another one.
		known := pods[p.Spec.NodeName]
		if known == nil || !PodIsReady(known) && p.DeletionTimestamp == nil {
			pods[p.Spec.NodeName] = p
		}
	})
	return pods, err
}

// Each calls do with each object of a list, which is read in pages. What names the objects in
// an error.
func Each[T any, L runtime.Object, P interface {
	*T
	runtime.Object
}](ctx context.Context, what string, list func(context.Context, meta.ListOptions) (L, error), o meta.ListOptions,
	do func(P)) error {
	pages := pager.New(func(ctx context.Context, o meta.ListOptions) (runtime.Object, error) { return list(ctx, o) })
	err := pages.EachListItem(ctx, o, func(object runtime.Object) error {
		typed, ok := object.(P)
		if !ok {
			return fmt.Errorf("unexpected type %T", object)
		}
		do(typed)
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", what, err)
	}
	return nil
}

// PodsOn returns the pods on each of the nodes that haven't ended, by the node's name.
func PodsOn(ctx context.Context, client kubernetes.Interface, nodes []*core.Node) (map[string][]core.Pod, error) {
	var mu sync.Mutex
	pods := make(map[string][]core.Pod)
	errs := InParallel(nodes, func(n *core.Node) error {
		var found []core.Pod
		onNode := meta.ListOptions{FieldSelector: "spec.nodeName=" + n.Name}
		err := Each(ctx, "pods of node "+n.Name, client.CoreV1().Pods(meta.NamespaceAll).List, onNode, func(p *core.Pod) {
			if p.Status.Phase != core.PodSucceeded && p.Status.Phase != core.PodFailed {
				found = append(found, *p)
			}
		})
		mu.Lock()
		defer mu.Unlock()
		pods[n.Name] = found
		return err
	})
	return pods, cmp.Or(errs...)
}

// ClaimOf returns the name of the claim of a pod's volume; empty for none.
func ClaimOf(pod *core.Pod, v *core.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// InParallel calls do for each item, for [Parallel] of them at a time, and returns the results
// in the order of the items.
func InParallel[T, R any](items []T, do func(T) R) []R {
	results := make([]R, len(items))
	var calls sync.WaitGroup
	slots := make(chan struct{}, Parallel)
	for i, item := range items {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			results[i] = do(item)
		})
	}
	calls.Wait()
	return results
}

// NodeIsReady reports whether kubelet says that its node is ready.
func NodeIsReady(n *core.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c core.NodeCondition) bool {
		return c.Type == core.NodeReady && c.Status == core.ConditionTrue
	})
}

// PodIsReady reports whether a pod is ready. If it is CSI Proxy's, the daemon serves.
func PodIsReady(p *core.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c core.PodCondition) bool {
		return c.Type == core.PodReady && c.Status == core.ConditionTrue
	})
}

// WhyNotReady says what Kubernetes says of a pod that isn't ready.
func WhyNotReady(pod *core.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		restarted := ""
		if c.RestartCount > 0 {
			restarted = fmt.Sprintf(", after %d restarts", c.RestartCount)
		}
		switch state := c.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			return strings.TrimSuffix(state.Waiting.Reason+": "+state.Waiting.Message, ": ") + restarted +
				lastWords(c.LastTerminationState.Terminated)
		case state.Terminated != nil:
			return fmt.Sprintf("it ended with exit code %d%s%s", state.Terminated.ExitCode, restarted, lastWords(state.Terminated))
		case state.Running != nil:
			return "its container runs, and isn't ready" + restarted
		}
	}
	return fmt.Sprintf("the phase of the pod %s is %s", pod.Name, pod.Status.Phase)
}

// lastWords is the end of a sentence with the last line that a container wrote, which says why it
// ended; empty if Kubernetes has none.
func lastWords(ended *core.ContainerStateTerminated) string {
	if ended == nil {
		return ""
	}
	text := strings.TrimSpace(ended.Message)
	if line := strings.TrimSpace(text[strings.LastIndex(text, "\n")+1:]); line != "" {
		return "; it said: " + line
	}
	return ""
}

// ImageVersion returns the tag of the image that CSI Proxy's pod runs: the version of its
// daemon, if the image is a released one.
func ImageVersion(p *core.Pod) (string, error) {
	if len(p.Spec.Containers) == 0 {
		return "", fmt.Errorf("the pod %s has no container", p.Name)
	}
	image := p.Spec.Containers[0].Image
	name, _, _ := strings.Cut(image, "@")
	_, tag, ok := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if !ok || tag == "" {
		return "", fmt.Errorf("the image %s of the pod %s has no tag", image, p.Name)
	}
	return tag, nil
}
