// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api is the host side of package system, over CSI Proxy's operations.
package api

import (
	"context"

	"github.com/csi-proxy/csi-proxy/node"

	"github.com/kubernetes-csi/csi-proxy/v2/internal/host"
)

// ServiceInfo is the state of a service, with the words of Win32_Service. In v2.0.0-alpha.1 they
// were numbers.
type ServiceInfo struct {
	DisplayName string `json:"DisplayName"`
	StartType   string `json:"StartType"`
	Status      string `json:"Status"`
}

// HostAPI is what package system needs of the node.
type HostAPI interface {
	GetBIOSSerialNumber() (string, error)
	GetService(name string) (*ServiceInfo, error)
	StartService(name string) error
	StopService(name string, force bool) error
}

type systemAPI struct{ in host.API }

// New returns the node's firmware and services.
func New() HostAPI { return systemAPI{} }

// WithContext returns the same, for calls that end with ctx.
func (systemAPI) WithContext(ctx context.Context) HostAPI { return systemAPI{host.In(ctx)} }

func (s systemAPI) GetBIOSSerialNumber() (string, error) {
	return host.Get(s.in, func(ctx context.Context, n *node.Node) (string, error) {
		return n.System.GetBIOSSerialNumber(ctx)
	})
}

func (s systemAPI) GetService(name string) (*ServiceInfo, error) {
	return host.Get(s.in, func(ctx context.Context, n *node.Node) (*ServiceInfo, error) {
		service, err := n.System.GetService(ctx, name)
		if err != nil {
			return nil, err
		}
		return &ServiceInfo{service.DisplayName, host.StartTypes.Word(uint32(service.StartType)),
			host.States.Word(uint32(service.Status))}, nil
	})
}

func (s systemAPI) StartService(name string) error {
	return host.Do(s.in, func(ctx context.Context, n *node.Node) error { return n.System.StartService(ctx, name) })
}

func (s systemAPI) StopService(name string, force bool) error {
	return host.Do(s.in, func(ctx context.Context, n *node.Node) error { return n.System.StopService(ctx, name, force) })
}
