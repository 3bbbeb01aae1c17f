// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simtest

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
)

// EachSetting runs a test with the switches of a node's Windows in many positions: each
// switch by itself in each position, and then so that any two switches are in each pair of
// their positions at least once. If tests are [Sampled], it runs with every fifth of them.
func EachSetting(t *testing.T, test func(t *testing.T, settings winsim.Settings)) {
	t.Helper()
	i := 0
	for settings := range Settings() {
		if i++; Sampled() && i%5 != 0 {
			continue
		}
		t.Run(SettingsName(settings), func(t *testing.T) { test(t, settings) })
	}
}

// EachSwitch runs a test with each switch by itself in each position, on nodes that Open starts
// meanwhile. If tests are [Sampled], it runs with every fifth of them.
func EachSwitch(t *testing.T, test func(t *testing.T, settings winsim.Settings)) {
	t.Helper()
	i := 0
	for settings := range switches(positions()) {
		if i++; Sampled() && i%5 != 0 {
			continue
		}
		OnWindows(t, settings, map[string]func(*testing.T){"": func(t *testing.T) { test(t, settings) }})
	}
}

// windows are the switches of the nodes that Open starts.
var windows winsim.Settings

// OnWindows runs tests on nodes with some switches: each node that Open starts meanwhile
// has them. No other test may run at the same time, but the tests may have parallel parts.
func OnWindows(t *testing.T, settings winsim.Settings, tests map[string]func(*testing.T)) {
	t.Helper()
	windows = settings
	defer func() { windows = winsim.Settings{} }()
	t.Run(SettingsName(settings), func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, test)
		}
	})
}

// OnOtherWindows runs tests with the switches that concern paths in other positions.
func OnOtherWindows(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	for _, settings := range []winsim.Settings{
		{MountManagerExclusive: true}, {BindFilter: true}, {MountManagerExclusive: true, BindFilter: true},
		{BindFilterInvalid: true}, {DriveIsLink: true},
	} {
		OnWindows(t, settings, tests)
	}
}

// Settings gives the positions that EachSetting has.
func Settings() iter.Seq[winsim.Settings] {
	return func(yield func(winsim.Settings) bool) {
		values := positions()
		for s := range switches(values) {
			if !yield(s) {
				return
			}
		}
		for _, row := range pairwise(values) {
			if !yield(settings(values, row)) {
				return
			}
		}
	}
}

// switches gives each switch by itself in each position but its zero value.
func switches(values [][]reflect.Value) iter.Seq[winsim.Settings] {
	return func(yield func(winsim.Settings) bool) {
		for i := range values {
			for at := 1; at < len(values[i]); at++ {
				row := make([]int, len(values))
				row[i] = at
				if !yield(settings(values, row)) {
					return
				}
			}
		}
	}
}

// SettingsName names the switches that aren't as they are by themselves, such as
// "NoAutomount,GoneMountPoint=2".
func SettingsName(s winsim.Settings) string {
	var names []string
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch value := v.Field(i); {
		case value.IsZero():
		case value.Kind() == reflect.Bool:
			names = append(names, name)
		default:
			names = append(names, fmt.Sprintf("%s=%d", name, value.Uint()))
		}
	}
	return cmp.Or(strings.Join(names, ","), "all by itself")
}

// positions returns the values of each field of Settings, its zero value first.
func positions() [][]reflect.Value {
	var all [][]reflect.Value
	for _, field := range reflect.VisibleFields(reflect.TypeFor[winsim.Settings]()) {
		values := []reflect.Value{reflect.Zero(field.Type)}
		switch field.Type.Kind() {
		case reflect.Bool:
			values = append(values, reflect.ValueOf(true))
		case reflect.Uint32:
			for number := range strings.SplitSeq(field.Tag.Get("also"), ",") {
				n, err := strconv.ParseUint(number, 10, 32)
				if err != nil {
					panic(fmt.Sprintf("the tag of %s: %v", field.Name, err))
				}
				values = append(values, reflect.ValueOf(uint32(n)).Convert(field.Type))
			}
		default:
			panic("no positions are known for " + field.Name)
		}
		all = append(all, values)
	}
	return all
}

// settings has the values that a row names by their indices.
func settings(values [][]reflect.Value, row []int) (s winsim.Settings) {
	v := reflect.ValueOf(&s).Elem()
	for i, at := range row {
		v.Field(i).Set(values[i][at])
	}
	return s
}

// pair is two switches with a position each; the first is the one of the lower index.
type pair struct{ i, at, j, jat int }

func pairOf(i, at, j, jat int) pair {
	if i > j {
		i, at, j, jat = j, jat, i, at
	}
	return pair{i, at, j, jat}
}

// pairwise returns rows of positions that have each pair. It is greedy: a row begins with
// the first pair that is missing, and each other switch gets the position with which the
// row has the most of the missing pairs.
func pairwise[T any](values [][]T) (rows [][]int) {
	var missing []pair
	for i := range values {
		for j := i + 1; j < len(values); j++ {
			for at := range values[i] {
				for jat := range values[j] {
					missing = append(missing, pair{i, at, j, jat})
				}
			}
		}
	}
	left := map[pair]bool{}
	for _, p := range missing {
		left[p] = true
	}
	for _, first := range missing {
		if !left[first] {
			continue
		}
		row := make([]int, len(values))
		done := []int{first.i, first.j}
		row[first.i], row[first.j] = first.at, first.jat
		for i := range values {
			if i == first.i || i == first.j {
				continue
			}
			best := -1
			for at := range values[i] {
				n := 0
				for _, j := range done {
					if left[pairOf(i, at, j, row[j])] {
						n++
					}
				}
				if n > best {
					best, row[i] = n, at
				}
			}
			done = append(done, i)
		}
		for i := range row {
			for j := i + 1; j < len(row); j++ {
				delete(left, pair{i, row[i], j, row[j]})
			}
		}
		rows = append(rows, row)
	}
	return rows
}
