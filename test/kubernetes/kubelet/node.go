// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/ec2"
)

// node is the simulated Windows node: CSI Proxy and the driver, with all that they keep.
type node struct {
	options
	name     string    // in the cluster and in the cloud
	dir      string    // its own
	at       addresses // the driver's as gRPC calls it
	daemon   *controlplane.Program
	driver   *driver
	off      bool             // the power is off: only the hardware can be asked
	booted   time.Time        // when Windows started after that
	control  *grpc.ClientConn // of the simulated hardware, and of what pods do with files
	metadata *httptest.Server // of EC2; nil if there is none
}

// endpoints is the directory of CSI Proxy's sockets; Windows has pipes instead.
func (n *node) endpoints() string {
	if n.windows {
		return ""
	}
	return filepath.Join(n.dir, "run")
}

// newNode returns a node on which nothing runs yet. stop must be called in the end.
func newNode(name, dir string, at addresses, o options) (*node, error) {
	n := &node{options: o, name: name, dir: dir, at: at}
	if err := os.MkdirAll(filepath.Join(dir, "state"), 0o700); err != nil {
		return nil, err
	}
	if o.ec2 {
		n.metadata = httptest.NewServer(ec2.Metadata(fmt.Sprintf("i-%017x", hash(name)>>8)))
	}
	var err error
	n.control, err = dial(cmp.Or(at.control, "unix://"+filepath.Join(n.endpoints(), simv1.EndpointName+".sock")))
	return n, err
}

// dial returns a connection whose calls wait until an address is served.
func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: patience,
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 200 * time.Millisecond},
		}))
}

// startDaemon starts CSI Proxy. The node is as it was when the one before ended.
func (n *node) startDaemon() (err error) {
	if n.inProcess {
		return nil // it starts with the driver
	}
	if err := n.awaitDisconnected(); err != nil {
		return err
	}
	n.daemon, err = n.start(n.dir, "csi-proxy", n.csiProxy, "-node=simulated", "-endpoint-dir="+n.endpoints(),
		"-sim-state="+n.inNode(filepath.Join(n.dir, "node.db")))
	return err
}

// awaitDisconnected returns when the connection to a program that had the simulated node and was killed
// is closed: calls on it would fail.
func (n *node) awaitDisconnected() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for n.control.GetState() == connectivity.Ready {
		if !n.control.WaitForStateChange(ctx, connectivity.Ready) {
			return fmt.Errorf("the connection to the simulated node, whose program has ended, stays: %w", ctx.Err())
		}
	}
	return nil
}

// startDriver starts the driver.
func (n *node) startDriver() (err error) {
	if n.inProcess {
		if err := n.awaitDisconnected(); err != nil {
			return err
		}
	}
	var command []string
	for _, word := range n.options.driver {
		command = append(command, os.Expand(word, func(name string) string {
			return map[string]string{
				"SOCKET": strings.TrimPrefix(n.at.driver, "unix://"), "ENDPOINTS": n.endpoints(), "STATE": n.inNode(filepath.Join(n.dir, "state")), "NODE": n.name,
			}[name]
		}))
	}
	n.driver, err = startDriver(func() (*controlplane.Program, error) {
		cmd, err := n.toRun(command...)
		if err != nil {
			return nil, err
		}
		cmd.Env = cmd.Environ()
		if n.metadata != nil { // and AWS' library ends without this machine's bundle, which isn't on the node
			cmd.Env = append(slices.DeleteFunc(cmd.Env, func(e string) bool { return strings.HasPrefix(e, "AWS_CA_BUNDLE=") }),
				"AWS_EC2_METADATA_SERVICE_ENDPOINT="+n.metadata.URL)
		}
		if n.inProcess {
			cmd.Env = append(cmd.Env, "CSI_PROXY_SIMULATED_STATE="+n.inNode(filepath.Join(n.dir, "node.db")),
				"CSI_PROXY_SIMULATED_ENDPOINTS="+cmp.Or(n.endpoints(), "pipes"))
		}
		return controlplane.Start(n.dir, "driver", cmd)
	})
	return err
}

// begin starts CSI Proxy, and the driver when CSI Proxy serves. It returns when the driver serves, or
// at once if it ends.
func (n *node) begin(ctx context.Context) error {
	if err := n.startDaemon(); err != nil {
		return err
	}
	if !n.inProcess {
		if _, err := sim[simv1.ListDisksResponse](ctx, n, "ListDisks", &simv1.Empty{}); err != nil {
			return fmt.Errorf("%w; %s", cmp.Or(n.daemon.Ended(), err), n.daemon.LastLog())
		}
	}
	if err := n.startDriver(); err != nil {
		return err
	}
	ended, err := n.servedOrEnded(ctx)
	if ended {
		return fmt.Errorf("the driver has ended; %s", n.driver.LastLog())
	}
	return err
}

// servedOrEnded returns when the driver answers, or has ended by itself for the first time.
func (n *node) servedOrEnded(ctx context.Context) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.driver.ended, cancel)()
	if err = n.served(ctx); n.driver.ended.Err() != nil {
		return true, nil
	}
	return false, err
}

// served returns when the driver answers.
func (n *node) served(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dial(n.at.driver)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := csi.NewIdentityClient(conn).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{}); err != nil {
		return fmt.Errorf("the driver doesn't serve at %s: %w; %s", n.at.driver, err, n.driver.LastLog())
	}
	return nil
}

func (n *node) stop() error {
	n.driver.Kill()
	n.daemon.Kill()
	if n.metadata != nil {
		n.metadata.Close()
	}
	return n.control.Close()
}

// disk returns the disk with a serial number; nil if it isn't attached.
func (n *node) disk(ctx context.Context, serial string) (*simv1.Disk, error) {
	disks, err := sim[simv1.ListDisksResponse](ctx, n, "ListDisks", &simv1.Empty{})
	for _, d := range disks.GetDisks() {
		if d.SerialNumber == serial && d.DiskNumber != nil {
			return d, nil
		}
	}
	return nil, err
}

// sim calls the control of the simulated node. It waits until CSI Proxy serves it.
func sim[Response any, Message interface {
	*Response
	proto.Message
}](ctx context.Context, n *node, method string, request proto.Message) (Message, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return simv1.Call[Response, Message](ctx, n.control, method, request)
}
