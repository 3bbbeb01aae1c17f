// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// silent is Windows with paths, volumes and disks of which some never answer.
type silent struct {
	win.System
	hangs func(object string) bool

	mu    sync.Mutex
	under int // calls that hang
	most  int
}

func (s *silent) answer(object string) error {
	if !s.hangs(object) {
		return nil
	}
	s.mu.Lock()
	s.under++
	s.most = max(s.most, s.under)
	s.mu.Unlock()
	time.Sleep(2 * time.Minute)
	s.mu.Lock()
	s.under--
	s.mu.Unlock()
	return winerr.ErrorIODevice
}

// hanging returns how many calls hang.
func (s *silent) hanging() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.under
}

func (s *silent) FileAttributes(_ context.Context, path string) (win.FileAttributes, error) {
	return 0, s.answer(path)
}

func (s *silent) OpenDevice(_ context.Context, path string, _ win.Access) (win.Device, error) {
	return nil, s.answer(path)
}

func (s *silent) FormatVolume(_ context.Context, volume string, _ win.FormatOptions) error {
	return s.answer(volume)
}

func (s *silent) RemoveSMBGlobalMapping(context.Context, string) error { return nil }

func inBubble(t *testing.T, hangs func(string) bool, f func(t *testing.T, s *silent, sys *Windows)) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{hangs: hangs}
		sys := NewWindows(s, nil, nil)
		f(t, s, sys)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		wantIdle(t, sys.table)
	})
}

// wantIdle shows that nothing is left of the calls.
func wantIdle(t *testing.T, table *table) {
	t.Helper()
	table.mu.Lock()
	defer table.mu.Unlock()
	if len(table.objects)+table.underWay+table.ofShares+len(table.waiting)+table.overdue+len(table.ofOthers) != 0 {
		t.Errorf("in the end, %d objects are remembered; %d calls are under way, %d of shares, %d overdue, and %d wait",
			len(table.objects), table.underWay, table.ofShares, table.overdue, len(table.waiting))
	}
}

func hang(object string) bool { return strings.Contains(object, "hang") }

// atOnce checks that a call is answered, and isn't kept waiting.
func atOnce(t *testing.T, what string, call func() error) {
	t.Helper()
	begin := time.Now()
	if err := call(); err != nil || time.Since(begin) != 0 {
		t.Errorf("%s: %v after %v", what, err, time.Since(begin))
	}
}

// However many calls hang on however many objects, others are answered at once, the threads are
// bounded, and repeats are refused with the same text each time.
func TestManyHungCalls(t *testing.T) {
	for _, calls := range []int{1000, 2000} {
		for _, objects := range []int{1, 60, 300} {
			t.Run(fmt.Sprintf("%d calls on %d objects", calls, objects), func(t *testing.T) {
				inBubble(t, hang, func(t *testing.T, s *silent, sys *Windows) {
					path := func(i int) string { return fmt.Sprintf(`\\.\hangs%d`, i%objects) }
					open := func(path string) error {
						_, err := sys.OpenDevice(t.Context(), path, win.AccessNone)
						return err
					}
					var mu sync.Mutex
					var refused []error
					for i := range calls {
						go func() {
							err := open(path(i))
							mu.Lock()
							defer mu.Unlock()
							refused = append(refused, err)
						}()
					}
					other := func(when string) {
						t.Helper()
						for range 3 {
							atOnce(t, when+", another disk", func() error { return open(`\\.\PhysicalDrive1`) })
							atOnce(t, when+", a share", func() error {
								_, err := sys.FileAttributes(t.Context(), `\\filer\share`)
								return err
							})
						}
					}
					synctest.Wait()
					if s.most > maxCalls-16 || s.most > objects*maxOfObject || s.most < objects {
						t.Errorf("%d calls hang at one time", s.most)
					}
					other("at once")
					time.Sleep(2 * time.Second)
					synctest.Wait()
					other("once they are overdue")
					load := sys.Load()
					if load.Overdue != s.most || load.Waiting != 0 || len(load.Hanging) != min(s.most, maxHanging) {
						t.Errorf("the load is %+v", load)
					}
					if len(refused) != calls-s.most {
						t.Errorf("%d calls were refused, want %d", len(refused), calls-s.most)
					}
					for _, err := range refused {
						if !errors.Is(err, csiproxy.ErrUnavailable) || strings.Count(err.Error(), "has not answered") != 1 {
							t.Fatalf("the error is %v", err)
						}
					}
					for i := range objects {
						before := time.Now()
						first := open(path(i))
						time.Sleep(time.Millisecond)
						again := open(path(i))
						if !errors.Is(first, csiproxy.ErrUnavailable) || again == nil || first.Error() != again.Error() ||
							!strings.Contains(first.Error(), "CreateFileW on "+path(i)+" since 2000-01-01T00:00:00Z") ||
							time.Since(before) != time.Millisecond {
							t.Fatalf("after %v: %v, then %v", time.Since(before), first, again)
						}
					}
					if n := sys.Load().Refused; n != uint64(calls-s.most+2*objects) {
						t.Errorf("%d refusals were counted", n)
					}
					if s.most > maxCalls-16 {
						t.Errorf("%d calls hang at one time", s.most)
					}
				})
			})
		}
	}
}

