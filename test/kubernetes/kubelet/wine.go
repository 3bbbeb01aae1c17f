// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/csi-proxy/csi-proxy/api"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// With -windows, kubelet, CSI Proxy and the driver are Windows programs, and the lab runs where
// test/wine/run has Wine for them. Kubelet's directory is on C: there, and everything else on Z:,
// which is the root of Linux' files.

// driveC is Wine's C:.
func (o options) driveC() string {
	return filepath.Join(cmp.Or(o.wine, filepath.Join(os.Getenv("HOME"), ".wine")), "drive_c")
}

// kubeletRoot is the directory of a kubelet whose node has its logs in dir.
func (o options) kubeletRoot(dir string) string {
	if o.windows {
		return filepath.Join(o.driveC(), strings.ReplaceAll(windowsRoot, `\`, "/"))
	}
	return filepath.Join(dir, "kubelet")
}

// makeWindows makes a Windows for a second node: with pipes, a registry and a C: of its own, where the files of
// the first one's system are links to those.
func (o options) makeWindows(firstC string) error {
	first := filepath.Dir(firstC)
	return o.runAll([][]string{
		{"cp", "-as", first, o.wine},
		{"cp", "-a", "--remove-destination", "-t", o.wine,
			first + "/system.reg", first + "/user.reg", first + "/userdef.reg", first + "/dosdevices"},
		{"rm", "-rf", o.driveC() + "/var"}, // the first kubelet's directory
	})
}

// removeWindows ends all that runs there, and removes it.
func (o options) removeWindows() error {
	return o.runAll([][]string{{"sh", "-c", "wineserver --kill; wineserver --wait"}, {"rm", "-rf", o.wine}})
}

func (o options) runAll(commands [][]string) error {
	for _, words := range commands {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = o.environment()
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, out)
		}
	}
	return nil
}

// inNode returns a path as the programs of the node call it.
func (o options) inNode(path string) string {
	if o.windows {
		return "Z:" + path
	}
	return path
}

// addresses are where the programs of a node are reached. Without -windows, only the driver's is given: those
// of CSI Proxy are sockets in its directory.
type addresses struct{ driver, control, storage string }

// relay is the program by which the lab reaches CSI Proxy's named pipes, which only Windows programs can
// open: that for the control of the simulated node, and that of its Storage.
func (o options) relay() (program *exec.Cmd, at addresses, err error) {
	ports, err := controlplane.FreePorts(3)
	if err != nil {
		return nil, at, err
	}
	at = addresses{driver: "127.0.0.1:" + ports[0], control: "127.0.0.1:" + ports[1], storage: "127.0.0.1:" + ports[2]}
	program, err = o.toRun(filepath.Join(filepath.Dir(o.csiProxy), "kubelet-relay.exe"),
		at.control, simv1.EndpointName, at.storage, api.EndpointName("storage", storageVersion))
	return program, at, err
}

// storageVersion is that of CSI Proxy's Storage.
const storageVersion = "v1alpha1"

// client returns a client of CSI Proxy.
func (n *node) client() *client.Client {
	if !n.windows {
		return client.New(client.WithEndpointDir(n.endpoints()))
	}
	return client.New(client.WithVersions("storage", storageVersion), client.WithDialer(
		func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", n.at.storage)
		}))
}
