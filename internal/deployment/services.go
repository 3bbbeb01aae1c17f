// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"

	"github.com/csi-proxy/csi-proxy/internal/winservice"
)

// RealServices is the service manager of this Windows.
type RealServices struct{}

// Query implements [Services], as do the other methods.
func (RealServices) Query(name string) (winservice.Status, error) { return winservice.Query(name) }

func (RealServices) Settings(name string) (winservice.Settings, error) {
	return winservice.QuerySettings(name)
}

func (RealServices) Install(ctx context.Context, config winservice.Config) error {
	return winservice.Install(ctx, config)
}

func (RealServices) Restore(name string, settings winservice.Settings) error {
	return winservice.Restore(name, settings)
}

func (RealServices) Uninstall(ctx context.Context, name string) error {
	return winservice.Uninstall(ctx, name)
}

func (RealServices) Start(ctx context.Context, name string) error {
	return winservice.Start(ctx, name)
}

func (RealServices) Stop(ctx context.Context, name string, programs ...string) error {
	return winservice.Stop(ctx, name, programs...)
}

func (RealServices) Record(name string) ([]byte, error) { return winservice.Record(name) }

func (RealServices) SetRecord(name string, record []byte) error {
	return winservice.SetRecord(name, record)
}

func (RealServices) SplitCommandLine(commandLine string) (string, []string, error) {
	return winservice.SplitCommandLine(commandLine)
}

func (RealServices) CommandLine(program string, args ...string) (string, error) {
	return winservice.CommandLine(program, args...)
}

func (RealServices) MakeLogDirectory(dir string) error { return winservice.MakeLogDirectory(dir) }
