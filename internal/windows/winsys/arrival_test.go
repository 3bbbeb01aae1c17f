// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPoll(t *testing.T) {
	const a, b = `\\?\scsi#disk#a`, `\\?\scsi#disk#b`
	tests := []struct {
		name  string
		lists [][]string // nil fails; the last one stays
		want  []bool     // whether there is a notice after the second and later lists
	}{
		{"nothing", [][]string{{}}, []bool{false, false}},
		{"arrival", [][]string{{a}, {a, b}}, []bool{true, false}},
		{"removal", [][]string{{a, b}, {b}}, []bool{true, false}},
		{"exchange", [][]string{{a}, {b}}, []bool{true, false}},
		{"another order", [][]string{{a, b}, {b, a}}, []bool{false}},
		{"another case", [][]string{{`\\?\SCSI#DISK#a`}, {a}}, []bool{false}},
		{"a failing list", [][]string{{a}, nil, {a}}, []bool{false, false}},
		{"arrival behind a failing list", [][]string{{a}, nil, {a, b}}, []bool{false, true}},
		{"unknown at first", [][]string{nil, {a}}, []bool{true, false}},
		{"unknown at first, then nothing", [][]string{nil, {}}, []bool{true, false}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				lists := tt.lists
				list := func() ([]string, error) {
					l := lists[0]
					if len(lists) > 1 {
						lists = lists[1:]
					}
					if l == nil {
						return nil, errors.New("no list")
					}
					return l, nil
				}
				changed, stop := make(chan struct{}, 1), make(chan struct{})
				go poll(list, changed, stop)
				defer close(stop)
				for i, want := range tt.want {
					time.Sleep(pollInterval)
					synctest.Wait()
					got := false
					select {
					case <-changed:
						got = true
					default:
					}
					if got != want {
						t.Errorf("after %d s: notice %t; want %t", i+1, got, want)
					}
				}
			})
		})
	}
}

func TestSignalIsMerged(t *testing.T) {
	c := make(chan struct{}, 1)
	signal(c)
	signal(c) // doesn't wait
	if len(c) != 1 {
		t.Errorf("%d notices; want 1", len(c))
	}
}
