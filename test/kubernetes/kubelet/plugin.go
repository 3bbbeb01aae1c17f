// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// pluginTest is a run of "kubectl csi-proxy test". The lab plays the scheduler, and what the containers do.
type pluginTest struct {
	*scenario
	class, image string
	volume       *volume        // nil before it is made
	ended        []string       // the containers that have ended
	process      *simv1.Process // that keeps a file of the volume open; nil for none
}

// pluginFault is a fault that the run must find.
type pluginFault struct {
	name string
	wait time.Duration // for each step
	// step must fail; empty for none.
	step string
	// interrupts says that the fault is Ctrl-C while the step's container runs.
	interrupts bool
	// after is the container that has ended when the fault is planted; empty: before the run.
	after string
	plant func(t *pluginTest)
	mend  func(t *pluginTest) // after the run; nil if nothing of the fault stays
	says  []string            // what the report must say
	// leaves says that the volume can't be removed before the fault is mended.
	leaves bool
	long   bool // it is planted with -full only
}

var pluginFaults = []pluginFault{
	{name: "no fault", wait: patience},
	{name: "Ctrl-C in write", wait: patience, step: "write", interrupts: true, long: true, says: []string{"interrupted"}},
	{name: "Ctrl-C in read", wait: patience, step: "read", interrupts: true, says: []string{"interrupted"}},
	{name: "Ctrl-C in grow", wait: patience, step: "grow", interrupts: true, long: true, says: []string{"interrupted"}},
	{name: "no provisioner", wait: 3 * time.Second, step: "write", plant: func(t *pluginTest) { t.class = t.newClass("disk.example.com") },
		says: []string{"no volume has been created", "the cluster has no CSIDriver disk.example.com", "does the controller of the driver disk.example.com run"}},
	{name: "no image", wait: 5 * time.Second, step: "write", plant: func(t *pluginTest) { t.image = "example.com/CMD" }, long: true,
		says: []string{"InvalidImageName", `couldn't parse image name "example.com/CMD"`}},
	{name: "no driver on the node", wait: 15 * time.Second, step: "write", long: true,
		plant: func(t *pluginTest) { t.setRegistered(false); t.deleteNodePod(driverPod) },
		mend:  func(t *pluginTest) { t.setRegistered(true); t.startNodePod(driverPod) },
		says:  []string{": the node node-1 has no pod of the driver", "deploy the driver's node plugin for Windows"}},
	{name: "no disk on the node", wait: 40 * time.Second, step: "write", plant: detachDisk, mend: allPass, long: true,
		says: []string{"last error", "no disk has the serial number"}},
	{name: "the format fails", wait: 40 * time.Second, step: "write", plant: failing("MSFT_Volume.Format"), mend: nothingFails, long: true,
		says: []string{"last error", "disk 1: I/O device error (Windows error 1117)"}},
	{name: "CSI Proxy is down", after: "write", wait: 10 * time.Second, step: "read", leaves: true, long: true,
		plant: func(t *pluginTest) { t.daemon.Kill(); t.endContainer(t.nodePod(daemonPod), daemonPod.name, 1) },
		mend:  func(t *pluginTest) { t.must(t.startDaemon()); t.deleteNodePod(daemonPod); t.startNodePod(daemonPod) },
		says:  []string{"removal of pod/csi-proxy-test-", "daemon csi-proxy/csi-proxy: it isn't ready: "}},
	{name: "the data are lost", after: "write", wait: time.Minute, step: "read", plant: emptyDisk, mend: allPass,
		says: []string{"the volume doesn't have what the first pod has written"}},
	{name: "the node can't grow the volume", after: "read", wait: 6 * time.Second, step: "grow", plant: failing("IOCTL_DISK_GROW_PARTITION"), mend: nothingFails, long: true,
		says: []string{"growth of the claim", "NodeResizeError", "IOCTL_DISK_GROW_PARTITION: I/O device error (Windows error 1117)"}},
	{name: "a process keeps the volume", after: "grow", wait: 8 * time.Second, step: "remove", leaves: true, long: true,
		plant: func(t *pluginTest) { t.process = t.openFile() },
		mend:  func(t *pluginTest) { ask[simv1.Empty](t.scenario, "EndProcess", t.process) },
		says:  []string{"removal of pv/pvc-", "still attached to node node-1", "kubectl csi-proxy status"}},
}

