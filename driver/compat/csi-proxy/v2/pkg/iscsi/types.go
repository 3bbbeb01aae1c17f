// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package iscsi

// What the methods take and return.
type (
	AddTargetPortalRequest  struct{ TargetPortal *TargetPortal }
	AddTargetPortalResponse struct{}
	ConnectTargetRequest    struct {
		TargetPortal             *TargetPortal
		IQN                      string
		AuthType                 AuthenticationType
		ChapUsername, ChapSecret string
	}
	ConnectTargetResponse   struct{}
	DisconnectTargetRequest struct {
		TargetPortal *TargetPortal
		IQN          string
	}
	DisconnectTargetResponse     struct{}
	DiscoverTargetPortalRequest  struct{ TargetPortal *TargetPortal }
	DiscoverTargetPortalResponse struct{ IQNs []string }
	GetTargetDisksRequest        struct {
		TargetPortal *TargetPortal
		IQN          string
	}
	GetTargetDisksResponse      struct{ DiskIDs []string }
	ListTargetPortalsRequest    struct{}
	ListTargetPortalsResponse   struct{ TargetPortals []*TargetPortal }
	RemoveTargetPortalRequest   struct{ TargetPortal *TargetPortal }
	RemoveTargetPortalResponse  struct{}
	SetMutualChapSecretRequest  struct{ MutualChapSecret string }
	SetMutualChapSecretResponse struct{}
)

// TargetPortal is the address of a portal.
type TargetPortal struct {
	TargetAddress string
	TargetPort    uint32
}
