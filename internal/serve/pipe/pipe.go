// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pipe knows the addresses of the API's endpoints, and listens and dials there.
//
// Each group and version of the API has an endpoint of its own: a named pipe on Windows, a Unix
// socket in an endpoint directory elsewhere. Both are byte streams within this node, for privileged
// accounts only: on Windows the accounts in a security descriptor, SYSTEM and the Administrators by
// default; elsewhere the user who runs the daemon.
package pipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// ErrInUse is returned for endpoints served by another process.
var ErrInUse = errors.New("in use by another process")

// Held returns ErrInUse with the name of the process that listens at address, or nil for a free
// endpoint. In doubt, the endpoint counts as held.
func Held(ctx context.Context, address string) error {
	process, program, err := Server(ctx, address)
	switch {
	case nobodyListens(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s is %w: %w", address, ErrInUse, err)
	case process == 0:
		return fmt.Errorf("%s is %w", address, ErrInUse)
	}
	return fmt.Errorf("%s is %w: process %d%s", address, ErrInUse, process, describe(process, program))
}

// describe returns the known properties of a process: its program, its service, its container.
func describe(process uint32, program string) string {
	var parts []string
	if program != "" {
		parts = append(parts, program)
	}
	if service := serviceOf(process); service != "" {
		parts = append(parts, "of the service "+service)
	}
	// The runtime's directories for the files of a HostProcess container, with containerd 1.7 and
	// before.
	if p := strings.ToLower(program); strings.HasPrefix(p, `c:\hpc\`) || strings.HasPrefix(p, `c:\c\`) {
		parts = append(parts, "of a HostProcess container: kubectl get daemonsets -A shows its DaemonSet")
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// Claim makes this process the only server of the endpoints in dir. If dir is missing, Claim makes
// dir, accessible only to its owner.
//
// If another process has the claim, the error is ErrInUse, and the endpoints stay untouched. On
// Windows, which has no endpoint directories, dir must be empty; Claim always succeeds there, and
// Listen detects other servers.
func Claim(dir string) (*Claimed, error) {
	return ClaimGuarded(dir, DefaultSecurityDescriptor)
}

// ClaimGuarded is Claim for endpoints guarded by a security descriptor.
func ClaimGuarded(dir, sddl string) (*Claimed, error) {
	if err := CheckSecurityDescriptor(sddl); err != nil {
		return nil, err
	}
	c, err := claim(dir, sddl)
	if err != nil {
		return nil, err
	}
	return &Claimed{c}, nil
}

// Claimed is the right to listen on the endpoints of a directory.
type Claimed struct {
	claimed
}

// Listen listens on the endpoint of a name. Closing the listener removes the endpoint.
//
// A stale socket of a killed process is replaced. Any other file is an error and stays. If another
// process listens there, the error is ErrInUse.
func (c *Claimed) Listen(ctx context.Context, name string) (net.Listener, error) {
	return c.listen(ctx, name)
}

// Administrators returns a claim for endpoints open only to SYSTEM and the Administrators,
// regardless of the security descriptor; on systems without descriptors, to the user who runs the
// daemon. Close only the original claim.
func (c *Claimed) Administrators() *Claimed { return &Claimed{c.administrators()} }

// GuardedBy returns a claim for endpoints guarded by another security descriptor, accepted by
// CheckSecurityDescriptor. Close only the original claim.
func (c *Claimed) GuardedBy(sddl string) *Claimed { return &Claimed{c.guardedBy(sddl)} }

// Close gives up the claim. All listeners must be closed before.
func (c *Claimed) Close() error {
	return c.release()
}
