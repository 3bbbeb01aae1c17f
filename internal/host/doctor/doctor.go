// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package doctor looks for what keeps CSI Proxy from working on a node, and says what to
// do about it. It changes nothing. It asks the daemon for disks, mounts and shares, and reads of
// Windows itself what the daemon doesn't serve.
//
// docs/troubleshooting.md has the checks for administrators.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/published"
)

// Verdict is what a check thinks of what it has found.
type Verdict string

// Verdicts.
const (
	OK      Verdict = "ok"
	Warning Verdict = "warning" // it may be meant so, or doesn't harm every driver
	Problem Verdict = "problem" // calls of drivers fail, or will
	Unknown Verdict = "unknown" // the check couldn't be made; the finding says why
)

// Finding is what a check has found.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"finding"`
	// Advice is what to do about it; empty if there is nothing to do.
	Advice string `json:"advice,omitempty"`
}

// Windows is what the checks read of Windows itself. Package win describes the calls.
type Windows interface {
	RegistryStrings(ctx context.Context, key, value string) ([]string, error)
	RegistryNumber(ctx context.Context, key, value string) (uint32, error)
	FindVolumes(ctx context.Context) ([]string, error)
	VolumeInformation(ctx context.Context, volume string) (win.VolumeInformation, error)
	DiskFreeSpace(ctx context.Context, volume string) (win.DiskSpace, error)
	VolumePathNames(ctx context.Context, volume string) ([]string, error)
	FileAttributes(ctx context.Context, path string) (win.FileAttributes, error)
	// VolumeOf returns the volume that a directory is on.
	VolumeOf(ctx context.Context, directory string) (string, error)
}

// Operations are those that the checks use.
type Operations struct {
	Disk    published.DiskOperations
	Storage csiproxy.StorageOperations
	System  published.SystemOperations
}

// Service is a Windows service that runs the daemon.
type Service struct {
	Name      string
	Running   bool
	State     string // in words
	Disabled  bool
	ProcessID uint32 // 0 if there is no process, or it is a wrapper's
	// ExitCode is the Windows error number with which it last stopped, and SpecificExitCode
	// its own code if that is 1066.
	ExitCode         uint32
	SpecificExitCode uint32
	Account          string
	// Privileges are those that it is limited to; empty for no limit.
	Privileges []string
	Program    string
	Args       []string
	// Log is the log file that the arguments name; empty for none. So is Drivers, the file of drivers.
	Log, Drivers string
}

// Node is what the checks ask. A field may be nil: what can only be found out with it
// is then unknown.
type Node struct {
	// System names the operating system: runtime.GOOS.
	System string
	// Windows is the node's Windows.
	Windows Windows
	// Endpoints returns the state of the endpoints of all versions.
	Endpoints func(ctx context.Context) []client.Endpoint
	// Server returns the process that listens at an endpoint's address, and its program; 0
	// and "" are not known.
	Server func(ctx context.Context, address string) (process uint32, program string, err error)
	// Build returns what a program was built of, by its path.
	Build func(program string) (*debug.BuildInfo, error)
	// Service returns a service of Windows, by its name. If it is nil, the daemon is asked.
	Service func(ctx context.Context, name string) (published.Service, error)
	// Services returns the services that run the daemon: one, if all is well.
	Services func(ctx context.Context) ([]Service, error)
	// Writers returns who can write to a directory, beside SYSTEM and administrators.
	Writers func(dir string) ([]string, error)
	// LogFile returns nil if a log file is there.
	LogFile func(path string) error
	// Privileges are those that the daemon needs on Windows.
	Privileges []string
	// Metrics returns the daemon's metrics, as Prometheus reads them.
	Metrics func(ctx context.Context) (string, error)
	// Daemon is the operations that the daemon serves.
	Daemon Operations
	// KubeletPath is the directory that the daemon allows drivers' paths in.
	KubeletPath string

	listed  func() ([]csiproxy.Disk, error) // disks, asked for once
	mounted func() (csiproxy.VolumeList, error)
}

// timeout is how long a check may take.
const timeout = 20 * time.Second

// check looks for one kind of fault. It returns what is well in words, or the faults, or
// the error that kept it from looking.
type check struct {
	name string
	run  func(ctx context.Context, n *Node) (fine string, faults []Finding, err error)
}

// with is what a check looks at that needs something of the node, and can't be made without it.
func with[T any](get func(*Node, context.Context) (T, error), run func(context.Context, *Node, T) (string, []Finding,
	error)) func(context.Context, *Node) (string, []Finding, error) {
	return func(ctx context.Context, n *Node) (string, []Finding, error) {
		got, err := get(n, ctx)
		if err != nil {
			return "", nil, err
		}
		return run(ctx, n, got)
	}
}

// checks are all checks, in the order in which they are shown.
func checks() []check {
	return []check{
		{"endpoints", checkEndpoints},
		{"pipe-owner", checkPipeOwner},
		{"service", with((*Node).services, checkService)},
		{"account", with((*Node).services, checkAccount)},
		{"directories", with((*Node).services, checkDirectories)},
		{"log-file", with((*Node).services, checkLogFile)},
		{"kubelet-directory", with((*Node).windows, checkKubeletDirectory)},
		{"iscsi-service", checkISCSIService},
		{"automatic-mounting", with((*Node).windows, checkAutomaticMounting)},
		{"san-policy", with((*Node).windows, checkSANPolicy)},
		{"bitlocker", with((*Node).windows, checkBitLocker)},
		{"clones", with((*Node).disks, checkClones)},
		{"protected-volumes", with((*Node).metrics, checkProtectedVolumes)},
		{"drivers-file", with((*Node).metrics, checkDriversFile)},
		{"luns", with((*Node).disks, checkLUNs)},
		{"silent-disks", with((*Node).disks, checkSilentDisks)},
		{"mounted-volumes", checkMountedVolumes},
		{"smb-mappings", checkMappings},
		{"mapping-records", with((*Node).metrics, checkMappingRecords)},
		{"leftovers", checkLeftovers},
	}
}

