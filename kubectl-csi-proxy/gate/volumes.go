// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"
)

// translator knows the in-tree plugins and the CSI drivers that replace them, as kubelet
// knows them.
var translator = translation.New()

// volumes returns the volumes for in-tree plugins that are used or attached on a node,
// sorted by name. What is attached by an in-tree plugin is in the node's status; what a CSI
// driver attached has a VolumeAttachment. A volume that needs no attaching, or isn't
// attached yet, is known from the pods that use it.
func (c *clusterState) volumes(n *core.Node) []Volume {
	// By the name under which kubelet reports a volume of an in-tree plugin.
	byName := make(map[string]*Volume)
	add := func(reported string, v Volume) *Volume {
		if byName[reported] == nil {
			v.Pods = []string{}
			byName[reported] = &v
		}
		return byName[reported]
	}

	migrated := make(map[string]bool) // plugins that this kubelet leaves to CSI
	if csiNode := c.csiNodes[n.Name]; csiNode != nil {
		for plugin := range strings.SplitSeq(csiNode.Annotations[core.MigratedPluginsAnnotationKey], ",") {
			migrated[plugin] = true
		}
	}
	for _, pod := range c.pods[n.Name] {
		for i := range pod.Spec.Volumes {
			reported, v, ok := c.ofPod(&pod, &pod.Spec.Volumes[i])
			if !ok {
				continue
			}
			v.By = ByInTree
			if migrated[v.Plugin] {
				v.By = ByCSI
			}
			known := add(reported, v)
			known.Pods = append(known.Pods, pod.Namespace+"/"+pod.Name)
		}
	}
	for _, attachment := range c.attachments[n.Name] {
		source := attachment.Spec.Source
		switch {
		case source.PersistentVolumeName != nil:
			if pv := c.pvs[*source.PersistentVolumeName]; pv != nil {
				if reported, v, ok := ofPV(pv); ok {
					add(reported, v).By = ByCSI
				}
			}
		case source.InlineVolumeSpec != nil:
			// A pod's own volume, as it was translated for the driver.
			plugin, err := translator.GetInTreeNameFromCSIName(attachment.Spec.Attacher)
			inTree, inTreeErr := translator.TranslateCSIPVToInTree(&core.PersistentVolume{Spec: *source.InlineVolumeSpec})
			if err == nil && inTreeErr == nil {
				reported := reportedName(plugin, &inTree.Spec.PersistentVolumeSource, attachment.Name)
				add(reported, Volume{Name: reported, Plugin: plugin, Driver: attachment.Spec.Attacher}).By = ByCSI
			}
		}
	}
	for _, reported := range attachedNames(n) {
		plugin := pluginOf(reported)
		driver, err := translator.GetCSINameFromInTreeName(plugin)
		if err != nil {
			continue // of CSI, or of a plugin that stays
		}
		add(reported, Volume{Name: reported, Plugin: plugin, Driver: driver}).By = ByInTree
	}

	all := []Volume{}
	for _, v := range byName {
		slices.Sort(v.Pods)
		all = append(all, *v)
	}
	slices.SortFunc(all, func(a, b Volume) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ofPod returns the volume of a pod and the name under which kubelet reports it, if it is
// for an in-tree plugin that CSI replaces.
func (c *clusterState) ofPod(pod *core.Pod, v *core.Volume) (reported string, _ Volume, ok bool) {
	claim := ""
	switch {
	case v.PersistentVolumeClaim != nil:
		claim = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		claim = pod.Name + "-" + v.Name
	}
	if claim != "" {
		if pv := c.claimed[pod.Namespace+"/"+claim]; pv != nil {
			return ofPV(pv)
		}
		return "", Volume{}, false
	}
	plugin, driver, ok := pluginAndDriver(nil, v)
	if !ok {
		return "", Volume{}, false
	}
	name := pod.Namespace + "/" + pod.Name + "/" + v.Name
	source := &core.PersistentVolumeSource{
		AWSElasticBlockStore: v.AWSElasticBlockStore, AzureDisk: v.AzureDisk, GCEPersistentDisk: v.GCEPersistentDisk,
		VsphereVolume: v.VsphereVolume,
	}
	if v.Cinder != nil {
		source.Cinder = &core.CinderPersistentVolumeSource{VolumeID: v.Cinder.VolumeID}
	}
	return reportedName(plugin, source, name), Volume{Name: name, Plugin: plugin, Driver: driver}, true
}

// ofPV is ofPod for a PersistentVolume.
func ofPV(pv *core.PersistentVolume) (reported string, _ Volume, ok bool) {
	plugin, driver, ok := pluginAndDriver(pv, nil)
	if !ok {
		return "", Volume{}, false
	}
	return reportedName(plugin, &pv.Spec.PersistentVolumeSource, pv.Name),
		Volume{Name: pv.Name, Plugin: plugin, Driver: driver}, true
}

// pluginAndDriver returns the in-tree plugin of a volume, and the driver that replaces it.
func pluginAndDriver(pv *core.PersistentVolume, v *core.Volume) (plugin, driver string, ok bool) {
	plugin, err := translator.GetInTreePluginNameFromSpec(pv, v)
	if err != nil || plugin == "" {
		return "", "", false
	}
	driver, err = translator.GetCSINameFromInTreeName(plugin)
	return plugin, driver, err == nil
}

// reportedName returns the name under which kubelet reports a volume when an in-tree plugin
// attached it: the plugin's name and what the plugin calls the volume. A plugin that attaches
// nothing reports nothing; otherwise names its volumes then.
func reportedName(plugin string, source *core.PersistentVolumeSource, otherwise string) string {
	name := otherwise
	switch {
	case source.AWSElasticBlockStore != nil:
		name = source.AWSElasticBlockStore.VolumeID
	case source.AzureDisk != nil:
		name = source.AzureDisk.DataDiskURI
	case source.Cinder != nil:
		name = source.Cinder.VolumeID
	case source.GCEPersistentDisk != nil:
		name = source.GCEPersistentDisk.PDName
	case source.VsphereVolume != nil:
		name = source.VsphereVolume.VolumePath
	}
	return plugin + "/" + name
}

// attachedNames returns the names of the volumes that are attached to a node or in use on
// it, as kubelet and the controller manager report them.
func attachedNames(n *core.Node) []string {
	var names []string
	for _, v := range n.Status.VolumesAttached {
		names = append(names, string(v.Name))
	}
	for _, name := range n.Status.VolumesInUse {
		names = append(names, string(name))
	}
	return names
}

// pluginOf returns the plugin of a volume by the name under which kubelet reports it: such
// as kubernetes.io/aws-ebs of kubernetes.io/aws-ebs/vol-1.
func pluginOf(reported string) string {
	domain, rest, _ := strings.Cut(reported, "/")
	plugin, _, _ := strings.Cut(rest, "/")
	return domain + "/" + plugin
}
