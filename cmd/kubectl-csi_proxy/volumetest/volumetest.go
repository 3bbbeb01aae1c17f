// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package volumetest tests a StorageClass on Windows nodes: on each node, one pod writes to a new volume, a second
// pod reads what the first has written, and sees the volume grow. Then everything is removed.
package volumetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/why"
)

// Label is the label of all objects that a test makes. Its value is the name of the run.
const Label = "csi-proxy.dev/test"

// Test says what is tested, and how.
type Test struct {
	Client kubernetes.Interface
	// Namespace is that of the claims and pods, and DaemonNamespace that of CSI Proxy's pods.
	Namespace, DaemonNamespace string
	// Class is the name of the StorageClass.
	Class string
	// Nodes are the names of the nodes; empty for all Windows nodes.
	Nodes []string
	// Image is the image of the pods. If it is empty, it is Nano Server of each node's version.
	Image string
	// Size is the size of the claims. They grow to twice of it.
	Size resource.Quantity
	// Wait is how long each step may take.
	Wait time.Duration
	// Keep leaves the objects.
	Keep bool
	// Colours marks what failed, for a terminal that shows colours.
	Colours bool
	// Log prints a line about the progress. Nodes call it at the same time.
	Log func(line string)
}

// The steps, in their order.
const (
	stepWrite  = "write"  // the volume is made, and the first pod writes to it
	stepRead   = "read"   // the first pod goes, and the second one reads
	stepGrow   = "grow"   // the second pod sees the new size
	stepRemove = "remove" // the pods, the claim and the volume go
)

var steps = []string{stepWrite, stepRead, stepGrow, stepRemove}

// run is a test that runs.
type run struct {
	Test
	name    string
	class   *storage.StorageClass
	daemons map[string]*core.Pod  // CSI Proxy's pods, by node
	pods    map[string][]core.Pod // all pods, by node
}

// Run tests the StorageClass on all the nodes at the same time. When ctx ends, the test ends, and its objects are
// removed. The removal goes on until removal ends. An error says that nothing was tested.
func (t Test) Run(ctx, removal context.Context) (Report, error) {
	r := &run{Test: t, name: rand.String(5)}
	class, err := t.Client.StorageV1().StorageClasses().Get(ctx, t.Class, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Report{}, fmt.Errorf("there is no StorageClass %s: kubectl get storageclasses lists them", t.Class)
	}
	if err != nil {
		return Report{}, fmt.Errorf("get the StorageClass %s: %w", t.Class, err)
	}
	r.class = class
	nodes, err := r.nodes(ctx)
	if err != nil {
		return Report{}, err
	}
	if r.daemons, err = cluster.DaemonPods(ctx, t.Client, t.DaemonNamespace); err != nil {
		return Report{}, err
	}
	if r.pods, err = cluster.PodsOn(ctx, t.Client, nodes); err != nil {
		return Report{}, err
	}
	if err := r.nameLeftovers(ctx); err != nil {
		return Report{}, err
	}
	results := cluster.InParallel(nodes, func(n *core.Node) Result { return r.onNode(ctx, removal, n, slices.Index(nodes, n)) })
	report := Report{Class: t.Class, Provisioner: class.Provisioner, Nodes: results, colours: t.Colours}
	report.OK = !slices.ContainsFunc(results, func(r Result) bool { return r.Failed != "" })
	report.addLeft(r)
	return report, nil
}

// nodes returns the nodes to test.
func (r *run) nodes(ctx context.Context) ([]*core.Node, error) {
	all, err := cluster.Nodes(ctx, r.Client, "")
	if err != nil {
		return nil, err
	}
	for _, name := range r.Nodes {
		if !slices.ContainsFunc(all, func(n *core.Node) bool { return n.Name == name }) {
			return nil, fmt.Errorf("there is no Windows node %s: kubectl get nodes -l kubernetes.io/os=windows lists them", name)
		}
	}
	if len(r.Nodes) > 0 {
		all = slices.DeleteFunc(all, func(n *core.Node) bool { return !slices.Contains(r.Nodes, n.Name) })
	}
	if len(all) == 0 {
		return nil, errors.New("the cluster has no Windows nodes")
	}
	return all, nil
}

// nameLeftovers names what other runs have in the namespace.
func (r *run) nameLeftovers(ctx context.Context) error {
	found := make(map[string][]string) // by run
	of := meta.ListOptions{LabelSelector: Label}
	note := func(kind string, o meta.Object) {
		name := o.GetLabels()[Label]
		found[name] = append(found[name], kind+"/"+o.GetName())
	}
	err := errors.Join(
		cluster.Each(ctx, "pods", r.Client.CoreV1().Pods(r.Namespace).List, of, func(p *core.Pod) { note("pod", p) }),
		cluster.Each(ctx, "claims", r.Client.CoreV1().PersistentVolumeClaims(r.Namespace).List, of,
			func(c *core.PersistentVolumeClaim) { note("pvc", c) }))
	for name, objects := range found {
		r.Log(fmt.Sprintf("Another run has left, or still uses, %s. If it has ended: %s", strings.Join(objects, ", "), r.removeCommand(name)))
	}
	return err
}

