// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cri "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/csi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
)

// settings returns kubelet's defaults, with what a machine that isn't a node lacks, and with short
// clocks.
func settings(node, root string, sync, stats time.Duration) (*options.KubeletServer, error) {
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	// It listens at no port.
	config.EnableServer = false
	config.ReadOnlyPort = 0
	config.HealthzPort = 0
	// There are no cgroups, and nothing is evicted for lack of room on this machine.
	config.CgroupsPerQOS = false
	config.EnforceNodeAllocatable = nil
	config.EvictionHard = nil
	config.ImageGCHighThresholdPercent = 100 // which is off
	config.FailSwapOn = false
	config.LocalStorageCapacityIsolation = false
	config.ResolverConfig = ""
	config.PodLogsDir = filepath.Join(root, "pod-logs")
	kubelet.ContainerLogsDir = filepath.Join(root, "container-logs")
	// Usage is asked of drivers at intervals that have nothing to do with what pods do, so the
	// number of those calls is another one in each run.
	config.VolumeStatsAggPeriod.Duration = stats
	if stats == 0 {
		config.VolumeStatsAggPeriod.Duration = -1
	}

	config.RegistryPullQPS = 0 // as many images as the pods want, at once

	config.SyncFrequency.Duration = sync
	config.NodeStatusUpdateFrequency.Duration = sync
	config.NodeStatusReportFrequency.Duration = sync

	flags := options.NewKubeletFlags()
	flags.RootDirectory = root
	flags.CertDirectory = filepath.Join(root, "pki")
	flags.HostnameOverride = node
	return &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config}, nil
}

// volumePlugins returns those that pods of Windows nodes with CSI drivers use.
func volumePlugins() []volume.VolumePlugin {
	var all []volume.VolumePlugin
	all = append(all, emptydir.ProbeVolumePlugins()...)
	all = append(all, secret.ProbeVolumePlugins()...)
	all = append(all, configmap.ProbeVolumePlugins()...)
	all = append(all, projected.ProbeVolumePlugins()...)
	return append(all, csi.ProbeVolumePlugins()...)
}

// newRuntime returns a container runtime that runs nothing.
func newRuntime() *cri.FakeRuntimeService {
	r := cri.NewFakeRuntimeService()
	r.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true},
		{Type: runtimeapi.NetworkReady, Status: true},
	}}
	return r
}
