// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// The calls of a driver that scenarios count.
const (
	stage     = "NodeStageVolume"
	publish   = "NodePublishVolume"
	unpublish = "NodeUnpublishVolume"
	unstage   = "NodeUnstageVolume"
	grow      = "NodeExpandVolume"
	attach    = "ControllerPublishVolume"
	detach    = "ControllerUnpublishVolume"
)

// once is what one pod with one volume leads to.
var once = map[string]int{attach: 1, stage: 1, publish: 1, unpublish: 1, unstage: 1, detach: 1}

// definition is what there is to a scenario before it is run.
type definition struct {
	name, what string
	run        func(s *scenario)
	expected   expectation
}

// scenarios are run in an order that the seed gives. Each must leave nothing behind.
var scenarios = []definition{
	{"life", "a pod uses a volume and goes", life, expectation{calls: once}},
	{"number", "the disk comes back under another number, and two other pods use it in turn", number, expectation{
		calls: map[string]int{attach: 2, stage: 2, publish: 2, unpublish: 2, unstage: 2, detach: 2},
	}},
	{"expansion", "the claim grows while the pod runs", expansion, expectation{
		calls: map[string]int{attach: 1, stage: 1, publish: 1, unpublish: 1, unstage: 1, detach: 1, grow: 1},
	}},
	{"two-pods", "two pods share a claim, and go one after the other", twoPods, expectation{
		calls: map[string]int{attach: 1, stage: 1, publish: 2, unpublish: 2, unstage: 1, detach: 1},
	}},
	{"read-only", "a PersistentVolume that is read-only has the data of the writable one before", readOnly, expectation{
		calls: map[string]int{attach: 2, stage: 2, publish: 2, unpublish: 2, unstage: 2, detach: 2},
	}},
	{"smb-secret", "the secret for a share is wrong, and then corrected", smbSecret, expectation{
		calls: once, failing: []string{stage}, events: []string{"FailedMount"},
	}},
	{"boot", "the pod starts before CSI Proxy does", boot, expectation{
		calls: once, failing: []string{stage}, events: []string{"FailedMount"},
	}},
	{"kill", "CSI Proxy is killed while it stages, publishes, unpublishes and unstages", kill, expectation{
		calls:   map[string]int{attach: 2, stage: 2, publish: 2, unpublish: 2, unstage: 2, detach: 2},
		failing: []string{stage, publish, unpublish, unstage}, events: []string{"FailedMount"},
	}},
	{"open-file", "a process keeps a file of the volume open when the pod has gone", openFile, expectation{
		calls: once, failing: []string{unstage},
	}},
}

func life(s *scenario) {
	v := s.newVolume(volumeOptions{})
	p := s.startPod(v)
	text := s.text()
	s.write(p, "data", text)
	s.sees(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)
}

func number(s *scenario) {
	v, text := s.newVolume(volumeOptions{}), s.text()
	p := s.startPod(v)
	s.write(p, "data", text)
	before := s.disk(v)
	s.endPod(p)
	s.awaitDetached(v)

	other, err := sim[simv1.DiskNumber](s.ctx, s.node, "AttachDisk", &simv1.DiskHardware{
		SizeBytes: gib, SerialNumber: "other", DiskNumber: before.DiskNumber,
	})
	s.must(err)
	if s.planted.name == plantData {
		_, err := sim[simv1.Empty](s.ctx, s.node, "DeleteDisk", &simv1.SerialNumber{SerialNumber: v.id})
		s.must(err)
	}
	p = s.startPod(v)
	if after := s.disk(v); after == nil || *after.DiskNumber == *before.DiskNumber {
		s.wrong("the disk is %v, and was number %d before: not what this is about", after, *before.DiskNumber)
	}
	s.sees(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)

	_, err = sim[simv1.Empty](s.ctx, s.node, "DetachDisk", other)
	s.must(err)
}

func expansion(s *scenario) {
	v, text := s.newVolume(volumeOptions{}), s.text()
	p := s.startPod(v)
	s.write(p, "data", text)
	size := resource.NewQuantity(v.size+(1+s.random.Int64N(4))*gib, resource.BinarySI)
	s.must(expand(s.ctx, s.cluster, s.wire, s.name, v.claim, *size))
	s.await("the claim has grown", func() (bool, error) {
		claim, err := s.cluster.CoreV1().PersistentVolumeClaims(s.name).Get(s.ctx, v.claim, metav1.GetOptions{})
		return err == nil && claim.Status.Capacity.Storage().Cmp(*size) == 0, err
	})
	if on := s.volumeOf(v); on == nil || on.TotalBytes < uint64(size.Value())-64<<20 {
		s.wrong("the volume is %v, and should have %d bytes", on, size.Value())
	}
	s.sees(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)
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
	s.endPod(stays)
	s.awaitDetached(v)
}

