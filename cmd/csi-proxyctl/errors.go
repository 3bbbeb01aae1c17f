// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/host/deployment"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/wire"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// exitCodes are the exit codes other than 0, with the gRPC codes of the errors that
// they stand for. Scripts rely on them.
var exitCodes = []struct {
	exit    int
	codes   []codes.Code
	meaning string
}{
	{1, nil, "any other error"},
	{2, []codes.Code{codes.InvalidArgument}, "wrong command line or argument"},
	{3, []codes.Code{codes.NotFound}, "no such disk, volume, path, share, target or service"},
	{4, []codes.Code{codes.FailedPrecondition, codes.AlreadyExists}, "the state of the node doesn't allow it"},
	{5, []codes.Code{codes.PermissionDenied, codes.Unauthenticated}, "permission denied"},
	{6, []codes.Code{codes.Unavailable, codes.ResourceExhausted},
		"the daemon isn't running, or the node is busy or full: try again later"},
	{7, []codes.Code{codes.DeadlineExceeded}, "it took too long: see --timeout"},
}

func exitCodeHelp() string {
	lines := []string{"  0  success"}
	for _, c := range exitCodes {
		lines = append(lines, fmt.Sprintf("  %d  %s", c.exit, c.meaning))
	}
	return strings.Join(lines, "\n")
}

// exitCode returns the exit code for err.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	code := statusOf(err).Code()
	for _, c := range exitCodes {
		if slices.Contains(c.codes, code) {
			return c.exit
		}
	}
	return 1
}

// statusOf returns the code and the stable reason that err has, or would have, on the
// wire.
func statusOf(err error) *status.Status { return status.Convert(wire.ToStatus(err)) }

// usageError is an error of the command line.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() + "; see --help" }

// Unwrap makes it an error of the class csiproxy.ErrInvalidArgument.
func (e usageError) Unwrap() []error { return []error{csiproxy.ErrInvalidArgument, e.err} }

// errorJSON is an error in JSON.
type errorJSON struct {
	Code         string `json:"code"`   // gRPC's name: "NotFound"
	Reason       string `json:"reason"` // stable: "NOT_FOUND"
	Message      string `json:"message"`
	WindowsError uint32 `json:"windows_error,omitempty"`
}

// adviceByNumber says what to do about Windows errors. docs/troubleshooting.md has all numbers.
var adviceByNumber = map[uint32]string{
	53:         "check the server's name, and that this node reaches its port 445",
	67:         "the server is there, but has no such share: check the share's name",
	86:         "check the password",
	1060:       "Get-Service lists the installed ones",
	0xEFFF0003: "check the portal's address, and that this node reaches its port",
	0xEFFF0029: "check the target's name, and make its portal known with csi-proxyctl iscsi portal add",
	0xEFFF005F: "check the portal's name, or give its address",
}

// advice returns the next step for errors whose text lacks one; empty for all other errors.
func (p *program) advice(ctx context.Context, err error) string {
	number, _ := csiproxy.WindowsErrorOf(err)
	object := ""
	if e := new(csiproxy.Error); errors.As(err, &e) {
		object = e.Object
	}
	if number == 1060 && slices.Contains(deployment.Names, strings.TrimPrefix(object, "service ")) {
		return "csi-proxyctl service install DAEMON makes it"
	}
	if id, isVolume := strings.CutPrefix(object, "volume "); isVolume && strings.Contains(err.Error(), notAnID) {
		if strings.Contains(id, `:\`) {
			return "csi-proxyctl storage volume PATH has the id of the volume at a path"
		}
		if _, err := strconv.Atoi(id); err == nil {
			return "csi-proxyctl volume list DISK has the ids of a disk's volumes"
		}
	}
	if runtime.GOOS != "windows" && looksUnquoted(err.Error()) {
		return "in a Unix shell, a path needs single quotes"
	}
	if text, ok := adviceByNumber[number]; ok {
		return text
	}
	code := statusOf(err).Code()
	noEndpoint := code == codes.Unavailable && number == 0 && strings.Contains(err.Error(), " API: no endpoint ")
	// Such an error names the disks that there are.
	listsDisks := strings.Contains(err.Error(), "; the node has") || strings.Contains(err.Error(), ", has ")
	switch {
	case noEndpoint && p.driver != "" && (p.serves(ctx, "") || p.serves(ctx, admin.Driver)):
		return "the daemon runs: check that its file of drivers has " + p.driver + ", with this group of the API"
	case noEndpoint:
		return "csi-proxyctl doctor says why"
	case code == codes.DeadlineExceeded:
		return "--timeout allows more time; csi-proxyctl doctor says what doesn't answer"
	case code == codes.NotFound && strings.HasPrefix(err.Error(), "rule: no call "):
		return "csi-proxyctl sim calls --all lists the calls"
	case code == codes.NotFound && strings.HasPrefix(object, "volume "):
		return "csi-proxyctl volume list DISK lists the volumes of a disk"
	case code == codes.NotFound && strings.HasPrefix(object, "disk ") && !listsDisks:
		return "csi-proxyctl disk list lists the disks"
	}
	return ""
}

const notAnID = `is not of the form \\`

// looksUnquoted reports whether an error is one of a Windows path whose backslashes a shell has taken away.
func looksUnquoted(text string) bool {
	return strings.Contains(text, "is not an absolute Windows path") || strings.Contains(text, notAnID) ||
		strings.Contains(text, "(Windows error 123)") // no valid name
}

// printError prints an error as one line, in text with what to do about it.
func (p *program) printError(ctx context.Context, err error) {
	if p.format == formatText {
		text := err.Error()
		if next := p.advice(ctx, err); next != "" {
			text += "; " + next
		}
		fmt.Fprintf(p.stderr, "csi-proxyctl: %s\n", quote.Terminal(text))
		return
	}
	st := statusOf(err)
	e := errorJSON{Code: st.Code().String(), Message: err.Error()}
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			e.Reason = info.Reason
		}
	}
	e.WindowsError, _ = csiproxy.WindowsErrorOf(err)
	text, jsonErr := json.Marshal(map[string]errorJSON{"error": e})
	if jsonErr != nil { // strings and a number can always be encoded
		panic(errors.Join(jsonErr, err))
	}
	fmt.Fprintf(p.stderr, "%s\n", quote.JSON(text))
}
