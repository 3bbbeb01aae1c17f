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

func inBubble(t *testing.T, hangs func(string) bool, f func(t *testing.T, s *silent, sys *System)) {
	synctest.Test(t, func(t *testing.T) {
		s := &silent{hangs: hangs}
		f(t, s, New(s, Options{}))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
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
		begin := time.Now()
		_, err := sys.FileAttributes(t.Context(), `C:\hangs`)
		if !errors.Is(err, csiproxy.ErrUnavailable) || !strings.Contains(err.Error(), `GetFileAttributesW on C:\hangs since 2`) || time.Since(begin) != 0 {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if _, err := sys.FileAttributes(t.Context(), `C:\answers`); err != nil || time.Since(begin) != 0 {
			t.Errorf("another path, after %v: %v", time.Since(begin), err)
		}
		load := sys.Load()[files]
		if load.Running != maxOfObject || load.Overdue != maxOfObject || load.Waiting != 0 || load.Refused < 900 || len(load.Hanging) != maxHanging || load.Hanging[0].Object != `C:\hangs` {
			t.Errorf("the load is %+v", load)
		}
	})
}

// Many objects that hang take the pool of their kind for a moment only, and other pools
// not at all.
func TestManyHangingObjects(t *testing.T) {
	inBubble(t, hang, func(t *testing.T, s *silent, sys *System) {
		for i := range 150 {
			go sys.FileAttributes(t.Context(), fmt.Sprintf(`C:\hangs%d`, i))
		}
		synctest.Wait()
		begin := time.Now()
		if _, err := sys.OpenDevice(t.Context(), `\\.\PhysicalDrive1`, win.AccessNone); err != nil || time.Since(begin) != 0 {
			t.Errorf("a disk, after %v: %v", time.Since(begin), err)
		}
		if s.most != poolSizes[files] {
			t.Errorf("%d calls at one time, want %d", s.most, poolSizes[files])
		}
		if _, err := sys.FileAttributes(t.Context(), `C:\answers`); err != nil || time.Since(begin) > 4*time.Second {
			t.Errorf("a path that answers, after %v: %v", time.Since(begin), err)
		}
		// From now on these are suspect: they have a part of the pool only.
		for i := range 500 {
			go sys.OpenDevice(t.Context(), fmt.Sprintf(`hangs%d`, i%100), win.AccessNone)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if limit := maxOverdue * poolSizes[disks]; s.most > limit+150 {
			t.Errorf("%d calls hang at one time, want %d at most", s.most, limit+150)
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
		if s.most != poolSizes[files]/2 {
			t.Errorf("%d calls of one client at one time, want half of %d", s.most, poolSizes[files])
		}
		other(100, "at once")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s.most != maxOverdue*poolSizes[files]/2 {
			t.Errorf("%d calls of one client in the end, want half of %d", s.most, maxOverdue*poolSizes[files])
		}
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
		if load := sys.Load()[files]; load.Running >= maxOverdue*poolSizes[files] || load.Waiting != 0 {
			t.Errorf("the load is %+v", load)
		}
	})
}

func TestHasRoom(t *testing.T) {
	client := new(objectState)
	for _, c := range []struct {
		client     *objectState
		has, taken int
		want       bool
	}{
		{nil, 0, 63, true}, {nil, 0, 64, false},
		{client, 31, 31, true}, {client, 32, 32, false},
		{client, fewCalls - 1, 32, true}, {client, fewCalls, 47, false}, {client, fewCalls - 1, 48, false},
		{client, 0, 63, true}, {client, 1, 63, false}, {client, 0, 64, false}, {client, 0, 65, false},
	} {
		if got := hasRoom(c.client, c.has, c.taken, 64); got != c.want {
			t.Errorf("with %d of %d taken calls of 64, a client (%v) has room: %v", c.has, c.taken, c.client != nil, got)
		}
	}
}

// A client whose calls on what is in a directory hang keeps no other from that directory.
func TestClientsShareADirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{takes: time.Hour}
		sys := New(m, Options{})
		dir, err := sys.OpenFile(t.Context(), `C:\pods`, win.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			go dir.OpenAt(WithClient(t.Context(), "hostile"), fmt.Sprint(i), win.OpenOptions{})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		m.set(0)
		begin := time.Now()
		if _, err := dir.OpenAt(WithClient(t.Context(), "other"), "other", win.OpenOptions{}); err != nil || time.Since(begin) != 0 {
			t.Errorf("another client got %v after %v", err, time.Since(begin))
		}
		time.Sleep(2 * time.Hour)
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
		go sys.FileAttributes(WithClient(t.Context(), "other"), `C:\hangs`)
		synctest.Wait()
		if load := sys.Load()[files]; load.Waiting != maxWaiting/2+1 {
			t.Errorf("%d calls wait, want one of another client more", load.Waiting)
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
		if objects, _ := sys.remembered(); objects != 0 {
			t.Errorf("%d objects are remembered", objects)
		}
		time.Sleep(time.Minute) // the watch ends
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

// moody is Windows with paths that answer after a time of the test's.
type moody struct {
	win.System
	mu        sync.Mutex
	takes     time.Duration
	now, most int
}

func (m *moody) FileAttributes(context.Context, string) (win.FileAttributes, error) {
	m.mu.Lock()
	m.now++
	m.most = max(m.most, m.now)
	takes := m.takes
	m.mu.Unlock()
	time.Sleep(takes)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now--
	return 0, nil
}

// set says how long the calls take from now on.
func (m *moody) set(takes time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.takes, m.most = takes, 0
}

// OpenFile opens a directory of which everything below hangs.
func (m *moody) OpenFile(context.Context, string, win.OpenOptions) (win.File, error) {
	return moodyDirectory{m}, nil
}

type moodyDirectory struct{ m *moody }

func (d moodyDirectory) OpenAt(ctx context.Context, name string, _ win.OpenOptions) (win.File, error) {
	_, err := d.m.FileAttributes(ctx, name)
	return d, err
}
func (moodyDirectory) Info(context.Context) (win.FileInfo, error)            { return win.FileInfo{}, nil }
func (moodyDirectory) Volume(context.Context) (string, error)                { return "", nil }
func (moodyDirectory) FinalPath(context.Context) (string, error)             { return "", nil }
func (moodyDirectory) ReadDir(context.Context, bool) ([]win.DirEntry, error) { return nil, nil }
func (moodyDirectory) Delete(context.Context) error                          { return nil }
func (moodyDirectory) CreationDenied(context.Context) (bool, error)          { return false, nil }
func (moodyDirectory) DenyCreation(context.Context, bool) error              { return nil }
func (moodyDirectory) Close() error                                          { return nil }
func (moodyDirectory) ProcessIDs(context.Context) ([]win.ProcessID, error)   { return nil, nil }
func (moodyDirectory) Control(context.Context, win.IoctlCode, []byte, []byte) (int, error) {
	return 0, nil
}

func (s *System) remembered() (objects, suspects int) {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	return len(s.gate.objects), s.gate.suspects
}

// Objects that were overdue have a small part of the pool, until one of them answers in
// time. The others don't wait for them.
func TestSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{takes: 5 * time.Second}
		sys := New(m, Options{})
		ask := func(names ...string) {
			for _, name := range names {
				go sys.FileAttributes(t.Context(), name)
			}
		}
		var names []string
		for i := range 40 {
			names = append(names, fmt.Sprintf(`C:\%d`, i))
		}
		ask(names...)
		time.Sleep(time.Minute) // now all are suspect
		synctest.Wait()
		m.set(500 * time.Millisecond)
		ask(names...)
		synctest.Wait()
		if m.most != maxSuspect {
			t.Errorf("%d calls on suspect objects at one time, want %d", m.most, maxSuspect)
		}
		begin := time.Now()
		if _, err := sys.FileAttributes(t.Context(), `C:\other`); err != nil || time.Since(begin) != 500*time.Millisecond {
			t.Errorf("another object: %v after %v", err, time.Since(begin))
		}
		time.Sleep(time.Minute) // they have answered in time
		synctest.Wait()
		m.set(500 * time.Millisecond)
		ask(names...)
		synctest.Wait()
		if m.most != len(names) {
			t.Errorf("%d calls at one time once they answer in time, want %d", m.most, len(names))
		}
		time.Sleep(time.Minute)
		if objects, suspects := sys.remembered(); objects != 0 || suspects != 0 {
			t.Errorf("%d objects are remembered, %d are suspect", objects, suspects)
		}

		// A suspicion ends by itself.
		synctest.Wait()
		m.set(5 * time.Second)
		ask(names...)
		time.Sleep(suspicion + time.Minute)
		synctest.Wait()
		m.set(0)
		_, _ = sys.FileAttributes(t.Context(), `C:\other`) // has the gate look
		time.Sleep(time.Second)
		if _, suspects := sys.remembered(); suspects != 0 {
			t.Errorf("%d objects are still suspect", suspects)
		}
	})
}

// A directory that hangs with everything in it takes a part of the pool only.
func TestBelowOneDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &moody{takes: time.Hour}
		sys := New(m, Options{})
		dir, err := sys.OpenFile(t.Context(), `C:\hangs`, win.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			go dir.OpenAt(t.Context(), fmt.Sprint(i), win.OpenOptions{})
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if m.most != maxBelowObject {
			t.Errorf("%d calls below one directory at one time, want %d", m.most, maxBelowObject)
		}
		if load := sys.Load()[files]; load.Waiting != 0 {
			t.Errorf("the load is %+v", load)
		}
		time.Sleep(2 * time.Hour)
	})
}
