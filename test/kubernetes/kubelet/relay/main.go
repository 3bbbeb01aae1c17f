// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command relay passes what comes at one address on to another: its arguments are an address to listen at, one
// to dial, and so on. An address is HOST:PORT or the name of a pipe. It is a program for Wine: Linux programs, and
// those of another Windows, can't open its pipes.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

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

func run(from, to string) error {
	l, err := listen(from)
	if err != nil {
		return err
	}
	for {
		client, err := l.Accept()
		if err != nil {
			return err
		}
		go pass(client, to)
	}
}

func isPipe(address string) bool { return !strings.Contains(address, ":") }

func listen(address string) (net.Listener, error) {
	if !isPipe(address) {
		return net.Listen("tcp", address)
	}
	claimed, err := pipe.Claim(pipe.DefaultDir())
	if err != nil {
		return nil, err
	}
	return claimed.Listen(context.Background(), address)
}

func dial(address string) (net.Conn, error) {
	if !isPipe(address) {
		return net.Dial("tcp", address)
	}
	return pipe.Dial(context.Background(), pipe.Address(pipe.DefaultDir(), address))
}

// pass returns when one of the two ends. Without a daemon, the client finds its connection closed.
func pass(from net.Conn, address string) {
	defer from.Close()
	to, err := dial(address)
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
