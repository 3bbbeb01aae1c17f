// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/volume"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

// eventsOf returns the events about an object, the newest first.
func (c *chain) eventsOf(ctx context.Context, namespace, uid string) (events []*core.Event, _ error) {
	about := meta.ListOptions{FieldSelector: "involvedObject.uid=" + uid}
	err := cluster.Each(ctx, "events", c.Client.CoreV1().Events(namespace).List, about, func(e *core.Event) {
		events = append(events, e)
	})
	slices.SortStableFunc(events, func(a, b *core.Event) int { return lastSeen(b).Compare(lastSeen(a)) })
	return events, err
}

// lastSeen is when an event came last. The old and the new API keep that in fields of their own.
func lastSeen(e *core.Event) time.Time {
	seen := e.LastTimestamp.Time
	if e.EventTime.After(seen) {
		seen = e.EventTime.Time
	}
	if e.Series != nil && e.Series.LastObservedTime.After(seen) {
		seen = e.Series.LastObservedTime.Time
	}
	return seen
}

// newest returns the newest of the events with a reason; nil for none.
func newest(events []*core.Event, reasons ...string) *core.Event {
	i := slices.IndexFunc(events, func(e *core.Event) bool { return slices.Contains(reasons, e.Reason) })
	if i < 0 {
		return nil
	}
	return events[i]
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// checkPod adds the pod, and reports whether it is scheduled.
func (c *chain) checkPod() bool {
	pod := c.pod
	switch {
	case pod.DeletionTimestamp != nil:
		c.add(KindPod, podName(pod), Waiting, fmt.Sprintf("it has been terminating for %v: this command is about pods that start",
			c.age(pod.DeletionTimestamp.Time)), "kubectl describe pod shows what it waits for")
	case pod.Spec.NodeName != "":
		c.add(KindPod, podName(pod), OK, fmt.Sprintf("scheduled to the node %s; %s for %v", pod.Spec.NodeName,
			pod.Status.Phase, c.age(pod.CreationTimestamp.Time)), "")
	default:
		why := "no scheduler has looked at it"
		for _, condition := range pod.Status.Conditions {
			if condition.Type == core.PodScheduled && condition.Status == core.ConditionFalse {
				why = oneLine(condition.Reason + ": " + condition.Message)
			}
		}
		c.add(KindPod, podName(pod), Broken, "it isn't scheduled to a node: "+why,
			"make a node fit: a Windows node with room, in the zone of the volume, whose taints the pod tolerates "+
				"(kubectl describe pod)")
	}
	return pod.Spec.NodeName != ""
}

// checkNode adds the pod's node.
func (c *chain) checkNode(ctx context.Context) {
	name := c.pod.Spec.NodeName
	node, err := c.Client.CoreV1().Nodes().Get(ctx, name, meta.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.add(KindNode, name, Broken, "the cluster has no such node any more", "delete the pod, so that another node gets it")
		return
	case err != nil:
		c.unread(KindNode, name, err)
		return
	}
	c.node = node
	switch system := node.Labels[core.LabelOSStable]; {
	case !cluster.NodeIsReady(node):
		c.add(KindNode, name, Broken, "it isn't ready: its kubelet doesn't report, so nothing is mounted there",
			"look at the machine and its kubelet")
	default:
		c.add(KindNode, name, OK, "ready, "+system, "")
	}
}

// patience is how long a cloud may take to make or to attach a volume without anything being wrong.
const patience = 2 * time.Minute

func (c *chain) isRecent(t time.Time) bool { return !c.Overdue && c.now.Sub(t) < patience }

// checkVolumes adds the claims, volumes and attachments of a pod, and returns the drivers that these
// need on the node, each once.
func (c *chain) checkVolumes(ctx context.Context) (drivers []string) {
	for _, v := range c.pod.Spec.Volumes {
		driver := ""
		if v.CSI != nil {
			driver = v.CSI.Driver
			c.add(KindVolume, v.Name, OK, "a volume of the pod alone, of the driver "+driver, "")
		} else if claim := cluster.ClaimOf(c.pod, &v); claim != "" {
			if pv := c.checkClaim(ctx, c.pod.Namespace, claim); pv != nil {
				driver = c.checkVolume(ctx, pv)
			}
		}
		if driver != "" && !slices.Contains(drivers, driver) {
			drivers = append(drivers, driver)
		}
	}
	if !slices.ContainsFunc(c.pod.Spec.Volumes, func(v core.Volume) bool { return v.CSI != nil || cluster.ClaimOf(c.pod, &v) != "" }) {
		c.add(KindVolume, podName(c.pod), OK, "the pod has no claim and no volume of a CSI driver", "")
	}
	return drivers
}

// checkClaim adds a claim to the chain, and returns the claim's volume; nil if the claim has no volume or the volume can't be read.
func (c *chain) checkClaim(ctx context.Context, namespace, name string) *core.PersistentVolume {
	object := namespace + "/" + name
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, meta.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.add(KindClaim, object, Broken, "the claim doesn't exist", "create it, or correct the name in the pod")
		return nil
	case err != nil:
		c.unread(KindClaim, object, err)
		return nil
	case claim.Status.Phase == core.ClaimLost:
		c.add(KindClaim, object, Broken, fmt.Sprintf("its volume %s is gone", claim.Spec.VolumeName),
			"restore the PersistentVolume, or make a new claim from a backup")
		return nil
	case claim.Spec.VolumeName == "" || claim.Status.Phase != core.ClaimBound:
		c.checkPendingClaim(ctx, claim)
		return nil
	}
	c.add(KindClaim, object, OK, "bound to "+claim.Spec.VolumeName, "")
	pv, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, meta.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.add(KindVolume, claim.Spec.VolumeName, Broken, "the PersistentVolume doesn't exist",
			"restore it, or make a new claim from a backup")
		return nil
	case err != nil:
		c.unread(KindVolume, claim.Spec.VolumeName, err)
		return nil
	}
	return pv
}

