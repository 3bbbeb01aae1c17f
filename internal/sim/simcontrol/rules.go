// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"slices"
	"time"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func (s *Service) AddRule(r *simv1.Rule) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	match := winsim.Match{
		Call:   r.GetCall(),
		Object: r.GetObject(),
		Skip:   int(r.GetSkip()),
		Count:  int(r.GetCount()),
	}
	var err error
	switch effect := r.GetEffect().(type) {
	case *simv1.Rule_WindowsError:
		err = s.sys.Fail(match, winerr.Errno(effect.WindowsError))
	case *simv1.Rule_DelayNs:
		delay := s.sys.Delay
		if r.Uncancellable {
			delay = s.sys.DelayUncancellable
		}
		err = delay(match, time.Duration(effect.DelayNs))
	default:
		return invalid("AddRule", "neither an error nor a delay")
	}
	if err != nil {
		return err
	}
	s.rules = append(s.rules, r)
	return nil
}

func (s *Service) ListRules() (*simv1.ListRulesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &simv1.ListRulesResponse{Rules: slices.Clone(s.rules)}, nil
}

func (s *Service) ClearRules() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sys.ResetRules()
	s.rules = nil
	return nil
}

func (s *Service) ListCalls() (*simv1.ListCallsResponse, error) {
	made := s.sys.Calls()
	counts := make(map[string]int64)
	for _, name := range win.CallNames() {
		counts[name] = int64(made[name])
	}
	return &simv1.ListCallsResponse{Counts: counts}, nil
}
