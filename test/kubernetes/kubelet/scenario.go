// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// scenario is one run of a scenario: a namespace of the cluster, and a node that nothing else uses.
type scenario struct {
	*node
	abilities
	second     *secondNode // nil in most scenarios
	ctx        context.Context
	name       string
	cluster    *cluster
	wire       *wire
	driverName string
	random     *rand.Rand
	planted    plant // a fault that the invariants must find; zero: none

	began    time.Time
	first    int // its first call on the wire
	volumes  []*volume
	pods     []*pod
	expected expectation

	mu     sync.Mutex
	found  []string // what was wrong
	missed []string // the calls that didn't crash in the middle
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

// nodeNamed returns the second node by its name, else the first one.
func (s *scenario) nodeNamed(name string) *node {
	if s.second != nil && name == secondName {
		return s.second.node
	}
	return s.node
}

// must ends the scenario if there is an error.
func (s *scenario) must(err error) {
	if err != nil {
		s.wrong("%v", err)
		runtime.Goexit()
	}
}

// succeeds ends the scenario if a call that returns an error, too, fails.
func (s *scenario) succeeds(_ any, err error) { s.must(err) }

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
	return askOn[Response, Message](s, s.node, method, request)
}

// askOn is the same for a node.
func askOn[Response any, Message interface {
	*Response
	proto.Message
}](s *scenario, n *node, method string, request proto.Message) Message {
	response, err := sim[Response, Message](s.ctx, n, method, request)
	s.must(err)
	return response
}

// volume is a volume with its claim.
type volume struct {
	id, pv, claim string
	class         string // the name of its StorageClass
	size          int64
	retained      bool // whether the provisioner leaves it when its claim goes
}

// volumeOptions are for volumes that aren't those of most scenarios.
type volumeOptions struct {
	mode       corev1.PersistentVolumeAccessMode // by default ReadWriteOnce
	parameters map[string]string                 // of a volume that is there already, in the place of a new disk
	secret     string                            // the name of the secret for staging
}

const gib = 1 << 30

// newVolume has the provisioner make a volume for a claim.
func (s *scenario) newVolume(o volumeOptions) *volume { return s.awaitMade(s.newClaim(o)) }

// shareAsVolume does what an administrator does for a share.
func (s *scenario) shareAsVolume(mode corev1.PersistentVolumeAccessMode) *volume {
	v := &volume{pv: fmt.Sprintf("pv-%s-%d", s.name, len(s.volumes)), size: (1 + s.random.Int64N(4)) * gib, retained: true}
	if _, err := s.cluster.CoreV1().Secrets(s.name).Get(s.ctx, secretName, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		s.newSecret(shareUser, sharePassword)
	}
	v.id = "share-" + v.pv
	s.volumes = append(s.volumes, v)
	s.bind(v, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: v.pv},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(v.size, resource.BinarySI)},
			AccessModes: []corev1.PersistentVolumeAccessMode{mode},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{
					Driver: s.driverName, VolumeHandle: v.id, VolumeAttributes: s.newShare(v.pv),
					NodeStageSecretRef: &corev1.SecretReference{Namespace: s.name, Name: secretName},
				},
			},
		},
	})
	return v
}

// Who may use the shares.
const shareUser, sharePassword = `files\pods`, "right-password"

// volumeWord stands for the name of a volume's PersistentVolume in -share.
const volumeWord = "$VOLUME"

