// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/csi-proxy/csi-proxy/client"
)

// csi-sanity can run once in a process, so this says which way.
var via = flag.String("via", viaInProcess, "how csi-sanity's driver reaches CSI Proxy: "+viaInProcess+" or "+viaPipe)

// unclaimed are those reasons of csi-sanity for skipping a spec that are features
// which the driver doesn't claim to have. Any other reason fails the test.
var unclaimed = []string{
	"GetCapacity not supported",
	"Snapshot not supported",
	"ListSnapshots not supported",
	"GetSnapshot not supported",
	"CreateSnapshot not supported",
	"DeleteSnapshot not supported",
	"Volume Cloning not supported",
	"Modify volume not supported",
	"Modify Volume not supported",
	"ControllerModifyVolume not supported",
	"ControllerGetVolumeHealth not supported",
	"ControllerListVolumeHealth not supported",
	"NodeGetStorageHealth not supported",
	"GroupControllerService not supported",
	"testnodevolumeattachlimit not enabled", // the node has no limit
}

// The CSI project's own suite: over the pipe against real processes of the daemon and
// the driver, in process against a driver that is CSI Proxy itself.
func TestSanity(t *testing.T) {
	var address string
	var kubelet kubelet
	switch *via {
	case viaPipe:
		address, kubelet.client = startProcesses(t)
	case viaInProcess:
		r := newRig(t, viaInProcess)
		address, kubelet.client = "unix:"+r.socket(), r.Client()
	default:
		t.Fatalf("-via=%s: it is %s or %s", *via, viaInProcess, viaPipe)
	}

	config := sanity.NewTestConfig()
	config.Address = address
	config.TargetPath = pods + `7f3e\volumes\kubernetes.io~csi\pvc-1`
	config.StagingPath = plugins + `1\globalmount`
	config.CreateTargetDir, config.CreateStagingDir = kubelet.make, kubelet.make
	config.RemoveTargetPath, config.RemoveStagingPath = kubelet.remove, kubelet.remove
	config.CheckPath = kubelet.kind
	ginkgo.ReportAfterSuite("skips only what isn't claimed", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports {
			if spec.State == types.SpecStateSkipped && !slices.Contains(unclaimed, spec.Failure.Message) {
				t.Errorf("skipped: %s: %q", spec.FullText(), spec.Failure.Message)
			}
		}
	})
	sanity.Test(t, config)
}

// kubelet makes, removes and looks at directories for csi-sanity, which plays it.
type kubelet struct{ client *client.Client }

func (k kubelet) make(path string) (string, error) {
	return path, k.client.Filesystem.Mkdir(context.Background(), path)
}

func (k kubelet) remove(path string) error {
	return k.client.Filesystem.Rmdir(context.Background(), path, false) // it must be empty
}

// kind is what is at a path, which csi-sanity makes with a slash.
func (k kubelet) kind(path string) (sanity.PathKind, error) {
	exists, err := k.client.Filesystem.PathExists(context.Background(), strings.ReplaceAll(path, "/", `\`))
	switch {
	case err != nil:
		return "", err
	case exists:
		return sanity.PathIsDir, nil
	}
	return sanity.PathIsNotFound, nil
}