// Calls of shares leave half of the calls to disks, however many servers don't answer.
func TestHungSharesLeaveHalf(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *Windows) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var late sync.WaitGroup
		for i := range 2 * maxCalls {
			late.Go(func() {
				_, err := sys.FileAttributes(ctx, fmt.Sprintf(`\\hangs%d\share`, i))
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, winerr.ErrorIODevice) {
					t.Errorf("got %v", err)
				}
			})
		}
		synctest.Wait()
		if s.most != maxOfShares {
			t.Errorf("%d calls of shares at one time, want %d", s.most, maxOfShares)
		}
		for i := range maxCalls - maxOfShares { // they don't end, so that each takes one more
			go sys.OpenDevice(t.Context(), fmt.Sprintf(`\\.\hangs%d`, i), win.AccessNone)
		}
		synctest.Wait()
		if s.most != maxCalls {
			t.Errorf("%d calls at one time, want %d", s.most, maxCalls)
		}
		late.Wait()
	})
}

// What waits for room, and not for its object, begins when a call on whatever object ends.
func TestWaitingForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewWindows(nil, nil, nil).table
		var held []*call
		for i := range maxCalls {
			c, err := table.enter(t.Context(), "call", object{name: fmt.Sprint(i)})
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		begun := make(chan *call, 1)
		go func() {
			c, err := table.enter(t.Context(), "call", object{name: "another"})
			if err != nil {
				t.Error(err)
			}
			begun <- c
		}()
		synctest.Wait()
		if len(begun) > 0 {
			t.Fatal("more calls are under way than may be")
		}
		table.leave(held[7])
		synctest.Wait()
		if len(begun) == 0 {
			t.Fatal("it still waits")
		}
		for i, c := range append(held, <-begun) {
			if i != 7 {
				table.leave(c)
			}
		}
		wantIdle(t, table)
	})
}

// Work that may repeat a hanging call does so 1 minute, 8 minutes and 64 minutes after the last time. Once a repetition is answered, the
// hanging calls refuse no calls.
func TestRepeatHanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newTable(slog.New(slog.DiscardHandler))
		enter := func(ctx context.Context) (*call, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return calls.enter(ctx, win.CallFileAttributes, object{name: "disk"})
		}
		var hanging []*call
		var minutes []int
		for begun := time.Now(); time.Since(begun) < 10*time.Hour; time.Sleep(15 * time.Second) {
			c, err := enter(RepeatHanging(t.Context()))
			if err == nil {
				hanging, minutes = append(hanging, c), append(minutes, int(time.Since(begun).Minutes()))
				time.Sleep(2 * time.Second)
			}
			if _, err := enter(t.Context()); !errors.Is(err, csiproxy.ErrUnavailable) {
				t.Errorf("without repetition: %v", err)
			}
		}
		if want := []int{0, 1, 9, 73}; !slices.Equal(minutes, want) {
			t.Errorf("repeated after %v minutes, want %v", minutes, want)
		}
		calls.leave(hanging[3])
		for range 2 {
			c, err := enter(t.Context())
			if err != nil {
				t.Fatalf("after an answer: %v", err)
			}
			calls.leave(c)
		}
		for _, c := range hanging[:3] {
			calls.leave(c)
		}
		wantIdle(t, calls)
	})
}

