// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// scenario is one run of a scenario: a namespace of the cluster, and a node that nothing else uses.
type scenario struct {
	*node
	ctx        context.Context
	name       string
	cluster    *cluster
	wire       *wire
	driverName string
	random     *rand.Rand
	planted    plant // a fault that the invariants must find

	began    time.Time
	first    int // its first call on the wire
	volumes  []*volume
	pods     []*pod
	expected expectation

	mu     sync.Mutex
	found  []string // what was wrong
	warned int      // how many events of type Warning there were
}

// expectation is what a scenario leads to besides what must never be.
type expectation struct {
	// calls is how often each call of the Node service succeeds.
	calls map[string]int
	// failing calls may fail, and then come again.
	failing []string
	// events are the reasons of warnings that there may be.
	events []string
	// repeated calls may succeed more often than that.
	repeated []string
}

// wrong notes something that must not be.
func (s *scenario) wrong(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf(format, a...)
	if !slices.Contains(s.found, text) {
		s.found = append(s.found, text)
	}
}

// must ends the scenario if there is an error.
func (s *scenario) must(err error) {
	if err != nil {
		s.wrong("%v", err)
		runtime.Goexit()
	}
}

// await returns when something is so. It ends the scenario when a planted fault has been found.
func (s *scenario) await(what string, is func() (bool, error)) {
	s.must(s.cluster.await(s.ctx, what, func() (bool, error) {
		if s.planted.name != "" && s.has(s.planted.found) {
			runtime.Goexit()
		}
		return is()
	}))
}

// has reports whether something was noted that contains a text.
func (s *scenario) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.found, func(f string) bool { return strings.Contains(f, text) })
}

// note says what the seed has chosen.
func (s *scenario) note(format string, a ...any) {
	fmt.Printf("%s: "+format+"\n", append([]any{s.name}, a...)...)
}

// ask calls the control of the simulated node. It ends the scenario if that fails.
func ask[Response any, Message interface {
	*Response
	proto.Message
}](s *scenario, method string, request proto.Message) Message {
	response, err := sim[Response, Message](s.ctx, s.node, method, request)
	s.must(err)
	return response
}

// volume is a volume with its claim.
type volume struct {
	id, pv, claim string
	size          int64
	deletes       bool // whether the real provisioner deletes it
}

// volumeOptions are for volumes that aren't those of most scenarios.
type volumeOptions struct {
	mode       corev1.PersistentVolumeAccessMode // by default ReadWriteOnce
	parameters map[string]string                 // of a volume that is there already, in the place of a new disk
	secret     string                            // the name of the secret for staging
}

const gib = 1 << 30

// newVolume does what the external provisioner does for a claim, and makes the claim.
func (s *scenario) newVolume(o volumeOptions) *volume {
	if o.mode == "" {
		o.mode = corev1.ReadWriteOnce
	}
	v := &volume{pv: fmt.Sprintf("pv-%s-%d", s.name, len(s.volumes)), size: (1 + s.random.Int64N(4)) * gib}
	pv := s.volumeFor(v, o.mode, "ntfs")
	if o.secret != "" {
		pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: s.name, Name: o.secret}
	}
	if o.mode == corev1.ReadWriteMany { // a share
		pv.Spec.CSI.FSType = ""
	}
	if o.parameters == nil {
		s.provision(v, pv, s.options.parameters, &csi.CapacityRange{RequiredBytes: v.size})
	} else {
		s.provision(v, pv, o.parameters, nil)
	}
	s.bind(v, pv)
	return v
}

// volumeFor returns a PersistentVolume, still without a volume of the driver.
func (s *scenario) volumeFor(v *volume, mode corev1.PersistentVolumeAccessMode, fileSystem string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.pv},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.size, resource.BinarySI)},
			AccessModes: []corev1.PersistentVolumeAccessMode{mode},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: s.driverName, FSType: fileSystem},
			},
		},
	}
}

