// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	diskv1 "github.com/kubernetes-csi/csi-proxy/client/api/disk/v1"
)

// Each client of the published module leaves a connection behind that never sends
// a byte. Hundreds of them harm nobody and are no fault that a log would tell of.
func TestSilentConnections(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	before := n.log()

	const many = 200
	for range many {
		conn := n.mustDial("disk", "v1")
		if _, err := diskv1.NewDiskClient(conn).ListDiskIDs(context.Background(), &diskv1.ListDiskIDsRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, conn := range n.silent {
		if err := stillOpen(conn); err != nil {
			t.Fatalf("silent connection %d: %v", i, err)
		}
	}
	if after := n.log(); after != before {
		t.Errorf("the daemon logs about the silent connections:\n%s", after[len(before):])
	}
}

// stillOpen returns an error if the other end of a silent connection has closed it
// or said something.
func stillOpen(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now()); err != nil {
		return err
	}
	n, err := conn.Read(make([]byte, 1))
	if n > 0 {
		return errors.New("it got a byte")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// However many there are, the endpoint serves; and they don't keep the daemon from
// ending when it is asked to.
func TestManySilentConnections(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for range 600 {
		conn, err := dialSocket(context.Background(), n.socket("disk", "v1"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	n.operator().rescan()
	if err := n.daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-n.exited:
	case <-time.After(patience):
		t.Fatal("the daemon doesn't end")
	}
	if code := n.daemon.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A driver keeps its connection for days. It serves again when the daemon does.
func TestKeptConnection(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	client := diskv1.NewDiskClient(n.mustDial("disk", "v1"))
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := client.ListDiskIDs(ctx, &diskv1.ListDiskIDsRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		if err := n.restart(); err != nil {
			t.Fatal(err)
		}
	}
}
