// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/internal/text/mask"
)

// Bounds of what a node may put into an archive: a support bundle has at most two log files
// of 32 MiB for each service before it is packed, and a log is cut by the API server.
const (
	mostBundle = 512 << 20
	mostLog    = 32 << 20
	logLines   = 20_000
)

// Sysdump writes a zip with everything that support asks for: the support bundle of each
// node, what the API server says of CSI Proxy, of the Windows nodes and of what is attached
// to them, and the logs of CSI Proxy's and the drivers' pods on these nodes. It reads no
// Secret, and leaves the values of containers' variables out. What couldn't be had is listed
// in missing.txt.
func (a *Asker) Sysdump(ctx context.Context, w io.Writer, about string, now time.Time) ([]Asked, error) {
	d := &dump{zip: zip.NewWriter(w), now: now}
	d.add("about.txt", strings.NewReader(about))
	a.dumpCluster(ctx, d)
	answers, err := ask(ctx, a, func(ctx context.Context, n *core.Node, pod *core.Pod) (struct{}, error) {
		return struct{}{}, errors.Join(a.dumpBundle(ctx, d, n, pod), a.dumpLogs(ctx, d, n))
	}, func(n Asked, _ struct{}) Asked { return n })
	for _, got := range answers.Nodes {
		if got.Error != "" {
			d.miss("node %s: %s", got.Node, got.Error)
		}
		if got.Pod != "" {
			continue
		}
		// Something else has installed CSI Proxy there. The drivers' logs can be had all the same.
		if err := a.dumpLogs(ctx, d, &core.Node{ObjectMeta: metav1.ObjectMeta{Name: got.Node}}); err != nil {
			d.miss("logs of drivers on the node %s: %v", got.Node, err)
		}
	}
	if err != nil {
		d.miss("the nodes: %v", err)
	}
	slices.Sort(d.missing)
	d.add("missing.txt", strings.NewReader(strings.Join(append(d.missing, ""), "\n")))
	return answers.Nodes, errors.Join(d.err, d.zip.Close(), err)
}

// dump is a zip that is being written.
type dump struct {
	mu      sync.Mutex
	zip     *zip.Writer
	now     time.Time
	missing []string
	err     error // the first of writing
}

// add adds a file. What can't be read of it ends it, and is missing.
func (d *dump) add(name string, content io.Reader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, err := d.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: d.now})
	if err == nil {
		_, err = io.Copy(f, content)
	}
	d.err = errors.Join(d.err, err)
}

func (d *dump) miss(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing = append(d.missing, fmt.Sprintf(format, args...))
}

// unsafe is what a name of the API server becomes no part of a path with.
var unsafe = regexp.MustCompile(`[^A-Za-z0-9.-]|^\.+`)

// file joins names of the API server to a path in the archive.
func file(names ...string) string {
	for i, name := range names {
		names[i] = unsafe.ReplaceAllString(name, "_")
	}
	return path.Join(names...)
}

// bundle writes the support bundle of a node.
func (a *Asker) bundle(ctx context.Context, pod *core.Pod, to io.Writer) error {
	var stderr bytes.Buffer
	err := a.Exec(ctx, pod, []string{"support-bundle", "-", "--timeout=" + a.Timeout.String()}, &bounded{to, mostBundle},
		&bounded{&stderr, mostAnswer})
	if err != nil {
		return fmt.Errorf("support bundle: %w", execError(err, stderr.Bytes()))
	}
	return nil
}

// dumpBundle adds the support bundle of a node.
func (a *Asker) dumpBundle(ctx context.Context, d *dump, n *core.Node, pod *core.Pod) (err error) {
	f, err := os.CreateTemp("", "csi-proxy-sysdump-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if err := a.bundle(ctx, pod, f); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	d.add(file("nodes", n.Name, "support-bundle.zip"), f)
	return nil
}

// registrar is in the names of the containers by which drivers register with kubelet.
const registrar = "registrar"

// dumpLogs adds the logs of CSI Proxy's pod on a node and of those of CSI drivers: pods that
// register with kubelet.
func (a *Asker) dumpLogs(ctx context.Context, d *dump, n *core.Node) error {
	pods, err := cluster.PodsOn(ctx, a.Client, []*core.Node{n})
	if err != nil {
		return err
	}
	for _, pod := range pods[n.Name] {
		isDriver := slices.ContainsFunc(pod.Spec.Containers,
			func(c core.Container) bool { return strings.Contains(c.Name, registrar) })
		if !isDriver && pod.Namespace != a.Namespace {
			continue
		}
		for _, c := range pod.Spec.Containers {
			log, err := a.podLog(ctx, &pod, c.Name, logLines)
			if err != nil {
				d.miss("log of container %s of the pod %s/%s: %v", c.Name, pod.Namespace, pod.Name, err)
				continue
			}
			d.add(file("nodes", n.Name, "logs", pod.Namespace, pod.Name, c.Name+".log"),
				strings.NewReader(mask.Text(string(log))))
		}
	}
	return nil
}

// podLog returns the last lines of a container's log.
func (a *Asker) podLog(ctx context.Context, pod *core.Pod, container string, lines int64) ([]byte, error) {
	most := int64(mostLog)
	options := &core.PodLogOptions{Container: container, TailLines: &lines, LimitBytes: &most}
	stream, err := a.Client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(stream, mostLog))
	return text, errors.Join(err, stream.Close())
}

