// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/host/deployment"
	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/text/terminal"
)

func (p *program) doctor() *cobra.Command {
	var kubeletPath string
	c := p.leaf("doctor", "Diagnose this node",
		func(ctx context.Context, _ []string) (r reply, err error) {
			n, closeNode, err := p.node(ctx, kubeletPath)
			if err != nil {
				return reply{}, err
			}
			defer func() { err = errors.Join(err, closeNode()) }()
			findings := doctor.Examine(ctx, n)
			if err := interrupted(ctx); err != nil {
				return reply{}, err
			}
			if err := p.print(findingsReply(findings)); err != nil {
				return reply{}, err
			}
			return printed, problemsFound(findings)
		})
	c.Long = `Look for what keeps CSI Proxy from working on this node: who has the endpoints, the service, the
kubelet directory, Windows' settings, and disks and shares that can't be used.
Each finding comes with what to do about it; docs/troubleshooting.md has more on each. Nothing is changed.

The daemon is asked for disks, mounts and shares. Where none runs, as where drivers use the library,
the other checks are made all the same, and these say that they can't be. Run it as an administrator.
All take 20 seconds at most.

Exits 1 if there are problems. Warnings do not affect the exit code.`
	kubeletPathFlag(c, &kubeletPath)
	return c
}

// problemsFound says how many findings are problems; nil if none is.
func problemsFound(findings []doctor.Finding) error {
	problems := 0
	for _, f := range findings {
		if f.Verdict == doctor.Problem {
			problems++
		}
	}
	switch problems {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("1 of %d findings is a problem", len(findings))
	}
	return fmt.Errorf("%d of %d findings are problems", problems, len(findings))
}

// interrupted returns an error if the user has interrupted the command: what wasn't asked by then would
// look like what the node doesn't answer. If only --timeout is over, there is none.
func interrupted(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	return nil
}

func kubeletPathFlag(c *cobra.Command, path *string) {
	c.Flags().StringVar(path, "kubelet-path", "",
		"`directory` of kubelet (default: that of the service's -kubelet-path, else "+defaultKubeletPath+")")
}

// defaultKubeletPath is that of the daemon's flag -kubelet-path.
const defaultKubeletPath = `C:\var\lib\kubelet`

// verdictColours are the colours of what isn't well.
var verdictColours = map[doctor.Verdict]terminal.Colour{doctor.Problem: terminal.Red, doctor.Warning: terminal.Yellow}

// findingsReply shows the findings. On a system other than Windows one row stands for all checks that need it.
func findingsReply(findings []doctor.Finding) reply {
	r := reply{json: findings, colours: make(map[int]terminal.Colour)}
	var needWindows []string
	reason := ""
	for _, f := range findings {
		if f.NeedsWindows {
			needWindows, reason = append(needWindows, f.Check), f.Text
			continue
		}
		verdict := string(f.Verdict)
		if f.Verdict == doctor.Unknown {
			verdict = "can't tell"
		}
		r.colours[len(r.rows)] = verdictColours[f.Verdict]
		r.rows = append(r.rows, []string{f.Check, verdict, f.Text})
		if f.Advice != "" {
			r.rows = append(r.rows, []string{" ", " ", "to do: " + f.Advice})
		}
	}
	if n := len(needWindows); n > 0 {
		r.rows = append(r.rows, []string{fmt.Sprintf("%d others", n), "can't tell", reason + ": " + strings.Join(needWindows, ", ")})
	}
	return r
}

// node returns what can be asked about this node. Call closeNode at the end.
func (p *program) node(ctx context.Context, kubeletPath string) (n *doctor.Node, closeNode func() error, _ error) {
	if p.driver != "" { // its endpoints lack most of what is examined
		return nil, nil, usageError{errors.New("--driver: leave it out, since this command looks at the whole node")}
	}
	c := p.client(ctx)
	n = &doctor.Node{
		System: runtime.GOOS,
		Endpoints: func(ctx context.Context) []client.Endpoint {
			ctx, cancel := context.WithTimeout(ctx, healthTimeout)
			defer cancel()
			return c.Endpoints(ctx)
		},
		Server:      pipe.Server,
		Metrics:     func(ctx context.Context) (string, error) { return admin.Get(ctx, p.endpointDir, admin.Metrics) },
		Storage:     c.Storage,
		KubeletPath: kubeletPath,
	}
	n.Services, n.Check = installedServices, checkService
	if n.KubeletPath == "" {
		n.KubeletPath = serviceKubeletPath(ctx, n)
	}
	addWindows(n)
	return n, c.Close, nil
}

// checkService has the program of a service check the service's flags. Published daemons can't.
func checkService(ctx context.Context, s doctor.Service) (warnings []string, err error) {
	var programs deployment.RealPrograms
	origin, err := programs.Origin(s.Program)
	if err != nil || origin != deployment.Ours {
		return nil, err
	}
	report, err := programs.Check(ctx, s.Program, s.Args)
	return report.Warnings, err
}

// serviceKubeletPath returns the kubelet directory that the service's flags name, else the
// default.
func serviceKubeletPath(ctx context.Context, n *doctor.Node) string {
	if n.Services == nil {
		return defaultKubeletPath
	}
	services, err := n.Services(ctx)
	if err != nil {
		return defaultKubeletPath // a check says so
	}
	for _, s := range services {
		if path := flagValue(s.Args, "kubelet-path"); path != "" {
			return path
		}
	}
	return defaultKubeletPath
}

// flagValue returns the value of a flag in the daemon's arguments; empty if it isn't there.
func flagValue(args []string, name string) (value string) {
	for i, arg := range args {
		flag, given, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		switch {
		case flag != name || !strings.HasPrefix(arg, "-"):
		case ok:
			value = given
		case i+1 < len(args):
			value = args[i+1]
		}
	}
	return value
}
