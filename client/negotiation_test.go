// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/connectivity"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

func emptyAnswer(string, string) (string, error) { return `{}`, nil }

func TestNewestServedVersionIsChosen(t *testing.T) {
	for _, test := range []struct {
		served  []string
		options []Option
		want    string
		dialled string
	}{
		{[]string{"volume v2alpha1", "volume v1"}, nil, "v2alpha1", "volume v2alpha1"},
		{[]string{"volume v1", "volume v1beta1"}, nil, "v1", "volume v2alpha1, volume v1, volume v2alpha1, volume v1"},
		{
			[]string{"volume v1alpha1"}, nil, "v1alpha1",
			strings.Repeat("volume v2alpha1, volume v1, volume v1beta3, volume v1beta2, volume v1beta1, volume v1alpha1, ", 2),
		},
		{
			[]string{"volume v2alpha1", "volume v1", "volume v1beta1"}, []Option{WithVersions("volume", "v1beta1", "v1beta3")},
			"v1beta1",
			"volume v1beta3, volume v1beta1, volume v1beta3, volume v1beta1",
		},
	} {
		d := newDaemon(t, emptyAnswer)
		d.serve(test.served...)
		c := d.newClient(t, test.options...)
		if version, err := c.Volume.Version(t.Context()); err != nil || version != test.want {
			t.Errorf("with %q served, the version is %s, %v, want %s", test.served, version, err, test.want)
		}
		if got := d.dials(); got != strings.TrimSuffix(test.dialled, ", ") {
			t.Errorf("with %q served, dialled %s, want %s", test.served, got, test.dialled)
		}
	}
}

// Published daemons up to 1.2.1 split an empty text into one empty id.
func TestDiskWithoutVolume(t *testing.T) {
	d := newDaemon(t, func(string, string) (string, error) { return `{"volume_ids": [""]}`, nil })
	d.serve("volume v1")
	volumes := d.newClient(t).Volume
	if ids, err := volumes.ListVolumesOnDisk(t.Context(), 3, 0); err != nil || len(ids) != 0 {
		t.Errorf("%q, %v", ids, err)
	}
	if id, err := volumes.DataVolumeOfDisk(t.Context(), 3); !errors.Is(err, csiproxy.ErrNotFound) {
		t.Errorf("%q, %v", id, err)
	}
}

func TestNoVersionIsServed(t *testing.T) {
	d := newDaemon(t, emptyAnswer)
	d.serve("volume v1")
	c := d.newClient(t, WithEndpointDir("/somewhere"))
	err := c.Disk.PartitionDisk(t.Context(), 3)
	wantKind(t, err, csiproxy.ErrUnavailable)
	if e := new(csiproxy.Error); !errors.As(err, &e) || e.Op != "PartitionDisk" || e.Object != "disk 3" {
		t.Errorf("error %v doesn't say what was asked for", err)
	}
	if err == nil || !strings.Contains(err.Error(), "no endpoint csi-proxy-disk-<version> is served") {
		t.Errorf("error %v doesn't say what is missing where", err)
	}

	// The error isn't kept.
	d.serve("disk v1")
	if err := c.Disk.PartitionDisk(t.Context(), 3); err != nil {
		t.Error(err)
	}
}

func TestOptionsOfUnknownVersions(t *testing.T) {
	for _, option := range []Option{WithVersions("disk", "v7"), WithVersions("tape", "v1")} {
		d := newDaemon(t, emptyAnswer)
		d.serve("disk v1")
		c := d.newClient(t, option)
		wantKind(t, c.Disk.Rescan(t.Context()), csiproxy.ErrInvalidArgument)
		wantKind(t, c.Ready(t.Context()), csiproxy.ErrInvalidArgument)
	}
}

// What is wrong with an endpoint that is there must not be passed over: an older
// version would do as much harm.
func TestOtherDialErrorsAreReturned(t *testing.T) {
	for _, test := range []struct {
		cause, want error
	}{
		{&fs.PathError{Op: "dial", Err: syscall.EACCES}, csiproxy.ErrPermissionDenied},
		{errors.New("no more handles"), csiproxy.ErrInternal},
	} {
		dialled := 0
		c := New(WithDialer(func(context.Context, string, string) (net.Conn, error) {
			dialled++
			return nil, test.cause
		}))
		for _, call := range []func(context.Context) error{c.Disk.Rescan, c.Ready} {
			dialled = 0
			err := call(t.Context())
			wantKind(t, err, test.want)
			wantKind(t, err, test.cause)
			if dialled != 1 {
				t.Errorf("%v: %d dials, want 1", test.cause, dialled)
			}
		}
	}
}

func TestEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := newDaemon(t, emptyAnswer)
	d.serve("disk v1")
	c := d.newClient(t)
	wantKind(t, c.Disk.Rescan(ctx), context.Canceled)
	wantKind(t, c.Ready(ctx), context.Canceled)
}

// All callers get the version that one of them found out, and a caller that gives
// up doesn't wait for the one who is finding out.
func TestConcurrentNegotiation(t *testing.T) {
	d := newDaemon(t, emptyAnswer)
	d.serve("disk v1")
	dialling, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(dialling)
		<-goOn
	})
	c := d.newClient(t, WithDialer(func(ctx context.Context, group, version string) (net.Conn, error) {
		first()
		return d.dial(ctx, group, version)
	}))

	var callers sync.WaitGroup
	call := func() {
		if _, err := c.Disk.Version(t.Context()); err != nil {
			t.Error(err)
		}
	}
	callers.Go(call)
	<-dialling
	for range 8 {
		callers.Go(call)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, c.Disk.Rescan(ctx), context.Canceled)
	close(goOn)
	callers.Wait()
	if got := d.dials(); got != "disk v1" {
		t.Errorf("dialled %s, want disk v1 once", got)
	}
}

// leaveSocket leaves a socket at path to which nobody listens, as a killed daemon
// does.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSockets(t *testing.T) {
	dir, err := pipe.MkdirTemp("client") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := New(WithEndpointDir(dir))
	defer c.Close()
	if c.options.address("disk", "v1") != dir+"/csi-proxy-disk-v1.sock" {
		t.Skip("this system has no sockets")
	}
	leaveSocket(t, c.options.address("disk", "v1"))
	wantKind(t, c.Disk.Rescan(t.Context()), csiproxy.ErrUnavailable)
	wantKind(t, c.Ready(t.Context()), csiproxy.ErrUnavailable)

	l, err := net.Listen("unix", c.options.address("disk", "v1beta3"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if version, err := c.Disk.Version(t.Context()); err != nil || version != "v1beta3" {
		t.Errorf("version %s, %v, want v1beta3", version, err)
	}
}

// While the daemon is away, calls are Unavailable at once. When it is back, they
// succeed, in whatever version it then serves.
func TestDaemonRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, emptyAnswer)
		d.serve("disk v1", "disk v1beta3")
		c := d.newClient(t)
		works := func(when, version string) {
			t.Helper()
			if got, err := c.Disk.Version(t.Context()); err != nil || got != version {
				t.Errorf("%s: version %s, %v, want %s", when, got, err, version)
			}
			if err := c.Disk.Rescan(t.Context()); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		works("at first", "v1")

		d.stop("disk v1")
		synctest.Wait()
		wantKind(t, c.Disk.Rescan(t.Context()), csiproxy.ErrUnavailable)
		works("after v1 has gone", "v1beta3")

		// The same text, connected before or not: else each try is a new event to Kubernetes.
		d.stop("disk v1beta3")
		synctest.Wait()
		never := d.newClient(t).Disk.PartitionDisk(t.Context(), 3)
		wantKind(t, never, csiproxy.ErrUnavailable)
		for range 2 {
			if err := c.Disk.PartitionDisk(t.Context(), 3); err == nil || err.Error() != never.Error() {
				t.Errorf("the daemon is away: %v, want %v", err, never)
			}
		}
		d.serve("disk v1")
		works("after v1 has come back", "v1")
	})
}

// A daemon that starts makes its endpoints while the client looks for them.
func TestDaemonStartsMeanwhile(t *testing.T) {
	d := newDaemon(t, emptyAnswer)
	starts := sync.OnceFunc(func() { d.serve("disk v1", "disk v1beta3", "disk v1alpha1") })
	c := d.newClient(t, WithDialer(func(ctx context.Context, group, version string) (net.Conn, error) {
		if version == "v1beta2" {
			starts()
		}
		return d.dial(ctx, group, version)
	}))
	if version, err := c.Disk.Version(t.Context()); err != nil || version != "v1" {
		t.Errorf("version %s, %v, want v1", version, err)
	}
}

