// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// crash is how a part of the node ends, and starts again.
type crash struct {
	name string
	do   func(s *scenario) error
	// gentle says whether calls that are under way can end before.
	gentle bool
	// kubelet says whether kubelet ends. Afterwards it stages and publishes the volumes of pods
	// again, and forgets those that it has only to unstage: github.com/kubernetes/kubernetes/issues/121937.
	kubelet bool
	// windows says whether Windows restarts, and loses whether what pods have just written is lost.
	windows, loses bool
	// forgets says whether kubelet forgets the volumes of pods that run, and publishes them again. If
	// such a pod went before, nobody would unpublish its volume.
	forgets bool
}

var (
	daemonDies = crash{name: "CSI Proxy is killed", do: func(s *scenario) error {
		if s.inProcess {
			return driverDies.do(s)
		}
		s.daemon.Kill()
		return s.startDaemon()
	}}
	driverDies = crash{name: "the driver is killed", do: func(s *scenario) error {
		s.driver.Kill()
		return errors.Join(s.startDriver(), s.served(s.ctx))
	}}
	kubeletDies = crash{
		name: "kubelet is killed", kubelet: true, do: func(s *scenario) error { return s.cluster.startKubelet() },
	}
	upgrade = crash{name: "CSI Proxy is upgraded", gentle: true, do: func(s *scenario) error {
		s.daemon.End(syscall.SIGTERM)
		return s.startDaemon()
	}}
	reboot    = crash{name: "the node restarts", kubelet: true, windows: true, do: func(s *scenario) error { return s.restart("Reboot") }}
	powerLoss = crash{
		name: "the node loses power", kubelet: true, windows: true, loses: true, do: func(s *scenario) error { return s.restart("PowerLoss") },
	}
	allDie = crash{name: "CSI Proxy, the driver and kubelet are killed", kubelet: true, do: func(s *scenario) error {
		s.cluster.stopKubelet()
		s.driver.Kill()
		s.daemon.Kill()
		return errors.Join(s.startDaemon(), s.startDriver(), s.served(s.ctx), s.cluster.startKubelet())
	}}
	// directoryLost isn't among crashes: in the middle of a call for a pod that goes, it leaves a link
	// that only an administrator may remove. The scenario directory-lost has that.
	directoryLost = crash{name: "kubelet's directories of pods are lost", kubelet: true, forgets: true, do: func(s *scenario) error {
		s.cluster.stopKubelet()
		return errors.Join(os.RemoveAll(filepath.Join(s.cluster.root, "pods")), s.cluster.startKubelet())
	}}
	crashes = []crash{daemonDies, driverDies, kubeletDies, upgrade, reboot, powerLoss, allDie}
)

// restart ends all that runs on the node, and starts it again: CSI Proxy, the driver, then kubelet.
func (s *scenario) restart(how string) error {
	s.cluster.stopKubelet()
	if !s.inProcess { // or the simulated node goes with it
		s.driver.Kill()
	}
	_, err := sim[simv1.Empty](s.ctx, s.node, how, &simv1.Empty{})
	s.driver.Kill()
	s.daemon.Kill()
	return errors.Join(err, s.startDaemon(), s.startDriver(), s.served(s.ctx), s.cluster.startKubelet())
}

// Calls to Windows in the middle of each phase.
var phases = map[string][]string{
	stage:     {"IOCTL_DISK_CREATE_DISK", "IOCTL_DISK_SET_DRIVE_LAYOUT_EX", "MSFT_Volume.Format", "SetVolumeMountPointW"},
	publish:   {"FSCTL_SET_REPARSE_POINT", "GetFinalPathNameByHandleW"},
	unpublish: {"SetFileInformationByHandle", "FSCTL_GET_REPARSE_POINT"},
	unstage:   {"FSCTL_LOCK_VOLUME", "FlushFileBuffers", "DeleteVolumeMountPointW", "IOCTL_DISK_SET_DISK_ATTRIBUTES"},
}

// The same of volumes on shares.
var phasesOnShare = map[string][]string{
	stage:     {"MSFT_SmbGlobalMapping.Create", "FSCTL_SET_REPARSE_POINT"},
	publish:   phases[publish],
	unpublish: phases[unpublish],
	unstage:   phases[unpublish], // its path is a link, too
}

