// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-driver is a CSI driver for Windows nodes, to be read and copied. See
// package driver. docs/test-your-driver.md shows how to use it.
//
// It uses the CSI Proxy that runs beside it, or CSI Proxy as a library. On other systems
// than Windows the node is a simulated one. Its hardware is then the cloud in which the
// driver's Controller creates volumes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/cloud"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/driver"
	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/kube"
)

// version is set at link time.
var version = "unknown"

// Values of -via.
const (
	viaPipe      = "pipe"
	viaInProcess = "in-process"
)

type options struct {
	endpoint    string
	nodeID      string
	via         string
	endpointDir string
	own         bool
	stateDir    string
	simulated   bool
	kubelet     string
	kubeletCA   string
}

func main() {
	err := run(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "csi-driver: %v\n", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (o options, err error) {
	host, err := os.Hostname()
	if err != nil {
		return o, err
	}
	flags := flag.NewFlagSet("csi-driver", flag.ContinueOnError)
	flags.StringVar(&o.endpoint, "endpoint", "unix:///csi/csi.sock",
		"the `address` to serve CSI at: unix:///csi/csi.sock or tcp://127.0.0.1:10000")
	flags.StringVar(&o.nodeID, "node-id", host, "the `name` of this node in the cloud")
	flags.StringVar(&o.via, "via", viaPipe,
		"how to use CSI Proxy: `"+viaPipe+"` for the daemon, "+viaInProcess+" for the library")
	flags.StringVar(&o.endpointDir, "endpoint-dir", client.DefaultEndpointDir(),
		"the `directory` of CSI Proxy's sockets; not used on Windows, which has named pipes")
	flags.BoolVar(&o.own, "own-endpoints", false,
		"use the endpoints that CSI Proxy has for this driver alone, since its -drivers names "+driver.Name+", instead of those "+
			"that all drivers share. Not where a container mounts them under the shared names")
	flags.StringVar(&o.stateDir, "state-dir", "", "a `directory` of the driver's own that survives its restart")
	flags.BoolVar(&o.simulated, "simulated", runtime.GOOS != "windows",
		"CSI Proxy runs on a simulated node, whose hardware is the cloud; on other systems than Windows it always does")
	flags.StringVar(&o.kubelet, "kubelet", "",
		"`address` of the node's kubelet, such as https://192.0.2.1:10250: ask it and the API server which pods are gone, and make "+
			"events, as -node-id; only in a cluster")
	flags.StringVar(&o.kubeletCA, "kubelet-ca", "", "`file` of the certificate that kubelet must have; the cluster's if empty")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unknown argument %q", flags.Arg(0))
	case o.via != viaPipe && o.via != viaInProcess:
		return o, fmt.Errorf("-via=%s: must be %s or %s", o.via, viaPipe, viaInProcess)
	case o.own && o.via != viaPipe:
		return o, errors.New("-own-endpoints: needs -via=" + viaPipe)
	case !o.simulated && runtime.GOOS != "windows":
		return o, errors.New("-simulated=false: there is a real node on Windows only")
	case o.stateDir == "":
		return o, errors.New("-state-dir is missing")
	case !strings.HasPrefix(o.endpoint, "unix://") && !strings.HasPrefix(o.endpoint, "tcp://"):
		return o, fmt.Errorf("-endpoint=%s: must have the form unix:///csi/csi.sock or tcp://127.0.0.1:10000", o.endpoint)
	}
	return o, nil
}

// clientOptions say which endpoints of CSI Proxy the driver uses.
func (o options) clientOptions() []client.Option {
	if !o.own {
		return []client.Option{client.WithEndpointDir(o.endpointDir)}
	}
	return []client.Option{client.WithEndpointDir(o.endpointDir), client.WithDriver(driver.Name)}
}

func run(args []string) (err error) {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	n, err := open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	settings := driver.Options{
		Version: version, NodeID: o.nodeID, Storage: n.storage, StateDir: filepath.Join(o.stateDir, "volumes"),
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if n.hardware != nil {
		settings.Cloud, err = cloud.Open(filepath.Join(o.stateDir, "cloud.json"), o.nodeID, n.hardware)
		if err != nil {
			return err
		}
	}
	if o.kubelet != "" {
		if err := useKubernetes(o, &settings); err != nil {
			return err
		}
	}
	d, err := driver.New(settings)
	if err != nil {
		return err
	}
	network, address, _ := strings.Cut(o.endpoint, "://")
	if network == "unix" {
		return d.ListenAndServe(ctx, address)
	}
	l, err := net.Listen(network, address) // without access control, so for tests only
	if err != nil {
		return errors.Join(err, d.Close())
	}
	return d.Serve(ctx, l)
}

// useKubernetes lets the driver make events, and ask which pods are gone from its node.
func useKubernetes(o options, settings *driver.Options) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("-kubelet: %w", err)
	}
	pods, err := kube.NewPods(config, o.nodeID, o.kubelet, o.kubeletCA)
	if err != nil {
		return fmt.Errorf("-kubelet: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	settings.PodIsGone, settings.Events = pods.Gone, kube.NewEvents(client, o.nodeID, driver.Name)
	return nil
}

// openedNode is the node on which the driver runs: see open.
type openedNode struct {
	storage  csinode.Storage
	hardware cloud.Hardware // nil if it isn't simulated
	closers  []io.Closer
}

// Close closes what was opened for it.
func (n *openedNode) Close() error {
	var errs []error
	for _, c := range n.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
