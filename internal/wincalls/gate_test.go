// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wincalls

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// silent is Windows with paths and disks of which some never answer.
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
	return win.ErrorIODevice
}

func (s *silent) FileAttributes(_ context.Context, path string) (win.FileAttributes, error) {
	return 0, s.answer(path)
}

func (s *silent) OpenDevice(_ context.Context, path string, _ win.Access) (win.Device, error) {
	return nil, s.answer(path)
}

func (s *silent) RemoveSMBGlobalMapping(context.Context, string) error { return nil }

func inBubble(t *testing.T, hangs func(string) bool, f func(t *testing.T, s *silent, sys *System)) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{hangs: hangs}
		sys := New(s, Options{})
		f(t, s, sys)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if states := sys.remembered(); states != 0 {
			t.Errorf("in the end, %d objects and clients are remembered", states)
		}
	})
}

func hang(object string) bool { return strings.Contains(object, "hang") }

// A path that never answers takes a few threads, however often it is asked for. The
// others are refused in time, and learn why.
func TestRepeatsDontPileUp(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		var refused []error
		var mu sync.Mutex
		for range 1000 {
			go func() {
				_, err := sys.FileAttributes(t.Context(), `C:\hangs`)
				mu.Lock()
				defer mu.Unlock()
				refused = append(refused, err)
			}()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.most != maxOfObject {
			t.Errorf("%d calls hang at one time, want %d", s.most, maxOfObject)
		}
		if len(refused) != 1000-maxOfObject {
			t.Errorf("%d calls were refused, want %d", len(refused), 1000-maxOfObject)
		}
		for _, err := range refused {
			if strings.Count(err.Error(), "has not answered") != 1 {
				t.Fatalf("the error is %v", err)
			}
		}
		begin := time.Now()
		_, err := sys.FileAttributes(t.Context(), `C:\hangs`)
		if !errors.Is(err, csiproxy.ErrUnavailable) || !strings.Contains(err.Error(), `GetFileAttributesW on C:\hangs since 2000-01-01T00:00:00Z`) || time.Since(begin) != 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		refusals := sys.Load()[files].Refused
		if _, err := sys.pools[files].enter(t.Context(), nil, "another call", `C:\hangs`); !errors.Is(err, csiproxy.ErrUnavailable) || time.Since(begin) != 0 {
			t.Errorf("another call, after %v: %v", time.Since(begin), err)
		}
		if n := sys.Load()[files].Refused - refusals; n != 1 {
			t.Errorf("%d refusals were counted", n)
		}
		if _, err := sys.FileAttributes(t.Context(), `C:\answers`); err != nil || time.Since(begin) != 0 {
			t.Errorf("another path, after %v: %v", time.Since(begin), err)
		}
		load := sys.Load()[files]
		if load.Running != maxOfObject || load.Overdue != maxOfObject || load.Waiting != 0 || load.Refused < 900 || len(load.Hanging) != maxOfObject || load.Hanging[0].Object != `C:\hangs` {
			t.Errorf("the load is %+v", load)
		}
	})
}

// A call that hangs isn't repeated on its object, where other calls may still be made.
func TestNoRepeatOfACallThatHangs(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		go sys.FileAttributes(t.Context(), `C:\hangs`)
		time.Sleep(2 * time.Second)
		for range 2 {
			if _, err := sys.FileAttributes(t.Context(), `C:\hangs`); !errors.Is(err, csiproxy.ErrUnavailable) {
				t.Errorf("the same call gave %v", err)
			}
		}
		if err := sys.RemoveSMBGlobalMapping(t.Context(), `C:\hangs`); err != nil {
			t.Errorf("another call gave %v", err)
		}
	})
}

