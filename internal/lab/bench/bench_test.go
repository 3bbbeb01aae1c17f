// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the performance that drivers see. figures.txt has what is the same on every machine, such as
// calls to Windows, and TestFigures compares it. Times depend on the machine, so only ratios within one run
// are comparable: `make bench` prints them. docs/why.md has some of both.
package bench

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	filesystemv2alpha1 "github.com/csi-proxy/csi-proxy/api/filesystem/v2alpha1"
)

const kubelet = `C:\var\lib\kubelet`

func connect(tb testing.TB, socket string) *grpc.ClientConn {
	tb.Helper()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(tb, err)
	tb.Cleanup(func() { conn.Close() })
	return conn
}

// pathExists calls version 1, whose messages are those of v2alpha1.
func pathExists(ctx context.Context, conn *grpc.ClientConn, path string) error {
	return conn.Invoke(ctx, "/v1.Filesystem/PathExists", &filesystemv2alpha1.PathExistsRequest{Path: path},
		new(filesystemv2alpha1.PathExistsResponse))
}

func timed(tb testing.TB, f func() error) time.Duration {
	start := time.Now()
	err := f()
	took := time.Since(start)
	must(tb, err)
	return took
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
