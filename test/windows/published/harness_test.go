// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The program under test.
var daemonProgram string

func TestMain(m *testing.M) {
	flag.Parse()
	if !isSet("test.parallel") {
		// Most of the time a test waits for its daemon, and the daemon for its node.
		if err := flag.Set("test.parallel", strconv.Itoa(4*runtime.NumCPU())); err != nil {
			panic(err)
		}
	}
	os.Exit(run(m))
}

// isSet reports whether the command line has a flag.
func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// run builds the daemon, unless the environment names it, and runs the tests.
func run(m *testing.M) int {
	daemonProgram = os.Getenv("CSI_PROXY_BIN")
	if daemonProgram == "" {
		dir, err := os.MkdirTemp("", "published")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		tags, err := os.ReadFile("../../../cmd/build-tags")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		build := exec.Command("go", "build", "-tags", strings.TrimSpace(string(tags)), fmt.Sprintf("-race=%t", raceDetector), "-o", dir+"/", "./cmd/csi-proxy")
		build.Dir = filepath.Join("..", "..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v: %v\n%s", build, err, out)
			return 1
		}
		daemonProgram = filepath.Join(dir, "csi-proxy")
	}
	// By default a program with the race detector waits a second before it ends.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

const (
	kubeletPath = `C:\var\lib\kubelet`
	// patience bounds what takes milliseconds, so that a hang is a failure that
	// says where.
	patience = 30 * time.Second
)

// node is a simulated Windows node as a test uses it: see in for those that have
// subtests.
type node struct {
	*machine
	t testing.TB
}

// machine is the node's daemon with the directory that holds all of the node. The
// node outlives the daemon: it is in a state file.
type machine struct {
	dir   string
	flags []string // of the daemon, beside those that every one has

	sim      *reconnecting // to the endpoint that controls the simulated node
	simMu    sync.Mutex    // guards simKnown
	simKnown protoreflect.ServiceDescriptor

	mu     sync.Mutex // guards the fields below
	daemon *exec.Cmd
	exited chan struct{} // closed when daemon has ended
	lives  int           // how often the daemon was started
	silent []net.Conn    // that never send a byte: see dial
	conns  []*grpc.ClientConn
}

// newNode starts a node that lives until the test's end, with Windows' own disk and
// the kubelet directory. flags are for its daemon.
func newNode(t testing.TB, flags ...string) *node {
	t.Helper()
	// The path of a socket has to be short, which t.TempDir isn't.
	temp := os.TempDir()
	if len(temp) > 30 {
		temp = "/tmp"
	}
	dir, err := os.MkdirTemp(temp, "node")
	must(t, err)
	n := &node{&machine{dir: dir, flags: flags}, t}
	n.sim = &reconnecting{node: n, group: "sim", version: "v1"}
	t.Cleanup(n.discard)
	must(t, n.start())
	return n
}

// in returns the node for a subtest.
func (n *node) in(t testing.TB) *node { return &node{n.machine, t} }

func (n *node) discard() {
	for _, conn := range n.conns {
		conn.Close()
	}
	for _, conn := range n.silent {
		conn.Close()
	}
	n.kill()
	for _, fault := range []string{"DATA RACE", "panic", "fatal error"} {
		if strings.Contains(n.log(), fault) {
			n.t.Errorf("the daemon's log tells of a %s", fault)
		}
	}
	n.wantNoSecrets()
	if n.t.Failed() {
		lines := strings.Split(n.log(), "\n")
		n.t.Logf("the end of the daemon's log:\n%s", strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	if err := os.RemoveAll(n.dir); err != nil {
		n.t.Error(err)
	}
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// log returns what the daemon has written so far, in all its lives.
func (m *machine) log() string {
	b, err := os.ReadFile(m.path("log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// start starts the daemon and returns when it serves.
func (m *machine) start() error {
	log, err := os.OpenFile(m.path("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	daemon := exec.Command(daemonProgram, append([]string{"-node=simulated", "-endpoint-dir", m.path("run"),
		"-sim-state", m.path("state"), "-kubelet-path", kubeletPath}, m.flags...)...)
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = daemon.Wait() // killing it is how it ends
	}()

	m.mu.Lock()
	m.daemon, m.exited = daemon, exited
	m.lives++
	m.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	go func() {
		select {
		case <-exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := serving(ctx, m.socket("disk", "v1")); err != nil {
		return fmt.Errorf("the daemon doesn't serve: %w\n%s", err, m.log())
	}
	return nil
}

// serving waits until the endpoint at the socket answers. The daemon takes calls
// at none of its endpoints before it listens at all of them.
func serving(ctx context.Context, socket string) error {
	conn, err := grpc.DialContext(ctx, socket, grpc.WithInsecure(), grpc.WithContextDialer(dialSocket),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Millisecond, Multiplier: 1.5, MaxDelay: 20 * time.Millisecond},
			MinConnectTimeout: patience,
		}))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
	return err
}

// kill ends the daemon as nothing but a crash does, and waits until it is gone.
func (m *machine) kill() {
	m.mu.Lock()
	daemon, exited := m.daemon, m.exited
	m.mu.Unlock()
	if daemon != nil {
		_ = daemon.Process.Kill() // an error says that it has ended already
		<-exited
	}
}

// restart kills the daemon and starts it again. What the node's Windows holds stays.
func (m *machine) restart() error {
	m.kill()
	return m.start()
}

// life is the number of the daemon's life, from 1.
func (m *machine) life() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lives
}

func (m *machine) socket(group, version string) string {
	return filepath.Join(m.path("run"), "csi-proxy-"+group+"-"+version+".sock")
}

func dialSocket(ctx context.Context, socket string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", socket)
}

// dial connects to an endpoint exactly as NewClient of the published module does
// on Windows: first a connection that proves that the endpoint exists, which
// never sends a byte and is never closed, then the one for gRPC.
func (m *machine) dial(group, version string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	proof, err := dialSocket(context.Background(), m.socket(group, version))
	if err != nil {
		return nil, err
	}
	conn, err := grpc.Dial(m.socket(group, version), append([]grpc.DialOption{
		grpc.WithContextDialer(dialSocket),
		grpc.WithInsecure(),
	}, options...)...)
	if err != nil {
		return nil, errors.Join(err, proof.Close())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = append(m.silent, proof)
	m.conns = append(m.conns, conn)
	return conn, nil
}

// mustDial is dial for a test that can't go on without.
func (n *node) mustDial(group, version string, options ...grpc.DialOption) *grpc.ClientConn {
	n.t.Helper()
	conn, err := n.dial(group, version, options...)
	must(n.t, err)
	return conn
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
