// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"github.com/csi-proxy/csi-proxy/internal/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// Bounds of what hostile clients may cost, each attack for itself.
const (
	maxAttackMemory     = 256 << 20 // bytes of heap and stacks, beyond those before
	maxAttackGoroutines = 8000
	maxAttackThreads    = 64
	// maxSlowdown is the median of another client's calls, as a ratio to the same
	// without the attack. While all processors are busy, Go's runtime looks for what has come
	// on connections every 10 ms only, which is some 50 times what a call usually takes. The
	// bound is maxBusySlowdown for the attack that keeps them busy before it can be made to wait.
	maxSlowdown, maxBusySlowdown = 10, 30
)

// attacker is a connection that sends HTTP/2 frames as it likes.
type attacker struct {
	conn    net.Conn
	framer  *http2.Framer
	block   bytes.Buffer
	headers *hpack.Encoder
	next    uint32
}

func newAttacker(conn net.Conn) *attacker {
	a := &attacker{conn: conn, framer: http2.NewFramer(conn, conn), next: 1}
	a.headers = hpack.NewEncoder(&a.block)
	_, _ = io.WriteString(conn, http2.ClientPreface) // an attack ends when its connection is closed: the next write tells
	_ = a.framer.WriteSettings()
	return a
}

// begin sends the headers of a call, all of them or not.
func (a *attacker) begin(method string, all bool, padding string) (stream uint32, err error) {
	a.block.Reset()
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "localhost"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
		{Name: "padding", Value: padding, Sensitive: true},
	} {
		if err := a.headers.WriteField(field); err != nil {
			return 0, err
		}
	}
	stream = a.next
	a.next += 2
	return stream, a.framer.WriteHeaders(
		http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.block.Bytes(), EndHeaders: all})
}

func (a *attacker) call(method string, request []byte) (stream uint32, err error) {
	if stream, err = a.begin(method, true, ""); err != nil {
		return 0, err
	}
	return stream, a.framer.WriteData(stream, true,
		append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(request))), request...))
}

const (
	pathExists  = "/v1.Filesystem/PathExists"
	hangingPath = kubelet + `\hangme\path`
)

// attack is what a hostile connection does again and again, until it is closed.
type attack struct {
	name        string
	connections int  // at one time
	reads       bool // what the daemon sends
	busy        bool // it keeps all processors busy, with new connections again and again
	attack      func(ctx context.Context, a *attacker) error
}

var attacks = []attack{
	{"settings, then silence", 1500, false, false, func(ctx context.Context, a *attacker) error {
		<-ctx.Done()
		return io.EOF
	}},
	{"rapid reset", 50, true, false, func(_ context.Context, a *attacker) error {
		stream, err := a.call(pathExists, fieldOf(1, kubelet))
		if err != nil {
			return err
		}
		return a.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
	}},
	{"rapid reset of hanging calls", 50, true, false, func(_ context.Context, a *attacker) error {
		stream, err := a.call(pathExists, fieldOf(1, hangingPath))
		if err != nil {
			return err
		}
		return a.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
	}},
	{"large headers", 50, true, false, func(_ context.Context, a *attacker) error {
		_, err := a.begin(pathExists, true, strings.Repeat("x", 12<<10))
		return err
	}},
	{"headers without end", 50, true, false, func(_ context.Context, a *attacker) error {
		stream, err := a.begin(pathExists, false, "")
		for err == nil {
			err = a.framer.WriteContinuation(stream, false, bytes.Repeat([]byte{0x40, 1, 'a', 1, 'b'}, 1000))
		}
		return err
	}},
	{"half requests", 300, true, false, func(_ context.Context, a *attacker) error {
		stream, err := a.begin(pathExists, true, "")
		if err != nil {
			return err
		}
		return a.framer.WriteData(stream, false, append([]byte{0, 0, 1, 0xff, 0xff}, make([]byte, 15<<10)...))
	}},
	{"answers that nobody reads", 30, false, false, func(_ context.Context, a *attacker) error {
		_, err := a.call("/v1.Filesystem/IsSymlink", fieldOf(1, kubelet+`\none`))
		return err
	}},
	{"much that is unknown", 30, true, false, func(_ context.Context, a *attacker) error {
		_, err := a.call(pathExists, slices.Concat(fieldOf(1, hangingPath), fieldOf(100, strings.Repeat("x", 60<<10))))
		return err
	}},
	{"pings", 20, false, false, func(_ context.Context, a *attacker) error {
		return a.framer.WritePing(false, [8]byte{1})
	}},
	{"settings", 20, false, false, func(_ context.Context, a *attacker) error {
		return a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	}},
	{"connections", 20, false, true, func(context.Context, *attacker) error { return io.EOF }},
}

const (
	hostileEndpoint = "csi-proxy-filesystem-v1"
	// What tells the process that attacks what to do: the number of the attack and
	// the address of the endpoint.
	attackVariable  = "CSI_PROXY_TEST_ATTACK"
	addressVariable = "CSI_PROXY_TEST_ADDRESS"
)

