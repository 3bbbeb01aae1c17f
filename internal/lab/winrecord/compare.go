// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winrecord

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Read reads a recording.
func Read(r io.Reader) ([]Call, error) {
	var calls []Call
	decoder := json.NewDecoder(r)
	for {
		var c Call
		err := decoder.Decode(&c)
		if errors.Is(err, io.EOF) {
			return calls, nil
		}
		if err != nil {
			return nil, fmt.Errorf("line %d of the recording: %w", len(calls)+1, err)
		}
		calls = append(calls, c)
	}
}

// Ids and sizes that differ between machines. Times aren't recorded.
var masks = []struct {
	form *regexp.Regexp
	mask string
}{
	{regexp.MustCompile(`(?i)\{[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\}`), "{id}"},
	{regexp.MustCompile(`7b00(?:[0-9a-f]{2}00){36}7d00`), "{id}"}, // in a buffer, as in a reparse point
	{regexp.MustCompile(`(?i)PhysicalDrive[0-9]+`), "PhysicalDriveN"},
	{regexp.MustCompile(`(?i)Harddisk(Volume)?[0-9]+`), "Harddisk${1}N"},
	{regexp.MustCompile(`(?i)csi-proxy-(mount|link|new|tmp)-[0-9a-z]+`), "csi-proxy-$1-id"},
}

func masked(text string) string {
	for _, m := range masks {
		text = m.form.ReplaceAllString(text, m.mask)
	}
	return text
}

// ofTheMachine are calls whose data are ids, sizes and lists of one machine. Only the
// sizes of their buffers are compared.
var ofTheMachine = []string{
	win.CallDeviceInterfaces, win.CallFindVolumes, win.CallDiskFreeSpace, win.CallVolumeInformation, win.CallFirmwareTable,
	win.CallOfflineReasons, win.CallProcessIDs, win.CallProcessImage, win.CallSMBConnections, win.CallVolumePathNames,
	win.CallISCSIPortals, win.CallISCSITargets, win.CallRegistryStrings, win.CallSMBGlobalMappings,
	win.IoctlStorageGetDeviceNumber.String(), win.IoctlStorageQueryProperty.String(), win.IoctlScsiGetAddress.String(),
	win.IoctlDiskGetDriveGeometryEx.String(), win.IoctlDiskGetDriveLayoutEx.String(), win.IoctlDiskSetDriveLayoutEx.String(),
	win.IoctlDiskCreateDisk.String(), win.IoctlVolumeGetVolumeDiskExtents.String(),
	win.FsctlGetNtfsVolumeData.String(), win.FsctlGetRefsVolumeData.String(),
}

// key is equal for calls that are compared with each other.
func (c Call) key() string { return c.Call + " " + masked(c.On) }

// answer is what is compared of a call.
func (c Call) answer() string {
	in, out := masked(string(c.In)), masked(string(c.Out))
	if slices.Contains(ofTheMachine, c.Call) {
		in, out = sizes(in), sizes(out)
	}
	return fmt.Sprintf("in %s, error %d, out %s", orNothing(in), c.Error, orNothing(out))
}

var contents = regexp.MustCompile(`,"hex":"[0-9a-f]*"`)

// sizes returns the sizes of the buffers in a text.
func sizes(text string) string {
	if !strings.Contains(text, `"size"`) {
		return ""
	}
	return contents.ReplaceAllString(text, "")
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
}

// Compare lists the differences between two recordings of the scenario, step by step.
// It leaves out steps that the first lacks, since not every system can do all steps.
func Compare(nameA string, a []Call, nameB string, b []Call) []string {
	var differences []string
	for _, step := range stepsOf(a) {
		differences = append(differences, compareStep(step, nameA, ofStep(a, step), nameB, ofStep(b, step))...)
	}
	return differences
}

func stepsOf(calls []Call) (steps []string) {
	for _, c := range calls {
		if !slices.Contains(steps, c.Step) {
			steps = append(steps, c.Step)
		}
	}
	return steps
}

// ofStep returns the calls of a step. An operation that waits repeats a call and gets the
// same answer. How often depends on the machine, so such calls count as one.
func ofStep(calls []Call, step string) (of []Call) {
	for _, c := range calls {
		if c.Step != step {
			continue
		}
		if n := len(of); n > 0 && of[n-1].key() == c.key() && of[n-1].answer() == c.answer() {
			continue
		}
		of = append(of, c)
	}
	return of
}

// compareStep aligns the calls of a step by their longest common subsequence.
func compareStep(step, nameA string, a []Call, nameB string, b []Call) (differences []string) {
	common := make([][]int, len(a)+1) // of a[i:] and b[j:]
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].key() == b[j].key() {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i].key() == b[j].key():
			if x, y := a[i].answer(), b[j].answer(); x != y {
				differences = append(differences, fmt.Sprintf("%s: %s\n  %s: %s\n  %s: %s", step, a[i].key(), nameA, x, nameB, y))
			}
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			differences = append(differences, fmt.Sprintf("%s: %s\n  %s: %s\n  %s: no such call", step, a[i].key(), nameA, a[i].answer(), nameB))
			i++
		default:
			differences = append(differences, fmt.Sprintf("%s: %s\n  %s: no such call\n  %s: %s", step, b[j].key(), nameA, nameB, b[j].answer()))
			j++
		}
	}
	return differences
}