// failing has all calls of Windows with a name fail.
func failing(name string) func(*pluginTest) {
	const ioDevice = 1117
	return func(t *pluginTest) {
		ask[simv1.Empty](t.scenario, "AddRule", &simv1.Rule{Call: name, Effect: &simv1.Rule_WindowsError{WindowsError: ioDevice}})
	}
}

func nothingFails(t *pluginTest) { ask[simv1.Empty](t.scenario, "ClearRules", &simv1.Empty{}) }

// detachDisk has the disk be gone when it is staged.
func detachDisk(t *pluginTest) {
	t.beforeStaging(func(d *simv1.Disk) error {
		_, err := sim[simv1.Empty](t.ctx, t.node, "DetachDisk", &simv1.DiskNumber{DiskNumber: d.DiskNumber})
		return err
	})
}

// emptyDisk has an empty disk be in the place of the disk when it is staged.
func emptyDisk(t *pluginTest) {
	t.beforeStaging(func(d *simv1.Disk) error {
		_, err := sim[simv1.Empty](t.ctx, t.node, "DetachDisk", &simv1.DiskNumber{DiskNumber: d.DiskNumber})
		if err == nil {
			_, err = sim[simv1.Empty](t.ctx, t.node, "DeleteDisk", &simv1.SerialNumber{SerialNumber: d.SerialNumber})
		}
		if err == nil {
			_, err = sim[simv1.DiskNumber](t.ctx, t.node, "AttachDisk", &simv1.DiskHardware{SerialNumber: d.SerialNumber, SizeBytes: d.SizeBytes})
		}
		return err
	})
}

// beforeStaging changes the disk of a volume whenever the volume will be staged.
func (t *pluginTest) beforeStaging(change func(*simv1.Disk) error) {
	t.wire.interpose(func(c call, pass func() error) error {
		if c.method == stage {
			d, err := t.node.disk(t.ctx, t.wire.cloud.serialNumber(c.volume()))
			if err == nil && d != nil {
				err = change(d)
			}
			if err != nil {
				return err
			}
		}
		return pass()
	})
}

func allPass(t *pluginTest) { t.wire.interpose(nil) }

// testOfPlugin has "kubectl csi-proxy test" test a StorageClass on the node, with each of the faults.
func testOfPlugin(s *scenario) {
	defer s.labelAsWindows()()
	for _, p := range []nodePod{daemonPod, driverPod} {
		s.startNodePod(p)
		defer s.deleteNodePod(p)
	}
	for _, f := range pluginFaults {
		if s.full || !f.long {
			began := time.Now()
			s.runTest(f)
			s.note("%s: %.1f s", f.name, time.Since(began).Seconds())
		}
	}
}

// labelAsWindows has the API server label the node as one of Windows, until end is called. Kubelet on Linux labels it
// otherwise each second.
func (s *scenario) labelAsWindows() (end func()) {
	policies, bindings := s.cluster.AdmissionregistrationV1().MutatingAdmissionPolicies(), s.cluster.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	fail := admissionv1.Fail
	s.succeeds(policies.Create(s.ctx, &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"nodes", "nodes/status"}},
			}}}},
			FailurePolicy: &fail, ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{
				Expression: `Object{metadata: Object.metadata{labels: {"` + corev1.LabelOSStable + `": "windows"}}}`,
			}}},
		},
	}, metav1.CreateOptions{}))
	s.succeeds(bindings.Create(s.ctx, &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: s.name},
	}, metav1.CreateOptions{}))
	s.await("the node has the label of Windows", func() (bool, error) {
		n, err := s.cluster.CoreV1().Nodes().Get(s.ctx, nodeName, metav1.GetOptions{})
		return err == nil && n.Labels[corev1.LabelOSStable] == "windows", err
	})
	return func() {
		s.must(errors.Join(bindings.Delete(s.ctx, s.name, metav1.DeleteOptions{}), policies.Delete(s.ctx, s.name, metav1.DeleteOptions{})))
	}
}

