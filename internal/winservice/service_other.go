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

func start(_ context.Context, name string) error {
	return unimplemented("StartService", name)
}

func stopAndRelease(_ context.Context, name string, _ []string) error {
	return unimplemented("StopService", name)
}

func querySettings(name string) (Settings, error) {
	return Settings{}, unimplemented("QuerySettings", name)
}

func restore(name string, _ Settings) error {
	return unimplemented("RestoreService", name)
}

func readRecord(name string) ([]byte, error) {
	return nil, unimplemented("ReadRecord", name)
}

func writeRecord(name string, _ []byte) error {
	return unimplemented("WriteRecord", name)
}

func splitCommandLine(string) (string, []string, error) {
	return "", nil, unimplemented("QueryService", "")
}

func makeLogDirectory(dir string) error {
	return unimplemented("MakeLogDirectory", dir)
}

func endWithChildren() error { return nil }

func lock() (func() error, error) {
	return nil, unimplemented("change services", "")
}

func commandLine(program string, _ []string) (string, error) {
	return "", unimplemented("InstallService", program)
}
