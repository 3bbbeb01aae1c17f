// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sidecars are the programs of -sidecars.
var sidecars = []string{"csi-provisioner", "csi-attacher", "csi-resizer"}

// startSidecars starts the real helpers of a driver's Controller, in the place of the lab's. They use
// the API server as an account, if one is given.
func (c *cluster) startSidecars(bin, address, account string) error {
	kubeconfig := filepath.Join(c.dir, "kubeconfig-sidecars")
	if err := c.Kubeconfig(kubeconfig, c.Config.BearerToken, account); err != nil {
		return err
	}
	for _, name := range sidecars {
		if err := c.start(name,
			filepath.Join(bin, name), "--csi-address="+address, "--kubeconfig="+kubeconfig, "--timeout=2m", "--v=4"); err != nil {
			return err
		}
	}
	return nil
}

// attacher does what the external attacher does: it attaches a volume when the attach/detach
// controller has made a VolumeAttachment, and detaches it when that is deleted.
type attacher struct {
	cluster *cluster
	wire    *wire
	driver  string
	// failed is told what went wrong. The attacher tries again.
	failed func(error)
}

// run attaches and detaches until ctx ends.
func (a *attacher) run(ctx context.Context) {
	for {
		all, err := a.cluster.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if err == nil {
			for _, va := range all.Items {
				err = errors.Join(err, a.handle(ctx, &va))
			}
		}
		if err != nil && ctx.Err() == nil {
			a.failed(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// finalizer keeps a VolumeAttachment until its volume is detached.
func (a *attacher) finalizer() string {
	return "external-attacher/" + strings.NewReplacer(".", "-", "/", "-").Replace(a.driver)
}

func (a *attacher) handle(ctx context.Context, va *storagev1.VolumeAttachment) error {
	if va.Spec.Attacher != a.driver || va.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	deleted, ours := va.DeletionTimestamp != nil, slices.Contains(va.Finalizers, a.finalizer())
	if va.Status.Attached && !deleted || deleted && !ours {
		return nil
	}
	pv, err := a.cluster.CoreV1().PersistentVolumes().Get(ctx, *va.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if deleted {
		return a.detach(ctx, va, pv.Spec.CSI.VolumeHandle)
	}
	return a.attach(ctx, va, pv)
}

func (a *attacher) attach(ctx context.Context, va *storagev1.VolumeAttachment, pv *corev1.PersistentVolume) (err error) {
	if !slices.Contains(va.Finalizers, a.finalizer()) {
		va.Finalizers = append(va.Finalizers, a.finalizer())
		if va, err = a.cluster.StorageV1().VolumeAttachments().Update(ctx, va, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	response, err := callController[csi.ControllerPublishVolumeResponse](ctx, a.wire, "ControllerPublishVolume",
		&csi.ControllerPublishVolumeRequest{
			VolumeId: pv.Spec.CSI.VolumeHandle, NodeId: nodeName, VolumeCapability: capabilityOf(pv),
			Readonly: pv.Spec.CSI.ReadOnly, VolumeContext: pv.Spec.CSI.VolumeAttributes,
		})
	if err != nil {
		return nil // the list of calls has it
	}
	va.Status.Attached, va.Status.AttachmentMetadata = true, response.PublishContext
	_, err = a.cluster.StorageV1().VolumeAttachments().UpdateStatus(ctx, va, metav1.UpdateOptions{})
	return err
}

func (a *attacher) detach(ctx context.Context, va *storagev1.VolumeAttachment, volume string) error {
	if _, err := callController[csi.ControllerUnpublishVolumeResponse](ctx, a.wire, "ControllerUnpublishVolume",
		&csi.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: nodeName}); err != nil {
		return nil // the list of calls has it
	}
	va.Finalizers = slices.DeleteFunc(va.Finalizers, func(f string) bool { return f == a.finalizer() })
	_, err := a.cluster.StorageV1().VolumeAttachments().Update(ctx, va, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// accessModes are the modes in which CSI calls those of Kubernetes, for a driver that can tell a
// single writer from several.
var accessModes = map[corev1.PersistentVolumeAccessMode]csi.VolumeCapability_AccessMode_Mode{
	corev1.ReadWriteOnce:    csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
	corev1.ReadWriteOncePod: csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
	corev1.ReadWriteMany:    csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
	corev1.ReadOnlyMany:     csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
}

func capabilityOf(pv *corev1.PersistentVolume) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: pv.Spec.CSI.FSType}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessModes[pv.Spec.AccessModes[0]]},
	}
}

// expand does what the external resizer does when a claim asks for more.
func expand(ctx context.Context, c *cluster, w *wire, pvc *corev1.PersistentVolumeClaim) error {
	claims, size := c.CoreV1().PersistentVolumeClaims(pvc.Namespace), pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	pv, err := c.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	response, err := callController[csi.ControllerExpandVolumeResponse](ctx, w, "ControllerExpandVolume",
		&csi.ControllerExpandVolumeRequest{
			VolumeId: pv.Spec.CSI.VolumeHandle, VolumeCapability: capabilityOf(pv),
			CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()},
		})
	if err != nil {
		return err
	}
	if !response.NodeExpansionRequired {
		return fmt.Errorf("the driver says that the node has nothing to do: %v", response)
	}
	// Kubelet looks at the claim once the PersistentVolume is larger, so the claim comes first.
	pvc.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: size}
	pvc.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
	}
	if _, err := claims.UpdateStatus(ctx, pvc, metav1.UpdateOptions{}); err != nil {
		return err
	}
	pv.Spec.Capacity[corev1.ResourceStorage] = size
	_, err = c.CoreV1().PersistentVolumes().Update(ctx, pv, metav1.UpdateOptions{})
	return err
}
