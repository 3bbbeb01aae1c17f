// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode_test

import (
	"context"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
)

// A node plugin for volumes whose disks have the volume's id, without hyphens, as serial number.
func Example() {
	plugin, err := csinode.New(csinode.Options{
		Name:     "disk.example.com",
		Version:  "v1.0.0",
		NodeID:   os.Getenv("NODE_NAME"),
		Storage:  client.New().Storage, // or that of node.Open, in a HostProcess container
		StateDir: `C:\var\lib\kubelet\plugins\disk.example.com\volumes`,
		Source: func(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
			return csinode.Source{Disk: csiproxy.Selector{SerialNumber: strings.ReplaceAll(r.VolumeId, "-", "")}}, nil
		},
		Logger: slog.Default(),
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := plugin.ListenAndServe(ctx, `C:\var\lib\kubelet\plugins\disk.example.com\csi.sock`); err != nil {
		log.Fatal(err)
	}
}
