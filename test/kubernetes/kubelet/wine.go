// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// With -windows, kubelet, CSI Proxy and the driver are Windows programs, and the lab runs where
// test/wine/run has Wine for them. Kubelet's directory is on C: there, and everything else on Z:,
// which is the root of Linux' files.

// driveC is Wine's C:.
func driveC() string { return filepath.Join(os.Getenv("HOME"), ".wine/drive_c") }

// inNode returns a path as the programs of the node call it.
func (o options) inNode(path string) string {
	if o.windows {
		return "Z:" + path
	}
	return path
}

// startRelay has the lab reach CSI Proxy's named pipe for the control of the simulated node, which
// only Windows programs can open.
func (l *lab) startRelay() error {
	ports, err := controlplane.FreePorts(2)
	if err != nil {
		return err
	}
	l.wire.driver, l.control = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	return l.cluster.start("relay", filepath.Join(filepath.Dir(l.csiProxy), "kubelet-relay.exe"), l.control)
}
