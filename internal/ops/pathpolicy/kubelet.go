// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"cmp"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// ownOfKubelet are the names in kubelet's directory that belong to kubelet and its installers,
// beside pods, plugins and the files that end with _state.
//
// Source: kubernetes 1.24 and 1.37, pkg/kubelet: DefaultKubelet…DirName, image_manager, seccomp;
// DevicePluginPath of k8s.io/kubelet; cmd/kubelet: pki; kubeadm: config.yaml, kubeadm-flags.env;
// etc: PrepareNode.ps1 of sig-windows-tools.
var ownOfKubelet = []string{"bootstrap-kubeconfig", "checkpoints", "config.yaml", "config.yaml.d", "device-plugins", "etc", "image_manager",
	"kubeadm-flags.env", "kubeconfig", "pki", "plugin-containers", "plugins_registry", "pod-resources", "pods-api", "seccomp"}

// podData are kubelet's directories for a pod's own data, separate from the volumes of drivers.
// Links skips them: they have no staged paths, and users may have any number of files there,
// including links to volumes of other pods.
//
// Source: https://github.com/kubernetes/kubernetes/tree/master/pkg/volume (the plugins of these
// volumes have these names, with "/" for "~")
var podData = []string{
	"kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected",
	"kubernetes.io~downward-api",
}

// Names in kubelet's directory.
//
// Source: https://github.com/kubernetes/kubernetes/blob/master/pkg/kubelet/config/defaults.go,
// https://github.com/kubernetes/kubernetes/blob/master/pkg/volume/util/subpath/subpath_windows.go
const (
	pluginsDirectory  = "plugins"
	sharedDirectory   = "kubernetes.io" // in plugins
	csiDirectory      = "csi"           // in plugins\kubernetes.io
	stagingDirectory  = "globalmount"
	podsDirectory     = "pods"
	volumesDirectory  = "volumes"
	subpathsDirectory = "volume-subpaths"
	csiVolumes        = "kubernetes.io~csi" // in pods\UID\volumes
	csiMount          = "mount"             // the link to a pod's CSI volume
	csiData           = "vol_data.json"     // names the volume and its driver; made before the link, and removed after it
)

// Numbers of names below kubelet's directory.
const (
	stagingNames   = 6 // plugins, kubernetes.io, csi, DRIVER, VOLUME and globalmount
	podVolumeNames = 5 // pods, UID, volumes, PLUGIN and NAME
	subpathNames   = 6 // pods, UID, volume-subpaths, NAME, CONTAINER and INDEX
	publishedNames = 6 // pods, UID, volumes, kubernetes.io~csi, VOLUME and mount
)

// kubeletPlace tells what a path in kubelet's directory is for.
type kubeletPlace struct {
	kind  placeKind
	names []string // below kubelet's directory
}

// placeKind is the kind of a place in kubelet's directory.
type placeKind int

// Kinds of places. Kubelet makes volume-subpaths only on other systems than Windows. Everything else
// in the directory of a pod is made by the pod or its users: these files must neither slow down
// searches nor count as a use of volumes of other pods.
const (
	placeElsewhere    placeKind = iota // outside kubelet's directory, or none of the following
	placeOwnOfKubelet                  // pki, seccomp, …
	placePlugins                       // plugins
	placePlugin                        // plugins\DRIVER and below
	placeShared                        // plugins\kubernetes.io and below
	placeStaging                       // plugins\kubernetes.io\csi\DRIVER\VOLUME\globalmount and below

	// Places in the directory of pods.
	placePods           // pods
	placePod            // pods\UID
	placeVolumes        // the directories above placeVolume and placeCSIVolume
	placeVolume         // pods\UID\volumes\PLUGIN\NAME, pods\UID\volume-subpaths\NAME\CONTAINER\INDEX, files beside placePublished
	placeCSIVolume      // pods\UID\volumes\kubernetes.io~csi\VOLUME
	placePublished      // pods\UID\volumes\kubernetes.io~csi\VOLUME\mount
	placeBelowPublished // all below placePublished
	placePodData        // everything else in the directory of a pod
)

// inPods reports whether the place is kubelet's directory of pods, or lies below.
func (place kubeletPlace) inPods() bool { return place.kind >= placePods }

// placeOf returns the place of a path in kubelet's directory.
func (p *Policy) placeOf(path Path) kubeletPlace { return path.full().placeIn(p.allowed[0]) }

// placeIn returns the place of l in kubelet's directory, by its text.
func (l location) placeIn(kubelet location) kubeletPlace {
	if !l.inside(kubelet) || len(l.names) == len(kubelet.names) {
		return kubeletPlace{}
	}
	names := l.names[len(kubelet.names):]
	return kubeletPlace{kindOfPlace(names), names}
}

