// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster tests what installs CSI Proxy on a cluster: the Kustomize bases and the
// Helm chart in deploy. It is a module of its own, since only these tests need Helm and the
// types of Kubernetes.
//
// The tests without a server render everything, decode it strictly and compare the two
// sources of manifests with each other. Those with a server, which "make test-cluster" runs,
// give the manifests to a real kube-apiserver, are in the package server.
package cluster