// crashing is the scenario in which something crashes in the middle of each method, and while the
// pod runs.
func crashing(c crash, methods ...string) func(s *scenario) {
	return func(s *scenario) {
		v, text := s.newVolume(volumeOptions{}), s.text()
		of := func(wanted ...string) []string {
			return slices.DeleteFunc(wanted, func(m string) bool { return !slices.Contains(methods, m) })
		}
		s.crashDuring(c, of(stage, publish)...)
		p := s.startPod(v)
		s.write(p, "data", text)
		disarm := s.crashDuring(c, of(unpublish, unstage)...)
		s.endLast(p)
		disarm()
		for _, method := range methods {
			if !c.gentle && !slices.Contains(s.missed, method) {
				s.awaitFailures(method, v, 1) // or it didn't happen in the middle of it
			}
		}

		if c.loses { // also what the pod has written
			p = s.startPod(v)
			s.write(p, "data", text)
			s.endLast(p)
		}
		p = s.startPod(v) // what the pod before wrote was flushed when its volume was unstaged
		s.crash(c, p)
		s.endReader(p, text)
	}
}

// crash lets something crash, and returns when the pods can use their volumes.
func (s *scenario) crash(c crash, pods ...*pod) {
	s.note("%s", c.name)
	at := time.Now()
	s.must(c.do(s))
	s.back(c, at, pods...)
}

// back returns when pods can use their volumes after a crash: kubelet stages them again when Windows
// has restarted, or when it has forgotten them.
func (s *scenario) back(c crash, at time.Time, pods ...*pod) {
	if !c.windows && !c.forgets {
		return
	}
	for _, p := range pods {
		for _, v := range p.volumes {
			s.awaitCall(publish, v, "has succeeded again", func(c call) bool {
				return c.field("target_path") == p.target(v) && c.began.After(at) && c.code == codes.OK && c.took != 0
			})
		}
	}
}

// crashDuring lets something crash in the middle of the first call of each method from now on.
// disarm ends that, waits for a crash under way, and returns when the last one was; zero if there was
// none. A driver may not ask for what was chosen: then it crashes after its call, and s.missed has it.
func (s *scenario) crashDuring(c crash, methods ...string) (disarm func() time.Time) {
	var (
		mu       sync.Mutex
		last     time.Time
		underWay sync.WaitGroup
		at       = make(map[string]string)
	)
	of := phases
	if s.shares {
		of = phasesOnShare
	}
	for _, method := range methods {
		at[method] = of[method][s.random.IntN(len(of[method]))]
	}
	s.wire.interpose(func(called call, pass func() error) error {
		mu.Lock()
		windowsCall := at[called.method]
		delete(at, called.method)
		if windowsCall != "" {
			underWay.Add(1)
			last = time.Now()
		}
		mu.Unlock()
		if windowsCall == "" {
			return pass()
		}
		defer underWay.Done()
		s.note("%s in %s, in %s", c.name, called.method, windowsCall)
		err := s.crashIn(c, windowsCall, pass)
		if err == nil && !c.gentle {
			s.note("%s succeeds without %s: %s after it", called.method, windowsCall, c.name)
			s.mu.Lock()
			s.missed = append(s.missed, called.method)
			s.mu.Unlock()
		}
		return err
	})
	return func() time.Time {
		s.wire.interpose(nil)
		mu.Lock()
		clear(at)
		mu.Unlock()
		underWay.Wait()
		return last
	}
}

// crashIn makes a call, and lets something crash when it is in a call to Windows.
func (s *scenario) crashIn(c crash, windowsCall string, pass func() error) error {
	made := s.made(windowsCall)
	rule := &simv1.Rule{Call: windowsCall, Count: 1, Uncancellable: true, Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Hour)}}
	if c.gentle {
		rule.Effect = &simv1.Rule_DelayNs{DelayNs: int64(3 * time.Second)}
	}
	if _, err := sim[simv1.Empty](s.ctx, s.node, "AddRule", rule); err != nil {
		return err
	}
	var answer error
	answered := make(chan struct{})
	go func() { answer = pass(); close(answered) }()
	err := s.cluster.await(s.ctx, "Windows is asked for "+windowsCall, func() (bool, error) {
		select {
		case <-answered: // without it, as when a disk has a file system already: it crashes before kubelet hears
			return true, nil
		default:
			return s.made(windowsCall) > made, nil
		}
	})
	if err == nil {
		err = c.do(s)
	}
	if err == nil {
		_, err = sim[simv1.Empty](s.ctx, s.node, "ClearRules", &simv1.Empty{})
	}
	if err != nil {
		s.wrong("%v", err)
	}
	<-answered
	if c.gentle && answer != nil {
		s.wrong("the call that is under way fails: %v", answer)
	}
	return answer
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

// loseAnswers loses the answer to the first call of each method from now on.
func (s *scenario) loseAnswers(methods ...string) {
	var mu sync.Mutex
	s.wire.interpose(func(c call, pass func() error) error {
		err := pass()
		mu.Lock()
		defer mu.Unlock()
		i := slices.Index(methods, c.method)
		if i < 0 || err != nil {
			return err
		}
		methods = slices.Delete(methods, i, i+1)
		return status.Error(codes.Unavailable, "the answer is lost")
	})
}
