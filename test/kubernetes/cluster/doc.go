// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cluster tests what installs CSI Proxy on a cluster: the Kustomize bases and the
// Helm chart in deploy. It is a module of its own, since only these tests need Helm and the
// types of Kubernetes.
//
// Most of the bases are made from the chart, by the command kustomize below. The tests without a
// server render everything and decode it strictly. Those with a server, which "make test-cluster" runs,
// give the manifests to a real kube-apiserver, are in the package server.
package cluster
