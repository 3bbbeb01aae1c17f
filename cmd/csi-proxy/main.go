// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-proxy serves the storage operations of a Windows node to CSI
// drivers: each group and version of the API at an endpoint of its own.
//
// On Windows the endpoints are named pipes and the node is the machine itself.
// Elsewhere they are Unix sockets, and the node is a simulated one, which is what
// tests of drivers want. On Windows, the build tag "simulated" adds the simulated node;
// the program is then called csi-proxy-sim.exe.
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
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr, openNode))
}

// Times of a Windows service.
const (
	startTimeout = 2 * time.Minute
	// stopReserve is what a stop may take when the grace period of the calls is
	// over.
	stopReserve = 5 * time.Second
)

// run is the program. It serves the node that open returns until ctx is done, a
// signal comes or the service manager says so, and returns the exit code. After
// that nothing but the end of the process may follow.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, open opener) int {
	o, err := parseFlags(args, stderr)
	if err == nil {
		err = o.check()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		printUsageError(stderr, err)
		if asksForService(args) && !asks(args, "check") {
			failService(err)
		}
		return exitUsage
	case o.version:
		fmt.Fprintln(stdout, describeBuild(currentBuild()))
		return exitOK
	case o.checkOnly:
		if err := check(o, stdout); err != nil {
			fmt.Fprintf(stderr, "csi-proxy: %s\n", quote.Terminal(err.Error()))
			return exitFailed
		}
		return exitOK
	}

	log, file, err := startLogging(o.logFormat, o.logging)
	if err != nil {
		fmt.Fprintf(stderr, "csi-proxy: %s\n", quote.Terminal(err.Error()))
		if o.windowsService {
			failService(err)
		}
		return exitFailed
	}
	defer klog.Flush()
	if o.windowsService {
		err = winservice.Run(func(ctx context.Context, ready func()) error {
			return serve(ctx, o, log, open, ready)
		}, winservice.Options{StartTimeout: startTimeout, StopTimeout: o.gracePeriod + stopReserve,
			Warning: logProblem(file), Log: log})
	} else {
		err = serve(withSignals(ctx), o, log, open, func() {})
	}
	if err != nil {
		log.Error("csi-proxy ends", "err", err)
		return exitFailed
	}
	log.Info("csi-proxy ends")
	return exitOK
}

// printUsageError prints why the daemon doesn't start with its flags: of a file of drivers a line for each problem.
func printUsageError(stderr io.Writer, err error) {
	lines, advice := []string{err.Error()}, "Run csi-proxy -help for the flags."
	var ofDrivers *driversError
	if errors.As(err, &ofDrivers) {
		lines, advice = ofDrivers.Lines(), "docs/drivers.md describes the file."
	}
	fmt.Fprint(stderr, "csi-proxy: ")
	for _, line := range append(lines, advice) {
		fmt.Fprintln(stderr, quote.Terminal(line))
	}
}

// failService ends the service with err, which the service manager writes to the Event Log. Started by
// anybody else, the process has printed err already.
func failService(err error) {
	_ = winservice.Run(func(context.Context, func()) error { return err },
		winservice.Options{StartTimeout: startTimeout, StopTimeout: stopReserve})
}

// withSignals returns a context that the first signal to stop ends. The second
// one finds the system's own behaviour, which ends the process at once.
//
// It isn't for services: they get the console's events too, such as that a user
// logs off, which would look like SIGTERM.
func withSignals(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	signal.Ignore(syscall.SIGPIPE) // when nobody reads standard error any more, log lines are lost and calls go on
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		received := <-signals
		signal.Stop(signals) // not after cancel, as signal.NotifyContext would have it
		cancel(fmt.Errorf("signal: %v", received))
	}()
	return ctx
}
