// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command serve serves the metadata of an EC2 instance at the address that is its argument.
package main

import (
	"fmt"
	"net/http"
	"os"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/ec2"
)

func main() {
	fmt.Fprintln(os.Stderr, http.ListenAndServe(os.Args[1], ec2.Metadata("i-0123456789abcdef0")))
	os.Exit(1)
}
