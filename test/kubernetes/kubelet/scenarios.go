// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// The calls of a driver that scenarios count.
const (
	stage     = "NodeStageVolume"
	publish   = "NodePublishVolume"
	unpublish = "NodeUnpublishVolume"
	unstage   = "NodeUnstageVolume"
	grow      = "NodeExpandVolume"
	usage     = "NodeGetVolumeStats"
	attach    = "ControllerPublishVolume"
	detach    = "ControllerUnpublishVolume"
)

// cycle are the calls when a volume is attached, used by a pod, and detached.
var cycle = []string{attach, stage, publish, unpublish, unstage, detach}

// cycles is what n pods in turn lead to, or n volumes.
func cycles(n int) map[string]int {
	calls := map[string]int{}
	for _, method := range cycle {
		calls[method] = n
	}
	return calls
}

// cyclesWith is the same with another number of some call.
func cyclesWith(n int, method string, times int) map[string]int {
	calls := cycles(n)
	calls[method] = times
	return calls
}

// ofNode are the calls of the node that crashes make fail.
var ofNode = []string{stage, publish, unpublish, unstage}

// beforeUnstage are the calls during which a test may end kubelet. A new kubelet has forgotten volumes that were only to be unstaged.
var beforeUnstage = []string{stage, publish, unpublish}

// definition is what there is to a scenario before it is run.
type definition struct {
	name, what string
	run        func(s *scenario)
	expected   expectation
	needs      need
	long       bool // it is run with -full only
	history    bool // the seed makes it up
	errors     bool // the table has its calls that fail, too
	nodes      int  // 2: there is a second node
	unrecorded bool // the table doesn't have its calls: they aren't all, or in another order each time
}