// Names returns the names of all checks, in the order of their findings.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// Examine makes all checks, and returns at least one finding of each. A check that takes
// longer than 20 seconds is unknown.
func Examine(ctx context.Context, n *Node) []Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n = n.asked(ctx)
	all := checks()
	findings := make([][]Finding, len(all))
	var made sync.WaitGroup
	for i, c := range all {
		made.Go(func() {
			found, err := inTime(ctx, func() ([]Finding, error) { return c.findings(ctx, n), nil })
			if err != nil {
				found = []Finding{c.unknown(err)}
			}
			findings[i] = found
		})
	}
	made.Wait()
	return slices.Concat(findings...)
}

// inTime returns what get returns, or an error if ctx ends before that.
func inTime[T any](ctx context.Context, get func() (T, error)) (got T, err error) {
	answered := make(chan struct{})
	var answer T
	var failure error
	go func() {
		defer close(answered)
		answer, failure = get()
	}()
	select {
	case <-answered:
		return answer, failure
	case <-ctx.Done():
		return got, csiproxy.Errorf(csiproxy.ErrUnavailable, "there was no answer in time")
	}
}

// asked is a node of which each question that several checks have is asked once.
func (n *Node) asked(ctx context.Context) *Node {
	once := *n
	if n.Endpoints != nil {
		get := sync.OnceValue(func() []client.Endpoint { return n.Endpoints(ctx) })
		once.Endpoints = func(context.Context) []client.Endpoint { return get() }
	}
	if n.Services != nil {
		get := sync.OnceValues(func() ([]Service, error) { return n.Services(ctx) })
		once.Services = func(context.Context) ([]Service, error) { return get() }
	}
	if n.Metrics != nil {
		get := sync.OnceValues(func() (string, error) { return n.Metrics(ctx) })
		once.Metrics = func(context.Context) (string, error) { return get() }
	}
	once.listed = sync.OnceValues(func() ([]csiproxy.Disk, error) {
		if n.Daemon.Storage == nil {
			return nil, n.needsWindows()
		}
		return n.Daemon.Storage.ListDisks(ctx, csiproxy.Selector{})
	})
	once.mounted = sync.OnceValues(func() (csiproxy.VolumeList, error) {
		if n.Daemon.Storage == nil {
			return csiproxy.VolumeList{}, n.needsWindows()
		}
		return n.Daemon.Storage.ListVolumes(ctx)
	})
	return &once
}

func (c check) findings(ctx context.Context, n *Node) []Finding {
	fine, faults, err := c.run(ctx, n)
	for i := range faults {
		faults[i].Check = c.name
	}
	switch {
	case err != nil:
		return append(faults, c.unknown(err))
	case len(faults) == 0:
		return []Finding{{Check: c.name, Verdict: OK, Text: fine}}
	}
	return faults
}

func (c check) unknown(err error) Finding {
	f := Finding{Check: c.name, Verdict: Unknown, Text: err.Error()}
	if errors.Is(err, csiproxy.ErrPermissionDenied) {
		f.Advice = "run csi-proxyctl doctor as an administrator"
	}
	return f
}

// Problems returns how many findings are problems.
func Problems(findings []Finding) int {
	return len(slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Verdict != Problem }))
}

// windows returns the node's Windows, or why there is none.
func (n *Node) windows(context.Context) (Windows, error) {
	if n.Windows == nil {
		return nil, n.needsWindows()
	}
	return n.Windows, nil
}

// services returns the services that run the daemon.
func (n *Node) services(ctx context.Context) ([]Service, error) {
	if n.Services == nil {
		return nil, n.needsWindows()
	}
	return n.Services(ctx)
}

func (n *Node) needsWindows() error {
	return csiproxy.Errorf(csiproxy.ErrUnimplemented, "this check asks Windows itself, and this system is %s", n.System)
}

// metrics returns the daemon's metrics.
func (n *Node) metrics(ctx context.Context) (string, error) {
	if n.Metrics == nil {
		return "", n.needsWindows()
	}
	page, err := n.Metrics(ctx)
	if err != nil {
		return "", fmt.Errorf("read the daemon's metrics: %w", err)
	}
	return page, nil
}

// disks returns all disks.
func (n *Node) disks(context.Context) ([]csiproxy.Disk, error) { return n.listed() }

// service returns a service of Windows. The daemon is asked only where Windows can't be: it
// knows no more, and the published one doesn't tell a service that doesn't exist.
func (n *Node) service(ctx context.Context, name string) (published.Service, error) {
	switch {
	case n.Service != nil:
		return n.Service(ctx, name)
	case n.Daemon.System != nil:
		return n.Daemon.System.GetService(ctx, name)
	}
	return published.Service{}, n.needsWindows()
}

func problem(advice, format string, a ...any) Finding {
	return Finding{Verdict: Problem, Text: fmt.Sprintf(format, a...), Advice: advice}
}

func warning(advice, format string, a ...any) Finding {
	return Finding{Verdict: Warning, Text: fmt.Sprintf(format, a...), Advice: advice}
}
