// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// scenarioOf returns a scenario by its name.
func scenarioOf(t *testing.T, name string) scenario {
	t.Helper()
	at := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if at < 0 {
		t.Fatalf("there is no scenario %q", name)
	}
	return scenarios[at]
}

// Wherever a StageShare fails, or its caller gives up, it leaves no mapping without a link.
func TestStageShareThatFailsLeavesNoMapping(t *testing.T) {
	s := scenarioOf(t, "StageShare")
	s.sample = nil // all calls: there are few, and at some of them an error is passed over
	for what, mishap := range map[string]func(r *rig, c winsim.Call, giveUp func()){
		"error": func(r *rig, c winsim.Call, _ func()) {
			r.must(r.sim.Fail(winsim.Match{Call: c.Name, Count: 1}, winerr.ErrorIODevice))
		},
		"give up": func(_ *rig, _ winsim.Call, giveUp func()) { giveUp() },
	} {
		t.Run(what, func(t *testing.T) {
			failed := 0
			atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				before(func(c winsim.Call) { mishap(r, c, cancel) })
				err := s.run(ctx, r, r.process())
				r.sim.OnCall(nil)
				r.sim.ResetRules()
				if err != nil {
					failed++
				}
				staged := r.sim.WriteFile(share+file, nil) == nil
				if r.isMapped() != staged || err == nil && !staged {
					t.Errorf("mapped: %v, staged: %v, after %v", r.isMapped(), staged, err)
				}
				s.succeeds(t, r)
			})
			if failed == 0 {
				t.Error("it has never failed")
			}
		})
	}
}

// A StageShare that fails leaves the mapping to those who use it: a StageShare of another
// process that comes at any of its calls.
func TestStageShareThatFailsLeavesOthersTheirs(t *testing.T) {
	s := scenarioOf(t, "StageShare that is refused")
	others := 0
	atEachCall(t, 0, s, func(t *testing.T, r *rig, before func(func(winsim.Call))) {
		staged := false
		before(func(winsim.Call) {
			r.sim.OnCall(nil)
			err := r.process().Storage.StageShare(context.Background(), shareRequest(share+"2"))
			staged = err == nil
			if err != nil && !errors.Is(err, csiproxy.ErrUnavailable) {
				t.Error(err)
			}
		})
		r.must(s.run(t.Context(), r, r.process()))
		if staged {
			others++
			r.must(r.sim.WriteFile(share+"2"+file, nil))
		}
	})
	if others == 0 {
		t.Error("the other process has never staged the share")
	}
}

// A driver of the group smb that has found the mapping keeps it, also without a link.
func TestStageShareThatFailsLeavesAMappingThatWasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := r.process()
		r.must(r.sim.Delay(winsim.Match{Call: win.CallFileAttributes, Object: "none"}, 2*time.Second))
		first := make(chan error, 1)
		go func() {
			request := shareRequest(share)
			request.RemotePath += `\none`
			first <- n.Storage.StageShare(t.Context(), request)
		}()
		time.Sleep(time.Second)
		r.must(n.SMB.NewSMBGlobalMapping(t.Context(), `\\server\data`, "", user))
		if err := <-first; !errors.Is(err, csiproxy.ErrNotFound) || !r.isMapped() {
			t.Errorf("the first: %v; mapped: %v", err, r.isMapped())
		}
	})
}

// A call that counts on the mapping of another one that fails has it in the end, and the mapping
// goes with the last one that fails.
func TestStageSharesThatFailTogether(t *testing.T) {
	for name, second := range map[string]struct {
		remote, local string // local is a path for NewSMBGlobalMapping; "" calls StageShare
		keeps         bool
	}{
		"both fail":                     {`\\server\data\none-either`, "", false},
		"the other one succeeds":        {`\\server\data`, "", true},
		"the other one is of group smb": {`\\server\data`, simtest.Kubelet + `\plugins\smb`, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.must(r.sim.MkdirAll(simtest.Kubelet + `\plugins`))
				n := r.process()
				// The first one makes the mapping, and looks for its directory for 2 seconds; the
				// second one comes meanwhile, and takes 4.
				r.must(r.sim.Delay(winsim.Match{Call: win.CallFileAttributes, Object: "none"}, 2*time.Second))
				first := make(chan error, 1)
				go func() {
					request := shareRequest(share)
					request.RemotePath += `\none`
					first <- n.Storage.StageShare(t.Context(), request)
				}()
				time.Sleep(time.Second)
				r.must(r.sim.Delay(winsim.Match{Call: win.CallFileAttributes, Object: `\\server\data`}, 4*time.Second))
				ended := make(chan error, 1)
				go func() {
					if second.local != "" {
						ended <- n.SMB.NewSMBGlobalMapping(t.Context(), second.remote, second.local, user)
						return
					}
					ended <- n.Storage.StageShare(t.Context(),
						csiproxy.StageShareRequest{RemotePath: second.remote, StagingPath: share + "2", Credentials: user})
				}()
				simtest.WantErrorOf(t, "the first", <-first, csiproxy.ErrNotFound)
				if len(ended) > 0 {
					t.Error("the second one has ended before the first, so this shows nothing")
				}
				if err := <-ended; (err == nil) != second.keeps {
					t.Errorf("the second: %v", err)
				}
				simtest.Want(t, "mapped in the end", r.isMapped(), second.keeps)
			})
		})
	}
}
