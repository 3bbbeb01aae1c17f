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
)

// waitOrRestart is for a daemon that hangs, or is drained.
const waitOrRestart = "if it is about to be stopped, wait until it is, or takes calls again by itself. " +
	"Otherwise check the daemon's log and the Event Log, then run csi-proxyctl service restart"

// checkEndpoints looks whether the daemon answers at the endpoints of all versions.
func checkEndpoints(ctx context.Context, n *asked) (string, []Finding, error) {
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
		faults = append(faults, problem(waitOrRestart, "no answer at %s: %s", first(silent[reason], 1), reason))
	}
	switch {
	case denied:
		return "", faults, errNoAccess
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

// checkPipeOwner looks whether the endpoints belong to one daemon, and to that of the service.
func checkPipeOwner(ctx context.Context, n *asked) (string, []Finding, error) {
	if n.Endpoints == nil || n.Server == nil {
		return "", nil, n.needsWindows()
	}
	held := map[holder][]string{} // addresses
	for _, e := range n.Endpoints(ctx) {
		if !e.Served && e.Err == nil {
			continue
		}
		if errors.Is(e.Err, fs.ErrPermission) {
			return "", nil, errNoAccess
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
		held[h] = append(held[h], e.Address)
	}
	if len(held) == 0 {
		return "nobody has the endpoints", nil, nil
	}
	holders := slices.SortedFunc(maps.Keys(held), func(a, b holder) int { return int(a.process) - int(b.process) })
	if len(holders) > 1 {
		var parts []string
		for _, h := range holders {
			parts = append(parts, fmt.Sprintf("%s has %s", h, first(held[h], 3)))
		}
		return "", []Finding{problem("stop all daemons but one: for the published daemon's service, csi-proxyctl service "+
			"install --replace does it. A daemon that waits for endpoints serves them once nobody has had them for 30 seconds",
			"more than one process has endpoints: %s", strings.Join(parts, "; "))}, nil
	}
	owner := holders[0]
	if name := strings.ToLower(base(owner.program)); name != "" && !strings.Contains(name, "csi-proxy") {
		return "", []Finding{problem("find out what that program is, and end it", "%s, which isn't CSI Proxy, has %s", owner,
			first(held[owner], 3))}, nil
	}
	services, err := n.services()
	running := slices.IndexFunc(services, func(s Service) bool { return s.Running })
	switch {
	case err == nil && running < 0:
		return "", []Finding{warning(takeOver, "%s serves the endpoints, and no service of CSI Proxy runs: the process belongs to a "+
			"container, or a service that was stopped has left it behind", owner)}, nil
	case err == nil && services[running].ProcessID != 0 && services[running].ProcessID != owner.process:
		return "", []Finding{problem(takeOver, "%s serves the endpoints, in the place of the service %s, process %d", owner,
			services[running].Name, services[running].ProcessID)}, nil
	}
	return fmt.Sprintf("%s has the endpoints", owner), nil, nil
}

const takeOver = "if this process should serve, do nothing. Otherwise end it, then run csi-proxyctl service restart; " +
	"in the place of the published daemon, csi-proxyctl service install --replace"

var errNoAccess = csiproxy.Errorf(csiproxy.ErrPermissionDenied, "this account may not connect to the endpoints")

// first returns at most so many texts, and how many more there are.
func first(texts []string, most int) string {
	if more := len(texts) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:most], ", "), more)
	}
	return strings.Join(texts, ", ")
}

// base returns the last element of a path of either system.
func base(path string) string { return path[strings.LastIndexAny(path, `\/`)+1:] }

// checkService looks at the state of the service.
func checkService(ctx context.Context, n *asked) (string, []Finding, error) {
	services, err := n.services()
	if err != nil {
		return "", nil, err
	}
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
		faults = append(faults, n.flagFaults(ctx, s)...)
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

// flagFaults returns what is wrong with the flags of a service.
func (n *asked) flagFaults(ctx context.Context, s Service) (faults []Finding) {
	if n.Check == nil {
		return nil
	}
	const advice = "csi-proxyctl service install changes the flags, and csi-proxy -check tries them"
	warnings, err := n.Check(ctx, s)
	if err != nil {
		faults = append(faults, problem(advice, "the service %s can't start with its flags: %v", s.Name, err))
	}
	for _, text := range warnings {
		faults = append(faults, warning(advice, "the flags of the service %s: %s", s.Name, text))
	}
	return faults
}