// checkPendingClaim adds a claim that has no volume yet.
func (c *chain) checkPendingClaim(ctx context.Context, claim *core.PersistentVolumeClaim) {
	object := claim.Namespace + "/" + claim.Name
	className := ""
	if claim.Spec.StorageClassName != nil {
		className = *claim.Spec.StorageClassName
	}
	if className == "" {
		c.add(KindClaim, object, Broken, "no volume is bound to it, and it names no StorageClass that could make one",
			"name a StorageClass in a new claim, or make a PersistentVolume for this one")
		return
	}
	class, err := c.Client.StorageV1().StorageClasses().Get(ctx, className, meta.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		c.add(KindClaim, object, Broken, fmt.Sprintf("its StorageClass %s doesn't exist", className),
			"create the StorageClass, or name another one in a new claim")
		return
	case err != nil:
		c.unread(KindClaim, object, err)
		return
	}
	events, err := c.eventsOf(ctx, claim.Namespace, string(claim.UID))
	if err != nil {
		c.unread(KindClaim, object, err)
		return
	}
	if failed := newest(events, "ProvisioningFailed"); failed != nil {
		c.add(KindClaim, object, Broken, fmt.Sprintf("%v ago %s couldn't make the volume: %s", c.age(lastSeen(failed)),
			class.Provisioner, oneLine(failed.Message)), "the message comes from the driver's controller or its cloud: correct what it names")
		return
	}
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storage.VolumeBindingWaitForFirstConsumer
	if waits && (c.pod == nil || c.pod.Spec.NodeName == "") {
		c.add(KindClaim, object, Waiting, fmt.Sprintf("the claim waits for a pod that is scheduled (StorageClass %s)", className), "")
		return
	}
	if c.isRecent(claim.CreationTimestamp.Time) {
		c.add(KindClaim, object, Waiting, fmt.Sprintf("its driver has been creating the volume for %v",
			c.age(claim.CreationTimestamp.Time)), "")
		return
	}
	finding := fmt.Sprintf("no volume has been created for %v, and no event says why", c.age(claim.CreationTimestamp.Time))
	if _, err := c.Client.StorageV1().CSIDrivers().Get(ctx, class.Provisioner, meta.GetOptions{}); apierrors.IsNotFound(err) {
		finding += "; the cluster has no CSIDriver " + class.Provisioner
	}
	c.add(KindClaim, object, Broken, finding,
		fmt.Sprintf("does the controller of the driver %s run, with its csi-provisioner? It runs on Linux nodes", class.Provisioner))
}

