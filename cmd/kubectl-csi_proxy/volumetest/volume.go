// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package volumetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
)

// volume is the volume of a node, with its pods.
type volume struct {
	*run
	node *core.Node
	name string // of the claim; the pods' names begin with it
	// left are the objects that may be there still, as kubectl names them.
	left []string
	// capacity is the size of the volume before it grows, in bytes; isDisk says that volumes of the class are attached to nodes.
	capacity int64
	isDisk   bool
}

// file is the file that the pods write and read. The value in it is the name of the claim, which no other run has.
const file = `C:\data\csi-proxy-test.txt`

// What the containers run: commands that cmd itself has, beside ping, so that each Windows image has them.
const (
	writeCommand = `echo %s>` + file
	readCommand  = `set /p seen=<` + file + `& if not !seen!==%s exit 1`
	// growCommand ends when the free space is larger than the volume was. Arithmetic of cmd has 32 bits, so both are
	// compared in units of 1,000,000 bytes. The free space is the third word of the last line of dir.
	growCommand = `for /l %%i in (0,0,1) do ((for /f tokens^=3 %%a in ('dir /-c C:\data') do set free=%%a)& echo !free!& ` +
		`if !free:~0,-6! gtr %d (exit 0) else ping -n 3 127.0.0.1 >NUL)`
)

// failures say what it means that a container fails.
var failures = map[string]string{
	"write": "it couldn't write to the volume", "read": "the volume doesn't have what the first pod has written", "grow": "it couldn't see the size",
}

// images are the tags of Nano Server, by the build of Windows.
var images = map[string]string{"17763": "1809", "20348": "ltsc2022", "26100": "ltsc2025"}

// image returns the image of the pods.
func (v *volume) image() (string, error) {
	if v.Image != "" {
		return v.Image, nil
	}
	kernel := strings.Split(v.node.Status.NodeInfo.KernelVersion, ".") // such as 10.0.20348.2700
	if len(kernel) > 2 && images[kernel[2]] != "" {
		return "mcr.microsoft.com/windows/nanoserver:" + images[kernel[2]], nil
	}
	return "", fmt.Errorf("no image is known for Windows %s: name one with --image", v.node.Status.NodeInfo.KernelVersion)
}

func (v *volume) meta(name string) meta.ObjectMeta {
	return meta.ObjectMeta{Namespace: v.Namespace, Name: name, Labels: map[string]string{Label: v.run.name}}
}

func (v *volume) writer() string { return v.name + "-write" }
func (v *volume) reader() string { return v.name + "-read" }

// write makes the claim, and has the first pod write to its volume.
func (v *volume) write(ctx context.Context) error {
	image, err := v.image()
	if err != nil {
		return err
	}
	claim := &core.PersistentVolumeClaim{ObjectMeta: v.meta(v.name), Spec: core.PersistentVolumeClaimSpec{
		AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce}, StorageClassName: &v.Class,
		Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: v.Size}},
	}}
	v.left = append(v.left, "pvc/"+v.name)
	if _, err := v.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Create(ctx, claim, meta.CreateOptions{}); err != nil {
		return err
	}
	container := v.container("write", image, fmt.Sprintf(writeCommand, v.name))
	if err := v.createPod(ctx, v.writer(), container); err != nil {
		return err
	}
	return v.awaitExit(ctx, v.writer(), container.Name)
}

// read removes the first pod, and has the second one read what it has written. That pod then waits for the volume to grow.
func (v *volume) read(ctx context.Context) error {
	claim, err := v.claim(ctx)
	if err != nil {
		return err
	}
	v.capacity = claim.Status.Capacity.Storage().Value()
	if v.isDisk, err = v.attaches(ctx); err != nil {
		return err
	}
	writer := "pod/" + v.writer()
	if err := v.delete(ctx, writer); err != nil {
		return err
	}
	if err := v.awaitGone(ctx, writer); err != nil {
		return err
	}
	image, err := v.image()
	if err != nil {
		return err
	}
	containers := []core.Container{v.container("read", image, fmt.Sprintf(readCommand, v.name))}
	if v.grows() {
		containers = append(containers, v.container("grow", image, fmt.Sprintf(growCommand, v.capacity/1e6)))
	}
	if err := v.createPod(ctx, v.reader(), containers...); err != nil {
		return err
	}
	return v.awaitExit(ctx, v.reader(), "read")
}