// A call beyond those that may wait is refused. As soon as one of these gives up, another one may wait.
func TestWaitingCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newTable(slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		enter := func(ctx context.Context) error {
			c, err := calls.enter(ctx, win.CallFileAttributes, object{name: "disk"})
			if err == nil {
				<-ctx.Done()
				calls.leave(c)
			}
			return err
		}
		first, cancelFirst := context.WithCancel(ctx)
		for range maxOfObject + maxWaiting - 1 {
			go enter(ctx)
		}
		synctest.Wait()
		go enter(first)
		synctest.Wait()
		for range 2 {
			if err := enter(ctx); err != errManyWaiting {
				t.Errorf("a call beyond the limit: %v", err)
			}
		}
		cancelFirst()
		synctest.Wait()
		late, cancelLate := context.WithTimeout(ctx, time.Millisecond)
		defer cancelLate()
		if err := enter(late); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after one has given up: %v", err)
		}
		cancel()
		synctest.Wait()
		wantIdle(t, calls)
	})
}

// Other calls on an object with a call that hangs may still be made, and wait when there are four.
// Who gives up learns for what.
func TestOtherCallsOnTheObject(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *Windows) {
		for range maxOfObject - 1 {
			go sys.FileAttributes(t.Context(), `\\hangs\share`)
		}
		time.Sleep(2 * time.Second)
		atOnce(t, "another call", func() error { return sys.RemoveSMBGlobalMapping(t.Context(), `\\hangs\share`) })
		go sys.table.enter(t.Context(), "a fourth", object{`\\hangs`, true})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := sys.RemoveSMBGlobalMapping(ctx, `\\HANGS\other`)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `GetFileAttributesW on \\hangs since 2000`) {
			t.Errorf("the fifth call gave %v", err)
		}
		if load := sys.Load(); load.Running != maxOfObject || load.Waiting != 0 {
			t.Errorf("the load is %+v", load)
		}
		sys.table.leave(sys.table.objects[`\\hangs`][maxOfObject-1])
	})
}

