// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command relay passes what comes at TCP addresses on to named pipes: its arguments are an address, the name of
// a pipe, and so on. It is a program for Wine: Linux programs can't open its pipes.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

func main() {
	failed := make(chan error)
	for pair := range slices.Chunk(os.Args[1:], 2) {
		go func() { failed <- run(pair[0], pair[1]) }()
	}
	fmt.Fprintf(os.Stderr, "relay: %v\n", <-failed)
	os.Exit(1)
}

func run(address, endpoint string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		from, err := l.Accept()
		if err != nil {
			return err
		}
		go pass(from, endpoint)
	}
}

// pass returns when one of the two ends. Without a daemon, the client finds its connection closed.
func pass(from net.Conn, endpoint string) {
	defer from.Close()
	to, err := pipe.Dial(context.Background(), pipe.Address(pipe.DefaultDir(), endpoint))
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
