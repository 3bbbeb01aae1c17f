// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi

// AddTargetPortalRequest is what AddTargetPortal takes.
type AddTargetPortalRequest struct {
	TargetPortal *TargetPortal
}

// AddTargetPortalResponse is what AddTargetPortal returns.
type AddTargetPortalResponse struct{}

// ConnectTargetRequest is what ConnectTarget takes.
type ConnectTargetRequest struct {
	TargetPortal *TargetPortal
	IQN          string
	AuthType     AuthenticationType
	ChapUsername string
	ChapSecret   string
}

// ConnectTargetResponse is what ConnectTarget returns.
type ConnectTargetResponse struct{}

// DisconnectTargetRequest is what DisconnectTarget takes.
type DisconnectTargetRequest struct {
	TargetPortal *TargetPortal
	IQN          string
}

// DisconnectTargetResponse is what DisconnectTarget returns.
type DisconnectTargetResponse struct{}

// DiscoverTargetPortalRequest is what DiscoverTargetPortal takes.
type DiscoverTargetPortalRequest struct {
	TargetPortal *TargetPortal
}

// DiscoverTargetPortalResponse is what DiscoverTargetPortal returns.
type DiscoverTargetPortalResponse struct {
	IQNs []string
}

// GetTargetDisksRequest is what GetTargetDisks takes.
type GetTargetDisksRequest struct {
	TargetPortal *TargetPortal
	IQN          string
}

// GetTargetDisksResponse is what GetTargetDisks returns.
type GetTargetDisksResponse struct {
	DiskIDs []string
}

// ListTargetPortalsRequest is what ListTargetPortals takes.
type ListTargetPortalsRequest struct{}

// ListTargetPortalsResponse is what ListTargetPortals returns.
type ListTargetPortalsResponse struct {
	TargetPortals []*TargetPortal
}

// RemoveTargetPortalRequest is what RemoveTargetPortal takes.
type RemoveTargetPortalRequest struct {
	TargetPortal *TargetPortal
}

// RemoveTargetPortalResponse is what RemoveTargetPortal returns.
type RemoveTargetPortalResponse struct{}

// SetMutualChapSecretRequest is what SetMutualChapSecret takes.
type SetMutualChapSecretRequest struct {
	MutualChapSecret string
}

// SetMutualChapSecretResponse is what SetMutualChapSecret returns.
type SetMutualChapSecretResponse struct{}

type TargetPortal struct {
	TargetAddress string
	TargetPort    uint32
}