// grow doubles the claim, and returns when the pod sees the new size.
func (v *volume) grow(ctx context.Context) error {
	size := v.Size.DeepCopy()
	size.Set(2 * max(size.Value(), v.capacity))
	patch := fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size.String())
	claims := v.Client.CoreV1().PersistentVolumeClaims(v.Namespace)
	if _, err := claims.Patch(ctx, v.name, types.MergePatchType, patch, meta.PatchOptions{}); err != nil {
		return err
	}
	err := await(ctx, "growth of the claim", func() (bool, string, error) {
		claim, err := v.claim(ctx)
		if err != nil {
			return false, "", err
		}
		var states []string
		for _, c := range claim.Status.Conditions {
			if c.Status == core.ConditionTrue {
				states = append(states, strings.TrimSuffix(string(c.Type)+": "+c.Message, ": "))
			}
		}
		return claim.Status.Capacity.Storage().Cmp(size) >= 0, strings.Join(states, "; "), nil
	})
	if err == nil {
		err = v.awaitExit(ctx, v.reader(), "grow")
	}
	return v.withEvent(ctx, err, "PersistentVolumeClaim", v.name)
}

// remove removes what the test has made, and returns when it is gone.
func (v *volume) remove(ctx context.Context) error {
	made := slices.Clone(v.left)
	if len(made) == 0 {
		return nil
	}
	pv, err := v.volumeName(ctx)
	for _, object := range made {
		err = errors.Join(err, v.delete(ctx, object))
	}
	for _, object := range made {
		err = errors.Join(err, v.awaitGone(ctx, object))
	}
	if err != nil || pv == "" || v.retains() {
		return err
	}
	return v.withEvent(ctx, v.awaitGone(ctx, "pv/"+pv), "PersistentVolume", pv)
}

// volumeName returns the name of the PersistentVolume; empty if there is none. The volume is left until it is gone.
func (v *volume) volumeName(ctx context.Context) (name string, _ error) {
	err := await(ctx, "find the volume", func() (bool, string, error) {
		claim, err := v.claim(ctx)
		if err != nil {
			return apierrors.IsNotFound(err), "", err
		}
		// The provisioner gives it this name, and may be about to bind it.
		name = cmp.Or(claim.Spec.VolumeName, "pvc-"+string(claim.UID))
		_, err = v.Client.CoreV1().PersistentVolumes().Get(ctx, name, meta.GetOptions{})
		if apierrors.IsNotFound(err) {
			name = ""
		}
		return name == "" || err == nil, "", err
	})
	if name != "" {
		v.left = append(v.left, "pv/"+name)
	}
	return name, err
}

// delete deletes an object of the namespace, which may be gone.
func (v *volume) delete(ctx context.Context, object string) error {
	kind, name, _ := strings.Cut(object, "/")
	return await(ctx, "delete "+object, func() (bool, string, error) {
		remove := v.Client.CoreV1().Pods(v.Namespace).Delete
		if kind == "pvc" {
			remove = v.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Delete
		}
		err := remove(ctx, name, meta.DeleteOptions{})
		return err == nil || apierrors.IsNotFound(err), "", err
	})
}

// awaitGone returns when there is no such object any more.
func (v *volume) awaitGone(ctx context.Context, object string) error {
	kind, name, _ := strings.Cut(object, "/")
	err := await(ctx, "removal of "+object, func() (_ bool, _ string, err error) {
		switch kind {
		case "pod":
			_, err = v.Client.CoreV1().Pods(v.Namespace).Get(ctx, name, meta.GetOptions{})
		case "pvc":
			_, err = v.claim(ctx)
		default:
			_, err = v.Client.CoreV1().PersistentVolumes().Get(ctx, name, meta.GetOptions{})
		}
		return apierrors.IsNotFound(err), "", err
	})
	if err == nil {
		v.left = slices.DeleteFunc(v.left, func(o string) bool { return o == object })
	}
	return err
}

