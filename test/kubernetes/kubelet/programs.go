// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// start starts a program that logs to a file of that name in dir, after what is in there.
func (o options) start(dir, name string, words ...string) (*controlplane.Program, error) {
	cmd, err := o.toRun(words...)
	if err != nil {
		return nil, err
	}
	if name == "kubelet" { // what it mounts ends with it
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
	return controlplane.Start(dir, name, cmd)
}

// toRun is how a program is run: one for Windows by Wine.
func (o options) toRun(words ...string) (*exec.Cmd, error) {
	if !strings.HasSuffix(words[0], ".exe") {
		return exec.Command(words[0], words[1:]...), nil
	}
	program, err := filepath.Abs(words[0])
	cmd := exec.Command("wine", slices.Concat([]string{program}, words[1:])...)
	cmd.Dir = o.driveC() // where kubelet takes paths without a drive to be
	cmd.Env = o.environment()
	return cmd, err
}

// environment is that of the programs of a node.
func (o options) environment() []string {
	if o.wine == "" {
		return os.Environ()
	}
	return append(os.Environ(), "WINEPREFIX="+o.wine)
}