// dumpCluster adds what the API server says.
func (a *Asker) dumpCluster(ctx context.Context, d *dump) {
	windows := metav1.ListOptions{LabelSelector: core.LabelOSStable + "=windows"}
	all := metav1.ListOptions{}
	c := a.Client
	for _, kind := range []struct {
		name string
		list func() (runtime.Object, error)
	}{
		{"nodes", func() (runtime.Object, error) { return c.CoreV1().Nodes().List(ctx, windows) }},
		{"csinodes", func() (runtime.Object, error) { return c.StorageV1().CSINodes().List(ctx, all) }},
		{"csidrivers", func() (runtime.Object, error) { return c.StorageV1().CSIDrivers().List(ctx, all) }},
		{"volumeattachments", func() (runtime.Object, error) { return c.StorageV1().VolumeAttachments().List(ctx, all) }},
		{"storageclasses", func() (runtime.Object, error) { return c.StorageV1().StorageClasses().List(ctx, all) }},
		{"persistentvolumes", func() (runtime.Object, error) { return c.CoreV1().PersistentVolumes().List(ctx, all) }},
		{"csi-proxy/daemonsets", func() (runtime.Object, error) { return c.AppsV1().DaemonSets(a.Namespace).List(ctx, all) }},
		{"csi-proxy/pods", func() (runtime.Object, error) { return c.CoreV1().Pods(a.Namespace).List(ctx, all) }},
		{"csi-proxy/events", func() (runtime.Object, error) { return c.CoreV1().Events(a.Namespace).List(ctx, all) }},
	} {
		objects, err := kind.list()
		var text []byte
		if err == nil {
			text, err = publicYAML(objects)
		}
		if err != nil {
			d.miss("cluster/%s.yaml: %v", kind.name, err)
			continue
		}
		d.add("cluster/"+kind.name+".yaml", bytes.NewReader(text))
	}
}

// publicYAML returns objects without what may be secret in them: the values of containers'
// variables, parameters of drivers that are secrets by their names, and the copy of an object
// that kubectl keeps in an annotation.
func publicYAML(objects runtime.Object) ([]byte, error) {
	err := meta.EachListItem(objects, func(object runtime.Object) error {
		o, err := meta.Accessor(object)
		if err != nil {
			return err
		}
		o.SetManagedFields(nil)
		annotations := o.GetAnnotations()
		delete(annotations, core.LastAppliedConfigAnnotation)
		o.SetAnnotations(annotations)
		for name := range parameters(object) {
			if mask.IsSecret(name) {
				parameters(object)[name] = mask.Mask
			}
		}
		if pod := podSpec(object); pod != nil {
			for _, containers := range [][]core.Container{pod.InitContainers, pod.Containers} {
				for i := range containers {
					for j := range containers[i].Env {
						if v := &containers[i].Env[j].Value; *v != "" {
							*v = mask.Mask
						}
					}
				}
			}
		}
		kinds, _, err := scheme.Scheme.ObjectKinds(object)
		if err == nil {
			object.GetObjectKind().SetGroupVersionKind(kinds[0])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(objects)
}

// podSpec returns what an object says of pods; nil for nothing.
func podSpec(object runtime.Object) *core.PodSpec {
	switch o := object.(type) {
	case *core.Pod:
		return &o.Spec
	case *apps.DaemonSet:
		return &o.Spec.Template.Spec
	}
	return nil
}

// parameters returns what an object gives a driver; nil for nothing.
func parameters(object runtime.Object) map[string]string {
	switch o := object.(type) {
	case *core.PersistentVolume:
		if o.Spec.CSI != nil {
			return o.Spec.CSI.VolumeAttributes
		}
	case *storage.StorageClass:
		return o.Parameters
	}
	return nil
}
