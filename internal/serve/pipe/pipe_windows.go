// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// DefaultSecurityDescriptor admits only SYSTEM and the Administrators, regardless of a parent
// object (P, protected). The operations behind a pipe format disks and store credentials: the right
// to connect amounts to owning the node. Processes of a container connect as the container's
// account: ContainerAdministrator is an Administrator here, ContainerUser is not.
//
// https://learn.microsoft.com/en-us/windows/win32/secauthz/security-descriptor-string-format
const DefaultSecurityDescriptor = "D:P(A;;GA;;;SY)(A;;GA;;;BA)"

// DriverSecurityDescriptor returns the default guard of the endpoints of one driver. Its containers,
// which run as an Administrator, have the right to connect (0x12019b). Only SYSTEM and the account of
// this process have all rights: who may change the list can refuse the daemon its own pipe. OW takes
// that right from the pipe's owner: what SYSTEM makes belongs to the Administrators.
//
// https://learn.microsoft.com/en-us/windows/win32/secauthz/well-known-sids
func DriverSecurityDescriptor() string {
	account := "SY"
	if user, err := windows.GetCurrentProcessToken().GetTokenUser(); err == nil { // else it is likely SYSTEM
		account = user.User.Sid.String()
	}
	return "D:P(A;;GA;;;SY)(A;;GA;;;" + account + ")(A;;0x12019b;;;BA)(A;;RC;;;OW)"
}

// CheckSecurityDescriptor returns an error for an invalid guard of an endpoint. A valid guard is a
// security descriptor with an access list, in the security descriptor definition language (SDDL).
func CheckSecurityDescriptor(sddl string) error {
	descriptor, err := windows.SecurityDescriptorFromString(sddl)
	if err == nil {
		err = checkAccessList(descriptor)
	}
	if err != nil {
		return fmt.Errorf("security descriptor %q: %w", sddl, err)
	}
	return nil
}

// checkAccessList checks that the descriptor has a list of access rights (DACL). If the list is
// missing, Windows decides who may connect; with a null list, everybody may.
func checkAccessList(descriptor *windows.SECURITY_DESCRIPTOR) error {
	dacl, _, err := descriptor.DACL()
	if errors.Is(err, windows.ERROR_OBJECT_NOT_FOUND) || err == nil && dacl == nil {
		return errors.New("it doesn't say who may connect, like D:P(A;;GA;;;SY)")
	}
	return err
}

// bufferSize is the quota of a pipe, in bytes, for each direction. Messages are short; larger
// messages are passed in pieces.
const bufferSize = 4 << 10

// Address returns the address of the endpoint with a name: for csi-proxy-disk-v1, the address is
// `\\.\pipe\csi-proxy-disk-v1`. The directory is ignored, because Windows has one place for all
// pipes.
func Address(_, name string) string { return `\\.\pipe\` + name }

// MkdirTemp makes a new directory for temporary files.
func MkdirTemp(pattern string) (string, error) { return os.MkdirTemp("", pattern) }

// DefaultDir returns the default endpoint directory of daemon and clients, which is empty.
func DefaultDir() string { return "" }

// Dial connects to the endpoint at address, a result of Address.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	// The server gets an anonymous token, so a process squatting on a pipe's name can't act as the
	// clients.
	return winio.DialPipeContext(ctx, address)
}

type claimed struct{ securityDescriptor string }

func claim(dir, sddl string) (claimed, error) {
	if dir != "" {
		return claimed{}, fmt.Errorf("endpoint directory %s: Windows has named pipes, which aren't in a directory", dir)
	}
	return claimed{sddl}, nil
}

func (claimed) release() error { return nil }

func (claimed) administrators() claimed { return claimed{DefaultSecurityDescriptor} }

func (claimed) guardedBy(sddl string) claimed { return claimed{sddl} }

// listenPipe is replaced under Wine.
var listenPipe = winio.ListenPipe

// heldTimeout bounds the search for the owner of a taken pipe.
const heldTimeout = time.Second

func (c claimed) listen(ctx context.Context, name string) (net.Listener, error) {
	// ListenPipe makes the first instance of the pipe or fails. Therefore the daemon can neither
	// join an earlier process's pipe, nor be impersonated by its owner. Clients of other machines
	// are refused.
	l, err := listenPipe(Address("", name), &winio.PipeConfig{
		SecurityDescriptor: c.securityDescriptor,
		InputBufferSize:    bufferSize,
		OutputBufferSize:   bufferSize,
	})
	// For a second first instance, Windows returns ERROR_ACCESS_DENIED.
	// https://learn.microsoft.com/en-us/windows/win32/api/namedpipeapi/nf-namedpipeapi-createnamedpipew
	if errors.Is(err, fs.ErrPermission) {
		ctx, cancel := context.WithTimeout(ctx, heldTimeout)
		defer cancel()
		return nil, cmp.Or(Held(ctx, Address("", name)), fmt.Errorf("listen on %s: %w (%w)", Address("", name), ErrInUse, err))
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", Address("", name), err)
	}
	return listener{l}, nil
}

// listener is winio's listener. Its connections know the process at their other end.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

type conn struct{ net.Conn }

func nobodyListens(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Server returns the id and the program of the process that made the pipe at address. Server connects
// for this purpose, and sends nothing. If the endpoint is free, the error is fs.ErrNotExist.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winbase/nf-winbase-getnamedpipeserverprocessid
func Server(ctx context.Context, address string) (process uint32, program string, err error) {
	c, err := Dial(ctx, address)
	if err != nil {
		return 0, "", err
	}
	defer c.Close() // nothing was sent
	file, ok := c.(interface{ Fd() uintptr })
	if !ok {
		return 0, "", fmt.Errorf("%s: a connection without a handle", address)
	}
	if err := windows.GetNamedPipeServerProcessId(windows.Handle(file.Fd()), &process); err != nil {
		return 0, "", fmt.Errorf("server process of %s: %w", address, err)
	}
	return process, programOf(process), nil
}

// Caller returns the id and the program of the process that opened the pipe, for the log. Unknown
// values are 0 or empty. The caller is unproven, because a process may pass its end to another
// process.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winbase/nf-winbase-getnamedpipeclientprocessid
func (c conn) Caller() (process uint32, program string) {
	file, ok := c.Conn.(interface{ Fd() uintptr })
	if !ok {
		return 0, ""
	}
	if err := windows.GetNamedPipeClientProcessId(windows.Handle(file.Fd()), &process); err != nil {
		return 0, ""
	}
	return process, programOf(process)
}

// programOf returns the program of a process, or "" if unknown.
//
// https://learn.microsoft.com/en-us/windows/win32/api/winbase/nf-winbase-queryfullprocessimagenamew
func programOf(process uint32) string {
	handle, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, process)
	if err != nil {
		return ""
	}
	defer windows.CloseHandle(handle)
	path := make([]uint16, windows.MAX_LONG_PATH)
	length := uint32(len(path))
	if err := windows.QueryFullProcessImageName(handle, 0, &path[0], &length); err != nil {
		return ""
	}
	return windows.UTF16ToString(path[:length])
}
