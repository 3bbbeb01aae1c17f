// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubeevents makes the events of package csinode in Kubernetes, on the node that the
// driver runs on. The driver's service account needs to create events in the namespace default,
// which is where events of nodes are.
package kubeevents

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Node makes events on a node: a csinode.Events.
type Node struct {
	client       kubernetes.Interface
	node, driver string
}

// New returns events on the node with a name, as made by a driver.
func New(client kubernetes.Interface, node, driver string) *Node {
	return &Node{client, node, driver}
}

// maxMessage is the longest message of an event, in bytes, that the API server takes.
//
// Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/events.go
const maxMessage = 1024

// Warn makes an event of type Warning.
func (n *Node) Warn(ctx context.Context, reason, message string) error {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") // a character may be cut
	}
	now := metav1.NewTime(time.Now())
	_, err := n.client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: n.node + ".", Namespace: metav1.NamespaceDefault},
		// Kubelet refers to its node by the name as the UID, and kubectl describe node looks for that.
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.node, UID: types.UID(n.node)},
		Reason:         reason,
		Message:        message,
		Source:         corev1.EventSource{Component: n.driver, Host: n.node},
		FirstTimestamp: now,
		LastTimestamp:  now,
		Count:          1,
		Type:           corev1.EventTypeWarning,
	}, metav1.CreateOptions{})
	return err
}