// Many objects that hang take no other pool, and not all of their own: what they take is
// bounded, and those that repeat are refused.
func TestManyHangingObjects(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		for i := range 10 * maxOfPool {
			go sys.FileAttributes(t.Context(), fmt.Sprintf(`C:\hangs%d`, i%(maxOfPool/maxOfObject)))
		}
		synctest.Wait()
		if want := maxOfPool * 3 / 4; s.most < want || s.most >= maxOfPool {
			t.Errorf("%d calls at one time, want at least %d, and fewer than %d", s.most, want, maxOfPool)
		}
		begin := time.Now()
		if _, err := sys.OpenDevice(t.Context(), `\\.\PhysicalDrive1`, win.AccessNone); err != nil || time.Since(begin) != 0 {
			t.Errorf("a disk, after %v: %v", time.Since(begin), err)
		}
		if _, err := sys.FileAttributes(t.Context(), `C:\answers`); err != nil || time.Since(begin) != 0 {
			t.Errorf("a path that answers, after %v: %v", time.Since(begin), err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if load := sys.Load()[files]; load.Waiting != 0 || load.Refused == 0 {
			t.Errorf("the load is %+v", load)
		}
		// When the pool is full, nobody waits for it.
		for i := range maxOfPool {
			go sys.FileAttributes(t.Context(), fmt.Sprintf(`C:\hangs too%d`, i))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		begin = time.Now()
		_, err := sys.FileAttributes(t.Context(), `C:\answers`)
		const full = "256 calls to Windows on files are under way; Windows has not answered"
		if !errors.Is(err, csiproxy.ErrUnavailable) || !strings.Contains(err.Error(), full) || time.Since(begin) != 0 {
			t.Errorf("with a full pool, after %v: %v", time.Since(begin), err)
		}
	})
}

// A disk is known by its number under the paths of its interfaces, too. A tape drive with
// the same number is another object.
func TestDiskNames(t *testing.T) {
	var n diskNames
	n.learn(`\\?\disk`, win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: 1}.Encode())
	n.learn(`\\?\tape`, win.DeviceNumber{DeviceType: 0x1f, DeviceNumber: 1}.Encode())
	n.learn(`\\?\part`, win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: win.NoNumber}.Encode())
	for path, want := range map[string]string{`\\?\disk`: win.PhysicalDrive(1), `\\?\tape`: `\\?\tape`, `\\?\part`: `\\?\part`} {
		if got := n.of(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

// Clients share the threads of a pool and its queue. One whose calls hang leaves room for
// another one, in the end also dozens of them do.
func TestClientsShare(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		attack := func(client int) {
			ctx := WithClient(t.Context(), client)
			for i := range 500 {
				go sys.FileAttributes(ctx, fmt.Sprintf(`C:\hangs%d.%d`, client, i))
			}
			synctest.Wait()
		}
		other := func(client int, what string) {
			t.Helper()
			begin := time.Now()
			if _, err := sys.FileAttributes(WithClient(t.Context(), client), `C:\answers`); err != nil || time.Since(begin) != 0 {
				t.Errorf("%s, client %d got %v after %v", what, client, err, time.Since(begin))
			}
		}
		attack(1)
		if s.most != maxOfPool/2 {
			t.Errorf("%d calls of one client at one time, want half of %d", s.most, maxOfPool)
		}
		other(100, "at once")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		other(100, "10 s later")
		begin := time.Now()
		_, err := sys.FileAttributes(WithClient(t.Context(), 1), `C:\answers`)
		if !errors.Is(err, csiproxy.ErrUnavailable) || !strings.Contains(err.Error(), "128 calls of this client") ||
			!strings.Contains(err.Error(), `GetFileAttributesW on C:\hangs1.`) || time.Since(begin) != 0 {
			t.Errorf("the client itself got %v after %v", err, time.Since(begin))
		}
		for client := 2; client < 22; client++ {
			attack(client)
		}
		other(100, "with 20 more")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		other(100, "with 20 more, 10 s later")
		if load := sys.Load()[files]; load.Running >= maxOfPool || load.Waiting != 0 {
			t.Errorf("the load is %+v", load)
		}
	})
}

// A client takes half of the queue, and leaves room there for others.
func TestClientsShareTheQueue(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		for range maxWaiting {
			go sys.FileAttributes(WithClient(t.Context(), "hostile"), `C:\hangs`)
		}
		synctest.Wait()
		if load := sys.Load()[files]; load.Waiting != maxWaiting/2 {
			t.Errorf("%d calls of one client wait, want half of %d", load.Waiting, maxWaiting)
		}
		for range 20 {
			go sys.FileAttributes(WithClient(t.Context(), "other"), `C:\hangs`)
		}
		synctest.Wait()
		if load := sys.Load()[files]; load.Waiting != maxWaiting/2+8 {
			t.Errorf("%d calls wait, want 8 of another client more", load.Waiting)
		}
	})
}