// A daemon is upgraded so quickly that no call finds it away.
func TestNewerVersionAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, emptyAnswer)
		d.serve("disk v1beta3")
		c := d.newClient(t)
		rescan := func() {
			t.Helper()
			if err := c.Disk.Rescan(t.Context()); err != nil {
				t.Error(err)
			}
		}
		rescan()
		d.stop("disk v1beta3")
		d.serve("disk v1", "disk v1beta3")
		synctest.Wait()
		rescan()
		if version, err := c.Disk.Version(t.Context()); err != nil || version != "v1" {
			t.Errorf("version %s, %v, want v1", version, err)
		}
		rescan()
	})
}

// An endpoint that is there and can't be connected to isn't one that nobody serves: the version
// in use stays.
func TestEndpointCannotBeDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, emptyAnswer)
		d.serve("disk v1beta3")
		busy := false
		c := d.newClient(t, WithDialer(func(ctx context.Context, group, version string) (net.Conn, error) {
			if busy {
				return nil, errors.New("no more handles")
			}
			return d.dial(ctx, group, version)
		}))
		if err := c.Disk.Rescan(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.stop("disk v1beta3")
		synctest.Wait()
		busy = true
		err := c.Disk.Rescan(t.Context())
		wantKind(t, err, csiproxy.ErrUnavailable)
		if err == nil || !strings.Contains(err.Error(), "no more handles") {
			t.Error(err)
		}
		busy = false
		d.serve("disk v1", "disk v1beta3")
		time.Sleep(time.Minute) // gRPC waits between two dials
		if version, err := c.Disk.Version(t.Context()); err != nil || version != "v1beta3" {
			t.Errorf("version %s, %v", version, err)
		}
		if err := c.Disk.Rescan(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A daemon that ends takes no connections, but finishes its calls: the one who
// finds that out must not cut the others off.
func TestCallsOutliveTheirEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called, done := make(chan struct{}), make(chan struct{})
		d := newDaemon(t, func(string, string) (string, error) {
			close(called)
			<-done
			return `{}`, nil
		})
		d.serve("disk v1")
		c := d.newClient(t)
		result := make(chan error)
		go func() { result <- c.Disk.PartitionDisk(t.Context(), 1) }()
		<-called
		first := c.groups["disk"].links["v1"]

		ending := d.take("disk v1")
		go ending.GracefulStop()
		synctest.Wait()
		wantKind(t, c.Disk.Rescan(t.Context()), csiproxy.ErrUnavailable)
		close(done)
		if err := <-result; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if state := first.conn.GetState(); state != connectivity.Shutdown {
			t.Errorf("the connection that was given up is in state %v", state)
		}
	})
}

func TestClose(t *testing.T) {
	d := newDaemon(t, emptyAnswer)
	d.serve("disk v1")
	c := New(WithDialer(d.dial))
	if err := c.Disk.Rescan(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	wantKind(t, c.Disk.Rescan(t.Context()), csiproxy.ErrFailedPrecondition)
	wantKind(t, c.SMB.RemoveSMBGlobalMapping(t.Context(), `\\a\b`), csiproxy.ErrFailedPrecondition)
	wantKind(t, c.Ready(t.Context()), csiproxy.ErrFailedPrecondition)
	if err := c.Close(); err != nil {
		t.Errorf("the second Close: %v", err)
	}
	// A call that had chosen its version before makes no connection that nobody would close.
	_, err := c.groups["disk"].begin(t.Context(), "v1")
	wantKind(t, err, csiproxy.ErrFailedPrecondition)
	if links := c.groups["disk"].links; len(links) != 0 {
		t.Errorf("after Close there are the links %v", links)
	}
}

// Close doesn't wait for an endpoint that takes long to answer.
func TestCloseInterruptsConnecting(t *testing.T) {
	for name, call := range map[string]func(*Client, context.Context) error{
		"a call": func(c *Client, ctx context.Context) error { return c.Disk.Rescan(ctx) },
		"Ready":  (*Client).Ready,
	} {
		t.Run(name, func(t *testing.T) {
			dialling := make(chan struct{})
			c := New(WithDialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
				close(dialling)
				<-ctx.Done()
				return nil, ctx.Err()
			}))
			result := make(chan error, 1)
			go func() { result <- call(c, t.Context()) }()
			<-dialling
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			wantKind(t, <-result, csiproxy.ErrFailedPrecondition)
		})
	}
}