// scenarios are run in an order that the seed gives. Each must leave nothing behind.
var scenarios = []definition{
	{name: "life", what: "a pod uses a volume and goes", run: life, expected: expectation{calls: cycles(1)}},
	{name: "number", needs: aDisk, what: "the disk comes back under another number, and two other pods use it in turn", run: number,
		expected: expectation{calls: cycles(2)}},
	{name: "expansion", needs: growth, what: "the claim grows while the pod runs", run: expansion,
		expected: expectation{calls: cyclesWith(1, grow, 1)}},
	{name: "two-pods", what: "two pods share a claim, and go one after the other", run: twoPods,
		expected: expectation{calls: map[string]int{attach: 1, stage: 1, publish: 2, unpublish: 2, unstage: 1, detach: 1}}},
	{name: "read-only", needs: aDisk, what: "a PersistentVolume that is read-only has the data of the writable one before", run: readOnly,
		expected: expectation{calls: cycles(2)}},
	{name: "smb-secret", what: "the secret for a share is wrong, and then corrected", run: smbSecret,
		expected: expectation{calls: cycles(1), failing: []string{stage}, events: []string{failedMount}}},
	{name: "boot", needs: aDaemon, what: "the pod starts before CSI Proxy does", run: boot,
		expected: expectation{calls: cycles(1), failing: []string{stage}, events: []string{failedMount}}},
	{name: "manifests", needs: growth, what: "two pods as in the manifests use their volume, which grows", run: ofManifests, unrecorded: true,
		expected: expectation{calls: cyclesWith(2, grow, 1), events: []string{"MissingClusterDNS"}}}, // the lab has no DNS
	{name: "test", needs: aDisk | growth, what: "kubectl csi-proxy test tests a StorageClass, is interrupted, and finds faults", run: testOfPlugin, unrecorded: true,
		expected: expectation{events: []string{failedMount, "FailedAttachVolume", "InspectFailed", "Failed", "VolumeResizeFailed"}}},
	{name: "sub-path", what: "a pod has an fsGroup and uses a subdirectory of the volume", run: subPath, unrecorded: true,
		expected: expectation{calls: cycles(1)}},
	{name: "kill", needs: aDaemon, what: "CSI Proxy is killed while it stages, publishes, unpublishes and unstages", run: crashing(daemonDies, ofNode...),
		expected: expectation{calls: cycles(2), failing: ofNode, events: []string{failedMount}}},
	{name: "open-file", needs: aDisk, what: "a process keeps a file of the volume open when the pod has gone", run: openFile,
		expected: expectation{calls: cycles(1), failing: []string{unstage}}},
	{name: "block", needs: aDisk, what: "a pod asks for a block device, and is told that there is none", run: block, unrecorded: true,
		expected: expectation{failing: []string{attach, stage}, events: []string{"FailedAttachVolume", "FailedMapVolume"}}},
	{name: "ext4", needs: aDisk, what: "a pod's volume is to have ext4, and the pod is told that it can't", run: ext4, unrecorded: true,
		expected: expectation{failing: []string{attach, stage}, events: []string{"FailedAttachVolume", failedMount}}},
	{name: "container-user", needs: aDisk, what: "a pod runs as ContainerUser and writes to a volume as its StorageClass allows, and to another one it can't",
		run: containerUser, unrecorded: true, expected: expectation{calls: cycles(2)}},
	{name: "inline", what: "a pod asks for an inline volume, and is told that there is none", run: inline, unrecorded: true,
		expected: expectation{events: []string{failedMount}}},

	{name: "kill-driver", what: "the driver is killed in the middle of these calls", run: crashing(driverDies, ofNode...), long: true,
		expected: expectation{calls: cycles(2), failing: ofNode, events: []string{failedMount}}},
	{name: "kill-kubelet", what: "kubelet is killed in the middle of these calls", run: crashing(kubeletDies, ofNode...), long: true,
		// It doesn't hear how the unstage ends that it has begun, nor asks again.
		expected: expectation{calls: cyclesWith(2, unstage, 1), failing: ofNode, events: kubeletStarts, repeated: []string{stage, publish}}},
	{name: "upgrade", needs: aDaemon, what: "CSI Proxy ends in order in the middle of these calls, and another one starts", long: true, unrecorded: true,
		run:      crashing(upgrade, ofNode...),
		expected: expectation{calls: cycles(2), failing: ofNode, events: []string{failedMount}}},
	{name: "reboot", what: "Windows restarts in the middle of the calls up to unpublishing, and while the pod runs", long: true,
		run:      crashing(reboot, beforeUnstage...),
		expected: expectation{calls: cycles(2), failing: ofNode, events: kubeletStarts, repeated: []string{stage, publish}}},
	{name: "power-loss", what: "the node loses power in the middle of these calls, and while the pod runs", run: crashing(powerLoss, beforeUnstage...), long: true,
		expected: expectation{calls: cycles(3), failing: ofNode, events: kubeletStarts, repeated: []string{stage, publish}}},
	{name: "lost-answers", what: "each answer of the driver is lost once", run: lostAnswers, long: true,
		expected: expectation{calls: cyclesWith(1, grow, 1), failing: append([]string{attach, detach, grow}, ofNode...),
			events: []string{failedMount, "FailedAttachVolume", "VolumeResizeFailed"}}},
	{name: "in-doubt", what: "the pod goes before kubelet hears that its volume is staged", run: inDoubt, long: true, errors: true,
		expected: expectation{calls: map[string]int{attach: 1, unstage: 1, detach: 1}, failing: []string{stage}, events: []string{failedMount}}},
	{name: "refused", needs: aDisk, what: "the pod goes when Windows refuses to format its disk, and kubelet unstages nothing", run: refused, long: true, errors: true,
		expected: expectation{calls: map[string]int{attach: 1, detach: 1}, failing: []string{stage}, events: []string{failedMount}}},
	{name: "one-pod", what: "a second pod waits for a claim that is ReadWriteOncePod", run: onePod, long: true,
		expected: expectation{calls: map[string]int{attach: 1, stage: 1, publish: 2, unpublish: 2, unstage: 1, detach: 1},
			events: []string{failedMount}}},
	{name: "volumes", what: "a pod has three volumes, and another one shares two of them", run: volumes, long: true, unrecorded: true,
		expected: expectation{calls: map[string]int{attach: 3, stage: 3, publish: 5, unpublish: 5, unstage: 3, detach: 3}}},
	{name: "110-pods", what: "as many pods as a node may have come and go at once", run: manyPods, long: true, unrecorded: true,
		expected: expectation{calls: cycles(110)}},
	{name: "chap", what: "the CHAP secret of an iSCSI target is wrong, and then corrected", run: chap, long: true,
		expected: expectation{calls: cycles(1), failing: []string{stage}, events: []string{failedMount}}},
	{name: "slow-format", needs: aDisk, what: "a format takes 150 seconds, longer than kubelet waits", run: slowFormat, long: true,
		expected: expectation{calls: cycles(1), failing: []string{stage}, events: []string{failedMount}}},
	{name: "pulled", needs: aDisk, what: "the disk is pulled out while the pod runs", run: pulled, long: true, unrecorded: true,
		expected: expectation{calls: cycles(3)}},
	{name: "kill-all", what: "CSI Proxy, the driver and kubelet are killed at once in the middle of the calls up to unpublishing", long: true,
		run:      crashing(allDie, beforeUnstage...),
		expected: expectation{calls: cycles(2), failing: ofNode, events: kubeletStarts, repeated: []string{stage, publish}}},
	{name: "daemon-down", needs: aDisk | aDaemon, what: "a hundred pods are deleted while CSI Proxy is down", run: daemonDown, long: true, unrecorded: true,
		expected: expectation{calls: cycles(100), failing: append([]string{detach}, ofNode...), events: []string{failedMount}}},
	{name: "copy", needs: aDisk, what: "a copy of a disk is used beside its original, first after it and then before it", run: copied, long: true, unrecorded: true,
		expected: expectation{calls: cycles(4)}},
	{name: "hung-format", needs: aDisk, what: "ten pods come and go while a format hangs", run: hungFormat, long: true, unrecorded: true,
		expected: expectation{calls: cycles(11), failing: []string{stage}, events: []string{failedMount}}},
	{name: "attachment-deleted", needs: aDisk, what: "the VolumeAttachment is deleted under a running pod", run: attachmentDeleted, long: true, unrecorded: true,
		expected: expectation{calls: cycles(3), repeated: ofNode, events: []string{"FailedAttachVolume"}}},
	{name: "records-lost", needs: aDisk, what: "the driver loses its records while a pod runs, and again before the last one goes", run: recordsLost,
		long: true, unrecorded: true,
		expected: expectation{calls: map[string]int{attach: 1, stage: 1, publish: 2, unpublish: 2, unstage: 1, detach: 1}}},
	{name: "moves", needs: aDisk, what: "a claim moves between two nodes ten times", run: moves, long: true, unrecorded: true, nodes: 2,
		expected: expectation{calls: cycles(11), events: []string{"FailedAttachVolume"}}},
	{name: "out-of-service", needs: aDisk, what: "a node loses power, its pod's volume goes to another one by force, and the node returns",
		run: outOfService, long: true, unrecorded: true, nodes: 2,
		expected: expectation{failing: append([]string{attach, detach}, ofNode...),
			events: append([]string{"FailedAttachVolume", "Rebooted"}, kubeletStarts...)}},
	{name: "twice", what: "a pod uses a claim by two names", run: twice, long: true, unrecorded: true, expected: expectation{calls: cycles(1)}},
	{name: "directory-lost", needs: aDisk | aDaemon, what: "kubelet's directories of pods are lost while a pod goes, and the next one, here and on another node, gets the volume",
		run: forgotten(loseDirectory), long: true, unrecorded: true, nodes: 2,
		expected: expectation{failing: []string{unstage}, events: kubeletStarts}},
	{name: "volume-data-empty", needs: aDisk | aDaemon, what: "kubelet's file about the volume is empty while a pod goes, and the next one, here and on another node, gets the volume",
		run: forgotten(emptyVolumeData), long: true, unrecorded: true, nodes: 2,
		expected: expectation{failing: []string{unstage}, events: kubeletStarts}},
	{name: "renamed", needs: aDisk, what: "the node comes back under another name", run: renamed, long: true, unrecorded: true,
		expected: expectation{calls: cycles(2), events: kubeletStarts}},
	{name: "stats", needs: aDisk | usageCounts, what: "kubelet asks for the usage of the volume", run: stats, long: true, unrecorded: true,
		expected: expectation{calls: cycles(1), events: kubeletStarts}},
}