// Waiting ends with the caller's context, and takes no room with it.
func TestWaitingEndsWithTheContext(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		for range maxOfObject {
			go sys.FileAttributes(t.Context(), `C:\hangs`)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond+time.Nanosecond)
		defer cancel()
		if _, err := sys.FileAttributes(ctx, `C:\hangs`); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if load := sys.Load()[files]; load.Waiting != 0 {
			t.Errorf("the load is %+v", load)
		}
	})
}

// Whose context ends while he waits learns which call on his object isn't answered, if one
// isn't: he may have waited for room only.
func TestWhoHasWaitedLearnsForWhat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(nil, Options{}).pools[files]
		var held []*call
		for i := range maxOfPool {
			c, err := p.enter(t.Context(), nil, "first", fmt.Sprintf("object %d", i))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		for object, word := range map[string]string{
			"object 0": "has not answered first on object 0 ", "another": "deadline",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := p.enter(ctx, nil, "second", object)
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v", object, err)
			}
		}
		for _, c := range held {
			p.leave(c)
		}
	})
}

// Who waits for work learns that a call of it is overdue, and of what that waits for; but not
// of an optional part.
func TestWhoWaitsLearnsOfOverdueCalls(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		ctx, worker := WithTracker(t.Context())
		whole, besides := WithTracker(t.Context())
		part, done := Optional(whole)
		_, waiter := WithTracker(t.Context())
		end := waiter.WaitFor(func() *Tracker { return worker })
		check := func(when string, overdue bool) {
			t.Helper()
			for _, tracker := range []*Tracker{worker, waiter} {
				if err := tracker.Overdue(); errors.Is(err, csiproxy.ErrUnavailable) != overdue || (err != nil) != overdue {
					t.Errorf("%s: %v", when, err)
				}
			}
		}
		go sys.FileAttributes(ctx, `C:\hangs`)
		go sys.FileAttributes(part, `C:\hangs too`)
		time.Sleep(Patience(win.CallFileAttributes) - lookInterval)
		check("early", false)
		time.Sleep(3 * lookInterval)
		check("late", true)
		if c, ok := besides.Oldest(); !ok || besides.Overdue() != nil {
			t.Errorf("of an optional part: %v, %v", c, besides.Overdue())
		}
		done()
		for _, tracker := range []*Tracker{worker, waiter} {
			if c, ok := tracker.Oldest(); !ok || c.Object != `C:\hangs` {
				t.Errorf("the oldest call is %v", c)
			}
		}
		end()
		if _, ok := waiter.Oldest(); waiter.Overdue() != nil || ok || besides.Late(win.ErrorBusy) != win.ErrorBusy {
			t.Error("what isn't waited for any more is told")
		}
		time.Sleep(5 * time.Minute)
		if _, ok := worker.Oldest(); ok || worker.Overdue() != nil {
			t.Error("a call that was answered is told")
		}
	})
}

// A call that opens a file isn't made if one of the directories on the way hangs in such a call.
func TestHangingOnTheWay(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		p := sys.pools[files]
		c, err := p.enter(t.Context(), nil, win.CallOpenAt, `C:\dir\hangs`)
		if err != nil {
			t.Fatal(err)
		}
		for when, overdue := range map[string]bool{"early": false, "late": true} {
			c.overdue.Store(overdue)
			for _, call := range []struct {
				name, object string
				refused      bool
			}{
				{win.CallOpenAt, `C:\dir\hangs`, overdue}, {win.CallFileAttributes, `C:\dir\hangs`, false}, {win.CallOpenAt, `C:\dir`, false},
			} {
				before := p.load().Refused
				err := p.hanging(call.name, call.object)
				if errors.Is(err, csiproxy.ErrUnavailable) != call.refused || (p.load().Refused > before) != call.refused {
					t.Errorf("%s, %s of %s: %v", when, call.name, call.object, err)
				}
			}
		}
		p.leave(c)
	})
}

