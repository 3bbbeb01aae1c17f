// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

// Asker asks nodes by running csi-proxyctl in CSI Proxy's pods on them.
type Asker struct {
	Client    kubernetes.Interface
	Namespace string
	// Selector is a label selector for the Windows nodes, and Names are some of them; empty
	// for all.
	Selector string
	Names    []string
	// Timeout is how long a node may take to answer.
	Timeout time.Duration
	// Exec runs csi-proxyctl with arguments in a pod: see [cluster.Exec].
	Exec func(ctx context.Context, pod *core.Pod, args []string, stdout, stderr io.Writer) error
	// Progress is called when a node has answered or failed; nil for nothing.
	Progress func(done, all int)
}

// Asked is a node that was asked.
type Asked struct {
	Node string `json:"node"`
	Pod  string `json:"pod,omitempty"`
	// Error says why the node couldn't be asked, or gave no answer; empty if it did.
	Error string `json:"error,omitempty"`
}

func (a Asked) asked() Asked { return a }

// Answers are what nodes have answered, by their names.
type Answers[T interface{ asked() Asked }] struct {
	Nodes []T `json:"nodes"`
}

// Asked returns the nodes that were asked.
func (a Answers[T]) Asked() (all []Asked) {
	for _, n := range a.Nodes {
		all = append(all, n.asked())
	}
	return all
}

// Problems returns how many problems the nodes have, beside those that gave no answer.
func (a Answers[T]) Problems() int { return 0 }

// Failed returns how many of the nodes gave no answer.
func Failed(asked []Asked) (n int) {
	for _, a := range asked {
		if a.Error != "" {
			n++
		}
	}
	return n
}

// find returns the nodes to ask, by name, and CSI Proxy's pods on them.
func (a *Asker) find(ctx context.Context) ([]*core.Node, map[string]*core.Pod, error) {
	nodes, err := cluster.Nodes(ctx, a.Client, a.Selector)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range a.Names {
		if !slices.ContainsFunc(nodes, func(n *core.Node) bool { return n.Name == name }) {
			return nil, nil, fmt.Errorf("there is no Windows node %s: kubectl get nodes -l kubernetes.io/os=windows lists them",
				name)
		}
	}
	if len(a.Names) > 0 {
		nodes = slices.DeleteFunc(nodes, func(n *core.Node) bool { return !slices.Contains(a.Names, n.Name) })
	}
	pods, err := cluster.DaemonPods(ctx, a.Client, a.Namespace)
	return nodes, pods, err
}

// ask asks each node. Answer makes the result for a node of its answer, or of nothing. That one node
// can't be asked doesn't keep the answers of the others.
func ask[R any, T interface{ asked() Asked }](ctx context.Context, a *Asker,
	question func(ctx context.Context, n *core.Node, pod *core.Pod) (R, error),
	answer func(Asked, R) T) (Answers[T], error) {
	nodes, pods, err := a.find(ctx)
	if err != nil {
		return Answers[T]{Nodes: []T{}}, err
	}
	var mu sync.Mutex
	done := 0
	answers := cluster.InParallel(nodes, func(n *core.Node) T {
		asked := Asked{Node: n.Name}
		var got R
		err := noPod(n)
		if pod := pods[n.Name]; pod != nil {
			asked.Pod = pod.Name
			ctx, cancel := context.WithTimeoutCause(ctx, a.Timeout,
				fmt.Errorf("the node hasn't answered within %v: see --node-timeout", a.Timeout))
			defer cancel()
			got, err = question(ctx, n, pod)
			if err != nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
		}
		if err != nil {
			asked.Error = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		if done++; a.Progress != nil {
			a.Progress(done, len(nodes))
		}
		return answer(asked, got)
	})
	return Answers[T]{answers}, context.Cause(ctx)
}

// noPod says what to do about a node on which nothing can be run.
func noPod(n *core.Node) error {
	if v := n.Annotations[cluster.VersionAnnotation]; v != "" {
		return fmt.Errorf("CSI Proxy %s was installed there by something else than its DaemonSet, "+
			"so there is no pod to ask: "+
			"run csi-proxyctl on the node", v)
	}
	return errors.New("there is no pod of CSI Proxy on the node: see kubectl csi-proxy status")
}

// mostAnswer is how many bytes a node's answer may have: far more than any has.
const mostAnswer = 16 << 20

// askJSON runs a command of csi-proxyctl, whose JSON it decodes into v. A command that has
// failed and has answered all the same, as doctor does when it finds problems, is no error.
func (a *Asker) askJSON(ctx context.Context, pod *core.Pod, v any, args ...string) error {
	var stdout, stderr bytes.Buffer
	ran := a.Exec(ctx, pod, append(args, "--output=json", "--timeout="+a.Timeout.String()), &bounded{&stdout, mostAnswer},
		&bounded{&stderr, mostAnswer})
	if ran != nil && stdout.Len() == 0 {
		return execError(ran, stderr.Bytes())
	}
	if err := json.Unmarshal(stdout.Bytes(), v); err != nil {
		return errors.Join(fmt.Errorf("the answer of csi-proxyctl %s isn't what this version of the plugin knows: %w",
			strings.Join(args, " "), err), ran)
	}
	return nil
}

// execError is why csi-proxyctl failed: what it says itself, if it ran.
func execError(err error, stderr []byte) error {
	var said struct{ Error struct{ Message string } }
	var exit interface{ ExitStatus() int }
	switch {
	case !errors.As(err, &exit):
		return fmt.Errorf("csi-proxyctl couldn't be run in the pod: %w", err)
	case json.Unmarshal(stderr, &said) == nil && said.Error.Message != "":
		return errors.New(said.Error.Message)
	}
	return fmt.Errorf("csi-proxyctl ended with exit code %d: %s", exit.ExitStatus(), bytes.TrimSpace(stderr))
}

// bounded passes on no more than a number of bytes.
type bounded struct {
	io.Writer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("the node's answer is too long")
	}
	return b.Writer.Write(p)
}