// failedMount is the reason of kubelet's event when a volume can't be staged or published.
const failedMount = "FailedMount"

// kubeletStarts are the warnings that kubelet makes when it starts on a node with pods.
var kubeletStarts = []string{failedMount, "InvalidDiskCapacity"}

func life(s *scenario) {
	_, p, text := s.startWriter(volumeOptions{})
	s.endReader(p, text)
}

func number(s *scenario) {
	v, p, text := s.startWriter(volumeOptions{})
	before := s.disk(v)
	s.endLast(p)

	other := ask[simv1.DiskNumber](s, "AttachDisk", &simv1.DiskHardware{
		SizeBytes: gib, SerialNumber: "other", DiskNumber: before.DiskNumber,
	})
	if s.planted == plantData {
		ask[simv1.Empty](s, "DeleteDisk", &simv1.SerialNumber{SerialNumber: s.wire.cloud.serialNumber(v.id)})
	}
	p = s.startPod(v)
	if after := s.disk(v); after == nil || *after.DiskNumber == *before.DiskNumber {
		s.wrong("the disk is %v, and was number %d before: not what this is about", after, *before.DiskNumber)
	}
	s.endReader(p, text)

	ask[simv1.Empty](s, "DetachDisk", other)
}

func expansion(s *scenario) {
	v, p, text := s.startWriter(volumeOptions{})
	s.grow(v)
	s.endReader(p, text)
}