// What is known of an object and a client stays while a call waits for room, so that the calls
// that come later are counted with it.
func TestWhoWaitsIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sys := New(nil, Options{})
		p := sys.pools[files]
		var held []*call
		for i := range maxOfPool {
			c, err := p.enter(t.Context(), i, "call", fmt.Sprintf("object %d", i))
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
		}
		late := make(chan *call, 1)
		go func() {
			c, err := p.enter(t.Context(), "client", "call", "object")
			if err != nil {
				t.Error(err)
			}
			late <- c
		}()
		time.Sleep(2 * lookInterval)
		synctest.Wait()
		p.mu.Lock()
		object, client := p.objects["object"], p.clients["client"]
		p.mu.Unlock()
		if object == nil || client == nil {
			t.Error("it is forgotten")
		}
		for _, c := range held {
			p.leave(c)
		}
		p.leave(<-late)
		time.Sleep(2 * lookInterval)
		synctest.Wait()
		if states := sys.remembered(); states != 0 {
			t.Errorf("in the end, %d objects and clients are remembered", states)
		}
	})
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

// Calls that are answered are only delayed: none is refused.
func TestBusyIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{}
		sys := New(s, Options{})
		var wg sync.WaitGroup
		for i := range 600 {
			wg.Go(func() {
				if _, err := sys.FileAttributes(t.Context(), fmt.Sprintf(`C:\%d`, i%3)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if s.completed != 600 || s.most != 3*maxOfObject {
			t.Errorf("%d calls, %d at one time", s.completed, s.most)
		}
		time.Sleep(time.Minute) // the looks end
		if states := sys.remembered(); states != 0 {
			t.Errorf("%d objects and clients are remembered", states)
		}
	})
}

// Those that wait are bounded, too.
func TestWaitersAreBounded(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		for range maxOfObject + maxWaiting {
			go sys.FileAttributes(t.Context(), `C:\hangs`)
		}
		synctest.Wait()
		if load := sys.Load()[files]; load.Running != maxOfObject || load.Waiting != maxWaiting {
			t.Errorf("the load is %+v", load)
		}
		if _, err := sys.FileAttributes(t.Context(), `C:\hangs`); !errors.Is(err, csiproxy.ErrResourceExhausted) {
			t.Errorf("one more gave %v", err)
		}
	})
}

func (s *System) remembered() (states int) {
	for _, p := range s.pools {
		p.mu.Lock()
		states += len(p.objects) + len(p.clients)
		p.mu.Unlock()
	}
	return states
}

// A call that is let in just when its caller gives up leaves its place again.
func TestLetInWhenTheContextEnds(t *testing.T) {
	for range 64 { // the caller sees one or the other first
		synctest.Test(t, func(t *testing.T) {
			sys := New(nil, Options{})
			p := sys.pools[files]
			enter := func(ctx context.Context) *call {
				c, err := p.enter(ctx, "client", "call", "object")
				if err != nil {
					return nil
				}
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
			p.mu.Lock()
			cancel()
			p.end(held[0])
			p.mu.Unlock()
			if c := <-late; c != nil {
				p.leave(c)
			}
			for _, c := range held[1:] {
				p.leave(c)
			}
			time.Sleep(time.Second)
			if load := p.load(); load.Running != 0 || load.Waiting != 0 || sys.remembered() != 0 {
				t.Fatalf("the load is %+v, and %d states are remembered", load, sys.remembered())
			}
		})
	}
}

// A process that gets no processor doesn't take a call for hung: only looks tell, and each
// lets all others run first.
func TestHungIsToldByLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(nil, Options{}).pools[files]
		c, err := p.enter(t.Context(), nil, win.CallFileAttributes, `C:\dir`)
		if err != nil {
			t.Fatal(err)
		}
		c.Since = c.Since.Add(-time.Hour) // as after an hour without a processor
		time.Sleep(Patience(win.CallFileAttributes) - lookInterval)
		synctest.Wait()
		if load := p.load(); load.Overdue != 0 {
			t.Errorf("before its patience has ended, the load is %+v", load)
		}
		time.Sleep(3 * lookInterval)
		synctest.Wait()
		if load := p.load(); load.Overdue != 1 {
			t.Errorf("after its patience has ended, the load is %+v", load)
		}
		p.leave(c)
	})
}
