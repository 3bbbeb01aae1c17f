// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
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

// Objects that hang are left out, a caller who has seen enough waits no longer, and none of the calls left behind begins
// another one.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := []time.Duration{3 * time.Second, time.Second, time.Hour, 2 * time.Second}
		var later atomic.Int32
		ask := func(ctx context.Context, i int) (int, error) {
			time.Sleep(took[i])
			if ctx.Err() != nil {
				later.Add(1)
			}
			return 10 * i, ctx.Err()
		}
		for _, test := range []struct {
			enough  int
			timeout time.Duration
			cancel  time.Duration // 0 is never
			want    string
			took    time.Duration
		}{
			{4, 2 * time.Hour, 0, "[1 10 3 30 0 0 2 20]", time.Hour},
			{4, 10 * time.Second, 0, "[1 10 3 30 0 0]", 10 * time.Second},
			{2, 10 * time.Second, 0, "[1 10 3 30]", 2 * time.Second},
			{4, 10 * time.Second, 1500 * time.Millisecond, "[1 10]", 1500 * time.Millisecond},
		} {
			ctx, tracker := WithTracker(t.Context())
			if test.cancel > 0 {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, test.cancel)
				defer cancel()
			}
			begun, left := time.Now(), int32(4)
			later.Store(0)
			var got []int
			for i, outcome := range Ask(ctx, []int{0, 1, 2, 3}, test.timeout, ask) {
				value, err := outcome.Get()
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
				if got, left = append(got, i, value), left-1; len(got) == 2*test.enough {
					break
				}
			}
			if fmt.Sprint(got) != test.want || time.Since(begun) != test.took {
				t.Errorf("%+v: %v after %v", test, got, time.Since(begun))
			}
			if len(tracker.waits) > 0 {
				t.Errorf("%+v: it still waits", test)
			}
			if time.Sleep(2 * time.Hour); later.Load() != left {
				t.Errorf("%+v: %d of %d calls are told that nobody waits", test, later.Load(), left)
			}
		}
	})
}

// Objects that hang, or that Windows is known not to answer about, take their owner's places in AskSome. Those that answer give theirs
// to others.
func TestAskSome(t *testing.T) {
	ofTwo := func(i int) string { return []string{"one", "other"}[i/100] }
	for name, test := range map[string]struct {
		silent int // the first ones
		refuse bool
		want   int // how many are asked
	}{
		"all answer":            {0, false, 200},
		"some hang":             {7, false, 200},
		"as many as at once":    {8, false, 108},
		"most hang":             {90, false, 108},
		"most are refused":      {90, true, 108},
		"the first are refused": {7, true, 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int32
			objects, begun := make([]int, 200), time.Now() // 100 of each owner
			for i := range objects {
				objects[i] = i
			}
			for range AskSome(t.Context(), objects, ofTwo, 8, time.Second, func(ctx context.Context, i int) (bool, error) {
				asked.Add(1)
				switch {
				case i >= test.silent:
					return true, nil
				case test.refuse:
					return false, csiproxy.Errorf(csiproxy.ErrUnavailable, "it hangs")
				}
				time.Sleep(time.Hour)
				return true, nil
			}) {
			}
			if took := time.Since(begun); int(asked.Load()) != test.want || took > time.Second {
				t.Errorf("%s: %d are asked, in %v", name, asked.Load(), took)
			}
			time.Sleep(2 * time.Hour)
			if int(asked.Load()) != test.want {
				t.Errorf("%s: %d are asked in the end", name, asked.Load())
			}
		})
	}
}

// Objects of other owners hang, and are replaced by others, with each query. Calls are left to the caller's own objects, and to those of
// a third owner.
func TestAskSomeOfOtherOwners(t *testing.T) {
	ownerOf := func(object string) string { owner, _, _ := strings.Cut(object, " "); return owner }
	for _, owner := range []string{"other", "", UnknownOwner("")} {
		inBubble(t, func(object string) bool { return ownerOf(object) == owner }, func(t *testing.T, s *silent, sys *Windows) {
			sys.ForDriver("own")
			query := func(objects ...string) (answers int) {
				for range AskSome(t.Context(), objects, ownerOf, 32, time.Second, func(ctx context.Context, path string) (win.FileAttributes, error) {
					return sys.FileAttributes(ctx, path)
				}) {
					answers++
				}
				return answers
			}
			for i := range 20 {
				var hanging []string
				for k := range 32 {
					hanging = append(hanging, fmt.Sprint(owner, " ", i, " ", k))
				}
				if answers := query(append(hanging, fmt.Sprint("own ", i), fmt.Sprint("third ", i))...); answers != 2 {
					t.Errorf("beside objects of %q: %d answers", owner, answers)
				}
			}
			if hanging := s.hanging(); hanging != maxOfOther {
				t.Errorf("%d calls hang", hanging)
			}
		})
	}
	inBubble(t, func(string) bool { return true }, func(t *testing.T, s *silent, sys *Windows) {
		objects := make([]string, 2*maxOfOther)
		for i := range objects {
			objects[i] = fmt.Sprint("own ", i)
		}
		for range AskSome(t.Context(), objects, ownerOf, len(objects), time.Second, sys.ForDriver("own").FileAttributes) {
		}
		if hanging := s.hanging(); hanging != len(objects) {
			t.Errorf("%d calls on a driver's own objects are under way", hanging)
		}
	})
}

// The metrics ask drivers' volumes with AskByOwner, once a minute. Those of a driver that hang, new ones each time, leave calls to others.
func TestAskByOwnerOfOtherOwners(t *testing.T) {
	inBubble(t, func(object string) bool { return strings.HasPrefix(object, "other") }, func(t *testing.T, s *silent, sys *Windows) {
		const atOnce = 16
		for minute := range 2 * maxCalls / atOnce {
			ask := func(ctx context.Context, i int) error {
				name := fmt.Sprint("other ", minute, " ", i)
				if i == atOnce {
					name = fmt.Sprint("third ", minute)
				}
				_, err := sys.FileAttributes(ctx, name)
				return err
			}
			var answered []int
			byOwner := map[string][]int{"third": {atOnce}}
			for i := range atOnce {
				byOwner["other"] = append(byOwner["other"], i)
			}
			AskByOwner(t.Context(), atOnce+1, byOwner, atOnce, time.Second, ask, func(i int) bool {
				answered = append(answered, i)
				return true
			})
			if !slices.Equal(answered, []int{atOnce}) {
				t.Errorf("in minute %d, %v answer", minute, answered)
			}
		}
		if hanging := s.hanging(); hanging != maxOfOther {
			t.Errorf("%d calls hang", hanging)
		}
	})
}

// A panic about an object reaches the caller of AskByOwner, and leaves the process alive.
func TestAskByOwnerPanics(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "a bug") || !strings.Contains(p, "each_test.go") {
			t.Errorf("the caller's panic is %q", p)
		}
	}()
	AskByOwner(t.Context(), 2, map[string][]int{"one": {0}, "other": {1}}, 1, time.Second, func(_ context.Context, i int) error {
		if i == 1 {
			panic("a bug")
		}
		return nil
	}, func(int) bool { return true })
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
