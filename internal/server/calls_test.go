// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/wire"
)

// take begins calls of a client until one is refused, and returns how many began.
func take(t *testing.T, a *calls, c *client, maxBytes int) (begun []*call, refusal error) {
	t.Helper()
	for {
		one, err := a.begin(c, maxBytes)
		if err != nil {
			if !errors.Is(err, csiproxy.ErrResourceExhausted) {
				t.Errorf("refused with %v", err)
			}
			return begun, err
		}
		begun = append(begun, one)
	}
}

func TestCallsOfOneClientAreBounded(t *testing.T) {
	a := newCalls(Limits{})
	c := a.connect(0)
	begun, err := take(t, a, c, 1)
	if len(begun) != DefaultMaxCallsPerClient || !strings.Contains(err.Error(), "-max-calls-per-client is 256") {
		t.Errorf("%d calls, then %v", len(begun), err)
	}
	a.end(begun[0])
	if _, err := a.begin(c, 1); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
	if got := a.now().Refused[RefusedCallsPerClient]; got != 1 {
		t.Errorf("%d refused calls are counted, want 1", got)
	}
}

// Hundreds of clients may take all that they get, one after the other or by turns: the
// next one can make calls.
func TestCallsAreShared(t *testing.T) {
	oneAfterTheOther := func(a *calls, clients []*client, maxBytes int) {
		for _, c := range clients {
			take(t, a, c, maxBytes)
		}
	}
	byTurns := func(a *calls, clients []*client, maxBytes int) {
		for before := -1; a.unary.Len() > before; {
			before = a.unary.Len()
			for _, c := range clients {
				a.begin(c, maxBytes) // or not
			}
		}
	}
	for name, greedy := range map[string]func(*calls, []*client, int){"one after the other": oneAfterTheOther,
		"by turns": byTurns} {
		for _, test := range []struct{ maxBytes, clients int }{{1, 600}, {wire.MaxRequestBytes, 400}} {
			a := newCalls(Limits{})
			clients := make([]*client, test.clients)
			for i := range clients {
				clients[i] = a.connect(0)
			}
			greedy(a, clients, test.maxBytes)
			for _, c := range clients {
				if c.calls == 0 {
					t.Fatalf("%s, requests of %d bytes: a client can't make a call", name, test.maxBytes)
				}
			}
			late, err := take(t, a, a.connect(0), test.maxBytes)
			if len(late) == 0 {
				t.Errorf("%s, requests of %d bytes: a client that comes late: %v", name, test.maxBytes, err)
			}
			if a.unary.Len() > DefaultMaxCalls || a.bytes > a.maxBytes() {
				t.Errorf("%s: %d calls with %d bytes are under way", name, a.unary.Len(), a.bytes)
			}
		}
	}
}

