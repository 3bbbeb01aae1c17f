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

// Install returns csiproxy.ErrUnimplemented, as do the other methods.
func (Services) Install(_ context.Context, config Config) error {
	return unimplemented("InstallService", config.Name)
}

func (Services) Uninstall(_ context.Context, name string) error {
	return unimplemented("UninstallService", name)
}

func (Services) Query(name string) (Status, error) {
	return Status{}, unimplemented("QueryService", name)
}

func (Services) Start(_ context.Context, name string) error {
	return unimplemented("StartService", name)
}

func (Services) Stop(_ context.Context, name string, _ ...string) error {
	return unimplemented("StopService", name)
}

func (Services) Settings(name string) (Settings, error) {
	return Settings{}, unimplemented("QuerySettings", name)
}

func (Services) Restore(name string, _ Settings) error {
	return unimplemented("RestoreService", name)
}

func (Services) Record(name string) ([]byte, error) {
	return nil, unimplemented("ReadRecord", name)
}

func (Services) SetRecord(name string, _ []byte) error {
	return unimplemented("WriteRecord", name)
}

func (Services) SplitCommandLine(string) (program string, args []string, err error) {
	return "", nil, unimplemented("QueryService", "")
}

func (Services) CommandLine(program string, _ ...string) (string, error) {
	return "", unimplemented("InstallService", program)
}

func (Services) MakeLogDirectory(dir string) error {
	return unimplemented("MakeLogDirectory", dir)
}

func (Services) Writers(dir string) ([]string, error) {
	return nil, unimplemented("read access list", dir)
}

// EndWithChildren does nothing: only Windows keeps the file of a running program from being
// replaced.
func EndWithChildren() error { return nil }

// Lock returns csiproxy.ErrUnimplemented.
func Lock() (unlock func() error, err error) {
	return nil, unimplemented("change services", "")
}
