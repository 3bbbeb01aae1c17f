// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/fleet"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/why"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

// Report is the result of a test. Its JSON is the output of "kubectl csi-proxy test -o json".
type Report struct {
	OK          bool     `json:"ok"`
	Class       string   `json:"storageClass"`
	Provisioner string   `json:"provisioner"`
	Nodes       []Result `json:"nodes"`
	// Advice says how to remove what is left; empty if nothing is.
	Advice string `json:"advice,omitempty"`

	colours bool
}

// Result is the result of a node.
type Result struct {
	Node    string `json:"node"`
	Windows string `json:"windows"`
	// Failed is the first step that failed; empty if none did.
	Failed string `json:"failed,omitempty"`
	Steps  []Step `json:"steps"`
	// Why is why the pod waits, if a step failed.
	Why *why.Answer `json:"why,omitempty"`
	// Left are the objects that are left, as kubectl names them.
	Left     []string `json:"left"`
	Evidence Evidence `json:"evidence"`
}

// Step is a step that was taken, or skipped.
type Step struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
	Skipped string  `json:"skipped,omitempty"` // why; empty if it was taken
}

func (s Step) String() string {
	switch {
	case s.Skipped != "":
		return s.Skipped
	case s.Error != "":
		return "failed after " + s.took()
	}
	return s.took()
}

func (s Step) took() string {
	return time.Duration(s.Seconds * float64(time.Second)).Round(time.Second).String()
}

// Evidence is what a run on a node says about the assumptions of docs/windows-proof.md.
type Evidence struct {
	// Daemon is the version of CSI Proxy on the node; empty if it has no pod of CSI Proxy that is ready.
	Daemon string `json:"csiProxy,omitempty"`
	// DriverCalls reports that the driver's pod on the node mounts pipes of CSI Proxy.
	DriverCalls bool     `json:"driverMountsPipes"`
	Rows        []string `json:"rows"`
}

// The rows that hold if a step succeeded: else it would have failed.
var (
	rowsOfDaemon = []string{"hostprocess-start", "hostprocess-probes"}
	rowsOfSteps  = map[string][]string{
		stepRead: {"blank-disk", "disk-create", "volume-of-partition", "format", "mount-point"},
		stepGrow: {"gpt-grows", "grow"},
	}
)

// addEvidence adds what the node's pod of CSI Proxy (nil for none) and the steps decide. Volumes that aren't disks decide nothing.
func (r *Result) addEvidence(n *core.Node, pod *core.Pod, isDisk bool) {
	e := &r.Evidence
	e.Rows = []string{}
	if pod == nil || !cluster.PodIsReady(pod) {
		return
	}
	e.Daemon, _ = cluster.ImageVersion(pod) // no tag: only the version isn't known
	e.Daemon = cmp.Or(e.Daemon, "of an unknown version")
	if n.Status.NodeInfo.OperatingSystem != "windows" || !e.DriverCalls {
		return
	}
	if fleet.ModeOf(pod) == fleet.Container {
		e.Rows = append(e.Rows, rowsOfDaemon...)
	}
	for _, s := range r.Steps {
		if isDisk && s.Error == "" && s.Skipped == "" {
			e.Rows = append(e.Rows, rowsOfSteps[s.Name]...)
		}
	}
}

// addLeft says how to remove what is left.
func (r *Report) addLeft(of *run) {
	var advice []string
	for _, n := range r.Nodes {
		for _, object := range n.Left {
			text := of.removeCommand(of.name)
			switch isVolume := strings.HasPrefix(object, "pv/"); {
			case isVolume && of.retains():
				text = "kubectl delete " + object + ", and the volume itself, which the driver leaves"
			case isVolume:
				text = object + " goes when its volume is detached: kubectl csi-proxy status says on which nodes something uses a volume"
			}
			if !slices.Contains(advice, text) {
				advice = append(advice, text)
			}
		}
	}
	r.Advice = strings.Join(advice, "; then ")
}

// Print writes the report for people.
func (r Report) Print(w io.Writer) error {
	rows := table.New(w, "NODE", "WINDOWS", "WRITE", "READ", "GROW", "REMOVE", "RESULT")
	for _, n := range r.Nodes {
		fields, result, colour := []string{n.Node, n.Windows}, "ok", terminal.None
		if n.Failed != "" {
			result = "failed"
			if r.colours {
				colour = terminal.Red
			}
		}
		for _, name := range steps {
			text := ""
			if i := slices.IndexFunc(n.Steps, func(s Step) bool { return s.Name == name }); i >= 0 {
				text = n.Steps[i].String()
			}
			fields = append(fields, text)
		}
		rows.Coloured(colour, append(fields, result)...)
	}
	err := rows.Flush()
	for _, n := range r.Nodes {
		err = errors.Join(err, n.printFailure(w))
	}
	return errors.Join(err, r.printLeft(w), r.printEvidence(w))
}

// printFailure writes the errors of a node, and why its pod waits.
func (n Result) printFailure(w io.Writer) (err error) {
	for _, s := range n.Steps {
		if s.Error == "" {
			continue
		}
		err = errors.Join(err, table.Lines(w, "", fmt.Sprintf("%s: %s failed: %s", n.Node, s.Name, s.Error)))
		if s.Name == n.Failed && n.Why != nil {
			err = errors.Join(err, n.Why.Print(w))
		}
	}
	return err
}

func (r Report) printLeft(w io.Writer) error {
	if r.Advice == "" {
		return nil
	}
	lines := []string{"", "These objects are left:"}
	for _, n := range r.Nodes {
		for _, object := range n.Left {
			lines = append(lines, n.Node+": "+object)
		}
	}
	return table.Lines(w, append(lines, "To remove them: "+r.Advice)...)
}

// printEvidence writes the assumptions that are decided, as a table in Markdown for an issue.
func (r Report) printEvidence(w io.Writer) (err error) {
	for _, n := range r.Nodes {
		if !n.Evidence.DriverCalls {
			err = errors.Join(err, table.Lines(w, "", "the driver "+r.Provisioner+" has no pod on "+n.Node+
				" that mounts the pipes of CSI Proxy: the result says nothing about CSI Proxy"))
		}
		if len(n.Evidence.Rows) == 0 {
			continue
		}
		var passed []string
		for _, s := range n.Steps {
			if s.Error == "" && s.Skipped == "" {
				passed = append(passed, s.Name)
			}
		}
		lines := []string{"", fmt.Sprintf("For an issue (.github/ISSUE_TEMPLATE/windows-report.md), of %s:", n.Node), "",
			fmt.Sprintf("kubectl csi-proxy test, %s, with CSI Proxy %s, on %s", r.Provisioner, n.Evidence.Daemon, n.Windows), "",
			"| id | result | what was seen |", "|---|---|---|"}
		for _, row := range n.Evidence.Rows {
			lines = append(lines, fmt.Sprintf("| %s | proven | kubectl csi-proxy test passed %s |", row, strings.Join(passed, ", ")))
		}
		err = errors.Join(err, table.Lines(w, lines...))
	}
	return err
}