// provision has the driver create a volume.
func (s *scenario) provision(v *volume, pv *corev1.PersistentVolume, parameters map[string]string, size *csi.CapacityRange) {
	created, err := callController[csi.CreateVolumeResponse](s.ctx, s.wire, "CreateVolume", &csi.CreateVolumeRequest{
		Name: v.pv, Parameters: parameters, CapacityRange: size, VolumeCapabilities: []*csi.VolumeCapability{capabilityOf(pv)},
	})
	s.must(err)
	v.id = created.Volume.VolumeId
	pv.Spec.CSI.VolumeHandle, pv.Spec.CSI.VolumeAttributes = v.id, created.Volume.VolumeContext
	s.volumes = append(s.volumes, v)
}

// bind makes a claim that gets the PersistentVolume.
func (s *scenario) bind(v *volume, pv *corev1.PersistentVolume) {
	v.claim = "claim-" + pv.Name
	pv.Spec.StorageClassName = storageClass
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: s.name, Name: v.claim}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	_, err := s.cluster.CoreV1().PersistentVolumes().Create(s.ctx, pv, metav1.CreateOptions{})
	s.must(err)
	class := storageClass
	_, err = s.cluster.CoreV1().PersistentVolumeClaims(s.name).Create(s.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: v.claim},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: pv.Spec.AccessModes, VolumeName: pv.Name, StorageClassName: &class,
			Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.awaitBound(v)
}

// awaitBound returns the claim when it has its PersistentVolume.
func (s *scenario) awaitBound(v *volume) (claim *corev1.PersistentVolumeClaim) {
	s.await("the claim "+v.claim+" is bound", func() (_ bool, err error) {
		claim, err = s.cluster.CoreV1().PersistentVolumeClaims(s.name).Get(s.ctx, v.claim, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound, err
	})
	return claim
}

// unbind removes the claim and the PersistentVolume. The real provisioner then deletes a volume that
// it made; others stay.
func (s *scenario) unbind(v *volume) {
	s.must(s.cluster.CoreV1().PersistentVolumeClaims(s.name).Delete(s.ctx, v.claim, metav1.DeleteOptions{}))
	if !v.deletes {
		s.must(s.cluster.CoreV1().PersistentVolumes().Delete(s.ctx, v.pv, metav1.DeleteOptions{}))
	}
	s.await("the PersistentVolume "+v.pv+" is gone", func() (bool, error) {
		_, err := s.cluster.CoreV1().PersistentVolumes().Get(s.ctx, v.pv, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// pod is a pod.
type pod struct {
	name    string
	uid     string
	volumes []*volume
	created time.Time
	running time.Time // zero until then
	deleted time.Time
}

// newPod makes a pod on the node.
func (s *scenario) newPod(volumes ...*volume) *pod {
	app := corev1.Container{Name: "app", Image: "example.com/app"}
	spec := corev1.PodSpec{DNSPolicy: corev1.DNSDefault}
	for _, v := range volumes {
		app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: v.claim, MountPath: "/" + v.claim})
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: v.claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.claim},
		}})
	}
	spec.Containers = []corev1.Container{app}
	return s.makePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", len(s.pods))}, Spec: spec}, volumes...)
}

// makePod makes a pod on the node as it is given.
func (s *scenario) makePod(given *corev1.Pod, volumes ...*volume) *pod {
	p := &pod{name: given.Name, volumes: volumes, created: time.Now()}
	given = given.DeepCopy()
	given.Spec.NodeName = nodeName // which a scheduler would choose
	made, err := s.cluster.CoreV1().Pods(s.name).Create(s.ctx, given, metav1.CreateOptions{})
	s.must(err)
	p.uid = string(made.UID)
	s.pods = append(s.pods, p)
	return p
}

// awaitRunning returns when the pod runs.
func (s *scenario) awaitRunning(p *pod) {
	s.await(p.name+" is running", func() (bool, error) {
		now, err := s.cluster.CoreV1().Pods(s.name).Get(s.ctx, p.name, metav1.GetOptions{})
		return err == nil && now.Status.Phase == corev1.PodRunning, err
	})
	p.running = time.Now()
}

// startPod makes a pod and returns when it runs.
func (s *scenario) startPod(volumes ...*volume) *pod {
	p := s.newPod(volumes...)
	s.awaitRunning(p)
	return p
}

// startWriter makes a volume and a pod on it, which writes a file, and returns when it has.
func (s *scenario) startWriter(o volumeOptions) (v *volume, p *pod, text string) {
	v, text = s.newVolume(o), s.text()
	p = s.startPod(v)
	s.write(p, "data", text)
	return v, p, text
}