// grow makes a claim larger, and returns when the pods have the room.
func (s *scenario) grow(v *volume) {
	v.size += (1 + s.random.Int64N(4)) * gib
	claims := s.cluster.CoreV1().PersistentVolumeClaims(s.name)
	patch := fmt.Appendf(nil, `{"spec": {"resources": {"requests": {"storage": "%d"}}}}`, v.size)
	s.succeeds(claims.Patch(s.ctx, v.claim, types.MergePatchType, patch, metav1.PatchOptions{}))
	s.await("the claim has grown", func() (bool, error) {
		claim, err := claims.Get(s.ctx, v.claim, metav1.GetOptions{})
		return err == nil && claim.Status.Capacity.Storage().Value() == v.size, err
	})
	if on := s.volumeOf(v); on == nil || on.TotalBytes < uint64(v.size)-64<<20 {
		s.wrong("the volume is %v, and should have %d bytes", on, v.size)
	}
}

func twoPods(s *scenario) {
	v := s.newVolume(volumeOptions{})
	pods := []*pod{s.startPod(v), s.startPod(v)}
	texts := []string{s.text(), s.text()}
	for i, p := range pods {
		s.write(p, p.name, texts[i])
	}
	first := s.random.IntN(2)
	for i, p := range pods {
		s.sees(pods[1-i], p.name, texts[i])
	}
	s.endPod(pods[first])
	stays := pods[1-first]
	for i, p := range pods {
		s.sees(stays, p.name, texts[i])
	}
	s.write(stays, "later", texts[0])
	s.sees(stays, "later", texts[0])
	s.endLast(stays)
}

func subPath(s *scenario) {
	v := s.newVolume(volumeOptions{})
	given := podWith(v)
	given.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1000))}
	given.Spec.Containers[0].VolumeMounts[0].SubPath = "data"
	s.useAndEnd(s.makePod(s.node, given, v))
}

func containerUser(s *scenario) {
	podWhere := func(parameters map[string]string) *pod {
		v := s.newVolume(volumeOptions{parameters: parameters})
		given := podWith(v)
		given.Spec.SecurityContext = &corev1.PodSecurityContext{
			WindowsOptions: &corev1.WindowsSecurityContextOptions{RunAsUserName: new("ContainerUser")},
		}
		return s.makePod(s.node, given, v)
	}
	p := podWhere(nil)
	s.awaitRunning(p)
	if err := s.tryWrite(p, "data"); status.Code(err) != codes.PermissionDenied {
		s.wrong("%s writes at the root of a volume of Windows' own: %v", p.name, err)
	}
	s.endLast(p)
	s.useAndEnd(podWhere(s.options.writers))
}

