// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubernetes is a module apart, for building the programs of Kubernetes that tests run. The
// setup script here builds them, and says where they are. They are kube-apiserver, for "make
// test-cluster", kube-controller-manager and a kubelet without containers, for "make test-kubelet",
// and the helpers of a CSI driver's Controller.
package kubernetes
