// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
)

// recorded is a line of the table of what kubelet sends, which csinode's tests replay.
type recorded struct {
	Scenario string          `json:"scenario"`
	Call     string          `json:"call"`
	Patience string          `json:"patience,omitempty"` // of the caller
	Request  json.RawMessage `json:"request"`
}

// table returns the calls about volumes of the scenarios in which no call fails, in the order of the
// names of the scenarios. What is random in them is numbered.
func table(results []result) ([]byte, error) {
	results = slices.Clone(results)
	slices.SortFunc(results, func(a, b result) int { return strings.Compare(a.name, b.name) })
	var out bytes.Buffer
	for _, r := range results {
		if r.planted.name != "" || r.failed > 0 {
			continue
		}
		var lines bytes.Buffer
		for _, c := range r.calls {
			if c.code != codes.OK {
				continue
			}
			request, err := protojson.Marshal(c.request)
			if err != nil {
				return nil, err
			}
			// Each run of protojson has other spaces.
			var fields map[string]any
			if err := json.Unmarshal(request, &fields); err != nil {
				return nil, err
			}
			if request, err = json.Marshal(fields); err != nil {
				return nil, err
			}
			line := recorded{Scenario: r.name, Call: c.method, Request: request}
			if c.patience > 0 {
				line.Patience = c.patience.Round(10 * time.Second).String() // it is less by what has passed
			}
			text, err := json.Marshal(line)
			if err != nil {
				return nil, err
			}
			lines.Write(append(text, '\n'))
		}
		out.WriteString(numbered(lines.String()))
	}
	return out.Bytes(), nil
}

// numbered gives the random names of volumes, pods and staging directories numbers.
func numbered(text string) string {
	for name, pattern := range map[string]string{
		"volume": `vol-[0-9a-f]{16}`, "staging": `\b[0-9a-f]{64}\b`, "pod": `\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`,
	} {
		var known []string
		text = regexp.MustCompile(pattern).ReplaceAllStringFunc(text, func(found string) string {
			if !slices.Contains(known, found) {
				known = append(known, found)
			}
			return fmt.Sprintf("%s-%d", name, 1+slices.Index(known, found))
		})
	}
	return text
}

// compareTable returns an error if the table isn't the one in a file, and writes it there first if
// asked to.
func compareTable(results []result, file string, update bool) error {
	got, err := table(results)
	if err != nil {
		return err
	}
	if update {
		return os.WriteFile(file, got, 0o644)
	}
	want, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	gotLines, wantLines := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		at := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return ""
		}
		if at(gotLines) != at(wantLines) {
			return fmt.Errorf("kubelet sends something else than %s has, from line %d on; -update writes it anew\n-%s\n+%s",
				file, i+1, at(wantLines), at(gotLines))
		}
	}
	return nil
}
