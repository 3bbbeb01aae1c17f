// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// startLogging makes what the flags of klog need, and returns the logger that
// writes through klog. A log file that can't be written is an error here; klog
// would end the process at the first line.
func startLogging(flags *flag.FlagSet) (*slog.Logger, error) {
	file, dir := flags.Lookup("log_file").Value.String(), flags.Lookup("log_dir").Value.String()
	switch {
	case flags.Lookup("logtostderr").Value.String() == "true":
	case file != "":
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, fmt.Errorf("make directory of the log file: %w", err)
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		if err != nil {
			return nil, fmt.Errorf("open log file: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("close log file: %w", err)
		}
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
