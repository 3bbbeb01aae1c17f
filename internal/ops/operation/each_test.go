// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		done := make([]bool, 7)
		bad := errors.New("bad")
		err := Each(len(done), 3, func(i int) error {
			time.Sleep(time.Second)
			done[i] = true
			if i == 4 {
				return bad
			}
			return nil
		})
		if !errors.Is(err, bad) || time.Since(begun) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		for i, ok := range done {
			if !ok {
				t.Errorf("%d wasn't called", i)
			}
		}
	})
	if err := Each(0, 1, nil); err != nil {
		t.Error(err)
	}
	defer func() {
		if p := recover(); p != "died" {
			t.Errorf("the caller's goroutine panics with %v", p)
		}
	}()
	_ = Each(3, 1, func(i int) error {
		if i == 1 {
			panic("died")
		}
		return nil
	})
}
