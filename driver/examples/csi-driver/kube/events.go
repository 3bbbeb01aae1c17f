// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kube is what package csinode needs of Kubernetes: events on the driver's node and on
// claims, and the proof that a pod is gone.
//
// The driver's service account needs these rights: to create events, in the namespace default for
// those of the node, and in all namespaces for those of claims, for which it also lists
// persistentvolumes; and for [Pods], to list pods, and to get nodes/pods.
package kube

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Events makes events on a node: a csinode.Events.
type Events struct {
	client       kubernetes.Interface
	node, driver string
}

// NewEvents returns events on the node with a name, as made by a driver.
func NewEvents(client kubernetes.Interface, node, driver string) *Events {
	return &Events{client, node, driver}
}

// maxMessage is the longest message of an event, in bytes, that the API server takes.
//
// Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/validation/events.go
const maxMessage = 1024

// Warn makes an event of type Warning on the node.
func (e *Events) Warn(ctx context.Context, reason, message string) error {
	// Kubelet refers to its node by the name as the UID, and kubectl describe node looks for that.
	return e.warn(ctx, corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: e.node, UID: types.UID(e.node)},
		metav1.NamespaceDefault, reason, message)
}

// WarnClaim makes an event of type Warning on the claims of a volume: csinode.ClaimEvents.
func (e *Events) WarnClaim(ctx context.Context, volumeID, reason, message string) error {
	volumes, err := e.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, v := range volumes.Items {
		if csi := v.Spec.CSI; csi != nil && csi.Driver == e.driver && csi.VolumeHandle == volumeID && v.Spec.ClaimRef != nil {
			errs = append(errs, e.warn(ctx, *v.Spec.ClaimRef, v.Spec.ClaimRef.Namespace, reason, message))
		}
	}
	return errors.Join(errs...)
}

func (e *Events) warn(ctx context.Context, on corev1.ObjectReference, namespace, reason, message string) error {
	const cut = "…" // nobody takes a path that ends so for a whole one
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage-len(cut)], "") + cut
	}
	now := metav1.NewTime(time.Now())
	_, err := e.client.CoreV1().Events(namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: on.Name + ".", Namespace: namespace},
		InvolvedObject: on,
		Reason:         reason,
		Message:        message,
		Source:         corev1.EventSource{Component: e.driver, Host: e.node},
		FirstTimestamp: now,
		LastTimestamp:  now,
		Count:          1,
		Type:           corev1.EventTypeWarning,
	}, metav1.CreateOptions{})
	return err
}