func readOnly(s *scenario) {
	v, p, text := s.startWriter(volumeOptions{})
	s.endLast(p)

	s.rebind(v, func(pv *corev1.PersistentVolume) { pv.Spec.CSI.ReadOnly = s.planted != plantWrites })
	p = s.startPod(v)
	s.sees(p, "data", text)
	if err := s.tryWrite(p, "data"); err == nil {
		s.wrong("%s can write to a read-only volume", p.name)
	}
	s.endReader(p, text)
}

func smbSecret(s *scenario) {
	s.wrongSecret(volumeOptions{parameters: s.options.share, mode: corev1.ReadWriteMany}, shareUser, sharePassword)
}

func chap(s *scenario) {
	const user, right = "pods", "right-password"
	ask[simv1.Empty](s, "AddIscsiTarget", &simv1.IscsiTarget{
		Iqn: iscsiTarget, Portals: []*simv1.IscsiPortal{{Address: iscsiPortal}}, ChapUser: user, ChapSecret: right,
		Luns: []*simv1.DiskHardware{{SizeBytes: gib}},
	})
	s.wrongSecret(volumeOptions{parameters: s.options.iscsi}, user, right)
}

// wrongSecret has a pod wait for a volume whose secret is wrong, and corrects it.
func (s *scenario) wrongSecret(o volumeOptions, user, right string) {
	secrets, secret := s.cluster.CoreV1().Secrets(s.name), s.newSecret(user, "wrong-password")
	o.secret = secret.Name
	v := s.newVolume(o)
	p := s.newPod(v)
	s.awaitFailures(stage, v, 2)
	secret.StringData["password"] = right
	s.succeeds(secrets.Update(s.ctx, secret, metav1.UpdateOptions{}))
	s.useAndEnd(p)
}

func boot(s *scenario) {
	v := s.newVolume(volumeOptions{})
	failures := make(chan int, 1)
	down := sync.OnceFunc(func() {
		// As on a node that starts: the driver is there, or ends, and CSI Proxy isn't there yet.
		s.daemon.Kill()
		s.driver.Kill()
		ended, err := false, s.startDriver()
		if err == nil {
			ended, err = s.servedOrEnded(s.ctx)
		}
		if err != nil {
			s.wrong("%v", err)
		}
		if ended { // kubelet asks what the driver can before it calls again, and hears nothing
			failures <- 1
		} else {
			failures <- 2
		}
	})
	s.wire.interpose(func(c call, pass func() error) error {
		if c.method == stage {
			down()
		}
		return pass()
	})
	p := s.newPod(v)
	s.await("the driver is there without CSI Proxy", func() (bool, error) { return len(failures) > 0, nil })
	s.awaitFailures(stage, v, <-failures)
	s.must(s.startDaemon())
	s.useAndEnd(p)
}

func openFile(s *scenario) {
	v, p, _ := s.startWriter(volumeOptions{})
	process := ask[simv1.Process](s, "StartProcess", &simv1.Process{
		Program: `C:\app\app.exe`, Paths: []string{p.file(v, "data")},
	})
	if s.planted == plantDetach {
		s.mounted(v.id, nodeName)
		s.must(invoke(s.ctx, s.wire.address, csi.Controller_ControllerUnpublishVolume_FullMethodName,
			&csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: nodeName}, &csi.ControllerUnpublishVolumeResponse{}))
	}
	s.endPod(p)
	s.awaitFailures(unstage, v, 1) // after 15 seconds, in which a virus scanner would have ended
	if d := s.disk(v); d == nil || d.Offline {
		s.wrong("the disk is %v while a process uses the volume", d)
	}
	ask[simv1.Empty](s, "EndProcess", process)
	s.awaitDetached(v)
}