// kindOfPlace returns the kind of a place, given its names below kubelet's directory.
func kindOfPlace(names []string) placeKind {
	if win.SameName(names[0], podsDirectory) {
		return kindInPods(names)
	}
	if win.SameName(names[0], pluginsDirectory) {
		return kindInPlugins(names)
	}
	if isOwnOfKubelet(names[0]) {
		return placeOwnOfKubelet
	}
	return placeElsewhere
}

// isOwnOfKubelet reports whether a name in kubelet's directory belongs to kubelet itself.
func isOwnOfKubelet(name string) bool {
	const state = "_state"
	return slices.ContainsFunc(ownOfKubelet, func(own string) bool { return win.SameName(own, name) }) ||
		win.SameName(name[max(0, len(name)-len(state)):], state)
}

// kindInPlugins is kindOfPlace for names that begin with plugins.
func kindInPlugins(names []string) placeKind {
	if len(names) == 1 {
		return placePlugins
	}
	if !win.SameName(names[1], sharedDirectory) {
		return placePlugin
	}
	isCSI := len(names) >= stagingNames && win.SameName(names[2], csiDirectory)
	if isCSI && win.SameName(names[5], stagingDirectory) {
		return placeStaging
	}
	return placeShared
}

// kindInPods is kindOfPlace for names that begin with pods.
func kindInPods(names []string) placeKind {
	if len(names) == 1 {
		return placePods
	}
	if len(names) == 2 {
		return placePod
	}
	if win.SameName(names[2], subpathsDirectory) {
		return volumeKind(names, subpathNames)
	}
	if !win.SameName(names[2], volumesDirectory) {
		return placePodData
	}
	if len(names) >= podVolumeNames && win.SameName(names[3], csiVolumes) {
		return csiVolumeKind(names[podVolumeNames:])
	}
	return volumeKind(names, podVolumeNames)
}

// volumeKind is the kind of a place in a directory for the volumes of a pod, where the paths of
// volumes have count names.
func volumeKind(names []string, count int) placeKind {
	switch cmp.Compare(len(names), count) {
	case -1:
		return placeVolumes
	case 0:
		return placeVolume
	}
	return placePodData
}

// csiVolumeKind is the kind of a place in the directory of a pod's CSI volume. names are the names
// below the directory.
func csiVolumeKind(names []string) placeKind {
	if len(names) == 0 {
		return placeCSIVolume
	}
	isMount := win.SameName(names[0], csiMount)
	if isMount && len(names) == 1 {
		return placePublished
	}
	if isMount {
		return placeBelowPublished
	}
	return volumeKind(names, 1)
}

// PublishedAt parses the path of a pod's link to a CSI volume, and returns the UID of the pod and
// kubelet's name of the volume. For a staged volume, the name is that of the PersistentVolume. For
// all other paths, both are "".
func (p *Policy) PublishedAt(path Path) (pod, volume string) {
	place := p.placeOf(path)
	if place.kind != placePublished {
		return "", ""
	}
	return place.names[1], place.names[4]
}

// StagingPathOf returns the driver and kubelet's staging path of a CSI volume,
// plugins\kubernetes.io\csi\DRIVER\VOLUME\globalmount, for the staging path itself and all paths
// below. For other paths, both are "".
func (p *Policy) StagingPathOf(path Path) (staging, driver string) {
	place := p.placeOf(path)
	if place.kind != placeStaging {
		return "", ""
	}
	return p.allowed[0].below(place.names[:stagingNames]...).String(), place.names[3]
}

// IsOfKubelet reports whether a path lies where drivers stage and publish for kubelet: below
// plugins or pods in kubelet's directory. A path elsewhere may be an administrator's.
func (p *Policy) IsOfKubelet(path Path) bool {
	switch p.placeOf(path).kind {
	case placeElsewhere, placeOwnOfKubelet, placePlugins, placePods:
		return false
	}
	return true
}

// IsOfPod reports whether a path lies in a pod's own data. Drivers never stage or publish there.
func (p *Policy) IsOfPod(path Path) bool {
	place := p.placeOf(path)
	switch place.kind {
	case placePodData, placeBelowPublished:
		return true
	}
	return place.inPods() && slices.ContainsFunc(place.names, isPodData)
}

// isPodData reports whether a name is that of a directory for a pod's own data.
func isPodData(name string) bool {
	return slices.ContainsFunc(podData, func(data string) bool { return win.SameName(name, data) })
}
