// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cri "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/klog/v2"
)

// exitsDirectory is where the lab says, below kubelet's directory, which containers have ended by themselves: a file
// UID.CONTAINER has the exit code.
const exitsDirectory = "exits"

// endContainers ends these containers until ctx ends.
func endContainers(ctx context.Context, r *cri.FakeRuntimeService, dir string) {
	for ctx.Err() == nil {
		endNow(r, dir)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func endNow(r *cri.FakeRuntimeService, dir string) {
	r.Lock()
	defer r.Unlock()
	for _, c := range r.Containers {
		if c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		name := c.Labels["io.kubernetes.pod.uid"] + "." + c.Metadata.Name
		text, err := os.ReadFile(filepath.Join(dir, name))
		if os.IsNotExist(err) {
			continue
		}
		code, parseErr := strconv.ParseInt(string(text), 10, 32)
		if err != nil || parseErr != nil {
			klog.Fatalf("the exit code of %s: %q, %v", name, text, err)
		}
		c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, int32(code), time.Now().UnixNano()
	}
}