func lostAnswers(s *scenario) {
	s.loseAnswers(s.methods()...)
	v, p, text := s.startWriter(volumeOptions{})
	if s.grows {
		s.grow(v)
	}
	s.endReader(p, text)
	for _, method := range s.methods() {
		s.awaitFailures(method, v, 1)
	}
}

func inDoubt(s *scenario) {
	s.wire.interpose(func(c call, pass func() error) error {
		err := pass()
		if c.method == stage && err == nil {
			return status.Error(codes.Unavailable, "the answer is lost")
		}
		return err
	})
	v := s.newVolume(volumeOptions{})
	p := s.newPod(v)
	s.awaitFailures(stage, v, 2)
	s.endLast(p)
}

func refused(s *scenario) {
	const accessDenied = 5 // which passes by itself no more
	ask[simv1.Empty](s, "AddRule", &simv1.Rule{
		Call: "MSFT_Volume.Format", Effect: &simv1.Rule_WindowsError{WindowsError: accessDenied},
	})
	v := s.newVolume(volumeOptions{})
	p := s.newPod(v)
	s.awaitFailures(stage, v, 2)
	s.endLast(p)
}

func onePod(s *scenario) {
	v, first, text := s.startWriter(volumeOptions{mode: corev1.ReadWriteOncePod})
	second := s.newPod(v) // the scheduler, which the lab hasn't got, would leave it waiting
	s.await(second.name+" has to wait", func() (bool, error) { return len(s.events()) > 0, nil })
	s.sees(first, "data", text)
	s.endPod(first)
	s.awaitRunning(second)
	s.endReader(second, text)
}

func volumes(s *scenario) {
	a, b, c := s.newVolume(volumeOptions{}), s.newVolume(volumeOptions{}), s.newVolume(volumeOptions{})
	texts := []string{s.text(), s.text()}
	three := s.startPod(a, b, c)
	s.write(three, "data", texts[0])
	two := s.startPod(c, a)
	s.sees(two, "data", texts[0])
	s.write(two, "data", texts[1])
	s.endPod(two)
	s.sees(&pod{name: three.name, node: three.node, uid: three.uid, volumes: []*volume{a, c}}, "data", texts[1])
	s.sees(&pod{name: three.name, node: three.node, uid: three.uid, volumes: []*volume{b}}, "data", texts[0])
	s.endLast(three)
}

func manyPods(s *scenario) {
	text := s.startMany(110)
	for _, p := range s.pods {
		s.sees(p, "data", text)
	}
	s.endMany()
}

// startMany starts pods with a volume each, which write a file, and returns when they have.
func (s *scenario) startMany(n int) (text string) {
	for range n {
		s.newClaim(volumeOptions{})
	}
	for _, v := range s.volumes {
		s.awaitMade(v)
	}
	text, began := s.text(), time.Now()
	for _, v := range s.volumes {
		s.newPod(v)
	}
	for _, p := range s.pods {
		s.awaitRunning(p)
		s.write(p, "data", text)
	}
	s.note("all run after %.1f s", time.Since(began).Seconds())
	return text
}

// endMany ends all pods, and returns when their volumes are detached.
func (s *scenario) endMany() {
	began := time.Now()
	for _, p := range s.pods {
		s.deletePod(p)
	}
	for _, v := range s.volumes {
		s.awaitDetached(v)
	}
	s.note("all are detached after %.1f s", time.Since(began).Seconds())
}

func daemonDown(s *scenario) {
	s.startMany(100)
	s.daemon.Kill()
	for _, p := range s.pods {
		s.deletePod(p)
	}
	for _, v := range s.volumes[:10] { // of the others kubelet may not have asked yet
		s.awaitFailures(unpublish, v, 1)
	}
	s.must(s.startDaemon())
	for _, v := range s.volumes {
		s.awaitDetached(v)
	}
}

func recordsLost(s *scenario) {
	v, first, text := s.startWriter(volumeOptions{})
	s.must(s.loseRecords())
	second := s.startPod(v)
	s.sees(second, "data", text)
	s.must(s.loseRecords())
	s.endPod(first)
	s.endReader(second, text)
}

