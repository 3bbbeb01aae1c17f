// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package winservice

import (
	"context"
	"runtime"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

func unimplemented(op, name string) error {
	return &csiproxy.Error{
		Op:     op,
		Object: name,
		Kind:   csiproxy.ErrUnimplemented,
		Detail: "this system is " + runtime.GOOS + ", which has no Windows services",
	}
}

func runManaged(func(context.Context, func()) error, Options) error {
	return unimplemented("RunService", "")
}

func install(_ context.Context, config Config) error {
	return unimplemented("InstallService", config.Name)
}

func uninstall(_ context.Context, name string) error {
	return unimplemented("UninstallService", name)
}

func query(name string) (Status, error) {
	return Status{}, unimplemented("QueryService", name)
}

func commandLine(program string, _ []string) (string, error) {
	return "", unimplemented("CommandLine", program)
}
