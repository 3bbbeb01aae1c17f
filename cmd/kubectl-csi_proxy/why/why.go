// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package why says why a pod waits for its volumes. It follows the links of a chain, from the pod to
// the call to Windows: pod, node, claim, volume, attachment, registration, driver, daemon, Windows. It
// only reads: from the API server and, by way of it, from the daemon's metrics. What it couldn't read
// is a link whose state is unknown, and never one that is well.
package why

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

// State is the state of a link.
type State string

// The states of links.
const (
	OK      State = "ok"
	Waiting State = "waiting" // something is under way, and nothing is wrong with it
	Broken  State = "broken"
	Unknown State = "unknown" // it couldn't be read
)

// The kinds of links, in the order of the chain.
const (
	KindPod          = "pod"
	KindNode         = "node"
	KindClaim        = "claim"
	KindVolume       = "volume"
	KindAttachment   = "attachment"
	KindRegistration = "registration"
	KindDriver       = "driver"
	KindDaemon       = "daemon"
	KindWindows      = "Windows"
	KindDoctor       = "doctor"
	KindLastError    = "last error"
	KindContainers   = "containers"
)

// Link is one link of the chain.
type Link struct {
	Kind string `json:"kind"`
	// Object is what the link is about, such as the name of the claim.
	Object  string `json:"object"`
	State   State  `json:"state"`
	Finding string `json:"finding"`
	// Advice says what to do; empty if there is nothing to do.
	Advice string `json:"advice,omitempty"`
}

// Answer is why a pod or a claim waits. Its JSON is the output of "kubectl csi-proxy why -o json".
type Answer struct {
	// Pod is namespace/name; empty if no pod uses the claim.
	Pod  string `json:"pod,omitempty"`
	Node string `json:"node,omitempty"`
	// State is Broken if a link is, else Waiting if one is, else Unknown if one is, else OK.
	State State `json:"state"`
	// Answer is one sentence.
	Answer string `json:"answer"`
	Advice string `json:"advice,omitempty"`
	Links  []Link `json:"links"`
	// Broken is the index in Links of the link that the others wait for; nil if none is broken.
	Broken *int `json:"broken,omitempty"`

	colours bool
}

// Query says whom to ask.
type Query struct {
	Client kubernetes.Interface
	// Namespace is that of CSI Proxy's pods.
	Namespace string
	// Doctor runs "csi-proxyctl doctor" in CSI Proxy's pod, and returns the problems. Nil: nothing is run on nodes.
	Doctor func(ctx context.Context, pod *core.Pod) (problems []string, _ error)
	// Overdue says that the pod should have its volumes by now: what is still under way is broken.
	Overdue bool
	// Colours marks the states, for a terminal that shows colours.
	Colours bool
}

// chain is an answer that is being made.
type chain struct {
	Query
	now    time.Time
	pod    *core.Pod     // nil for a claim that no pod uses
	node   *core.Node    // nil if the pod isn't scheduled, or the node can't be read
	events []*core.Event // about the pod, the newest first
	links  []Link
}

// Pod says why a pod waits. The error is that of the API server if the pod can't be read.
func (q Query) Pod(ctx context.Context, namespace, name string) (Answer, error) {
	pod, err := q.Client.CoreV1().Pods(namespace).Get(ctx, name, meta.GetOptions{})
	if err != nil {
		return Answer{}, err
	}
	return q.ofPod(ctx, pod), nil
}

// Claim says why a claim, or the pod that uses it, waits. If several pods use it, it answers for one
// that waits. The error is that of the API server if the claim or the pods can't be read.
func (q Query) Claim(ctx context.Context, namespace, name string) (Answer, error) {
	if _, err := q.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, meta.GetOptions{}); err != nil {
		return Answer{}, err
	}
	var users []*core.Pod
	err := cluster.Each(ctx, "pods", q.Client.CoreV1().Pods(namespace).List, meta.ListOptions{}, func(p *core.Pod) {
		for _, v := range p.Spec.Volumes {
			hasEnded := p.Status.Phase == core.PodSucceeded || p.Status.Phase == core.PodFailed
			if cluster.ClaimOf(p, &v) == name && (!hasEnded || p.DeletionTimestamp != nil) {
				users = append(users, p)
			}
		}
	})
	if err != nil {
		return Answer{}, err
	}
	for _, pod := range users {
		if pod.Status.Phase == core.PodPending {
			return q.ofPod(ctx, pod), nil
		}
	}
	if len(users) > 0 {
		return q.ofPod(ctx, users[0]), nil
	}
	c := &chain{Query: q, now: time.Now()}
	c.checkClaim(ctx, namespace, name)
	c.add(KindPod, namespace+"/*", OK, "no pod uses the claim", "")
	return c.answer(), nil
}

