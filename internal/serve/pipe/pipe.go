// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pipe says where an endpoint of the API is, and listens and dials there.
//
// Each group and version of the API has an endpoint of its own: a named pipe on
// Windows, a Unix socket in an endpoint directory elsewhere. Both are byte
// streams that only this node reaches, and only its privileged accounts: on
// Windows those that a security descriptor names, SYSTEM and the Administrators by
// default; elsewhere the user who runs the daemon.
package pipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

// ErrInUse is returned for endpoints that another process serves.
var ErrInUse = errors.New("in use by another process")

// Address returns where the endpoint of a name is. For csi-proxy-disk-v1 that is
// `\\.\pipe\csi-proxy-disk-v1` on Windows, which has one place for all pipes and
// ignores dir; elsewhere /run/csi-proxy/csi-proxy-disk-v1.sock, with the dir
// /run/csi-proxy.
func Address(dir, name string) string {
	return address(dir, name)
}

// DefaultDir returns the endpoint directory that daemon and clients use unless
// told otherwise: empty on Windows; elsewhere /run/csi-proxy for root, and for
// another user a directory of the user's own, below $XDG_RUNTIME_DIR if there
// is one.
func DefaultDir() string {
	return defaultDir()
}

// MkdirTemp makes a new directory for sockets, such as those of a test. It is below the system's
// directory for temporary files or, if that has too long a path for sockets, below /tmp.
func MkdirTemp(pattern string) (string, error) {
	return mkdirTemp(pattern)
}

// Dial connects to the endpoint at address, a result of Address.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	return dial(ctx, address)
}

// Server returns the id and the program of the process that listens at address; what the
// system doesn't tell is 0 or empty. It connects for that, and sends nothing. If nothing
// listens there, errors.Is(err, fs.ErrNotExist), or the error of a socket that nobody
// serves any more.
func Server(ctx context.Context, address string) (process uint32, program string, err error) {
	return server(ctx, address)
}

// Held returns an error that is ErrInUse and names the process that listens at address, nil if none
// does. If that can't be told, somebody does.
func Held(ctx context.Context, address string) error {
	process, program, err := server(ctx, address)
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

// describe says what is known of a process: its program, its service, its container.
func describe(process uint32, program string) string {
	var parts []string
	if program != "" {
		parts = append(parts, program)
	}
	if service := serviceOf(process); service != "" {
		parts = append(parts, "of the service "+service)
	}
	// Where the runtime puts the files of a HostProcess container, with containerd 1.7 and before.
	if p := strings.ToLower(program); strings.HasPrefix(p, `c:\hpc\`) || strings.HasPrefix(p, `c:\c\`) {
		parts = append(parts, "of a HostProcess container: kubectl get daemonsets -A shows its DaemonSet")
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// Claim makes this process the only one that serves the endpoints in dir. It
// makes dir, accessible to its owner only, if it is missing.
//
// If another process has the claim, the error is ErrInUse, and nothing of that
// process's has been touched. On Windows, which has no endpoint directories,
// dir must be empty; a claim there costs nothing, and Listen finds out.
func Claim(dir string) (*Claimed, error) {
	return ClaimGuarded(dir, DefaultSecurityDescriptor())
}

// DefaultSecurityDescriptor returns what guards the endpoints unless told
// otherwise, as CheckSecurityDescriptor takes it: on Windows SYSTEM and the
// Administrators may connect. Elsewhere it is empty: sockets have owners.
func DefaultSecurityDescriptor() string {
	return defaultSecurityDescriptor
}

// CheckSecurityDescriptor returns an error for what can't guard an endpoint. On
// Windows that is anything but a security descriptor, in the security descriptor
// definition language (SDDL), that says who may connect; elsewhere anything but
// the empty string.
func CheckSecurityDescriptor(sddl string) error {
	return checkSecurityDescriptor(sddl)
}

// ClaimGuarded is Claim for endpoints that a security descriptor guards.
func ClaimGuarded(dir, sddl string) (*Claimed, error) {
	if err := checkSecurityDescriptor(sddl); err != nil {
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

// Listen listens on the endpoint of a name. Closing the listener removes the
// endpoint.
//
// The socket that a killed process left behind is replaced. A file that is no
// socket is left alone and is an error. If another process listens there, the
// error is ErrInUse.
func (c *Claimed) Listen(ctx context.Context, name string) (net.Listener, error) {
	return c.listen(ctx, name)
}

// Administrators is the same right to endpoints that SYSTEM and the Administrators alone may
// open, whatever the security descriptor is; where there is none, the user who runs the
// daemon. It isn't closed.
func (c *Claimed) Administrators() *Claimed { return &Claimed{c.administrators()} }

// GuardedBy is the same right to endpoints that another security descriptor guards, which
// CheckSecurityDescriptor takes. It isn't closed.
func (c *Claimed) GuardedBy(sddl string) *Claimed { return &Claimed{c.guardedBy(sddl)} }

// Close gives up the claim. The listeners must be closed before.
func (c *Claimed) Close() error {
	return c.release()
}
