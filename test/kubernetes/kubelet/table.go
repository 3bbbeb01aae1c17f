// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"maps"
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
	Code     string          `json:"code,omitempty"`     // what it got; "" if the call succeeded
	Request  json.RawMessage `json:"request"`
}

// table returns the calls about volumes of each scenario, as lines; none if a call failed, unless the
// scenario is about what kubelet does then. How often it repeats a call is chance, so that is one line.
// So is how often the sidecars repeat one that has succeeded. What is random in the calls is numbered.
func table(results []result) (map[string]string, error) {
	lines := map[string]string{}
	for _, r := range results {
		if r.planted.name != "" || r.unrecorded || r.cannot != "" {
			continue
		}
		lines[r.name] = ""
		if r.failed > 0 && !r.errors {
			continue
		}
		last := ""
		for _, c := range r.calls {
			line, err := lineOf(r.name, c)
			if err != nil {
				return nil, err
			}
			if c.code == codes.OK && !slices.Contains([]string{attach, detach, "DeleteVolume"}, c.method) || line != last {
				lines[r.name] += line
			}
			last = line
		}
		lines[r.name] = numbered(lines[r.name])
	}
	return lines, nil
}

// lineOf returns the line of a call.
func lineOf(scenario string, c call) (string, error) {
	request, err := protojson.Marshal(c.request)
	if err != nil {
		return "", err
	}
	// Each run of protojson has other spaces.
	var fields map[string]any
	if err := json.Unmarshal(request, &fields); err != nil {
		return "", err
	}
	if request, err = json.Marshal(fields); err != nil {
		return "", err
	}
	line := recorded{Scenario: scenario, Call: c.method, Request: request}
	if c.patience > 0 {
		line.Patience = c.patience.Round(time.Minute).String() // it is less by what has passed
	}
	if c.code != codes.OK {
		line.Code = c.code.String()
	}
	text, err := json.Marshal(line)
	return string(text) + "\n", err
}

// uid is what the names of PersistentVolumes have, and the directories of pods.
const uid = `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`

// numbered gives the random names of volumes, pods and so on numbers.
func numbered(text string) string {
	for _, kind := range []struct{ name, pattern string }{
		{"volume", `vol-[0-9a-f]{16}`}, {"staging", `\b[0-9a-f]{64}\b`}, {"pv", `\bpvc-` + uid}, {"pod", `\b` + uid},
		{"provisioner", `\b[0-9]{13}-[0-9]+\b`},
	} {
		var known []string
		text = regexp.MustCompile(kind.pattern).ReplaceAllStringFunc(text, func(found string) string {
			if !slices.Contains(known, found) {
				known = append(known, found)
			}
			return fmt.Sprintf("%s-%d", kind.name, 1+slices.Index(known, found))
		})
	}
	return text
}

// compareTable returns an error if a file has other calls of these scenarios, or writes theirs there
// if asked to.
func compareTable(results []result, file string, update bool) error {
	got, err := table(results)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil && !(update && os.IsNotExist(err)) {
		return err
	}
	want := map[string]string{}
	for line := range strings.Lines(string(content)) {
		var r recorded
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		want[r.Scenario] += line
	}
	if update {
		maps.Copy(want, got)
		var all strings.Builder
		for _, name := range slices.Sorted(maps.Keys(want)) {
			all.WriteString(want[name])
		}
		return os.WriteFile(file, []byte(all.String()), 0o644)
	}
	for name, lines := range got {
		if lines != want[name] {
			return fmt.Errorf("kubelet sends something else in %s than %s has; -update writes it anew\nbefore:\n%snow:\n%s",
				name, file, want[name], lines)
		}
	}
	return nil
}
