// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/csi-proxy/csi-proxy/internal/logfile"
)

// oldLogFiles is how many old log files are kept. One is enough to have the last
// -log_file_max_size of log at any time, which by klog's default is 1.8 GB of the
// node's system disk: each more would take as much.
const oldLogFiles = 1

// startLogging makes what the flags of klog need, and returns the logger that
// writes through klog. A log file that can't be written is an error here; klog
// would end the process at the first line.
func startLogging(flags *flag.FlagSet) (*slog.Logger, error) {
	file, dir := flags.Lookup("log_file").Value.String(), flags.Lookup("log_dir").Value.String()
	switch {
	case flags.Lookup("logtostderr").Value.String() == "true":
	case file != "":
		f, err := logfile.Open(logfile.Config{
			Name:        file,
			MaxBytes:    maxLogBytes(flags),
			OldFiles:    oldLogFiles,
			CrashOutput: true,
		})
		if err != nil {
			return nil, err
		}
		// klog writes the lines of all severities here, since it has a -log_file.
		// The last of them is written just before the process ends: nobody closes f.
		klog.SetOutputBySeverity("INFO", f)
	case dir != "":
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make log directory: %w", err)
		}
	}

	handler := logr.ToSlogHandler(klog.Background())
	// gRPC's own errors would go to stderr, which a service doesn't have. What it
	// calls information and warnings is about its inside.
	grpcErrors := slog.NewLogLogger(handler, slog.LevelError).Writer()
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, grpcErrors))
	return slog.New(handler), nil
}

// maxLogBytes returns -log_file_max_size, which is in megabytes, in bytes. 0 is no
// bound.
func maxLogBytes(flags *flag.FlagSet) int64 {
	const megabyte = 1 << 20
	megabytes := flags.Lookup("log_file_max_size").Value.(flag.Getter).Get().(uint64)
	return int64(min(megabytes, math.MaxInt64/megabyte)) * megabyte
}