func readOnly(s *scenario) {
	v, text := s.newVolume(volumeOptions{}), s.text()
	p := s.startPod(v)
	s.write(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)

	pv, err := s.cluster.CoreV1().PersistentVolumes().Get(s.ctx, v.pv, metav1.GetOptions{})
	s.must(err)
	s.unbind(v)
	again := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name + "-read-only"}, Spec: pv.Spec}
	again.Spec.CSI.ReadOnly = true
	v.pv = again.Name
	s.bind(v, again)
	p = s.startPod(v)
	s.sees(p, "data", text)
	if _, err := sim[simv1.Empty](s.ctx, s.node, "WriteFile", &simv1.WriteFileRequest{Path: p.file("data"), Data: []byte("other")}); err == nil {
		s.wrong("%s can write to a read-only volume", p.name)
	}
	s.sees(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)
}

func smbSecret(s *scenario) {
	const server, share, user, right, wrong = "files", "data", `files\pods`, "right-password", "wrong-password"
	_, err := sim[simv1.Empty](s.ctx, s.node, "AddSmbShare", &simv1.SmbShare{Server: server, Name: share, Users: []string{user}})
	s.must(err)
	_, err = sim[simv1.Empty](s.ctx, s.node, "SetSmbUser", &simv1.SmbUser{Server: server, User: user, Password: right})
	s.must(err)
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "share"}, StringData: map[string]string{"username": user, "password": wrong},
	}
	secrets := s.cluster.CoreV1().Secrets(s.name)
	_, err = secrets.Create(s.ctx, secret, metav1.CreateOptions{})
	s.must(err)

	v := s.newVolume(volumeOptions{secret: secret.Name, mode: corev1.ReadWriteMany})
	p, text := s.newPod(v), s.text()
	s.awaitFailures(stage, v, 2)
	secret.StringData["password"] = right
	_, err = secrets.Update(s.ctx, secret, metav1.UpdateOptions{})
	s.must(err)
	s.awaitRunning(p)
	s.write(p, "data", text)
	s.sees(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)
}

func boot(s *scenario) {
	v, text := s.newVolume(volumeOptions{}), s.text()
	down := make(chan struct{})
	s.wire.interpose(func(c call, pass func() error) error {
		select {
		case <-down:
		default:
			if c.method == stage {
				// As on a node that starts: the driver is there, CSI Proxy isn't yet.
				s.daemon.kill()
				s.driver.kill()
				if err := s.startDriver(); err != nil {
					s.wrong("%v", err)
				}
				if err := s.served(s.ctx); err != nil {
					s.wrong("%v", err)
				}
				close(down)
			}
		}
		return pass()
	})
	p := s.newPod(v)
	s.awaitFailures(stage, v, 2)
	s.must(s.startDaemon())
	s.awaitRunning(p)
	s.wire.interpose(nil)
	s.write(p, "data", text)
	s.sees(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)
}

// Calls to Windows in the middle of each phase.
var phases = map[string][]string{
	stage:     {"IOCTL_DISK_CREATE_DISK", "IOCTL_DISK_SET_DRIVE_LAYOUT_EX", "MSFT_Volume.Format", "SetVolumeMountPointW"},
	publish:   {"FSCTL_SET_REPARSE_POINT", "GetFinalPathNameByHandleW"},
	unpublish: {"SetFileInformationByHandle", "FSCTL_GET_REPARSE_POINT"},
	unstage:   {"FSCTL_LOCK_VOLUME", "FlushFileBuffers", "DeleteVolumeMountPointW", "IOCTL_DISK_SET_DISK_ATTRIBUTES"},
}

