// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
)

// Disks are the disks of nodes. Its JSON is the output of "kubectl csi-proxy disks -o json".
type Disks struct{ Answers[NodeDisks] }

// NodeDisks are the disks of a node, as "csi-proxyctl disk list -o json" has them.
type NodeDisks struct {
	Asked
	Disks []json.RawMessage `json:"disks"`
}

// Disks asks the nodes for their disks.
func (a *Asker) Disks(ctx context.Context) (Disks, error) {
	answers, err := ask(ctx, a, func(ctx context.Context, _ *core.Node,
		pod *core.Pod) (disks []json.RawMessage, err error) {
		return disks, a.askJSON(ctx, pod, &disks, "disk", "list")
	}, func(n Asked, disks []json.RawMessage) NodeDisks { return NodeDisks{n, list(disks)} })
	return Disks{answers}, err
}

// list returns a list that isn't null in JSON.
func list[T any](all []T) []T { return append([]T{}, all...) }

// Print writes the disks for people.
func (d Disks) Print(w io.Writer) error {
	disks := table.New(w, "NODE", "DISK", "SIZE", "STATE", "BUS", "SERIAL NUMBER", "VOLUMES")
	for _, n := range d.Nodes {
		for _, raw := range n.Disks {
			var disk struct {
				Number        int
				SizeBytes     *int64 `json:"size_bytes"`
				Online        *bool
				ReadOnly      bool   `json:"read_only"`
				OfflineReason string `json:"offline_reason"`
				SystemReason  string `json:"system_reason"`
				Bus           string
				SerialNumber  string `json:"serial_number"`
				Error         string
				Partitions    []struct{ Paths []string }
			}
			if err := json.Unmarshal(raw, &disk); err != nil {
				return fmt.Errorf("node %s: a disk isn't what this version of the plugin knows: %w", n.Node, err)
			}
			state := "unknown"
			switch {
			case disk.Error != "":
				state = "error: " + disk.Error
			case disk.Online == nil:
			case !*disk.Online:
				state = strings.TrimSuffix("offline: "+disk.OfflineReason, ": ")
			case disk.SystemReason != "":
				state = "online, Windows runs from it"
			case disk.ReadOnly:
				state = "online, read-only"
			default:
				state = "online"
			}
			var paths []string
			for _, p := range disk.Partitions {
				paths = append(paths, p.Paths...)
			}
			disks.Row(n.Node, strconv.Itoa(disk.Number), size(disk.SizeBytes), state, disk.Bus, disk.SerialNumber,
				strings.Join(paths, ", "))
		}
	}
	if disks.Empty() && Failed(d.Asked()) == 0 {
		return table.Line(w, "The nodes have no disks.")
	}
	return errors.Join(disks.Flush(), printFailed(w, !disks.Empty(), d.Asked()))
}

// size is a number of bytes with a unit; empty if it isn't known.
func size(bytes *int64) string {
	if bytes == nil {
		return ""
	}
	value, unit := float64(*bytes), 0
	for ; value >= 1000 && unit < 5; unit++ {
		value /= 1024
	}
	return fmt.Sprintf("%.3g %s", value, []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[unit])
}

// printFailed says which nodes gave no answer, below something or alone.
func printFailed(w io.Writer, below bool, asked []Asked) error {
	var lines []string
	failed := Failed(asked)
	if failed > 0 && below {
		lines = []string{""}
	}
	if failed > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d nodes gave no answer:", failed, len(asked)))
	}
	for _, a := range asked {
		if a.Error != "" {
			lines = append(lines, a.Node+": "+a.Error)
		}
	}
	return table.Lines(w, lines...)
}

// Findings are what doctor has found on nodes. Its JSON is the output of "kubectl csi-proxy
// doctor -o json".
type Findings struct{ Answers[NodeFindings] }

// NodeFindings are what doctor has found on a node.
type NodeFindings struct {
	Asked
	Findings []Finding `json:"findings"`
}

// Finding is one of "csi-proxyctl doctor".
type Finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"` // ok, warning, problem or unknown
	Text    string `json:"finding"`
	Advice  string `json:"advice,omitempty"`
}

// Doctor runs csi-proxyctl doctor on the nodes.
func (a *Asker) Doctor(ctx context.Context) (Findings, error) {
	answers, err := ask(ctx, a, func(ctx context.Context, _ *core.Node, pod *core.Pod) (found []Finding, err error) {
		return found, a.askJSON(ctx, pod, &found, "doctor")
	}, func(n Asked, found []Finding) NodeFindings { return NodeFindings{n, list(found)} })
	return Findings{answers}, err
}

// Problems returns how many of the findings are problems.
func (f Findings) Problems() int { return len(f.ProblemTexts()) }

// ProblemTexts returns what the findings that are problems say.
func (f Findings) ProblemTexts() (texts []string) {
	for _, n := range f.Nodes {
		for _, found := range n.Findings {
			if found.Verdict == "problem" {
				texts = append(texts, found.Check+": "+found.Text)
			}
		}
	}
	return texts
}

// verdicts are those that are shown, the worst first.
var verdicts = []struct{ name, text string }{{"problem", "problem"}, {"warning", "warning"}, {"unknown", "can't tell"}}

// Print writes the findings for people: of each node what isn't well, the worst first.
func (f Findings) Print(w io.Writer) error {
	rows := table.New(w, "NODE", "VERDICT", "CHECK", "FINDING")
	well := 0
	for _, n := range f.Nodes {
		shown := 0
		for _, verdict := range verdicts {
			for _, found := range n.Findings {
				if found.Verdict != verdict.name {
					continue
				}
				shown++
				rows.Row(n.Node, verdict.text, found.Check, found.Text)
				if found.Advice != "" {
					rows.Row(" ", " ", " ", "to do: "+found.Advice)
				}
			}
		}
		if shown == 0 && n.Error == "" {
			well++
		}
	}
	if err := errors.Join(rows.Flush(), printFailed(w, !rows.Empty(), f.Asked())); err != nil {
		return err
	}
	return table.Line(w, "On %d of %d nodes doctor has found nothing.", well, len(f.Nodes))
}
