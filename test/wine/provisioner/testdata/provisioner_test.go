// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csiproxy tests the provisioner with CSI Proxy on a simulated node. See test/wine/provisioner/run.
package csiproxy

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/mount"

	"sigs.k8s.io/sig-storage-local-static-provisioner/pkg/cache"
	"sigs.k8s.io/sig-storage-local-static-provisioner/pkg/common"
	"sigs.k8s.io/sig-storage-local-static-provisioner/pkg/deleter"
	"sigs.k8s.io/sig-storage-local-static-provisioner/pkg/discovery"
	"sigs.k8s.io/sig-storage-local-static-provisioner/pkg/util"
)

const (
	class    = "local"
	nodeName = "node-1"
	file     = `\of-tenant-1`
)

// ctl runs csi-proxyctl as an administrator of the node.
func ctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("csi-proxyctl-sim.exe", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("csi-proxyctl %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// localVolume mounts a new volume in a directory as an administrator does.
func localVolume(t *testing.T, dir string) {
	t.Helper()
	path := dir + `\ssd0`
	// The provisioner reads its container's directory, which is Wine's here.
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	disk := ctl(t, "sim", "disk", "attach", "--size", "1GiB")
	ctl(t, "disk", "partition", disk)
	listed := strings.Fields(ctl(t, "volume", "list", disk))
	volume := listed[len(listed)-1] // below the head of the table
	ctl(t, "volume", "format", volume)
	ctl(t, "sim", "file", "mkdir", path)
	ctl(t, "volume", "mount", volume, path)
}

// provisioner is what the program local-volume-provisioner runs for a directory.
type provisioner struct {
	*common.RuntimeConfig
	discoverer *discovery.Discoverer
	deleter    *deleter.Deleter
	procs      deleter.ProcTable
}

func newProvisioner(t *testing.T, dir string) *provisioner {
	t.Helper()
	volumes, err := util.NewVolumeUtil()
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleClientset(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}})
	config := &common.RuntimeConfig{
		UserConfig: &common.UserConfig{
			Node:         &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, UID: "1", Labels: map[string]string{common.NodeLabelKey: nodeName}}},
			DiscoveryMap: map[string]common.MountConfig{class: {HostDir: dir, MountDir: dir, VolumeMode: "Filesystem"}},
		},
		Name:            "provisioner",
		Client:          client,
		Cache:           cache.NewVolumeCache(),
		APIUtil:         util.NewAPIUtil(client),
		VolUtil:         volumes,
		Recorder:        record.NewFakeRecorder(100),
		Mounter:         mount.New(""),
		InformerFactory: informers.NewSharedInformerFactory(client, 0),
	}
	procs := deleter.NewProcTable()
	tracker := &deleter.CleanupStatusTracker{ProcTable: procs}
	discoverer, err := discovery.NewDiscoverer(config, tracker)
	if err != nil {
		t.Fatal(err)
	}
	config.InformerFactory.Start(t.Context().Done())
	config.InformerFactory.WaitForCacheSync(t.Context().Done())
	return &provisioner{config, discoverer, deleter.NewDeleter(config, tracker), procs}
}

// discover runs a discovery, and returns the only PersistentVolume.
func (p *provisioner) discover(t *testing.T) *v1.PersistentVolume {
	t.Helper()
	p.discoverer.DiscoverLocalVolumes()
	if err := p.discoverer.Readyz.Check(nil); err != nil {
		t.Error(err)
	}
	list, err := p.Client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("PersistentVolumes %+v, %v", list, err)
	}
	return &list.Items[0]
}

// clean releases a PersistentVolume, and waits until the deleter has tried to empty the volume.
func (p *provisioner) clean(t *testing.T, pv *v1.PersistentVolume) {
	t.Helper()
	pv.Status.Phase = v1.VolumeReleased
	p.Cache.AddPV(pv)
	p.deleter.DeletePVs()
	for p.procs.IsRunning(pv.Name) {
		time.Sleep(10 * time.Millisecond)
	}
}

// A volume in a directory of -reformat-dir becomes a PersistentVolume, is emptied once that is released, and becomes one
// again for the next tenant.
func TestReuse(t *testing.T) {
	const dir = `C:\mnt\disks`
	localVolume(t, dir)
	p := newProvisioner(t, dir)
	for range 2 {
		pv := p.discover(t)
		if capacity := pv.Spec.Capacity[v1.ResourceStorage]; pv.Spec.Local.Path != dir+`\ssd0` ||
			capacity.Value() < 900<<20 || capacity.Value() > 1<<30 {
			t.Errorf("%+v", pv.Spec)
		}
		ctl(t, "sim", "file", "write", dir+`\ssd0`+file, "--text", "secret")
		p.clean(t, pv)
		if names := ctl(t, "sim", "file", "ls", dir+`\ssd0`); strings.Contains(names, file[1:]) {
			t.Errorf("the first tenant's file is there: %s", names)
		}
		p.deleter.DeletePVs()
		p.Cache.DeletePV(pv.Name) // as the informer does
		if _, err := p.Client.CoreV1().PersistentVolumes().Get(context.Background(), pv.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the emptied PersistentVolume: %v", err)
		}
	}
}

// Elsewhere, the volume keeps its files, and the PersistentVolume stays.
func TestReuseRefused(t *testing.T) {
	const dir = `C:\mnt\other`
	localVolume(t, dir)
	p := newProvisioner(t, dir)
	pv := p.discover(t)
	ctl(t, "sim", "file", "write", dir+`\ssd0`+file, "--text", "secret")
	p.clean(t, pv)
	if state, _, err := p.procs.RemoveEntry(pv.Name); state != deleter.CSFailed || err != nil {
		t.Errorf("the state of the cleaning is %v, %v", state, err)
	}
	if got := ctl(t, "sim", "file", "read", dir+`\ssd0`+file); got != "secret" {
		t.Errorf("the file has %q", got)
	}
	p.discover(t)
}