func kill(s *scenario) {
	v, text := s.newVolume(volumeOptions{}), s.text()
	s.killDuring(stage, publish)
	p := s.startPod(v)
	s.write(p, "data", text)
	s.killDuring(unpublish, unstage)
	s.endPod(p)
	s.awaitDetached(v)
	s.wire.interpose(nil)

	for _, method := range []string{stage, publish, unpublish, unstage} {
		s.awaitFailures(method, v, 1) // or it wasn't killed in the middle of it
	}
	p = s.startPod(v)
	s.sees(p, "data", text)
	s.endPod(p)
	s.awaitDetached(v)
}

// killDuring kills CSI Proxy in the middle of the first call of each method from now on, and starts
// it again.
func (s *scenario) killDuring(methods ...string) {
	killed := make(map[string]bool)
	at := make(map[string]string)
	for _, method := range methods {
		at[method] = phases[method][s.random.IntN(len(phases[method]))]
	}
	s.wire.interpose(func(c call, pass func() error) error {
		windowsCall := at[c.method]
		if windowsCall == "" || killed[c.method] {
			return pass()
		}
		killed[c.method] = true
		s.note("killed in %s, in %s", c.method, windowsCall)
		made := s.made(windowsCall)
		_, err := sim[simv1.Empty](s.ctx, s.node, "AddRule", &simv1.Rule{
			Call: windowsCall, Count: 1, Uncancellable: true, Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Hour)},
		})
		if err != nil {
			return err
		}
		result := make(chan error, 1)
		go func() { result <- pass() }()
		if err := s.cluster.await(s.ctx, c.method+" is in "+windowsCall, func() (bool, error) { return s.made(windowsCall) > made, nil }); err != nil {
			s.wrong("%v", err)
		}
		s.daemon.kill()
		if err := s.startDaemon(); err != nil {
			s.wrong("%v", err)
		}
		return <-result
	})
}

// made returns how often a call to Windows was made.
func (s *scenario) made(windowsCall string) int64 {
	calls, err := sim[simv1.ListCallsResponse](s.ctx, s.node, "ListCalls", &simv1.Empty{})
	if err != nil {
		s.wrong("%v", err)
		return 0
	}
	return calls.Counts[windowsCall]
}

func openFile(s *scenario) {
	v, text := s.newVolume(volumeOptions{}), s.text()
	p := s.startPod(v)
	s.write(p, "data", text)
	process, err := sim[simv1.Process](s.ctx, s.node, "StartProcess", &simv1.Process{
		Program: `C:\app\app.exe`, Paths: []string{p.file("data")},
	})
	s.must(err)
	if s.planted.name == plantDetach {
		s.mounted(v.id)
		_, err := callController[csi.ControllerUnpublishVolumeResponse](s.ctx, s.wire, "ControllerUnpublishVolume",
			&csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: nodeName})
		s.must(err)
	}
	s.endPod(p)
	s.awaitFailures(unstage, v, 2)
	if d := s.disk(v); d == nil || d.Offline {
		s.wrong("the disk is %v while a process uses the volume", d)
	}
	_, err = sim[simv1.Empty](s.ctx, s.node, "EndProcess", process)
	s.must(err)
	s.awaitDetached(v)
}

// Faults that can be planted, to see that the run turns red.
const (
	plantData   = "data"        // a disk comes back empty
	plantDetach = "detach"      // a disk is detached while its volume is mounted
	plantLost   = "lost-answer" // an answer is lost, so that kubelet repeats the call
	plantLeft   = "left"        // the driver unstages nothing, and says that it has
)

// plant is a fault, the scenario in which it is planted, and what is noted then.
type plant struct{ name, scenario, found string }

var plants = []plant{
	{plantData, "number", "doesn't see its data"},
	{plantDetach, "open-file", "is detached while"},
	{plantLost, "life", "fails: Unavailable"},
	{plantLeft, "life", "is left"},
}

// plant lets a fault happen on the wire.
func (s *scenario) plant() {
	switch s.planted.name {
	case plantLost:
		lost := false
		s.wire.interpose(func(c call, pass func() error) error {
			err := pass()
			if c.method == stage && !lost {
				lost = true
				return status.Error(codes.Unavailable, "the answer is lost")
			}
			return err
		})
	case plantLeft:
		s.wire.interpose(func(c call, pass func() error) error {
			if c.method == unstage {
				return nil
			}
			return pass()
		})
	}
}

// shuffled returns the numbers of scenarios in the order of a seed.
func shuffled(seed uint64, n int) []int { return rand.New(rand.NewPCG(seed, 0)).Perm(n) }

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