// Who formats a volume that is being formatted waits for that, however long it takes.
func TestRepeatOfAFormatWaits(t *testing.T) {
	const volume = `\\?\Volume{hangs}\`
	inBubble(t, hang, func(t *testing.T, s *silent, sys *Windows) {
		go sys.FormatVolume(t.Context(), volume, win.FormatOptions{})
		time.Sleep(overdueAfter(win.CallFormatVolume) + time.Second)
		synctest.Wait()
		if load := sys.Load(); load.Overdue != 1 {
			t.Fatalf("the load is %+v", load)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := sys.FormatVolume(ctx, volume, win.FormatOptions{})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `MSFT_Volume.Format on \\?\Volume{hangs} since`) {
			t.Errorf("who gives up gets %v", err)
		}
		if err := sys.FormatVolume(t.Context(), volume, win.FormatOptions{}); !errors.Is(err, winerr.ErrorIODevice) {
			t.Errorf("who waits gets %v", err)
		}
		if s.most != 1 {
			t.Errorf("%d formats at one time", s.most)
		}
	})
}

// A call that lets its context end while it waits, right when it may begin, leaves no trace.
func TestLetInWhenTheContextEnds(t *testing.T) {
	for range 64 { // the caller sees one or the other first
		synctest.Test(t, func(t *testing.T) {
			table := NewWindows(nil, nil, nil).table
			enter := func(ctx context.Context) *call {
				c, _ := table.enter(ctx, "call", object{name: "object"})
				return c
			}
			var held []*call
			for range maxOfObject {
				held = append(held, enter(t.Context()))
			}
			ctx, cancel := context.WithCancel(t.Context())
			late := make(chan *call, 1)
			go func() { late <- enter(ctx) }()
			synctest.Wait()
			table.mu.Lock()
			cancel()
			table.end(held[0])
			table.mu.Unlock()
			if c := <-late; c != nil {
				table.leave(c)
			}
			for _, c := range held[1:] {
				table.leave(c)
			}
			wantIdle(t, table)
		})
	}
}

// Calls on an object begin in the order in which they came: none is overtaken until its context ends.
func TestCallsBeginInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewWindows(nil, nil, nil).table
		var mu sync.Mutex
		var begun []int
		for i := range 3 * maxOfObject {
			go func() {
				c, err := table.enter(t.Context(), "call", object{name: "object"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				begun = append(begun, i)
				mu.Unlock()
				time.Sleep(time.Duration(i+1) * time.Millisecond)
				table.leave(c)
			}()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.IsSorted(begun) || len(begun) != 3*maxOfObject {
			t.Errorf("they began as %v", begun)
		}
		wantIdle(t, table)
	})
}

// A call that is answered at the last moment isn't said to hang, and one that hangs is said to once.
func TestOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		table := NewWindows(nil, nil, slog.New(slog.NewTextHandler(&log, nil))).table
		for took, want := range map[time.Duration][]string{
			overdueAfter(win.CallFileAttributes) + timeToTakeAnswer - 1: nil,
			overdueAfter(win.CallFileAttributes) + timeToTakeAnswer + 1: {
				`level=WARN msg="Windows does not answer a call" call=GetFileAttributesW object=C:\dir since=`,
				`level=INFO msg="Windows has answered a call after all" call=GetFileAttributesW object=C:\dir took=1.1s`,
			},
		} {
			log.Reset()
			c, err := table.enter(t.Context(), win.CallFileAttributes, object{name: `C:\dir`})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(took)
			synctest.Wait()
			if load := table.load(); load.Overdue != len(want)/2 {
				t.Errorf("after %v, the load is %+v", took, load)
			}
			table.leave(c)
			time.Sleep(time.Hour)
			if n := strings.Count(log.String(), "\n"); n != len(want) {
				t.Errorf("after %v, there are %d lines:\n%s", took, n, &log)
			}
			for _, line := range want {
				if !strings.Contains(log.String(), line) {
					t.Errorf("after %v, there is no line %s:\n%s", took, line, &log)
				}
			}
		}
		wantIdle(t, table)
	})
}

// Each call becomes overdue by its own time, whenever the others began, and also one that begins when an
// overdue one is answered.
func TestOverdueOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewWindows(nil, nil, nil).table
		wantOverdue := func(later time.Duration, want int) {
			t.Helper()
			time.Sleep(later)
			synctest.Wait()
			if load := table.load(); load.Overdue != want {
				t.Errorf("at %v, %d calls are overdue, want %d", time.Now(), load.Overdue, want)
			}
		}
		enter := func(name string) *call {
			c, err := table.enter(t.Context(), name, object{name: "object"})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		after, most := overdueAfter("call")+timeToTakeAnswer, 2*timeToTakeAnswer
		first := enter("call")
		wantOverdue(after/2, 0)
		format := enter(win.CallFormatVolume)
		wantOverdue(after/2-1, 0)
		wantOverdue(most, 1)
		last := enter("another call")
		wantOverdue(after-1, 1)
		wantOverdue(most, 2)
		wantOverdue(overdueAfter(win.CallFormatVolume), 3)
		again := make(chan *call)
		go func() { again <- enter(win.CallFormatVolume) }() // it waits for the one under way
		wantOverdue(time.Minute, 3)
		table.leave(first)
		table.leave(last)
		wantOverdue(time.Minute, 1)
		table.leave(format)
		format = <-again
		wantOverdue(overdueAfter(win.CallFormatVolume), 0)
		wantOverdue(most, 1)
		table.leave(format)
		wantIdle(t, table)
	})
}

// Who gives up waiting for work learns the oldest call that it, or what it waits for, is in.
func TestOldestCall(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *Windows) {
		ctx, worker := WithTracker(t.Context())
		partCtx, part := WithTracker(t.Context())
		_, waiter := WithTracker(t.Context())
		want := func(when string, tracker *Tracker, object string) {
			t.Helper()
			c, ok := tracker.Oldest()
			if c.Object != object || ok != (object != "") {
				t.Errorf("%s: the oldest call is %v, want one on %q", when, c, object)
			}
			err := tracker.late(t.Context(), winerr.ErrorBusy)
			if !errors.Is(err, winerr.ErrorBusy) || !strings.Contains(err.Error(), object) || !ok && err != winerr.ErrorBusy {
				t.Errorf("%s: %v", when, err)
			}
		}
		done := []func(){waiter.WaitFor(worker), waiter.WaitFor(worker), worker.WaitFor(part)}
		want("before", waiter, "")
		go sys.FileAttributes(partCtx, `C:\hangs too`)
		time.Sleep(time.Second)
		want("the part", waiter, `C:\hangs too`)
		go sys.FileAttributes(ctx, `C:\hangs`)
		synctest.Wait()
		want("both", waiter, `C:\hangs too`)
		done[2]()
		want("without the part", waiter, `C:\hangs`)
		want("without the part", worker, `C:\hangs`)
		done[0]()
		want("once it waits only once", waiter, `C:\hangs`)
		done[1]()
		want("once it doesn't wait", waiter, "")
		want("nothing", nil, "")
		nobody := (*Tracker)(nil).WaitFor(worker)
		nobody()
		time.Sleep(5 * time.Minute)
		want("once all is answered", worker, "")
	})
}

// A call that opens a file isn't made if one of the directories on the way hangs in such a call.
func TestHangingOnTheWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := NewWindows(nil, nil, nil).table
		c, err := table.enter(t.Context(), win.CallOpenAt, pathObject(`C:\dir\hangs`))
		if err != nil {
			t.Fatal(err)
		}
		for _, overdue := range []bool{false, true} {
			for _, call := range []struct {
				name, path string
				refused    bool
			}{
				{win.CallOpenAt, `C:\dir\hangs\file`, overdue}, {win.CallOpenAt, `C:\dir\hangs\sub\file`, overdue},
				{win.CallFileAttributes, `C:\dir\hangs\file`, false}, {win.CallOpenAt, `C:\dir\file`, false},
				{win.CallOpenAt, `C:\dir\hangs`, false}, // which the call itself is about
			} {
				before := table.load().Refused
				err := table.hangingOnTheWay(Call{Name: call.name}, call.path, len(`C:`)+1)
				if errors.Is(err, csiproxy.ErrUnavailable) != call.refused || (table.load().Refused > before) != call.refused {
					t.Errorf("overdue: %v, %s of %s: %v", overdue, call.name, call.path, err)
				}
			}
			time.Sleep(time.Hour)
			synctest.Wait()
		}
		table.leave(c)
		wantIdle(t, table)
	})
}

func TestObjectOfAPath(t *testing.T) {
	for path, want := range map[string]object{
		`C:\dir\file`:               {`C:\dir\file`, false},
		`C:\`:                       {`C:\`, false},
		`\\.\PhysicalDrive1`:        {`\\.\PhysicalDrive1`, false},
		`\\?\scsi#disk#1`:           {`\\?\scsi#disk#1`, false},
		`\\?\Volume{1}`:             {`\\?\Volume{1}`, false},
		`\\?\Volume{1}\`:            {`\\?\Volume{1}`, false},
		`\\?\Volume{1}\dir\file`:    {`\\?\Volume{1}`, false},
		`\\Filer\share\dir`:         {`\\filer`, true},
		`\\filer.example.com\other`: {`\\filer.example.com`, true},
	} {
		if got := pathObject(path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
}

// slow answers after a time that is no hang.
type slow struct {
	win.System
	mu        sync.Mutex
	now, most int
	completed int
}

func (s *slow) FileAttributes(_ context.Context, path string) (win.FileAttributes, error) {
	s.mu.Lock()
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	s.completed++
	return 0, nil
}

// Calls that are answered are only delayed: none is refused, also on more objects than there is
// room for.
func TestBusyIsNotHung(t *testing.T) {
	for _, objects := range []int{3, 2 * maxCalls} {
		synctest.Test(t, func(t *testing.T) {
			s := &slow{}
			sys := NewWindows(s, nil, nil)
			var wg sync.WaitGroup
			const calls = 4000
			for i := range calls {
				wg.Go(func() {
					if _, err := sys.FileAttributes(t.Context(), fmt.Sprintf(`C:\%d`, i%objects)); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if want := min(objects*maxOfObject, maxCalls); s.completed != calls || s.most != want {
				t.Errorf("%d calls, %d at one time, want %d", s.completed, s.most, want)
			}
			wantIdle(t, sys.table)
		})
	}
}

// A driver isn't told which object another caller's call hangs on, however the driver meets the call.
func TestDriverLearnsNoObject(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, _ *silent, sys *Windows) {
		var locks DriverLocks
		var runs NextRun[string, struct{}]
		askFor := func(path string) func(ctx context.Context) (struct{}, error) {
			return func(ctx context.Context) (struct{}, error) {
				_, err := sys.FileAttributes(ctx, path)
				return struct{}{}, err
			}
		}
		ask := askFor(`C:\hangs`)
		for range maxOfObject {
			go ask(t.Context())
		}
		go runs.Do(t.Context(), "run", askFor(`C:\hangs too`))
		lockedCtx, locked := WithTracker(t.Context())
		locked.operation = "StageVolume"
		if _, err := locks.Lock(lockedCtx, []string{"", "blue"}, "3", "disk 3"); err != nil {
			t.Fatal(err)
		}
		go askFor(`C:\hangs as well`)(lockedCtx)
		synctest.Wait()
		for name, meet := range map[string]func(ctx context.Context) error{
			"no room": func(ctx context.Context) error { return second(sys.FileAttributes(ctx, `C:\hangs`)) },
			"run":     func(ctx context.Context) error { return second(runs.Do(ctx, "run", nil)) },
			"lock":    func(ctx context.Context) error { return second(locks.Lock(ctx, []string{"blue"}, "3", "disk 3")) },
			"call":    func(ctx context.Context) error { return second(Run(ctx, "Call", askFor(`C:\hangs again`))) },
		} {
			for _, isDriver := range []bool{false, true} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				if isDriver {
					ctx = ForDriver(ctx)
				}
				err := meet(ctx)
				cancel()
				isNamed := strings.Contains(err.Error(), `GetFileAttributesW on C:\hangs`)
				if isNamed == (isDriver || name == "lock") || !strings.Contains(err.Error(), "not answered GetFileAttributesW") {
					t.Errorf("%s, for a driver %v: %v", name, isDriver, err)
				}
			}
		}
		time.Sleep(time.Minute)
		for _, isDriver := range []bool{false, true} {
			ctx := t.Context()
			if isDriver {
				ctx = ForDriver(ctx)
			}
			_, err := ask(ctx)
			if !errors.Is(err, csiproxy.ErrUnavailable) || strings.Contains(err.Error(), "hangs") == isDriver {
				t.Errorf("refused, for a driver %v: %v", isDriver, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
