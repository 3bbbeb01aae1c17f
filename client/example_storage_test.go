// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"fmt"
	"log"

	"github.com/csi-proxy/csi-proxy/storage"
)

// A driver of EBS looks for its volume's id in the serial number. It matches on Nitro, where
// Windows adds a namespace to the serial number, and on Xen.
func ExampleStorage_ListDisks() {
	node, _, _ := startNodeWithDisk()
	defer node.Close()

	disks, err := node.Client().Storage.ListDisks(context.Background(), storage.Selector{SerialNumber: "vol-1"})
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range disks {
		fmt.Printf("disk %d, %d GiB, online %v\n", d.Number, d.SizeBytes>>30, d.Online)
	}
	// Output: disk 1, 10 GiB, online false
}
