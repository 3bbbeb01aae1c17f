// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

// Check is what "kubectl csi-proxy check" demands of each node beside a daemon that is well: the
// CSI drivers of its volumes. A node without the driver that replaces an in-tree plugin loses the
// plugin's volumes when the cluster is upgraded to a version without the plugin.
type Check struct {
	// Drivers are those that each node must have, whether or not it has volumes for them.
	Drivers []string
	// WithoutDaemon is for nodes whose drivers need no CSI Proxy: it may be missing.
	WithoutDaemon bool
}

// InTreeVolume is a volume on a node that is specified for an in-tree plugin, migrated or not.
type InTreeVolume struct {
	// Name is the name of the PersistentVolume. A volume in a pod's specification has
	// namespace/pod/volume, and a volume of the node's status the name there.
	Name string `json:"name"`
	// Driver is the CSI driver that replaces the plugin.
	Driver string `json:"driver"`
}

// inTree are the in-tree plugins that Kubernetes replaces by CSI drivers, as its library
// csi-translation-lib lists them. The list is complete: no plugin is added any more.
var inTree = []struct {
	plugin, driver string
	field          string // of the sources of a PersistentVolume and of a pod's volume
}{
	{"kubernetes.io/aws-ebs", "ebs.csi.aws.com", "AWSElasticBlockStore"},
	{"kubernetes.io/azure-disk", "disk.csi.azure.com", "AzureDisk"},
	{"kubernetes.io/azure-file", "file.csi.azure.com", "AzureFile"},
	{"kubernetes.io/cinder", "cinder.csi.openstack.org", "Cinder"},
	{"kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "GCEPersistentDisk"},
	{"kubernetes.io/portworx-volume", "pxd.portworx.com", "PortworxVolume"},
	{"kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", "VsphereVolume"},
}

// isSet reports whether a field of the source of a volume is set.
func isSet(source any, field string) bool { return !reflect.ValueOf(source).FieldByName(field).IsNil() }

// used is what the nodes have and use, as the API server knows it.
type used struct {
	drivers map[string][]string   // that are registered, by node
	pods    map[string][]core.Pod // by node; those that have ended aren't in it
	claimed map[string]*core.PersistentVolume
}

// readUsed reads what a check needs beside a status.
func readUsed(ctx context.Context, client kubernetes.Interface, nodes []*core.Node) (*used, error) {
	u := &used{drivers: make(map[string][]string), claimed: make(map[string]*core.PersistentVolume)}
	err := cmp.Or(
		cluster.Each(ctx, "CSINodes", client.StorageV1().CSINodes().List, meta.ListOptions{},
			func(n *storage.CSINode) {
				for _, driver := range n.Spec.Drivers {
					u.drivers[n.Name] = append(u.drivers[n.Name], driver.Name)
				}
				slices.Sort(u.drivers[n.Name])
			}),
		cluster.Each(ctx, "PersistentVolumes", client.CoreV1().PersistentVolumes().List, meta.ListOptions{},
			func(pv *core.PersistentVolume) {
				if claim := pv.Spec.ClaimRef; claim != nil {
					u.claimed[claim.Namespace+"/"+claim.Name] = pv
				}
			}))
	if err == nil {
		u.pods, err = cluster.PodsOn(ctx, client, nodes)
	}
	return u, err
}

// inTreeVolumes returns the volumes of in-tree plugins on a node, sorted by name: the volumes of its
// pods and, for a plugin without a volume in any pod, the volumes in the node's status.
func (u *used) inTreeVolumes(n *core.Node) []InTreeVolume {
	drivers := make(map[string]string) // by volume
	for _, pod := range u.pods[n.Name] {
		for i := range pod.Spec.Volumes {
			if name, driver := u.ofPod(&pod, &pod.Spec.Volumes[i]); driver != "" {
				drivers[name] = driver
			}
		}
	}
	attached := slices.Clone(n.Status.VolumesInUse)
	for _, v := range n.Status.VolumesAttached {
		attached = append(attached, v.Name)
	}
	byPods := maps.Clone(drivers)
	for _, of := range inTree {
		for _, name := range attached {
			if strings.HasPrefix(string(name), of.plugin+"/") &&
				!slices.Contains(slices.Collect(maps.Values(byPods)), of.driver) {
				drivers[string(name)] = of.driver
			}
		}
	}
	var all []InTreeVolume
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		all = append(all, InTreeVolume{name, drivers[name]})
	}
	return all
}

// ofPod returns the name of a pod's volume and the driver that replaces its in-tree plugin. For a volume
// of a CSI driver, both are empty.
func (u *used) ofPod(pod *core.Pod, v *core.Volume) (name, driver string) {
	claim := cluster.ClaimOf(pod, v)
	pv := u.claimed[pod.Namespace+"/"+claim]
	for _, of := range inTree {
		switch {
		case claim == "" && isSet(v.VolumeSource, of.field):
			return pod.Namespace + "/" + pod.Name + "/" + v.Name, of.driver
		case claim != "" && pv != nil && isSet(pv.Spec.PersistentVolumeSource, of.field):
			return pv.Name, of.driver
		}
	}
	return "", ""
}

// list returns a list that isn't null in JSON.
func list[T any](all []T) []T { return append([]T{}, all...) }

// check adds what a check finds on a node.
func (s *NodeStatus) check(n *core.Node, u *used, c *Check) {
	s.Drivers, s.InTree = list(u.drivers[n.Name]), list(u.inTreeVolumes(n))
	s.checkHostPaths(u.pods[n.Name])
	needed := make(map[string][]string) // by driver, the volumes that need it
	for _, driver := range c.Drivers {
		needed[driver] = nil
	}
	for _, v := range s.InTree {
		needed[v.Driver] = append(needed[v.Driver], v.Name)
	}
	if len(needed) == 0 && len(s.Drivers) == 0 {
		s.problem("no CSI driver is registered: deploy the node plugin of the driver that your pods need")
	}
	for _, driver := range slices.Sorted(maps.Keys(needed)) {
		switch volumes := needed[driver]; {
		case slices.Contains(s.Drivers, driver):
		case len(volumes) > 0:
			s.problem("the CSI driver %s isn't registered: after the upgrade the node can't mount %s; deploy the driver's "+
				"node plugin first", driver, strings.Join(volumes, ", "))
		default:
			s.problem("the CSI driver %s isn't registered: deploy its node plugin", driver)
		}
	}
}
