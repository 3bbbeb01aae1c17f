// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"errors"
	"fmt"
	"strings"
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
		if p, _ := recover().(string); !strings.HasPrefix(p, "died\n") || !strings.Contains(p, "each_test.go") {
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

// A list of many volumes has as many errors if Windows refuses a call. Their text stays short.
func TestEachJoinsErrors(t *testing.T) {
	bad, odd := errors.New("bad"), errors.New("odd")
	for name, c := range map[string]struct {
		of   func(i int) error
		want string
	}{
		"none":           {func(int) error { return nil }, ""},
		"one":            {func(i int) error { return map[int]error{3: bad}[i] }, "bad"},
		"equal ones":     {func(int) error { return bad }, "bad (95000 times)"},
		"two kinds":      {func(i int) error { return []error{odd, bad, nil}[i%3] }, "odd (31667 times)\nbad (31667 times)"},
		"different ones": {func(i int) error { return fmt.Errorf("%w %d", bad, i) }, "bad 0\nbad 1\nbad 2\nbad 3\nbad 4\nbad 5\nbad 6\nbad 7\nbad 8\nbad 9\nand 94990 errors more"},
	} {
		err := Each(95_000, 4, c.of)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != c.want || c.want != "" && !errors.Is(err, bad) {
			t.Errorf("%s: %.300q, want %q", name, text, c.want)
		}
	}
}