// run attacks an endpoint until ctx ends.
func (a attack) run(ctx context.Context, address string) {
	var attacking sync.WaitGroup
	for range a.connections {
		attacking.Go(func() {
			for ctx.Err() == nil {
				conn, err := pipe.Dial(ctx, address)
				if err != nil {
					continue // the daemon accepts more slowly than it is attacked
				}
				if a.reads {
					go io.Copy(io.Discard, conn)
				}
				for hostile := newAttacker(conn); err == nil && ctx.Err() == nil; {
					err = a.attack(ctx, hostile)
				}
				conn.Close()
			}
		})
	}
	attacking.Wait()
}

// TestSoakHostileClients shows that hostile clients keep nobody else from being served,
// and what they cost the daemon. They are processes of their own.
func TestSoakHostileClients(t *testing.T) {
	if number, err := strconv.Atoi(os.Getenv(attackVariable)); err == nil {
		attacks[number].run(t.Context(), os.Getenv(addressVariable)) // until it is killed
		return
	}
	duration, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Skip("make soak runs it")
	}
	duration /= time.Duration(len(attacks) + 1)
	dir := ""
	if runtime.GOOS != "windows" {
		dir = t.TempDir()
	}
	claimed, err := pipe.Claim(dir)
	simtest.Must(t, err)
	defer claimed.Close()
	g := serveTarget(t, func(name string) (net.Listener, error) { return claimed.Listen(t.Context(), name) },
		func(ctx context.Context, name string) (net.Conn, error) {
			return pipe.Dial(ctx, pipe.Address(dir, name))
		})
	simtest.Must(t, g.sys.Delay(winsim.Match{Call: "NtCreateFile", Object: "hangme"}, time.Second))
	victim := g.conn("filesystem", "v1")

	usual, err := g.latency(victim, duration)
	simtest.Must(t, err)
	runtime.GC()
	memoryBefore, goroutinesBefore := memory(), runtime.NumGoroutine()
	for i, a := range attacks {
		ctx, end := context.WithCancel(t.Context())
		attacker := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSoakHostileClients$")
		attacker.Env = append(os.Environ(), fmt.Sprintf("%s=%d", attackVariable, i),
			addressVariable+"="+pipe.Address(dir, hostileEndpoint))
		simtest.Must(t, attacker.Start())
		var mostMemory, mostGoroutines, mostThreads int
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for ticks := time.NewTicker(50 * time.Millisecond); ctx.Err() == nil; <-ticks.C {
				mostMemory, mostGoroutines = max(mostMemory, memory()), max(mostGoroutines, runtime.NumGoroutine())
				mostThreads = max(mostThreads, threads())
			}
		}()
		slow, err := g.latency(victim, duration)
		end()
		_ = attacker.Wait() // it was killed
		<-watched
		ratio := float64(slow) / float64(usual)
		t.Logf("%s: %d MiB more, %d goroutines, %d threads; another client's calls took %v, %.1f times the usual %v",
			a.name, (mostMemory-memoryBefore)>>20, mostGoroutines, mostThreads, slow, ratio, usual)
		if mostMemory-memoryBefore > maxAttackMemory {
			t.Errorf("%s: %d MiB, want at most %d", a.name, (mostMemory-memoryBefore)>>20, maxAttackMemory>>20)
		}
		if mostGoroutines > maxAttackGoroutines {
			t.Errorf("%s: %d goroutines, want at most %d", a.name, mostGoroutines, maxAttackGoroutines)
		}
		if mostThreads > maxAttackThreads {
			t.Errorf("%s: %d threads, want at most %d", a.name, mostThreads, maxAttackThreads)
		}
		if err != nil {
			t.Errorf("%s: another client's call: %v", a.name, err)
		}
		most := maxSlowdown
		if a.busy {
			most = maxBusySlowdown
		}
		if ratio > float64(most) {
			t.Errorf("%s: another client's calls take %.1f times as long, want at most %d times", a.name, ratio, most)
		}
	}

	// Nothing of it is left, once the last hanging calls have ended.
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > goroutinesBefore+
		50; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines are left, there were %d", runtime.NumGoroutine(), goroutinesBefore)
			break
		}
	}
	runtime.GC()
	if left := memory() - memoryBefore; left > 64<<20 {
		t.Errorf("%d MiB are left", left>>20)
	}
}

// latency makes calls one after the other and returns the median of how long they took,
// and the error of one that failed.
func (g *target) latency(conn *grpc.ClientConn, duration time.Duration) (median time.Duration, failed error) {
	var took []time.Duration
	for begun := time.Now(); time.Since(begun) < duration; {
		ctx, cancel := context.WithTimeout(g.t.Context(), 30*time.Second)
		one := time.Now()
		err := conn.Invoke(ctx, pathExists, fieldOf(1, kubelet+`\pods`), new([]byte), grpc.ForceCodec(rawBytes{}))
		cancel()
		took = append(took, time.Since(one))
		if err != nil {
			failed = err
		}
		time.Sleep(time.Millisecond)
	}
	slices.Sort(took)
	return took[len(took)/2], failed
}

// threads returns how many threads of the operating system the process has.
func threads() int {
	sample := []metrics.Sample{{Name: "/sched/threads/total:threads"}}
	metrics.Read(sample)
	return int(sample[0].Value.Uint64())
}

// memory returns the bytes of the heap in use at the last collection, and of stacks.
func memory() int {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return int(samples[0].Value.Uint64() + samples[1].Value.Uint64())
}
