// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command relay passes what comes at a TCP address on to the control of the simulated node. It is a
// program for Wine: Linux programs can't open its named pipes.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "relay: %v\n", err)
		os.Exit(1)
	}
}

func run(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		from, err := l.Accept()
		if err != nil {
			return err
		}
		go pass(from)
	}
}

// pass returns when one of the two ends. Without a daemon, the client finds its connection closed.
func pass(from net.Conn) {
	defer from.Close()
	to, err := pipe.Dial(context.Background(), pipe.Address(pipe.DefaultDir(), simv1.EndpointName))
	if err != nil {
		return
	}
	defer to.Close()
	ended := make(chan struct{}, 2)
	for _, c := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(c[0], c[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}
