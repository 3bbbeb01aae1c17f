// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sidecars is a module apart, for building the helpers of a CSI driver's Controller that
// "make test-kubelet-full" runs: external-attacher and external-resizer. They want other versions of
// Kubernetes' modules than kubelet, and the module in provisioner, for external-provisioner, older ones.
package sidecars