// checkVolume adds a PersistentVolume and its attachment, and returns the volume's CSI driver; empty
// for a volume without a driver.
func (c *chain) checkVolume(ctx context.Context, pv *core.PersistentVolume) (driver string) {
	source := pv.Spec.CSI
	if source == nil {
		c.add(KindVolume, pv.Name, Unknown, "it isn't of a CSI driver, so what mounts it isn't known here",
			"kubectl csi-proxy check says which CSI driver takes over volumes of an in-tree plugin")
		return ""
	}
	if c.node != nil {
		if err := volume.CheckNodeAffinity(pv, c.node.Labels); err != nil {
			c.add(KindVolume, pv.Name, Broken, fmt.Sprintf("it can't be used on the node %s: %v", c.node.Name, err),
				"the pod must run on a node that the volume reaches, such as one in its zone: remove nodeName from the pod")
			return source.Driver
		}
	}
	c.add(KindVolume, pv.Name, OK, source.Driver+", "+source.VolumeHandle, "")
	if c.pod == nil || c.pod.Spec.NodeName == "" {
		return source.Driver
	}
	about, err := c.Client.StorageV1().CSIDrivers().Get(ctx, source.Driver, meta.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		c.unread(KindAttachment, pv.Name, err)
		return source.Driver
	}
	if err == nil && about.Spec.AttachRequired != nil && !*about.Spec.AttachRequired {
		return source.Driver // such as SMB's
	}
	c.checkAttachment(ctx, pv)
	return source.Driver
}

// checkAttachment adds the attachment of a volume to the pod's node.
func (c *chain) checkAttachment(ctx context.Context, pv *core.PersistentVolume) {
	var here *storage.VolumeAttachment
	var elsewhere []string
	err := cluster.Each(ctx, "VolumeAttachments", c.Client.StorageV1().VolumeAttachments().List, meta.ListOptions{},
		func(a *storage.VolumeAttachment) {
			switch name := a.Spec.Source.PersistentVolumeName; {
			case name == nil || *name != pv.Name:
			case a.Spec.NodeName == c.pod.Spec.NodeName:
				here = a
			default:
				elsewhere = append(elsewhere, a.Spec.NodeName)
			}
		})
	controller := fmt.Sprintf("does the controller of the driver %s run, with its csi-attacher? It runs on Linux nodes",
		pv.Spec.CSI.Driver)
	switch {
	case err != nil:
		c.unread(KindAttachment, pv.Name, err)
	case here != nil && here.DeletionTimestamp != nil:
		c.add(KindAttachment, here.Name, Broken, "the volume is being detached from the node", controller)
	case here != nil && here.Status.Attached:
		c.add(KindAttachment, here.Name, OK, "attached to "+here.Spec.NodeName, "")
	case here != nil && here.Status.AttachError != nil:
		failed := here.Status.AttachError
		c.add(KindAttachment, here.Name, Broken, fmt.Sprintf("%v ago the volume couldn't be attached: %s",
			c.age(failed.Time.Time), oneLine(failed.Message)), "the message comes from the driver's controller or its cloud: correct what it names")
	case here != nil && c.isRecent(here.CreationTimestamp.Time):
		c.add(KindAttachment, here.Name, Waiting, fmt.Sprintf("its driver has been attaching the volume for %v",
			c.age(here.CreationTimestamp.Time)), "")
	case here != nil:
		c.add(KindAttachment, here.Name, Broken, fmt.Sprintf("requested %v ago, and neither attached nor refused",
			c.age(here.CreationTimestamp.Time)), controller)
	case len(elsewhere) > 0:
		c.add(KindAttachment, pv.Name, Broken, fmt.Sprintf("the volume is still attached to %s, and not to %s",
			strings.Join(elsewhere, ", "), c.pod.Spec.NodeName),
			"a volume for one node moves when its pod there has ended and the driver has unstaged it: kubectl csi-proxy status "+
				"shows what keeps it; a node that is gone needs the taint node.kubernetes.io/out-of-service")
	default:
		finding := "Kubernetes hasn't asked for the volume to be attached"
		if failed := newest(c.events, "FailedAttachVolume"); failed != nil {
			finding += ": " + oneLine(failed.Message)
		}
		c.add(KindAttachment, pv.Name, Broken, finding, "look at kube-controller-manager, whose attach/detach controller asks for it")
	}
}
