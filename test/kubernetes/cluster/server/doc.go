// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package server tests what needs a Kubernetes API server: it gives the manifests to a real
// one, and runs "kubectl csi-proxy check" against it. "make test-cluster" runs it. There are
// no nodes and no controllers: nothing is started, and the tests play those that report what
// is on a node.
package server