// endReader ends the last pod that uses its volumes, after it has seen what is in that file.
func (s *scenario) endReader(p *pod, text string) {
	s.sees(p, "data", text)
	s.endLast(p)
}

func (s *scenario) deletePod(p *pod) {
	p.deleted = time.Now()
	s.must(s.cluster.CoreV1().Pods(s.name).Delete(s.ctx, p.name, metav1.DeleteOptions{}))
}

// endPod deletes the pod and returns when it is gone. Its volume may still be staged then.
func (s *scenario) endPod(p *pod) {
	s.deletePod(p)
	s.await(p.name+" is gone", func() (bool, error) {
		_, err := s.cluster.CoreV1().Pods(s.name).Get(s.ctx, p.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// endLast ends the last pod that uses its volumes, and returns when they are detached.
func (s *scenario) endLast(p *pod) {
	s.endPod(p)
	for _, v := range p.volumes {
		s.awaitDetached(v)
	}
}

// awaitDetached returns when the cluster has no attachment of the volume.
func (s *scenario) awaitDetached(v *volume) {
	s.await(v.pv+" is detached", func() (bool, error) {
		all, err := s.cluster.StorageV1().VolumeAttachments().List(s.ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, va := range all.Items {
			if *va.Spec.Source.PersistentVolumeName == v.pv {
				return false, nil
			}
		}
		return true, nil
	})
}

// awaitCall returns when there is a call of a method about a volume that is so.
func (s *scenario) awaitCall(method string, v *volume, what string, is func(call) bool) {
	s.await(method+" of "+v.pv+" "+what, func() (bool, error) {
		for _, c := range s.calls(v) {
			if c.method == method && is(c) {
				return true, nil
			}
		}
		return false, nil
	})
}

// calls returns the scenario's calls about a volume.
func (s *scenario) calls(v *volume) (calls []call) {
	for _, c := range s.wire.list()[s.first:] {
		if c.volume() == v.id {
			calls = append(calls, c)
		}
	}
	return calls
}

// target is where kubelet has a volume published for a pod.
func (p *pod) target(v *volume) string {
	return podsDrive + windowsRoot + `\pods\` + p.uid + `\volumes\kubernetes.io~csi\` + v.pv + `\mount`
}

// file is the path of a file that a pod has in a volume.
func (p *pod) file(v *volume, name string) string { return p.target(v) + `\` + name }

// write has the pod write a file, with the text and the volume's id, to each of its volumes.
func (s *scenario) write(p *pod, name, text string) {
	for _, v := range p.volumes {
		ask[simv1.Empty](s, "WriteFile", &simv1.WriteFileRequest{Path: p.file(v, name), Data: []byte(text + v.id)})
	}
}

// read returns what the pod sees in a file that was written so.
func (s *scenario) read(p *pod, v *volume, name string) (text string, err error) {
	data, err := sim[simv1.Data](s.ctx, s.node, "ReadFile", &simv1.Path{Path: p.file(v, name)})
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(string(data.Data), v.id)
	if !ok && text != "" { // which is what a loss of power leaves of a new file
		s.wrong("%s sees %q, which isn't of %s", p.name, data.Data, v.pv)
	}
	return text, nil
}

// sees notes it if a file that the pod sees in its volumes has other contents.
func (s *scenario) sees(p *pod, name, text string) {
	for _, v := range p.volumes {
		if seen, err := s.read(p, v, name); err != nil {
			s.wrong("%s doesn't see its data: %v", p.name, err)
		} else if seen != text {
			s.wrong("%s sees %q in the place of %q", p.name, seen, text)
		}
	}
}

// disk returns the disk of a volume; nil if it isn't attached.
func (s *scenario) disk(v *volume) *simv1.Disk {
	disks, err := sim[simv1.ListDisksResponse](s.ctx, s.node, "ListDisks", &simv1.Empty{})
	s.must(err)
	for _, d := range disks.Disks {
		if d.SerialNumber == v.id && d.DiskNumber != nil {
			return d
		}
	}
	return nil
}

// text returns contents for a file that no other has.
func (s *scenario) text() string {
	return strings.Repeat(fmt.Sprintf("%s %x ", s.name, s.random.Uint64()), 1+s.random.IntN(50))
}
