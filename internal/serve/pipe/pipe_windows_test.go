// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

func TestListenAndDial(t *testing.T) {
	const name = "csi-proxy-test-of-pipe-v1"
	c, err := Claim(DefaultDir())
	must(t, err)
	l, err := c.Listen(t.Context(), name)
	must(t, err)
	defer l.Close()
	if _, err := c.Listen(t.Context(), name); !errors.Is(err, ErrInUse) {
		t.Errorf("listening twice gives %v, want ErrInUse", err)
	}

	processes := make(chan uint32, 4)
	programs := make(chan string, 4)
	go func() { // echo the first bytes of each connection
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			process, program := conn.(interface{ Caller() (uint32, string) }).Caller()
			processes <- process
			programs <- program
			go io.Copy(conn, conn)
		}
	}()
	for range 2 { // Wine loses the first connection to a new pipe, see pipe_wine.go
		conn, err := Dial(t.Context(), Address("", name))
		must(t, err)
		defer conn.Close()
	}
	conn, err := Dial(t.Context(), Address("", name))
	must(t, err)
	defer conn.Close()
	got := make([]byte, 5)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("the echo is %q, %v", got, err)
	}
	if got := <-processes; got != uint32(os.Getpid()) {
		t.Errorf("the client's process is %d, want %d", got, os.Getpid())
	}
	self, err := os.Executable()
	must(t, err)
	if got := <-programs; !strings.EqualFold(got, self) {
		t.Errorf("the client's program is %s, want %s", got, self)
	}
	process, program, err := Server(t.Context(), Address("", name))
	if err != nil || process != uint32(os.Getpid()) || !strings.EqualFold(program, self) {
		t.Errorf("the server is process %d of %s, %v, want %d of %s", process, program, err, os.Getpid(), self)
	}
}

func TestDialNoPipe(t *testing.T) {
	if _, err := Dial(t.Context(), Address("", "csi-proxy-none-v1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dialling no pipe gives %v, want not exist", err)
	}
}

func TestDirectoryIsRefused(t *testing.T) {
	if _, err := Claim(`C:\run`); err == nil {
		t.Error("claim of a directory succeeds")
	}
}

func TestCheckSecurityDescriptor(t *testing.T) {
	for sddl, valid := range map[string]bool{
		DefaultSecurityDescriptor:           true,
		DriverSecurityDescriptor():          true,
		"D:P(A;;GA;;;SY)(A;;0x12019b;;;BU)": true,
		"D:":                                true, // nobody
		"":                                  false,
		"SYSTEM":                            false,
		"D:(A;;GA;;;nobody)":                false,
		"O:SYG:SY":                          false,
	} {
		if err := CheckSecurityDescriptor(sddl); (err == nil) != valid {
			t.Errorf("%q: %v, want valid: %v", sddl, err, valid)
		}
		if valid {
			continue
		}
		if _, err := ClaimGuarded("", sddl); err == nil {
			t.Errorf("claim with %q succeeds", sddl)
		}
	}
}

// What D:NO_ACCESS_CONTROL means, which Wine reads as an empty list.
func TestNullAccessListIsRefused(t *testing.T) {
	descriptor, err := windows.NewSecurityDescriptor()
	must(t, err)
	must(t, descriptor.SetDACL(nil, true, false))
	if err := checkAccessList(descriptor); err == nil {
		t.Error("it is accepted")
	}
}

func TestPipeHasSecurityDescriptor(t *testing.T) {
	const sddl = "D:P(A;;FA;;;SY)(A;;FA;;;BA)(A;;0x12019b;;;BU)"
	c, err := ClaimGuarded("", sddl)
	must(t, err)
	checkDescriptor(t, c, sddl)
	checkDescriptor(t, c.Administrators(), "D:P(A;;FA;;;SY)(A;;FA;;;BA)")
}

// Administrators may only connect to a driver's pipe, and the daemon still accepts one client after the other.
func TestDriverSecurityDescriptor(t *testing.T) {
	descriptor, err := windows.SecurityDescriptorFromString(DriverSecurityDescriptor())
	must(t, err)
	if got := descriptor.String(); strings.Count(got, ";BA)") != 1 || !strings.Contains(got, "(A;;0x12019b;;;BA)") {
		t.Errorf("the descriptor is %q", got)
	}
	c, err := ClaimGuarded("", DriverSecurityDescriptor())
	must(t, err)
	const name = "csi-proxy-test-of-drivers-v1"
	l, err := c.Listen(t.Context(), name)
	must(t, err)
	defer l.Close()
	accepted := make(chan error, 4)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn.Close()
		}
	}()
	for range 3 { // Wine loses the first connection to a new pipe, see pipe_wine.go
		conn, err := Dial(t.Context(), Address("", name))
		must(t, err)
		defer conn.Close()
	}
	for range 2 {
		must(t, <-accepted)
	}
}

// checkDescriptor checks the descriptor that a pipe gets.
func checkDescriptor(t *testing.T, c *Claimed, sddl string) {
	t.Helper()
	l, err := c.Listen(t.Context(), "csi-proxy-test-of-security-v1")
	must(t, err)
	ended := make(chan struct{})
	defer func() { l.Close(); <-ended }() // with the connections, so that the name can be used again
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}()
	conn, err := Dial(t.Context(), Address("", "csi-proxy-test-of-security-v1"))
	must(t, err)
	defer conn.Close()
	descriptor, err := windows.GetSecurityInfo(windows.Handle(conn.(interface{ Fd() uintptr }).Fd()),
		windows.SE_KERNEL_OBJECT, windows.DACL_SECURITY_INFORMATION)
	must(t, err)
	// Windows gives a pipe's own rights for the generic ones; Wine keeps those.
	if got := strings.ReplaceAll(descriptor.String(), ";GA;", ";FA;"); got != sddl {
		t.Errorf("the pipe has %q, want %q", got, sddl)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
