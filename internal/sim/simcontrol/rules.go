// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"context"
	"slices"
	"time"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// AddRule implements simv1.SimServer.
func (s *Service) AddRule(_ context.Context, r *simv1.AddRuleRequest) (*simv1.AddRuleResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	match := winsim.Match{
		Call:   r.GetRule().GetCall(),
		Object: r.GetRule().GetObject(),
		Skip:   int(r.GetRule().GetSkip()),
		Count:  int(r.GetRule().GetCount()),
	}
	var err error
	switch effect := r.GetRule().GetEffect().(type) {
	case *simv1.Rule_WindowsError:
		err = s.sys.Fail(match, win.Errno(effect.WindowsError))
	case *simv1.Rule_DelayNs:
		delay := s.sys.Delay
		if r.Rule.Uncancellable {
			delay = s.sys.DelayUncancellable
		}
		err = delay(match, time.Duration(effect.DelayNs))
	default:
		return nil, invalid("AddRule", "neither an error nor a delay")
	}
	if err != nil {
		return nil, classify(err)
	}
	s.rules = append(s.rules, r.Rule)
	return &simv1.AddRuleResponse{}, nil
}

// ListRules implements simv1.SimServer.
func (s *Service) ListRules(context.Context, *simv1.ListRulesRequest) (*simv1.ListRulesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &simv1.ListRulesResponse{Rules: slices.Clone(s.rules)}, nil
}

// ClearRules implements simv1.SimServer.
func (s *Service) ClearRules(context.Context, *simv1.ClearRulesRequest) (*simv1.ClearRulesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sys.ResetRules()
	s.rules = nil
	return &simv1.ClearRulesResponse{}, nil
}

// ListCalls implements simv1.SimServer.
func (s *Service) ListCalls(context.Context, *simv1.ListCallsRequest) (*simv1.ListCallsResponse, error) {
	made := s.sys.Calls()
	counts := make(map[string]int64)
	for _, name := range win.CallNames() {
		counts[name] = int64(made[name])
	}
	return &simv1.ListCallsResponse{Counts: counts}, nil
}
