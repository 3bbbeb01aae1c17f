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
	"slices"
	"sync"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
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
	// NeedsWindows reports that the check is unknown since this system isn't Windows.
	NeedsWindows bool `json:"-"`
}

// Windows is what the checks read of Windows itself. Package win describes the calls.
type Windows interface {
	RegistryNumber(ctx context.Context, key, value string) (uint32, error)
	QueryService(ctx context.Context, name string) (win.Service, error)
	FindVolumes(ctx context.Context) ([]string, error)
	VolumeInformation(ctx context.Context, volume string) (win.VolumeInformation, error)
	FileAttributes(ctx context.Context, path string) (win.FileAttributes, error)
	// VolumeOf returns the volume that a directory is on.
	VolumeOf(ctx context.Context, directory string) (string, error)
}

// Service is a Windows service that runs the daemon.
type Service struct {
	Name      string
	Running   bool
	State     string // in words
	Disabled  bool
	ProcessID uint32 // 0 if there is no process, or it is a wrapper's
	// ExitCode is the Windows error number of the service's last stop. If ExitCode is 1066,
	// SpecificExitCode is the service's own code.
	ExitCode         uint32
	SpecificExitCode uint32
	Account          string
	Program          string
	Args             []string
	Log              string // the file that the arguments name; empty for none
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
	// Services returns the services that run the daemon: one, if all is well.
	Services func(ctx context.Context) ([]Service, error)
	// Check returns what a service's program says of the service's flags with -check. The error says why the daemon doesn't
	// start with them.
	Check func(ctx context.Context, s Service) (warnings []string, err error)
	// Metrics returns the daemon's metrics, as Prometheus reads them.
	Metrics func(ctx context.Context) (string, error)
	// Storage is the storage API that the daemon serves.
	Storage csiproxy.StorageOperations
	// KubeletPath is the directory that the daemon allows drivers' paths in.
	KubeletPath string
}

// timeout is how long a check may take.
const timeout = 20 * time.Second

// check looks for one kind of fault. It returns what is well in words, or the faults, or
// the error that kept it from looking.
type check struct {
	name string
	run  func(ctx context.Context, n *asked) (fine string, faults []Finding, err error)
}

// checks are all checks, in the order in which they are shown.
func checks() []check {
	return []check{
		{"endpoints", checkEndpoints},
		{"pipe-owner", checkPipeOwner},
		{"service", checkService},
		{"kubelet-directory", checkKubeletDirectory},
		{"san-policy", checkSANPolicy},
		{"bitlocker", checkBitLocker},
		{"protected-volumes", checkProtectedVolumes},
		{"silent-disks", checkSilentDisks},
		{"mounted-volumes", checkMountedVolumes},
		{"smb-client", checkSMBClient},
		{"smb-mappings", checkMappings},
		{"leftovers", checkLeftovers},
	}
}

// Examine makes all checks, and returns at least one finding of each. A check that takes
// longer than 20 seconds is unknown.
func Examine(ctx context.Context, n *Node) []Finding {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	all, questions := checks(), n.asked(ctx)
	findings := make([][]Finding, len(all))
	var made sync.WaitGroup
	for i, c := range all {
		made.Go(func() {
			found, err := inTime(ctx, func() ([]Finding, error) { return c.findings(ctx, questions), nil })
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
		return got, csiproxy.Errorf(csiproxy.ErrUnavailable, "Windows didn't answer in time")
	}
}

// asked is a node of which each question that several checks have is asked once.
type asked struct {
	*Node
	services func() ([]Service, error)
	disks    func() ([]csiproxy.Disk, error)
	mounts   func() (csiproxy.VolumeList, error)
}

func (n *Node) asked(ctx context.Context) *asked {
	return &asked{n,
		once(n, n.Services != nil, func() ([]Service, error) { return n.Services(ctx) }),
		once(n, n.Storage != nil, func() ([]csiproxy.Disk, error) { return n.Storage.ListDisks(ctx, csiproxy.Selector{}) }),
		once(n, n.Storage != nil, func() (csiproxy.VolumeList, error) { return n.Storage.ListVolumes(ctx) }),
	}
}

// once asks once, if the node can be asked.
func once[T any](n *Node, can bool, ask func() (T, error)) func() (T, error) {
	return sync.OnceValues(func() (answer T, err error) {
		if !can {
			return answer, n.needsWindows()
		}
		return ask()
	})
}

func (c check) findings(ctx context.Context, n *asked) []Finding {
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
	f := Finding{Check: c.name, Verdict: Unknown, Text: err.Error(), NeedsWindows: errors.Is(err, errNeedsWindows)}
	if errors.Is(err, csiproxy.ErrPermissionDenied) {
		f.Advice = "run csi-proxyctl doctor as an administrator"
	}
	return f
}

var errNeedsWindows = csiproxy.Errorf(csiproxy.ErrUnimplemented, "Windows is needed")

func (n *Node) needsWindows() error {
	return fmt.Errorf("%w, and this system is %s", errNeedsWindows, n.System)
}

func problem(advice, format string, a ...any) Finding {
	return Finding{Verdict: Problem, Text: fmt.Sprintf(format, a...), Advice: advice}
}

func warning(advice, format string, a ...any) Finding {
	return Finding{Verdict: Warning, Text: fmt.Sprintf(format, a...), Advice: advice}
}