// loseRecords has the driver lose what it remembers of volumes on the node. A cloud that it keeps in a
// file stays.
func (s *scenario) loseRecords() error {
	s.driver.Kill()
	if err := os.RemoveAll(filepath.Join(s.node.dir, "state", "volumes")); err != nil {
		return err
	}
	return errors.Join(s.startDriver(), s.served(s.ctx))
}

func copied(s *scenario) {
	original, p, text := s.startWriter(volumeOptions{})
	other := s.newVolume(volumeOptions{})
	made := ask[simv1.DiskNumber](s, "CloneDisk", &simv1.CloneDiskRequest{
		DiskNumber: *s.disk(original).DiskNumber, Disk: &simv1.DiskHardware{SerialNumber: s.wire.cloud.serialNumber(other.id)},
	})
	ask[simv1.Empty](s, "DetachDisk", made) // the Controller attaches the disk with the serial number
	ofCopy := s.startPod(other)
	has := func() {
		s.sees(p, "data", text)
		data, err := sim[simv1.Data](s.ctx, ofCopy.node, "ReadFile", &simv1.Path{Path: ofCopy.file(other, "data")})
		if err != nil || string(data.Data) != text+original.id {
			s.wrong("%s sees %q, %v in the copy", ofCopy.name, data.GetData(), err)
		}
	}
	has()
	s.write(p, "own", "original")
	s.write(ofCopy, "own", "copy")
	s.sees(p, "own", "original")
	s.endLast(p)
	s.endLast(ofCopy)
	ofCopy = s.startPod(other)
	p = s.startPod(original)
	has()
	s.sees(p, "own", "original")
	s.sees(ofCopy, "own", "copy")
	s.endLast(ofCopy)
	s.endLast(p)
}

func hungFormat(s *scenario) {
	const call = "MSFT_Volume.Format"
	ask[simv1.Empty](s, "AddRule", &simv1.Rule{
		Call: call, Count: 1, Uncancellable: true, Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Hour)},
	})
	text, hung := s.text(), s.newPod(s.newVolume(volumeOptions{}))
	s.await("the format hangs", func() (bool, error) { return s.made(call) == 1, nil })
	for range 10 {
		s.newClaim(volumeOptions{})
	}
	for _, other := range s.volumes[1:] {
		s.newPod(s.awaitMade(other))
	}
	for _, p := range s.pods[1:] {
		s.awaitRunning(p)
		s.write(p, "data", text)
		s.sees(p, "data", text)
	}
	for _, p := range s.pods[1:] {
		s.endLast(p)
	}
	if now, err := s.cluster.CoreV1().Pods(s.name).Get(s.ctx, hung.name, metav1.GetOptions{}); err != nil || now.Status.Phase == corev1.PodRunning {
		s.wrong("the format doesn't hang: %v", err)
	}
	ask[simv1.Empty](s, "ClearRules", &simv1.Empty{})
	s.useAndEnd(hung)
}

func attachmentDeleted(s *scenario) {
	v, p, text := s.startWriter(volumeOptions{})
	s.endLast(p) // what it wrote was flushed
	p = s.startPod(v)
	s.wire.watch(nil) // this detaches a volume that is mounted
	for _, a := range s.attachments(v) {
		s.must(s.cluster.StorageV1().VolumeAttachments().Delete(s.ctx, a.Name, metav1.DeleteOptions{}))
	}
	s.await("the disk is gone", func() (bool, error) { return s.disk(v) == nil, nil })
	if _, err := s.read(p, v, "data"); err == nil {
		s.wrong("%s sees data of a disk that isn't there", p.name)
	}
	s.endPod(p)
	s.awaitDetached(v)
	s.wire.watch(s.mounted)
	p = s.startPod(v)
	s.endReader(p, text)
}

func slowFormat(s *scenario) {
	ask[simv1.Empty](s, "AddRule", &simv1.Rule{
		Call: "MSFT_Volume.Format", Count: 1, Uncancellable: true, Effect: &simv1.Rule_DelayNs{DelayNs: int64(150 * time.Second)},
	})
	v := s.newVolume(volumeOptions{})
	p := s.startPod(v)
	s.awaitFailures(stage, v, 1) // or it wasn't slow
	if made := s.made("MSFT_Volume.Format"); made != 1 {
		s.wrong("the volume was formatted %d times", made)
	}
	s.useAndEnd(p)
}