// nodePod is a pod of a DaemonSet on the node. The lab runs its program beside it.
type nodePod struct {
	namespace, name string
	labels          map[string]string
}

var (
	daemonPod = nodePod{"csi-proxy", "csi-proxy", map[string]string{"app.kubernetes.io/name": "csi-proxy", "app.kubernetes.io/component": "daemon"}}
	driverPod = nodePod{metav1.NamespaceSystem, "driver", nil}
)

// startNodePod makes a pod of the node, and returns when it is ready.
func (s *scenario) startNodePod(p nodePod) {
	_, err := s.cluster.CoreV1().Namespaces().Create(s.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		s.must(err)
	}
	pod := podWith()
	pod.ObjectMeta = metav1.ObjectMeta{Name: p.name, Labels: p.labels}
	pod.Spec.NodeName, pod.Spec.RestartPolicy = nodeName, corev1.RestartPolicyNever // started again, it would be ready for a moment
	pod.Spec.Containers[0].Name = p.name
	if p.name == driverPod.name { // by which the plugin knows whose pod it is
		pod.Spec.Containers[0].Args = []string{`--kubelet-registration-path=C:\var\lib\kubelet\plugins\` + s.driverName + `\csi.sock`}
	}
	s.succeeds(s.cluster.CoreV1().Pods(p.namespace).Create(s.ctx, pod, metav1.CreateOptions{}))
	s.await("the pod "+p.name+" is ready", func() (bool, error) {
		return slices.ContainsFunc(s.nodePod(p).Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}), nil
	})
}

func (s *scenario) nodePod(p nodePod) *corev1.Pod {
	pod, err := s.cluster.CoreV1().Pods(p.namespace).Get(s.ctx, p.name, metav1.GetOptions{})
	s.must(err)
	return pod
}

func (s *scenario) deleteNodePod(p nodePod) {
	s.must(s.cluster.CoreV1().Pods(p.namespace).Delete(s.ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

// newClass makes a StorageClass of a driver whose volumes may grow, and returns its name.
func (t *pluginTest) newClass(driver string) string {
	class, err := t.cluster.StorageV1().StorageClasses().Create(t.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: t.name + "-"}, Provisioner: driver, AllowVolumeExpansion: new(true),
		Parameters: map[string]string{"csi.storage.k8s.io/fstype": "ntfs"},
	}, metav1.CreateOptions{})
	t.must(err)
	return class.Name
}

// openFile starts a process that keeps the file of the pods open, as a virus scanner does.
func (t *pluginTest) openFile() *simv1.Process {
	return ask[simv1.Process](t.scenario, "StartProcess", &simv1.Process{
		Program: `C:\scanner\scanner.exe`, Paths: []string{t.volumeOf(t.volume).VolumeId + `csi-proxy-test.txt`},
	})
}

// setRegistered has kubelet find the driver's socket of registration, or not.
func (t *pluginTest) setRegistered(is bool) {
	socket, kept := filepath.Join(t.cluster.root, "plugins_registry", "lab-reg.sock"), filepath.Join(t.cluster.root, "kept.sock")
	if is {
		t.must(errors.Join(os.Link(kept, socket), os.Remove(kept), t.cluster.awaitDriver(t.ctx, nodeName, t.driverName)))
		return
	}
	t.must(errors.Join(os.Link(socket, kept), os.Remove(socket)))
	t.await("kubelet has forgotten the driver", func() (bool, error) {
		node, err := t.cluster.StorageV1().CSINodes().Get(t.ctx, nodeName, metav1.GetOptions{})
		return err == nil && len(node.Spec.Drivers) == 0, err
	})
}

// runTest runs the plugin's test with a fault, and notes it if the fault isn't found, or anything of the run is left in the
// cluster.
func (s *scenario) runTest(f pluginFault) {
	t := &pluginTest{scenario: s, image: "example.com/cmd"}
	if f.plant != nil && f.after == "" {
		f.plant(t)
	}
	if t.class == "" {
		t.class = t.newClass(s.driverName)
	}
	output, err := t.run(f)
	if (err == nil) != (f.step == "") {
		s.wrong("%s: the test ends with %v:\n%s", f.name, err, output)
	}
	text, says := strings.Join(strings.Fields(output), " "), f.says
	if f.step != "" {
		says = append(slices.Clone(says), nodeName+": "+f.step+" failed: ")
	}
	for _, part := range says {
		if !strings.Contains(text, part) {
			s.wrong("%s: the test doesn't say %q:\n%s", f.name, part, output)
		}
	}
	if left := t.left(); (len(left) > 0) != f.leaves || f.leaves != strings.Contains(text, "These objects are left: ") {
		s.wrong("%s: the test leaves %q:\n%s", f.name, left, output)
	}
	if f.mend != nil {
		f.mend(t)
	}
	s.await("what the test has left is gone", func() (bool, error) { return len(t.left()) == 0, nil })
	s.must(s.cluster.StorageV1().StorageClasses().Delete(s.ctx, t.class, metav1.DeleteOptions{}))
}

// run runs the plugin, and plays its pods until the plugin ends. It returns the plugin's output.
func (t *pluginTest) run(f pluginFault) (output string, err error) {
	var printed bytes.Buffer
	plugin := exec.CommandContext(t.ctx, t.options.plugin, "test", "--kubeconfig", t.cluster.kubeconfig, "--namespace", t.name,
		"--storage-class", t.class, "--node", nodeName, "--image", t.image, "--wait", f.wait.String())
	plugin.Stdout, plugin.Stderr = &printed, &printed
	t.must(plugin.Start())
	exited := make(chan error, 1)
	go func() { exited <- plugin.Wait() }()
	for {
		select {
		case err := <-exited:
			return printed.String(), err
		case <-time.After(100 * time.Millisecond):
		}
		for _, r := range t.running() {
			switch {
			case f.interrupts && r.container.Name == f.step:
				if f.step != "grow" || t.hasGrown() {
					t.must(plugin.Process.Signal(os.Interrupt))
					t.ended = append(t.ended, r.container.Name)
				}
			case t.play(r):
				t.ended = append(t.ended, r.container.Name)
				if f.after == r.container.Name {
					f.plant(t)
				}
			}
		}
	}
}

// running is a container that runs.
type running struct {
	pod       *corev1.Pod
	container *corev1.Container
}

// running schedules the plugin's pods, and returns their containers that run.
func (t *pluginTest) running() (all []running) {
	pods, err := t.cluster.CoreV1().Pods(t.name).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == "" {
			t.schedule(p)
		}
		for j := range p.Spec.Containers {
			c := &p.Spec.Containers[j]
			isRunning := slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
				return s.Name == c.Name && s.State.Running != nil
			})
			if isRunning && p.DeletionTimestamp == nil && !slices.Contains(t.ended, c.Name) {
				all = append(all, running{p, c})
			}
		}
	}
	return all
}

// hasGrown reports whether the plugin has had the claim grow.
func (t *pluginTest) hasGrown() bool {
	claim, err := t.cluster.CoreV1().PersistentVolumeClaims(t.name).Get(t.ctx, t.volume.claim, metav1.GetOptions{})
	t.must(err)
	return claim.Spec.Resources.Requests.Storage().Value() > gib
}

// left returns what a test has left in the cluster, as kubectl names it.
func (t *pluginTest) left() (objects []string) {
	pods, err := t.cluster.CoreV1().Pods(t.name).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	for _, p := range pods.Items {
		objects = append(objects, "pod/"+p.Name)
	}
	claims, err := t.cluster.CoreV1().PersistentVolumeClaims(t.name).List(t.ctx, metav1.ListOptions{})
	t.must(err)
	for _, c := range claims.Items {
		objects = append(objects, "pvc/"+c.Name)
	}
	volumes, err := t.cluster.CoreV1().PersistentVolumes().List(t.ctx, metav1.ListOptions{})
	t.must(err)
	for _, v := range volumes.Items {
		if v.Spec.StorageClassName == t.class {
			objects = append(objects, "pv/"+v.Name)
		}
	}
	return objects
}

// schedule binds a pod to the node that it names once its claim is bound.
func (t *pluginTest) schedule(p *corev1.Pod) {
	claim, err := t.cluster.CoreV1().PersistentVolumeClaims(t.name).Get(t.ctx, p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && claim.Status.Phase != corev1.ClaimBound {
		return
	}
	t.must(err)
	t.volume = &volume{claim: claim.Name, pv: claim.Spec.VolumeName}
	t.volume.id = t.persistentVolume(t.volume).Spec.CSI.VolumeHandle
	node := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	err = t.cluster.CoreV1().Pods(t.name).Bind(t.ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Target: corev1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{})
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		t.must(err)
	}
}

// The commands of the test's containers.
var (
	writes = regexp.MustCompile(`^echo (\S+)>C:\\data\\(\S+)$`)
	reads  = regexp.MustCompile(`^set /p seen=<C:\\data\\(\S+)& if not !seen!==(\S+) exit 1$`)
	grows  = regexp.MustCompile(` gtr ([0-9]+) \(exit 0\) `)
)

// play does what a container of a test does, as the user that it runs as, and reports whether it has ended.
func (t *pluginTest) play(r running) bool {
	of := &pod{uid: string(r.pod.UID), node: t.node, user: *r.container.SecurityContext.WindowsOptions.RunAsUserName}
	command := r.container.Command[len(r.container.Command)-1]
	code := 0
	if found := writes.FindStringSubmatch(command); found != nil {
		if _, err := sim[simv1.Empty](t.ctx, t.node, "WriteFile",
			&simv1.WriteFileRequest{Path: of.file(t.volume, found[2]), Data: []byte(found[1] + "\r\n"), User: of.user}); err != nil {
			t.wrong("the first pod can't write: %v", err)
			code = 1
		}
	} else if found := reads.FindStringSubmatch(command); found != nil {
		data, err := sim[simv1.Data](t.ctx, t.node, "ReadFile", &simv1.Path{Path: of.file(t.volume, found[1])})
		if err != nil || string(data.Data) != found[2]+"\r\n" {
			code = 1
		}
	} else if found := grows.FindStringSubmatch(command); found != nil {
		megabytes, err := strconv.ParseUint(found[1], 10, 64)
		t.must(err)
		if on := t.volumeOf(t.volume); on == nil || on.FreeBytes/1e6 <= megabytes {
			return false
		}
	} else {
		t.wrong("the container %s runs %q, which the lab can't play", r.container.Name, command)
	}
	t.endContainer(r.pod, r.container.Name, code)
	return true
}

// endContainer has kubelet see that a container has ended.
func (s *scenario) endContainer(p *corev1.Pod, container string, code int) {
	dir := filepath.Join(s.cluster.root, "exits")
	s.must(os.MkdirAll(dir, 0o755))
	file := filepath.Join(dir, string(p.UID)+"."+container)
	s.must(errors.Join(os.WriteFile(file+".new", []byte(strconv.Itoa(code)), 0o600), os.Rename(file+".new", file)))
}