// newShare makes the share of a volume, and returns its parameters.
func (s *scenario) newShare(volume string) map[string]string {
	name, parameters := "data", maps.Clone(s.options.share)
	for key, value := range parameters {
		if strings.Contains(value, volumeWord) {
			name, parameters[key] = volume, strings.ReplaceAll(value, volumeWord, volume)
		}
	}
	server, _, _ := strings.Cut(shareUser, `\`)
	ask[simv1.Empty](s, "AddSmbShare", &simv1.SmbShare{Server: server, Name: name, Users: []string{shareUser}})
	ask[simv1.Empty](s, "SetSmbUser", &simv1.SmbUser{Server: server, User: shareUser, Password: sharePassword})
	return parameters
}

// secretName is the name of the secret for staging.
const secretName = "storage"

// newSecret makes the secret for staging.
func (s *scenario) newSecret(user, password string) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: secretName},
		StringData: map[string]string{"username": user, "password": password},
	}
	s.succeeds(s.cluster.CoreV1().Secrets(s.name).Create(s.ctx, secret, metav1.CreateOptions{}))
	return secret
}

// newClaim makes a claim for a volume, with a StorageClass of its own. For a driver that has only shares
// there is none: the volume is there already.
func (s *scenario) newClaim(o volumeOptions) *volume {
	if s.shares {
		return s.shareAsVolume(cmp.Or(o.mode, corev1.ReadWriteMany))
	}
	yes, name := true, fmt.Sprintf("%s-%d", s.name, len(s.volumes))
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: s.driverName, AllowVolumeExpansion: &yes,
		Parameters: map[string]string{},
	}
	mode := cmp.Or(o.mode, corev1.ReadWriteOnce)
	if mode == corev1.ReadWriteMany {
		class.Parameters = s.newShare(name)
	} else {
		maps.Copy(class.Parameters, o.parameters)
		class.Parameters["csi.storage.k8s.io/fstype"] = "ntfs"
	}
	if o.secret != "" {
		class.Parameters["csi.storage.k8s.io/node-stage-secret-name"] = o.secret
		class.Parameters["csi.storage.k8s.io/node-stage-secret-namespace"] = s.name
	}
	size := (1 + s.random.Int64N(4)) * gib
	return s.claim(class, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim-" + name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{mode}, StorageClassName: &name,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)},
			},
		},
	})
}

// persistentVolume returns the PersistentVolume of a volume.
func (s *scenario) persistentVolume(v *volume) *corev1.PersistentVolume {
	pv, err := s.cluster.CoreV1().PersistentVolumes().Get(s.ctx, v.pv, metav1.GetOptions{})
	s.must(err)
	return pv
}

// bind makes a claim that gets the PersistentVolume.
func (s *scenario) bind(v *volume, pv *corev1.PersistentVolume) {
	v.claim = "claim-" + pv.Name
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: s.name, Name: v.claim}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	s.succeeds(s.cluster.CoreV1().PersistentVolumes().Create(s.ctx, pv, metav1.CreateOptions{}))
	s.succeeds(s.cluster.CoreV1().PersistentVolumeClaims(s.name).Create(s.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: v.claim},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: pv.Spec.AccessModes, VolumeName: pv.Name, StorageClassName: &pv.Spec.StorageClassName, VolumeMode: pv.Spec.VolumeMode,
			Resources: corev1.VolumeResourceRequirements{Requests: pv.Spec.Capacity},
		},
	}, metav1.CreateOptions{}))
	s.awaitBound(v)
}

// rebind gives a volume another PersistentVolume than that of the provisioner, as an administrator does,
// and a claim for it.
func (s *scenario) rebind(v *volume, change func(*corev1.PersistentVolume)) {
	s.retain(v)
	pv := s.persistentVolume(v)
	s.unbind(v)
	again := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name + "-" + s.name}, Spec: pv.Spec}
	change(again)
	v.pv = again.Name
	s.bind(v, again)
}

// awaitBound returns the claim when it has its PersistentVolume.
func (s *scenario) awaitBound(v *volume) (claim *corev1.PersistentVolumeClaim) {
	s.await("the claim "+v.claim+" is bound", func() (_ bool, err error) {
		claim, err = s.cluster.CoreV1().PersistentVolumeClaims(s.name).Get(s.ctx, v.claim, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound, err
	})
	return claim
}

// unbind removes the claim and the PersistentVolume. The provisioner then deletes the volume, unless it
// is retained.
func (s *scenario) unbind(v *volume) {
	s.must(s.cluster.CoreV1().PersistentVolumeClaims(s.name).Delete(s.ctx, v.claim, metav1.DeleteOptions{}))
	if v.retained {
		s.must(s.cluster.CoreV1().PersistentVolumes().Delete(s.ctx, v.pv, metav1.DeleteOptions{}))
	}
	s.await("the PersistentVolume "+v.pv+" is gone", func() (bool, error) {
		_, err := s.cluster.CoreV1().PersistentVolumes().Get(s.ctx, v.pv, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

// retain has the provisioner leave the volume when its claim goes.
func (s *scenario) retain(v *volume) {
	patch := []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
	s.succeeds(s.cluster.CoreV1().PersistentVolumes().Patch(s.ctx, v.pv, types.MergePatchType, patch, metav1.PatchOptions{}))
	v.retained = true
}

// pod is a pod.
type pod struct {
	name    string
	node    *node
	uid     string
	user    string // who its container runs as; "" for one who may do everything
	volumes []*volume
}

// newPod makes a pod on the node.
func (s *scenario) newPod(volumes ...*volume) *pod { return s.newPodOn(s.node, volumes...) }

// newPodOn makes a pod on a node.
func (s *scenario) newPodOn(n *node, volumes ...*volume) *pod {
	return s.makePod(n, podWith(volumes...), volumes...)
}

// podWith returns a pod with volumes, still without a name.
func podWith(volumes ...*volume) *corev1.Pod {
	app := corev1.Container{Name: "app", Image: "example.com/app"}
	spec := corev1.PodSpec{DNSPolicy: corev1.DNSDefault}
	for _, v := range volumes {
		app.VolumeMounts = append(app.VolumeMounts, corev1.VolumeMount{Name: v.claim, MountPath: "/" + v.claim})
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: v.claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.claim},
		}})
	}
	spec.Containers = []corev1.Container{app}
	return &corev1.Pod{Spec: spec}
}

// makePod makes a pod on a node as it is given.
func (s *scenario) makePod(n *node, given *corev1.Pod, volumes ...*volume) *pod {
	given = given.DeepCopy()
	given.Name = cmp.Or(given.Name, fmt.Sprintf("pod-%d", len(s.pods)))
	p := &pod{name: given.Name, node: n, volumes: volumes}
	if c := given.Spec.SecurityContext; c != nil && c.WindowsOptions != nil {
		p.user = *c.WindowsOptions.RunAsUserName
	}
	given.Spec.NodeName = n.name // which a scheduler would choose
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

// useAndEnd has the last pod that uses its volumes write a file when it runs, and ends it.
func (s *scenario) useAndEnd(p *pod) {
	text := s.text()
	s.awaitRunning(p)
	s.write(p, "data", text)
	s.endReader(p, text)
}

// endReader ends the last pod that uses its volumes, after it has seen what is in that file.
func (s *scenario) endReader(p *pod, text string) {
	s.sees(p, "data", text)
	s.endLast(p)
}

func (s *scenario) deletePod(p *pod) {
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
	if !s.attaches {
		s.awaitUnstaged(v)
		return
	}
	s.await(v.pv+" is detached", func() (bool, error) {
		return len(s.attachments(v)) == 0, nil
	})
}

// attachments returns those that the cluster has of a volume.
func (s *scenario) attachments(v *volume) []storagev1.VolumeAttachment {
	all, err := s.cluster.StorageV1().VolumeAttachments().List(s.ctx, metav1.ListOptions{})
	s.must(err)
	return slices.DeleteFunc(all.Items, func(a storagev1.VolumeAttachment) bool { return *a.Spec.Source.PersistentVolumeName != v.pv })
}

// awaitUnstaged returns when the driver has unstaged the volume, if it has staged it, for a driver
// that attaches nothing.
func (s *scenario) awaitUnstaged(v *volume) {
	s.await(v.pv+" is unstaged", func() (bool, error) {
		staged := false
		for _, c := range s.calls(v) {
			switch {
			case c.method == stage:
				staged = true
			case c.method == unstage && c.took != 0 && c.code == codes.OK:
				staged = false
			case c.method == unstage && c.code == codes.Canceled: // kubelet has ended, and the driver goes on
				path := podsDrive + c.field("staging_target_path")
				_, err := sim[simv1.ReadLinkResponse](s.ctx, s.node, "ReadLink", &simv1.Path{Path: path})
				staged = err == nil
			}
		}
		return !staged, nil
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
		if v.id != "" && c.volume() == v.id {
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
		askOn[simv1.Empty](s, p.node, "WriteFile", &simv1.WriteFileRequest{Path: p.file(v, name), Data: []byte(text + v.id), User: p.user})
	}
}

// read returns what the pod sees in a file that was written so.
func (s *scenario) read(p *pod, v *volume, name string) (text string, err error) {
	data, err := sim[simv1.Data](s.ctx, p.node, "ReadFile", &simv1.Path{Path: p.file(v, name)})
	if err != nil {
		return "", err
	}
	text, ok := strings.CutSuffix(string(data.Data), v.id)
	if !ok && text != "" { // which is what a loss of power leaves of a new file
		s.wrong("%s sees %q, which isn't of %s", p.name, data.Data, v.pv)
	}
	return text, nil
}

// tryWrite has a pod write to its first volume, if it can.
func (s *scenario) tryWrite(p *pod, name string) error {
	_, err := sim[simv1.Empty](s.ctx, p.node, "WriteFile",
		&simv1.WriteFileRequest{Path: p.file(p.volumes[0], name), Data: []byte("other"), User: p.user})
	return err
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
	d, err := s.node.disk(s.ctx, s.wire.cloud.serialNumber(v.id))
	s.must(err)
	return d
}

// text returns contents for a file that no other has.
func (s *scenario) text() string {
	return strings.Repeat(fmt.Sprintf("%s %x ", s.name, s.random.Uint64()), 1+s.random.IntN(50))
}
