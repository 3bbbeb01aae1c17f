// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// client returns a client of the daemon. It is closed before the daemon stops.
func (g *target) client() *client.Client {
	c := client.New(client.WithDialer(func(ctx context.Context, group, version string) (net.Conn, error) {
		return g.dial(ctx, api.EndpointName(group, version))
	}))
	g.t.Cleanup(func() { c.Close() })
	return c
}

// watch watches disks until the watch ends, with its error.
func watch(ctx context.Context, c *client.Client, told chan<- csiproxy.DiskChanges) error {
	for changes, err := range c.Storage.WatchDisks(ctx, csiproxy.Selector{}) {
		if err != nil {
			return err
		}
		told <- changes
	}
	return errors.New("the watch has ended without an error")
}

// The call ends on the node with the loop, the context or the client, whichever is first.
func TestWatchDisksEnds(t *testing.T) {
	for name, end := range map[string]func(c *client.Client, cancel func()) error{
		"the loop is left":     nil,
		"the context ends":     func(_ *client.Client, cancel func()) error { cancel(); return context.Canceled },
		"the client is closed": func(c *client.Client, _ func()) error { c.Close(); return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newTarget(t)
				c := g.client()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				told, ended := make(chan csiproxy.DiskChanges, 10), make(chan error, 1)
				if end == nil {
					for changes, err := range c.Storage.WatchDisks(ctx, csiproxy.Selector{}) {
						if err != nil || len(changes.Added) != 3 {
							t.Errorf("the list is %+v, %v", changes, err)
						}
						if n := g.server.Calls().Streams; n != 1 {
							t.Errorf("%d streams during the watch", n)
						}
						break
					}
				} else {
					go func() { ended <- watch(ctx, c, told) }()
					<-told
					number := simtest.Attach(t, g.sys, winsim.DiskSpec{Serial: "new"})
					if changes := <-told; len(changes.Added) != 1 || changes.Added[0].SerialNumber != "new" {
						t.Errorf("told %+v", changes)
					}
					simtest.Must(t, g.sys.DetachDisk(number))
					if changes := <-told; len(changes.Removed) != 1 || changes.Removed[0].SerialNumber != "new" {
						t.Errorf("told %+v", changes)
					}
					time.Sleep(10 * time.Minute)
					want := end(c, cancel)
					if err := <-ended; !errors.Is(err, want) {
						t.Errorf("the watch ends with %v, want %v", err, want)
					}
				}
				synctest.Wait()
				looks := simtest.Counted(g.sys, win.CallDeviceInterfaces)
				time.Sleep(time.Hour)
				if calls := g.server.Calls(); calls.Streams != 0 || looks()[0] != 0 {
					t.Errorf("after the watch: %+v, %d looks at the disks", calls, looks()[0])
				}
			})
		})
	}
}

// What a client doesn't read is kept nowhere on its way: it is told once, later, what is so then.
func TestWatchOfASlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTarget(t)
		values, disks := 0, map[csiproxy.DiskNumber]string{}
		for changes, err := range g.client().Storage.WatchDisks(t.Context(), csiproxy.Selector{}) {
			simtest.Must(t, err)
			values++
			for _, d := range changes.Removed {
				delete(disks, d.Number)
			}
			for _, d := range append(changes.Added, changes.Changed...) {
				disks[d.Number] = d.SerialNumber
			}
			if disks[3] == "last" {
				break
			}
			if values > 1 {
				continue
			}
			sameNumber := csiproxy.DiskNumber(3)
			for i := range 2000 { // each is something to tell
				serial := fmt.Sprint(i, strings.Repeat("x", 240))
				if i == 1999 {
					serial = "last"
				}
				number := simtest.Attach(t, g.sys, winsim.DiskSpec{Serial: serial, Number: &sameNumber})
				time.Sleep(csiproxy.WatchInterval + time.Second)
				if serial != "last" {
					simtest.Must(t, g.sys.DetachDisk(number))
					simtest.Must(t, g.sys.DeleteDisk(serial))
				}
			}
		}
		if values != 2 {
			t.Errorf("%d values are told, want the list and the difference after 2000 disks came and left", values)
		}
	})
}

// A client that ends its stream before it has sent a request gets an error that says what to do.
func TestWatchDisksWithoutARequest(t *testing.T) {
	g := newTarget(t)
	stream, err := g.conn("storage", "v1alpha1").NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		"/csiproxy.storage.v1alpha1.Storage/WatchDisks")
	simtest.Must(t, err)
	simtest.Must(t, stream.CloseSend())
	err = stream.RecvMsg(new(emptypb.Empty))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "WatchDisks: the client has ended its stream") {
		t.Errorf("the stream ends with %v", err)
	}
}