func (q Query) ofPod(ctx context.Context, pod *core.Pod) Answer {
	c := &chain{Query: q, now: time.Now(), pod: pod}
	var err error
	if c.events, err = c.eventsOf(ctx, pod.Namespace, string(pod.UID)); err != nil {
		c.unread(KindLastError, podName(pod), err)
	}
	if c.checkPod() {
		c.checkNode(ctx)
	}
	drivers := c.checkVolumes(ctx)
	if c.node != nil {
		c.checkDrivers(ctx, drivers)
	}
	c.checkLastErrors()
	c.checkContainers()
	return c.answer()
}

func podName(p *core.Pod) string { return p.Namespace + "/" + p.Name }

func (c *chain) add(kind, object string, state State, finding, advice string) {
	c.links = append(c.links, Link{kind, object, state, finding, advice})
}

// unread adds a link that can't be read.
func (c *chain) unread(kind, object string, err error) {
	advice := ""
	if apierrors.IsForbidden(err) {
		advice = "the right to read it is in deploy/kustomize/kubectl-plugin/why.yaml"
	}
	c.add(kind, object, Unknown, "can't be read: "+err.Error(), advice)
}

// answer chooses the cause among the broken links. In the control plane each link depends on the previous one, so the
// first broken link is the cause. The pod is an exception: it is scheduled after its claims are bound. On the node each
// link depends on the next one (registration on the driver, the driver on the daemon), so the last broken link is the
// cause, also of an attachment, for which the driver must be registered. The driver's last error may be an effect of any
// other broken link, so it comes last.
func (c *chain) answer() Answer {
	a := Answer{State: OK, Links: c.links, colours: c.Colours}
	if c.pod != nil {
		a.Pod, a.Node = podName(c.pod), c.pod.Spec.NodeName
	}
	onNode := []string{KindRegistration, KindDriver, KindDaemon, KindWindows, KindDoctor}
	effects := []string{KindLastError, KindContainers}
	isBroken := func(kinds []string, others bool) func(Link) bool {
		return func(l Link) bool { return l.State == Broken && slices.Contains(kinds, l.Kind) != others }
	}
	if slices.ContainsFunc(c.links, isBroken([]string{KindRegistration}, false)) {
		onNode = append(onNode, KindAttachment)
	}
	broken := slices.IndexFunc(c.links, isBroken(slices.Concat(onNode, effects), true))
	for i, l := range c.links {
		if broken < 0 || slices.Contains(onNode, c.links[broken].Kind) {
			if isBroken(onNode, false)(l) {
				broken = i
			}
		}
	}
	if broken < 0 {
		broken = slices.IndexFunc(c.links, isBroken(effects, false))
	}
	if claim := slices.IndexFunc(c.links, isBroken([]string{KindClaim}, false)); claim >= 0 && c.links[broken].Kind == KindPod {
		broken = claim // without which no pod is scheduled
	}
	first := func(s State) int { return slices.IndexFunc(c.links, func(l Link) bool { return l.State == s }) }
	waiting, unknown := first(Waiting), first(Unknown)
	switch {
	case broken >= 0:
		l := c.links[broken]
		a.State, a.Broken, a.Advice = Broken, &broken, l.Advice
		a.Answer = fmt.Sprintf("%s %s: %s", l.Kind, l.Object, l.Finding)
	case waiting >= 0:
		l := c.links[waiting]
		a.State, a.Advice = Waiting, l.Advice
		a.Answer = "Nothing is wrong: " + l.Finding
	case unknown >= 0:
		a.State, a.Advice = Unknown, c.links[unknown].Advice
		a.Answer = "Nothing is wrong as far as can be seen, but not everything could be read"
	case c.pod != nil:
		a.Answer = "Nothing is wrong, and the pod doesn't wait for a volume"
	default:
		a.Answer = "Nothing is wrong: the claim is bound, and no pod uses it"
	}
	return a
}

// Print writes the answer for people: the chain, and below it the answer and what to do.
func (a Answer) Print(w io.Writer) error {
	rows := table.New(w, " ", "LINK", "OBJECT", "STATE", "FINDING")
	for i, l := range a.Links {
		mark, colour := " ", terminal.None
		if a.Broken != nil && *a.Broken == i {
			mark, colour = "→", a.colour(l.State)
		}
		rows.Coloured(colour, mark, l.Kind, l.Object, string(l.State), l.Finding)
	}
	if err := rows.Flush(); err != nil {
		return err
	}
	lines := []string{"", a.Answer}
	if a.Advice != "" {
		lines = append(lines, "To do: "+a.Advice)
	}
	for _, l := range a.Links {
		if l.State == Unknown {
			lines = append(lines, fmt.Sprintf("Not seen: %s %s: %s", l.Kind, l.Object, strings.Join(nonEmpty(l.Finding, l.Advice), "; ")))
		}
	}
	return table.Lines(w, lines...)
}

func (a Answer) colour(s State) terminal.Colour {
	if a.colours && s == Broken {
		return terminal.Red
	}
	return terminal.None
}

func nonEmpty(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// age is how long ago something was, for people.
func (c *chain) age(t time.Time) time.Duration { return max(0, c.now.Sub(t)).Round(time.Second) }
