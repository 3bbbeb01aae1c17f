// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
)

// waitOrRestart is for a daemon that hangs, or is drained.
const waitOrRestart = "if it is about to be stopped, wait until it is, or takes calls again by itself. " +
	"Otherwise check the daemon's log and the Event Log, then run csi-proxyctl service restart"

// checkEndpoints looks whether the daemon answers at the endpoints of all versions.
func checkEndpoints(ctx context.Context, n *Node) (string, []Finding, error) {
	if n.Endpoints == nil {
		return "", nil, n.needsWindows()
	}
	var served, missing []string
	var faults []Finding
	silent := make(map[string][]string) // addresses, by why they don't answer
	denied := false
	for _, e := range n.Endpoints(ctx) {
		name := e.Group + " " + e.Version
		switch {
		case e.Served:
			served = append(served, name)
		case errors.Is(e.Err, fs.ErrPermission):
			denied = true
		case e.Err != nil:
			silent[e.Err.Error()] = append(silent[e.Err.Error()], e.Address)
		default:
			missing = append(missing, name)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(silent)) {
		who := silent[reason][0] + " doesn't"
		if more := len(silent[reason]) - 1; more > 0 {
			who = fmt.Sprintf("%s and %d more don't", silent[reason][0], more)
		}
		faults = append(faults, problem(waitOrRestart, "%s answer: %s", who, reason))
	}
	switch {
	case denied:
		return "", faults, csiproxy.Errorf(csiproxy.ErrPermissionDenied, "this account may not connect to the endpoints")
	case len(served) == 0 && len(faults) == 0:
		return "", []Finding{problem("run csi-proxyctl service status, then csi-proxyctl service start",
			"no endpoint exists: the daemon isn't running")}, nil
	case len(served) > 0 && len(missing) > 0:
		faults = append(faults, warning("run csi-proxyctl service upgrade; if it is the published daemon, csi-proxyctl "+
			"service install --replace",
			"the daemon doesn't serve %s: it is older than this csi-proxyctl, or the published one",
			strings.Join(missing, ", ")))
	}
	return fmt.Sprintf("all %d versions of the API are served", len(served)), faults, nil
}

// holder is a process that listens at endpoints.
type holder struct {
	process uint32
	program string
}

func (h holder) String() string {
	if h.program == "" {
		return fmt.Sprintf("process %d", h.process)
	}
	return fmt.Sprintf("process %d (%s)", h.process, h.program)
}

// checkPipeOwner looks whether the endpoints belong to one daemon, and to that of the
// service.
func checkPipeOwner(ctx context.Context, n *Node) (string, []Finding, error) {
	if n.Endpoints == nil || n.Server == nil {
		return "", nil, n.needsWindows()
	}
	held := map[holder][]client.Endpoint{}
	for _, e := range n.Endpoints(ctx) {
		if !e.Served && e.Err == nil {
			continue
		}
		if errors.Is(e.Err, fs.ErrPermission) {
			return "", nil, csiproxy.Errorf(csiproxy.ErrPermissionDenied, "this account may not connect to the endpoints")
		}
		process, program, err := n.Server(ctx, e.Address)
		switch {
		case err != nil && !e.Served: // the socket of a daemon that was killed
			continue
		case err != nil:
			return "", nil, fmt.Errorf("find out who listens at %s: %w", e.Address, err)
		case process == 0:
			return "", nil, csiproxy.Errorf(csiproxy.ErrUnimplemented, "%s doesn't say who listens at %s", n.System, e.Address)
		}
		h := holder{process, program}
		held[h] = append(held[h], e)
	}
	if len(held) == 0 {
		return "nobody has the endpoints", nil, nil
	}
	holders := slices.SortedFunc(maps.Keys(held), func(a, b holder) int { return int(a.process) - int(b.process) })
	var faults []Finding
	if waits, other, ok := waiting(holders, held); ok {
		return fmt.Sprintf("%s waits for the published endpoints", waits), []Finding{problem(endOther,
			"%s serves only the storage API, and waits for the published endpoints: %s has %s", waits, n.who(other),
			addresses(held[other]))}, nil
	}
	if len(holders) > 1 {
		var parts []string
		for _, h := range holders {
			parts = append(parts, fmt.Sprintf("%s has %s", h, addresses(held[h])))
		}
		faults = append(faults, problem("stop all daemons but one, then run csi-proxyctl service restart",
			"more than one process has endpoints: %s", strings.Join(parts, "; ")))
	}
	running, known := n.running(ctx)
	for _, h := range holders {
		switch {
		case h.program != "" && !strings.Contains(strings.ToLower(base(h.program)), "csi-proxy"):
			faults = append(faults, problem("find out what that program is, and end it", "%s, which isn't CSI Proxy, has %s", h,
				addresses(held[h])))
		case known && running != nil && running.ProcessID != 0 && running.ProcessID != h.process:
			faults = append(faults, problem(takeOver, "%s serves the endpoints, in the place of the service %s, process %d",
				n.who(h), running.Name, running.ProcessID))
		case known && running == nil:
			faults = append(faults, warning(takeOver,
				"%s serves the endpoints, and no service of CSI Proxy runs: the process belongs to a container, "+
					"or a service that was stopped has left it behind", n.who(h)))
		}
	}
	return fmt.Sprintf("%s has the endpoints", holders[0]), faults, nil
}

const endOther = "end the other one: the published daemon's service, DaemonSet or nssm service; csi-proxyctl service " +
	"install --replace does it for a service. The daemon serves the published endpoints once nobody has had them for 30 seconds"

// waiting returns the daemon that has nothing but the storage API while one other process has published
// endpoints.
func waiting(holders []holder, held map[holder][]client.Endpoint) (waits, other holder, ok bool) {
	for i, h := range holders {
		if !slices.ContainsFunc(held[h], func(e client.Endpoint) bool { return e.Group != "storage" }) {
			return h, holders[max(0, 1-i)], len(holders) == 2
		}
	}
	return holder{}, holder{}, false
}

const takeOver = "if this process should serve, do nothing. Otherwise end it, then run csi-proxyctl service restart; " +
	"in the place of the published daemon, csi-proxyctl service install --replace"

// publishedModule is how the module of the published daemon begins.
const publishedModule = "github.com/kubernetes-csi/csi-proxy"

// who names a process, and says so if it is the published daemon.
func (n *Node) who(h holder) string {
	if n.Build == nil || h.program == "" {
		return h.String()
	}
	build, err := n.Build(h.program)
	if err != nil || !strings.HasPrefix(build.Main.Path, publishedModule) {
		return h.String() // a program that isn't Go's, say
	}
	return "the published CSI Proxy, " + h.String() + ","
}

func addresses(endpoints []client.Endpoint) string {
	const most = 3
	var list []string
	for _, e := range endpoints[:min(most, len(endpoints))] {
		list = append(list, e.Address)
	}
	if more := len(endpoints) - most; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// base returns the last element of a path of either system.
func base(path string) string { return path[strings.LastIndexAny(path, `\/`)+1:] }

// directoryOf returns the directory of a file of Windows; empty if the path has none.
func directoryOf(path string) string { return path[:max(0, strings.LastIndexAny(path, `\/`))] }

// running returns the service that runs, if one does; known is false if that can't be told.
func (n *Node) running(ctx context.Context) (s *Service, known bool) {
	services, err := n.services(ctx)
	if err != nil {
		return nil, false
	}
	for i, s := range services {
		if s.Running {
			return &services[i], true
		}
	}
	return nil, true
}

// checkService looks at the state of the service.
func checkService(_ context.Context, _ *Node, services []Service) (string, []Finding, error) {
	var faults []Finding
	var names []string
	for _, s := range services {
		names = append(names, s.Name)
		switch {
		case s.Running:
		case s.Disabled:
			faults = append(faults, problem("sc.exe config "+s.Name+" start= auto, then csi-proxyctl service start",
				"the service %s is disabled", s.Name))
		default:
			exit := fmt.Sprint(s.ExitCode)
			if s.SpecificExitCode != 0 {
				exit += fmt.Sprintf(" (%d)", s.SpecificExitCode)
			}
			faults = append(faults, problem("check the daemon's log and the Event Log, then run csi-proxyctl service start",
				"the service %s is %s; its exit code is %s", s.Name, s.State, exit))
		}
	}
	switch len(services) {
	case 0:
		return "", []Finding{warning("if the daemon runs in a HostProcess container, do nothing. Otherwise run "+
			"csi-proxyctl service install",
			"no service runs CSI Proxy")}, nil
	case 1:
		return fmt.Sprintf("the service %s is running", names[0]), faults, nil
	}
	return "", append(faults, problem("remove all but one with csi-proxyctl service uninstall --name NAME",
		"there is more than one service of CSI Proxy: %s", strings.Join(names, ", "))), nil
}

// checkAccount looks whether the service has the rights that the daemon needs.
func checkAccount(_ context.Context, n *Node, services []Service) (string, []Finding, error) {
	if len(services) == 0 {
		return "", nil, csiproxy.Errorf(csiproxy.ErrNotFound, "no service runs CSI Proxy")
	}
	var faults []Finding
	var accounts []string
	for _, s := range services {
		accounts = append(accounts, s.Account)
		if !strings.EqualFold(s.Account, "LocalSystem") {
			faults = append(faults, warning("csi-proxyctl service install makes a service that runs as LocalSystem",
				"the service %s runs as %s. The daemon needs an administrator, and makes mappings and links "+
					"with that account's rights", s.Name, s.Account))
		}
		var missing []string
		for _, p := range n.Privileges {
			if len(s.Privileges) > 0 && !slices.ContainsFunc(s.Privileges,
				func(has string) bool { return strings.EqualFold(has, p) }) {
				missing = append(missing, p)
			}
		}
		if len(missing) > 0 {
			faults = append(faults, problem("run csi-proxyctl service install, which sets the list again, then csi-proxyctl "+
				"service restart",
				"the service %s may not use privileges that the daemon needs: %s", s.Name, strings.Join(missing, ", ")))
		}
	}
	return "it runs as " + strings.Join(accounts, ", ") + ", with the privileges that it needs", faults, nil
}
