// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"time"

	"google.golang.org/protobuf/proto"

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
	var effect winsim.Effect
	switch e := r.GetEffect().(type) {
	case *simv1.Rule_WindowsError:
		effect.Fail = winerr.Errno(e.WindowsError)
	case *simv1.Rule_DelayNs:
		effect.Delay = time.Duration(e.DelayNs)
		if r.Uncancellable {
			effect.Delay, effect.DelayUncancellable = 0, effect.Delay
		}
	}
	if effect == (winsim.Effect{}) {
		return invalid("AddRule", "neither an error nor a delay")
	}
	hits, err := s.sys.AddRule(match, effect)
	if err == nil {
		s.rules = append(s.rules, rule{r, hits})
	}
	return err
}

// rule is a rule with the number of the calls that it has had its effect on.
type rule struct {
	*simv1.Rule
	hits func() int
}

func (s *Service) ListRules() (*simv1.ListRulesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var listed simv1.ListRulesResponse
	for _, r := range s.rules {
		shown := proto.CloneOf(r.Rule)
		shown.Hits = int32(r.hits())
		listed.Rules = append(listed.Rules, shown)
	}
	return &listed, nil
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