// removeCommand is what an administrator types to remove the objects of a run.
func (r *run) removeCommand(name string) string {
	return fmt.Sprintf("kubectl -n %s delete pods,pvc -l %s=%s", r.Namespace, Label, name)
}

// onNode tests a node.
func (r *run) onNode(ctx, removal context.Context, n *core.Node, number int) Result {
	v := &volume{run: r, node: n, name: fmt.Sprintf("csi-proxy-test-%s-%d", r.name, number)}
	result := Result{Node: n.Name, Windows: strings.TrimSpace(n.Status.NodeInfo.OSImage + " " + n.Status.NodeInfo.KernelVersion)}
	result.Evidence.DriverCalls = why.MountsPipe(r.pods[n.Name], r.class.Provisioner)
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{{stepWrite, v.write}, {stepRead, v.read}, {stepGrow, v.grow}} {
		if step.name == stepGrow && !r.grows() {
			result.Steps = append(result.Steps, Step{Name: step.name, Skipped: "the class doesn't allow it"})
			continue
		}
		if !result.do(ctx, r, step.name, step.do) {
			break
		}
	}
	result.addEvidence(n, r.daemons[n.Name], v.isDisk)
	if result.Failed != "" && ctx.Err() == nil {
		result.explain(removal, v)
	}
	if r.Keep {
		result.Steps = append(result.Steps, Step{Name: stepRemove, Skipped: "kept"})
	} else {
		result.do(removal, r, stepRemove, v.remove)
	}
	result.Left = append([]string{}, v.left...)
	return result
}

// grows reports whether the class allows its volumes to grow.
func (r *run) grows() bool {
	return r.class.AllowVolumeExpansion != nil && *r.class.AllowVolumeExpansion
}

// retains reports whether the class leaves volumes whose claim has gone.
func (r *run) retains() bool {
	return r.class.ReclaimPolicy != nil && *r.class.ReclaimPolicy != core.PersistentVolumeReclaimDelete
}

// do takes a step, and reports whether it succeeded.
func (result *Result) do(ctx context.Context, r *run, name string, do func(context.Context) error) bool {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, r.Wait, fmt.Errorf("not within %v (--wait)", r.Wait))
	defer cancel()
	err := do(limited)
	step := Step{Name: name, Seconds: time.Since(began).Seconds()}
	outcome := "ok"
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		step.Error = strings.TrimSpace(strings.ReplaceAll(err.Error(), "\n", "; ")) // several objects may stay
		outcome = step.Error
		if result.Failed == "" {
			result.Failed = name
		}
	}
	result.Steps = append(result.Steps, step)
	r.Log(fmt.Sprintf("%s: %s: %s, after %v", result.Node, name, outcome, time.Since(began).Round(time.Second)))
	return err == nil
}

// explain adds why the node's pod waits, unless it waits for something else than its volume.
func (result *Result) explain(ctx context.Context, v *volume) {
	query := why.Query{Client: v.Client, Namespace: v.DaemonNamespace, Overdue: true, Colours: v.Colours}
	answer, err := query.Claim(ctx, v.Namespace, v.name) // of the pod that uses it, if there is one
	if err != nil {
		v.Log(fmt.Sprintf("%s: why: %v", v.node.Name, err))
		return
	}
	if answer.State == why.Broken && answer.Links[*answer.Broken].Kind != why.KindContainers {
		result.Why = &answer
	}
}

// pause is how long to wait between two looks at an object.
const pause = time.Second

// await looks until the look says that it is done, or fails, or ctx ends. The look also returns what the cluster says
// meanwhile, for the error.
func await(ctx context.Context, what string, look func() (done bool, state string, _ error)) error {
	last := ""
	for ctx.Err() == nil {
		done, state, err := look()
		switch {
		case done:
			return nil
		case err == nil:
			last = state
		case ctx.Err() == nil && !isTemporary(err):
			return fmt.Errorf("%s: %w", what, err)
		case ctx.Err() == nil:
			last = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if last != "" {
		last = ": " + last
	}
	return fmt.Errorf("%s: %w%s", what, context.Cause(ctx), last)
}

// isTemporary reports whether a request may succeed when it is repeated.
func isTemporary(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= 500 || apierrors.IsTooManyRequests(err)
	}
	netError := net.Error(nil)
	return errors.As(err, &netError)
}
