// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubelet is Kubernetes' kubelet without containers: what it does with pods, volumes, CSI
// drivers, events and the API server is its own code, and only what would touch the machine is
// fake. A container runs as soon as it is created, and ends when it is told to, or when the lab says so.
//
// Its clocks are short, so that tests needn't wait for what kubelet does once a minute.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cri "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/pkg/kubelet"
	cadvisor "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the `file` that says where the API server is and who kubelet is")
	node := flag.String("node", "node-1", "the `name` of the node")
	root := flag.String("root-dir", "", "the `directory` of kubelet's files; it must be short, since sockets of drivers are in it")
	sync := flag.Duration("sync", time.Second, "how often kubelet looks at each pod and reports what the node has")
	stats := flag.Duration("stats", 0, "how often kubelet asks for the usage of volumes; 0: never")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *node, *root, *sync, *stats); err != nil {
		fmt.Fprintf(os.Stderr, "kubelet: %v\n", err)
		os.Exit(1)
	}
	<-ctx.Done()
}

// run starts kubelet, which then runs in goroutines of its own.
func run(ctx context.Context, kubeconfig, node, root string, sync, stats time.Duration) error {
	if root == "" {
		return errors.New("-root-dir is missing")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	server, err := settings(node, root, sync, stats)
	if err != nil {
		return err
	}
	mounter, containers := mount.New(""), newRuntime()
	go endContainers(ctx, containers, filepath.Join(root, exitsDirectory))
	deps := &kubelet.Dependencies{
		KubeClient: client, HeartbeatClient: client, EventClient: client.CoreV1(),
		Mounter: mounter, Subpather: subpath.New(mounter), HostUtil: hostutil.NewHostUtil(),
		VolumePlugins:             volumePlugins(),
		OSInterface:               system{},
		TracerProvider:            noop.NewTracerProvider(),
		PodStartupLatencyTracker:  util.NewPodStartupLatencyTracker(),
		NodeStartupLatencyTracker: nodeStartupLatencyTracker(),

		RemoteRuntimeService: containers, RemoteImageService: cri.NewFakeImageService(),
		CAdvisorInterface: &cadvisor.Fake{NodeName: node},
		ContainerManager:  cm.NewStubContainerManager(),
		OOMAdjuster:       oom.NewFakeOOMAdjuster(),
	}
	return app.RunKubelet(ctx, server, deps)
}

// nodeStartupLatencyTracker calls the constructor as this version of Kubernetes has it: with a logger since v1.37.
func nodeStartupLatencyTracker() util.NodeStartupLatencyTracker {
	if build, ok := any(util.NewNodeStartupLatencyTracker).(func(klog.Logger) util.NodeStartupLatencyTracker); ok {
		return build(klog.Background())
	}
	return any(util.NewNodeStartupLatencyTracker).(func() util.NodeStartupLatencyTracker)()
}

// system has no logs of containers. Kubelet removes those of a container with it, by the path that the
// runtime says. That is empty here, so kubelet would remove all files of its working directory.
type system struct{ container.RealOS }

func (system) Glob(string) ([]string, error) { return nil, nil }
