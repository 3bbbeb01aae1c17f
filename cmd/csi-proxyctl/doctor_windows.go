// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/deployment"
	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
	"github.com/csi-proxy/csi-proxy/internal/windows/winread"
)

func init() { services = winservice.Services{} }

// addWindows adds what is read of Windows itself.
func addWindows(n *doctor.Node) { n.Windows = winread.Windows{} }

// installedServices returns the services that run the daemon, under any of its names.
func installedServices(context.Context) ([]doctor.Service, error) {
	var found []doctor.Service
	for _, name := range deployment.Names {
		status, err := services.Query(name)
		if errors.Is(err, csiproxy.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		program, args, err := services.SplitCommandLine(status.Daemon())
		if err != nil {
			return nil, err
		}
		process := status.ProcessID
		if status.Wrapped != "" {
			process = 0 // the wrapper's
		}
		found = append(found, doctor.Service{
			Name:             name,
			Running:          status.State == winservice.Running,
			State:            status.State.String(),
			Disabled:         status.Start == winservice.Disabled,
			ProcessID:        process,
			ExitCode:         status.ExitCode,
			SpecificExitCode: status.SpecificExitCode,
			Account:          status.Account,
			Program:          program,
			Args:             args,
			Log:              winservice.OnSystemDrive(logFile(args)),
		})
	}
	return found, nil
}