func TestNoRoomAtAll(t *testing.T) {
	a := newCalls(Limits{Calls: 3})
	for range 3 {
		if _, err := a.begin(a.connect(0), 1); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.begin(a.connect(0), 1)
	if err == nil || !strings.Contains(err.Error(),
		"3 calls are under way, 0 of them this client's, and -max-calls is 3") {
		t.Errorf("the fourth call of 3: %v", err)
	}
	if got := a.now().Refused[RefusedCalls]; got != 1 {
		t.Errorf("%d refused calls are counted, want 1", got)
	}
}

// What a real node needs: thirty drivers that make fifty calls each at one time.
func TestCallsOfARealNode(t *testing.T) {
	a := newCalls(Limits{})
	for i := range 30 {
		c := a.connect(uint32(i + 1))
		for range 50 {
			one, err := a.begin(c, wire.MaxRequestBytes)
			if err != nil {
				t.Fatalf("driver %d: %v", i, err)
			}
			a.received(one, 1000)
		}
	}
}

func TestBytesOfRequestsAreBounded(t *testing.T) {
	const limit = 64
	a := newCalls(Limits{Calls: limit, CallsPerClient: limit})
	total := 0
	for range 100 {
		begun, _ := take(t, a, a.connect(0), wire.MaxRequestBytes)
		total += len(begun) * wire.MaxRequestBytes / 2
	}
	if total > limit*maxBytesOfCall || total != a.now().Bytes {
		t.Errorf("requests may come to hold %d bytes, counted as %d, more than %d", total, a.now().Bytes,
			limit*maxBytesOfCall)
	}
	if a.now().Refused[RefusedBytes] == 0 {
		t.Errorf("refused: %v, want some for their bytes", a.now().Refused)
	}
	// A request counts with what it holds when it has come.
	b := newCalls(Limits{Calls: limit, CallsPerClient: limit})
	c := b.connect(0)
	for range limit / 2 {
		one, err := b.begin(c, wire.MaxRequestBytes)
		if err != nil {
			t.Fatal(err)
		}
		b.received(one, 100)
	}
	if got := b.now().Bytes; got != 100*limit/2 {
		t.Errorf("the requests hold %d bytes, want %d", got, 100*limit/2)
	}
}

// The connections of a process share what it may have.
func TestProcessesAreClients(t *testing.T) {
	a := newCalls(Limits{})
	first, second := a.connect(7), a.connect(7)
	begun, _ := take(t, a, first, 1)
	if _, err := a.begin(second, 1); err == nil {
		t.Error("another connection of the process gets more")
	}
	if _, err := a.begin(a.connect(8), 1); err != nil {
		t.Errorf("another process: %v", err)
	}
	a.disconnect(first)
	a.disconnect(second)
	if _, err := a.begin(a.connect(7), 1); err == nil {
		t.Error("a process gets more when it connects again, with its calls still running")
	}
	a.disconnect(first)
	for _, one := range begun {
		a.end(one)
	}
	if _, known := a.processes[7]; known {
		t.Error("a process without connections and calls is kept")
	}
}

func TestCallsAreCounted(t *testing.T) {
	a := newCalls(Limits{})
	c := a.connect(0)
	var all []*call
	for _, begin := range []func() (*call, error){
		func() (*call, error) { return a.begin(c, 1000) },
		func() (*call, error) { return a.begin(c, 1000) },
		func() (*call, error) { return a.beginStream(c) },
	} {
		one, err := begin()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	a.received(all[1], 10)
	for begun := time.Now(); time.Since(begun) <= 0; { // the clock of Windows has steps of up to 16 ms
		time.Sleep(time.Millisecond)
	}
	none := map[string]int{RefusedCalls: 0, RefusedCallsPerClient: 0, RefusedBytes: 0, RefusedStreams: 0}
	got := a.now()
	if got.Oldest <= 0 {
		t.Error("there is no oldest call")
	}
	got.Oldest = 0
	if diff := cmp.Diff(Calls{Receiving: 1, Running: 1, Streams: 1, Bytes: 510, Limit: DefaultMaxCalls, Refused: none},
		got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	for _, one := range all {
		a.end(one)
	}
	if diff := cmp.Diff(Calls{Limit: DefaultMaxCalls, Refused: none}, a.now()); diff != "" {
		t.Errorf("calls when all have ended (-want +got):\n%s", diff)
	}
}

// Clients that take all streaming calls that they get leave one for those that come later,
// and all other calls for everybody.
func TestStreamsAreShared(t *testing.T) {
	a := newCalls(Limits{})
	for i := range 100 {
		c := a.connect(uint32(i + 1))
		var err error
		n := 0
		for ; err == nil; n++ {
			_, err = a.beginStream(c)
		}
		if n == 1 || n-1 > maxStreamsPerClient || !errors.Is(err, csiproxy.ErrResourceExhausted) {
			t.Fatalf("client %d has %d streams, then %v", i, n-1, err)
		}
	}
	now := a.now()
	if now.Streams > maxStreams || now.Refused[RefusedStreams] != 100 {
		t.Errorf("%+v", now)
	}
	for i := range 30 {
		if begun, err := take(t, a, a.connect(uint32(i+1)), 1); i < 8 && len(begun) != DefaultMaxCallsPerClient ||
			len(begun) == 0 {
			t.Errorf("client %d can make %d calls, then %v", i, len(begun), err)
		}
	}
}

// A process whose streaming call runs is known, also without connections.
func TestStreamsOfProcesses(t *testing.T) {
	a := newCalls(Limits{})
	c := a.connect(7)
	one, err := a.beginStream(c)
	if err != nil {
		t.Fatal(err)
	}
	a.disconnect(c)
	if a.processes[7] != c {
		t.Error("it is forgotten with its stream")
	}
	a.end(one)
	if len(a.processes) != 0 || c.streams != 0 {
		t.Error("it is kept")
	}
}
