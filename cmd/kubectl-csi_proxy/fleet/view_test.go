// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fleetOf is a status of 300 nodes of a default installation: one has a problem, and two have
// another version.
func fleetOf(t *testing.T, port string) Status {
	t.Helper()
	client := aCluster(func(pod string) (string, error) {
		switch pod {
		case "csi-proxy-win-123":
			return "", errors.New("connection refused")
		case "csi-proxy-win-007":
			return strings.Replace(healthy, "v0.1.0", "v0.0.9", 1), nil
		}
		return healthy, nil
	}, many(port)...)
	s, err := Query{Client: client, Namespace: "csi-proxy"}.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBrief: on a terminal the nodes without a problem are counted, and so is what isn't known.
func TestBrief(t *testing.T) {
	open := fleetOf(t, "metrics")
	local := fleetOf(t, "local-metrics")
	hint := "Of 300 nodes volumes, disks and hangs aren't known, since their metrics are served on the node only. " +
		"csi-proxyctl doctor on a node shows them; docs/monitoring.md says how to run it, and how to open the metrics.\n"
	for _, tt := range []struct {
		name string
		view View
		want string
	}{
		{"a problem", View{Status: open, Brief: true}, `NODE      OK   MODE        VERSION   PROBLEMS
win-123   no   container   v0.1.0    CSI Proxy doesn't answer: metrics of the pod csi-proxy-win-123: connection refused

299 of 300 Windows nodes are healthy, as far as can be seen from here. --all lists them.
The nodes run different versions: v0.1.0 on 299; v0.0.9 on 1 (win-007).
`},
		{"nothing known", View{Status: local, Brief: true},
			"300 of 300 Windows nodes are healthy, as far as can be seen from here. --all lists them.\n" + hint},
		{"coloured", View{Status: local, Brief: true, Colours: true},
			"\x1b[32m300 of 300 Windows nodes are healthy, as far as can be seen from here. --all lists them.\x1b[0m\n" + hint},
		{"a problem, coloured", View{Status: Status{Nodes: []NodeStatus{
			{Node: "a", Problems: []string{"\x1b[2J"}, Unknown: "x"}, {Node: "b", Unknown: "x"}}}, Colours: true},
			"NODE   OK    PROBLEMS\n\x1b[31ma      no    \\x1b[2J\x1b[0m\nb      yes   -\n\n" +
				"\x1b[31m1 of 2 Windows nodes are healthy, as far as can be seen from here.\x1b[0m\n"},
		{"a volume that stays", View{Status: Status{OK: true, Nodes: []NodeStatus{
			{Node: "a", RefusedUnstages: new(0)}, {Node: "b", RefusedUnstages: new(3)}}}, Brief: true},
			"2 of 2 Windows nodes are healthy, as far as can be seen from here. --all lists them.\n" +
				"UnstageVolume was refused on 1 of the nodes (b), mostly since something uses the volume. The daemon's " +
				"log names the processes or links.\n"},
		{"links that kubelet has lost track of", View{Status: Status{OK: true, Nodes: []NodeStatus{{Node: "a"},
			{Node: "b", ForgottenLinkCount: 2, ForgottenLinks: []ForgottenLink{{"path", "1a2b", "pv-1", "kubectl \x1b"}}}}}, Brief: true},
			"2 of 2 Windows nodes are healthy, as far as can be seen from here. --all lists them.\n\n" +
				"Links that kubelet has lost track of, so that their volumes can't be unstaged: 2\n" +
				"To do: if neither the API server nor the node's kubelet has the pod, run the command\n\n" +
				"NODE   POD UID   VOLUME   COMMAND\nb      1a2b      pv-1     kubectl \\x1b\n" +
				"1 more: csi-proxyctl storage clean-up on a node lists those there\n"},
	} {
		var out bytes.Buffer
		if err := tt.view.Print(&out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	var all bytes.Buffer
	if err := (View{Status: open}).Print(&all); err != nil || strings.Count(all.String(), "\n") != 304 ||
		!strings.Contains(all.String(), "win-007   yes   container   v0.0.9    3         5       1         0        0         0       -\n") {
		t.Errorf("%v\n%s", err, &all)
	}
}

// TestManyLinks: of the links of 300 nodes a bounded number is listed, and all are counted.
func TestManyLinks(t *testing.T) {
	var s Status
	for range 300 {
		s.Nodes = append(s.Nodes, NodeStatus{ForgottenLinkCount: 2, ForgottenLinks: make([]ForgottenLink, 2)})
	}
	var out bytes.Buffer
	if err := s.printForgottenLinks(&out); err != nil || strings.Count(out.String(), "\n") != 4+1+mostLinks+1 ||
		!strings.Contains(out.String(), "can't be unstaged: 600\n") || !strings.Contains(out.String(), "\n580 more: ") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestVersions: the nodes that run another version than most are named, up to a number.
func TestVersions(t *testing.T) {
	s := Status{}
	for _, name := range []string{"g", "f", "e", "d", "c", "b", "a"} {
		s.Nodes = append(s.Nodes, NodeStatus{Node: name, Version: "v2"}, NodeStatus{Node: name + "1", Version: "v1"})
	}
	s.Nodes = append(s.Nodes, NodeStatus{Node: "z", Version: "v1"}, NodeStatus{Node: "unknown", Mode: Other})
	const want = "The nodes run different versions: v1 on 8; v2 on 7 (a, b, c, d, e and 2 more)."
	if got := s.versions(); got != want {
		t.Errorf("%q", got)
	}
	if got := (Status{Nodes: s.Nodes[len(s.Nodes)-2:]}).versions(); got != "" {
		t.Errorf("one version: %q", got)
	}
}
