// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-proxy serves the storage operations of a Windows node to CSI
// drivers: each group and version of the API at an endpoint of its own.
//
// On Windows the endpoints are named pipes and the node is the machine itself.
// Elsewhere they are Unix sockets, and the node is a simulated one, which is what
// tests of drivers want.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run(untilSignal(), os.Args[1:], os.Stdout, os.Stderr, openNode))
}

// untilSignal returns a context that the first signal to stop ends. The second
// one finds the system's own behaviour, which ends the process at once.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		received := <-signals
		signal.Stop(signals) // not after cancel, as signal.NotifyContext would have it
		cancel(fmt.Errorf("signal: %v", received))
	}()
	return ctx
}

// run is the program. It serves the node that open returns until ctx is done, and
// returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, open opener) int {
	o, err := parseFlags(args, stderr)
	if err == nil {
		err = o.check()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "csi-proxy: %v\nRun csi-proxy -help for the flags.\n", err)
		return exitUsage
	case o.version:
		fmt.Fprintln(stdout, describeBuild(currentBuild()))
		return exitOK
	}

	log, err := startLogging(o.logging)
	if err != nil {
		fmt.Fprintf(stderr, "csi-proxy: %v\n", err)
		return exitFailed
	}
	defer klog.Flush()
	if err := serve(ctx, o, log, open); err != nil {
		log.Error("csi-proxy ends", "err", err)
		return exitFailed
	}
	log.Info("csi-proxy ends")
	return exitOK
}
