// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

func (p *program) simFail() *cobra.Command {
	var windowsError uint32
	cmd := p.addRule("fail", "Make calls to Windows fail", func(r *simv1.Rule) {
		r.Effect = &simv1.Rule_WindowsError{WindowsError: windowsError}
	})
	cmd.Flags().Uint32Var(&windowsError, "error", 0, "Windows error `number` with which the calls fail, such as 5 or 0x80310000")
	require(cmd, "error")
	return cmd
}

func (p *program) simDelay() *cobra.Command {
	var delay time.Duration
	var uncancellable bool
	cmd := p.addRule("delay", "Make calls to Windows take longer", func(r *simv1.Rule) {
		r.Effect, r.Uncancellable = &simv1.Rule_DelayNs{DelayNs: int64(delay)}, uncancellable
	})
	cmd.Flags().DurationVar(&delay, "duration", 0, "how much longer the calls take")
	cmd.Flags().BoolVar(&uncancellable, "uncancellable", false,
		"the calls go on after their caller's deadline, as most of Windows' calls do")
	require(cmd, "duration")
	return cmd
}

// addRule is a command that adds a rule. It has the flags that all rules share.
func (p *program) addRule(use, short string, setEffect func(*simv1.Rule)) *cobra.Command {
	rule := &simv1.Rule{}
	cmd := p.simLeaf(use, short, func(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
		setEffect(rule)
		_, err := sim.AddRule(ctx, &simv1.AddRuleRequest{Rule: rule})
		return done, err
	})
	cmd.Flags().StringVar(&rule.Call, "call", "", "`name` of the call; csi-proxyctl sim calls --all lists the names")
	cmd.Flags().StringVar(&rule.Object, "object", "", "only for calls on this object: `part` of a path or device name, such as PhysicalDrive1")
	cmd.Flags().Int32Var(&rule.Skip, "skip", 0, "skip this many calls first")
	cmd.Flags().Int32Var(&rule.Count, "count", 0, "apply to this many calls; 0 for all until sim rules clear")
	require(cmd, "call")
	complete(cmd, "call", p.completeCalls)
	return cmd
}

func (p *program) simRules() *cobra.Command {
	return p.group("rules", "Manage the rules that sim fail and sim delay have added",
		p.simLeaf("list", "List all rules, including those whose count is used up", listRules),
		p.simLeaf("clear", "End all rules", func(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
			_, err := sim.ClearRules(ctx, &simv1.ClearRulesRequest{})
			return done, err
		}),
	)
}

func listRules(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
	type ruleJSON struct {
		Call          string `json:"call"`
		Object        string `json:"object"`
		Skip          int32  `json:"skip"`
		Count         int32  `json:"count"`
		WindowsError  uint32 `json:"windows_error,omitempty"`
		DelayNs       int64  `json:"delay_ns,omitempty"`
		Uncancellable bool   `json:"uncancellable,omitempty"`
	}
	response, err := sim.ListRules(ctx, &simv1.ListRulesRequest{})
	r := reply{header: []string{"CALL", "OBJECT", "SKIP", "COUNT", "EFFECT"}}
	list := []ruleJSON{}
	for _, rule := range response.GetRules() {
		list = append(list, ruleJSON{rule.Call, rule.Object, rule.Skip, rule.Count, rule.GetWindowsError(), rule.GetDelayNs(), rule.Uncancellable})
		effect := fmt.Sprintf("fails with %d", rule.GetWindowsError())
		if rule.GetDelayNs() > 0 {
			effect = fmt.Sprintf("takes %v longer", time.Duration(rule.GetDelayNs()))
			if rule.Uncancellable {
				effect += ", even if its caller gives up"
			}
		}
		count := "all"
		if rule.Count > 0 {
			count = strconv.Itoa(int(rule.Count))
		}
		r.rows = append(r.rows, []string{rule.Call, rule.Object, strconv.Itoa(int(rule.Skip)), count, effect})
	}
	r.json = list
	return r, err
}

func (p *program) simCalls() *cobra.Command {
	type callJSON struct {
		Call  string `json:"call"`
		Count int64  `json:"count"`
	}
	var all bool
	cmd := p.simLeaf("calls", "List how often each call to Windows was made", func(ctx context.Context, sim simv1.SimClient, _ []string) (reply, error) {
		response, err := sim.ListCalls(ctx, &simv1.ListCallsRequest{})
		r := reply{header: []string{"CALL", "COUNT"}}
		list := []callJSON{}
		for _, name := range slices.Sorted(maps.Keys(response.GetCounts())) {
			count := response.GetCounts()[name]
			if count == 0 && !all {
				continue
			}
			list = append(list, callJSON{name, count})
			r.rows = append(r.rows, []string{name, strconv.FormatInt(count, 10)})
		}
		r.json = list
		return r, err
	})
	cmd.Flags().BoolVar(&all, "all", false, "also list calls that were never made")
	return cmd
}

// completeCalls offers the names of the calls that a rule can name.
func (p *program) completeCalls(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return completions(cmd, func(ctx context.Context) (found []cobra.Completion, err error) {
		conn, err := p.dialSim(ctx)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		response, err := simv1.NewSimClient(conn).ListCalls(ctx, &simv1.ListCallsRequest{})
		return slices.Sorted(maps.Keys(response.GetCounts())), err
	})
}