func (v *volume) claim(ctx context.Context) (*core.PersistentVolumeClaim, error) {
	return v.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Get(ctx, v.name, meta.GetOptions{})
}

// attaches reports whether the driver's volumes are attached to nodes, as disks are.
func (v *volume) attaches(ctx context.Context) (bool, error) {
	driver, err := v.Client.StorageV1().CSIDrivers().Get(ctx, v.class.Provisioner, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && (driver.Spec.AttachRequired == nil || *driver.Spec.AttachRequired), err
}

// container returns a container that runs a command with the volume as C:\data. It runs as ContainerAdministrator, since the
// access list of a new volume may keep ContainerUser from writing.
func (v *volume) container(name, image, command string) core.Container {
	user := "ContainerAdministrator"
	return core.Container{
		Name: name, Image: image, Command: []string{"cmd", "/v:on", "/c", command},
		TerminationMessagePolicy: core.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             []core.VolumeMount{{Name: "data", MountPath: `C:\data`}},
		SecurityContext:          &core.SecurityContext{WindowsOptions: &core.WindowsSecurityContextOptions{RunAsUserName: &user}},
	}
}

// createPod makes a pod on the node. The scheduler binds it, as a StorageClass whose volumes wait for a pod needs.
func (v *volume) createPod(ctx context.Context, name string, containers ...core.Container) error {
	no, now := false, int64(1)
	pod := &core.Pod{ObjectMeta: v.meta(name), Spec: core.PodSpec{
		RestartPolicy: core.RestartPolicyNever, DNSPolicy: core.DNSDefault, TerminationGracePeriodSeconds: &now, AutomountServiceAccountToken: &no,
		Tolerations: []core.Toleration{{Operator: core.TolerationOpExists}},
		Affinity: &core.Affinity{NodeAffinity: &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{
			NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{v.node.Name}}}}},
		}}},
		Containers: containers,
		Volumes: []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
			PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: v.name}}}},
	}}
	v.left = append(v.left, "pod/"+name)
	_, err := v.Client.CoreV1().Pods(v.Namespace).Create(ctx, pod, meta.CreateOptions{})
	return err
}

// awaitExit returns when a container has ended with exit code 0.
func (v *volume) awaitExit(ctx context.Context, name, container string) error {
	err := await(ctx, "pod "+name+", container "+container, func() (bool, string, error) {
		pod, err := v.Client.CoreV1().Pods(v.Namespace).Get(ctx, name, meta.GetOptions{})
		if err != nil {
			return false, "", err
		}
		for _, s := range pod.Status.ContainerStatuses {
			switch ended := s.State.Terminated; {
			case s.Name != container || ended == nil:
			case ended.ExitCode == 0:
				return true, "", nil
			default:
				return false, "", fmt.Errorf("%s: exit code %d %s", failures[container], ended.ExitCode, strings.Join(strings.Fields(ended.Message), " "))
			}
		}
		if pod.Status.Phase == core.PodFailed {
			return false, "", fmt.Errorf("the pod has failed: %s %s", pod.Status.Reason, pod.Status.Message)
		}
		return false, cluster.WhyNotReady(pod), nil
	})
	return v.withEvent(ctx, err, "Pod", name)
}

// withEvent adds the newest warning about an object, or event about a volume, to an error, if there is one.
func (v *volume) withEvent(ctx context.Context, err error, kind, name string) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	// A step that took too long has used up its own time.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	newest := (*core.Event)(nil)
	about := meta.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name}
	if kind != "PersistentVolume" { // that it is still attached is no warning
		about.FieldSelector += ",type=Warning"
	}
	listErr := cluster.Each(ctx, "events", v.Client.CoreV1().Events(meta.NamespaceAll).List, about, func(e *core.Event) {
		if newest == nil || e.LastTimestamp.After(newest.LastTimestamp.Time) {
			newest = e
		}
	})
	if listErr == nil && newest != nil {
		return fmt.Errorf("%w; %s: %s", err, newest.Reason, strings.Join(strings.Fields(newest.Message), " "))
	}
	return errors.Join(err, listErr)
}