func pulled(s *scenario) {
	v, p, text := s.startWriter(volumeOptions{})
	s.endLast(p)
	p = s.startPod(v)
	ask[simv1.Empty](s, "DetachDisk", &simv1.DiskNumber{DiskNumber: s.disk(v).DiskNumber})
	if _, err := s.read(p, v, "data"); err == nil {
		s.wrong("%s sees data of a disk that isn't there", p.name)
	}
	s.endLast(p)
	p = s.startPod(v)
	s.endReader(p, text)
}

func stats(s *scenario) {
	s.must(s.cluster.startKubelet("-stats=1s"))
	v, p, _ := s.startWriter(volumeOptions{})
	s.awaitCall(usage, v, "tells what the volume has", func(c call) bool {
		r, ok := c.response.(*csi.NodeGetVolumeStatsResponse)
		on := s.volumeOf(v)
		return ok && len(r.Usage) == 1 && r.Usage[0].Total == int64(on.TotalBytes) && r.Usage[0].Available == int64(on.FreeBytes)
	})
	s.must(s.cluster.startKubelet())
	s.endLast(p)
}

// plant is a fault, the scenario in which it is planted, and what is noted then.
type plant struct{ name, scenario, found string }

// Faults that can be planted, to see that the run turns red.
var (
	plantData   = plant{"data", "number", "doesn't see its data"}                          // a disk comes back empty
	plantDetach = plant{"detach", "open-file", "is detached while"}                        // a disk is detached while its volume is mounted
	plantLost   = plant{"lost-answer", "life", "fails: Unavailable"}                       // an answer is lost, so that kubelet repeats the call
	plantEvent  = plant{"event", "life", "event FailedMount"}                              // the same, of which kubelet makes an event
	plantLeft   = plant{"left", "life", "is left"}                                         // the driver unstages nothing, and says that it has
	plantCount  = plant{"repeated", "life", "succeeds 2 times"}                            // a call comes twice
	plantDir    = plant{"directory", "life", "kubelet keeps volumes"}                      // kubelet leaves the directory of a volume
	plantWrites = plant{"writable", "read-only", "can write to a read-only volume"}        // a PersistentVolume isn't read-only
	plantTwo    = plant{"two-nodes", "moves", "is asked for on two nodes"}                 // a disk is attached to a second node
	plantLie    = plant{"not-off", "out-of-service", "writes after its disk was detached"} // the cloud says that a disk is detached, and it isn't
	plants      = []plant{plantData, plantDetach, plantLost, plantEvent, plantLeft, plantCount, plantDir, plantWrites, plantTwo, plantLie}
)

// plant lets a fault happen on the wire.
func (s *scenario) plant() {
	switch s.planted {
	case plantLost, plantEvent:
		s.loseAnswers(stage)
	case plantCount:
		again := false
		s.wire.interpose(func(c call, pass func() error) error {
			err := pass()
			if c.method == publish && !again {
				again = true
				err = invoke(s.ctx, s.wire.address, csi.Node_NodePublishVolume_FullMethodName, c.request, &csi.NodePublishVolumeResponse{})
			}
			return err
		})
	case plantDir:
		s.must(os.MkdirAll(filepath.Join(s.cluster.root, s.kubeletsVolumes(), "planted"), 0o750))
	case plantLeft:
		s.wire.interpose(func(c call, pass func() error) error {
			if c.method == unstage {
				return nil
			}
			return pass()
		})
	}
}

// awaitFailures returns when a call about a volume has failed so often.
func (s *scenario) awaitFailures(method string, v *volume, n int) {
	s.await(fmt.Sprintf("%s has failed %d times", method, n), func() (bool, error) {
		failed := 0
		for _, c := range s.calls(v) {
			if c.method == method && c.took != 0 && c.code != codes.OK {
				failed++
			}
		}
		return failed >= n, nil
	})
}
