// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// ErrorDomain is the domain of the google.rpc.ErrorInfo detail carried by each status of this
// package.
const ErrorDomain = "csi-proxy"

// Keys of the metadata in the detail. Unknown values are left out.
const (
	metadataOperation    = "operation"
	metadataObject       = "object"
	metadataWindowsError = "windows_error" // in decimal
)

// classes are the classes of errors with their codes and reasons on the wire. Each code stands for
// one class, and clients derive the class from the code. Reasons are unique and never change.
var classes = []struct {
	kind   error
	code   codes.Code
	reason string
}{
	{csiproxy.ErrInvalidArgument, codes.InvalidArgument, "INVALID_ARGUMENT"},
	{csiproxy.ErrNotFound, codes.NotFound, "NOT_FOUND"},
	{csiproxy.ErrAlreadyExists, codes.AlreadyExists, "ALREADY_EXISTS"},
	{csiproxy.ErrFailedPrecondition, codes.FailedPrecondition, "FAILED_PRECONDITION"},
	{csiproxy.ErrPermissionDenied, codes.PermissionDenied, "PERMISSION_DENIED"},
	{csiproxy.ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
	{csiproxy.ErrResourceExhausted, codes.ResourceExhausted, "RESOURCE_EXHAUSTED"},
	{csiproxy.ErrUnavailable, codes.Unavailable, "UNAVAILABLE"},
	{csiproxy.ErrUnimplemented, codes.Unimplemented, "UNIMPLEMENTED"},
	{context.Canceled, codes.Canceled, "CANCELED"},
	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
	{csiproxy.ErrInternal, codes.Internal, "INTERNAL"},
}

// CodeOf returns the code of err's class: codes.OK for nil, codes.Internal for errors without a
// class. A gRPC status in err is ignored.
func CodeOf(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	kind := csiproxy.KindOf(err)
	for _, class := range classes {
		if class.kind == kind {
			return class.code
		}
	}
	return codes.Internal
}

// ToStatusOf is ToStatus with the name of the called method in place of the operation's: older
// versions of the API have other names for some operations.
func ToStatusOf(method string, err error) error {
	if err == nil {
		return nil
	}
	e, ok := err.(*csiproxy.Error)
	if !ok {
		return ToStatus(&csiproxy.Error{Op: method, Err: err})
	}
	renamed := *e
	renamed.Op = method
	return ToStatus(&renamed)
}

// ToStatus returns err as a gRPC status error: the code and reason of its class, its text as the
// message, and operation, object and Windows error number in an ErrorInfo detail. Nil and status
// errors are returned unchanged.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err
	}

	info := &errdetails.ErrorInfo{Domain: ErrorDomain, Reason: "INTERNAL", Metadata: map[string]string{}}
	kind := csiproxy.KindOf(err)
	for _, class := range classes {
		if class.kind == kind {
			info.Reason = class.reason
		}
	}
	if e := new(csiproxy.Error); errors.As(err, &e) {
		if e.Op != "" {
			info.Metadata[metadataOperation] = wireText(e.Op)
		}
		if e.Object != "" {
			info.Metadata[metadataObject] = wireText(e.Object)
		}
	}
	if number, ok := csiproxy.WindowsErrorOf(err); ok {
		info.Metadata[metadataWindowsError] = strconv.FormatUint(uint64(number), 10)
	}

	plain := status.New(CodeOf(err), wireText(err.Error()))
	detailed, err := plain.WithDetails(info)
	if err != nil { // info can't be encoded, which doesn't happen with valid UTF-8
		return plain.Err()
	}
	return detailed.Err()
}

// FromStatus returns the error of a gRPC call as a *csiproxy.Error of the code's class, with the
// message as its text. Operation, object and Windows error number are set if the daemon sent them.
// The published daemon omits all three, and answers all failures with the code Unknown, here
// csiproxy.ErrInternal. Nil stays nil; an error other than a status becomes the cause.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return &csiproxy.Error{Err: err}
	}

	result := &csiproxy.Error{Kind: csiproxy.ErrInternal, Detail: st.Message()}
	for _, class := range classes {
		if class.code == st.Code() {
			result.Kind = class.kind
		}
	}
	for _, detail := range st.Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if !ok || info.Domain != ErrorDomain {
			continue
		}
		// A malformed number of another daemon is ignored.
		if number, err := strconv.ParseUint(info.Metadata[metadataWindowsError], 10, 32); err == nil {
			result.WindowsError = uint32(number)
		}
		// The message begins with operation and object, unless the daemon put words before them.
		op, object := info.Metadata[metadataOperation], info.Metadata[metadataObject]
		head := strings.TrimSpace(op+" "+object) + ": "
		if rest, ok := strings.CutPrefix(st.Message(), head); ok {
			result.Op, result.Object, result.Detail = op, object, rest
		}
	}
	return result
}

// maxWireText bounds a text within a status, in bytes. The whole status goes into HTTP/2 trailers,
// in two encodings, and some gRPC clients accept at most 16 KiB of trailers; requests may quote
// much longer texts.
const maxWireText = 2 << 10

// wireText makes s fit for sending. Invalid UTF-8 is replaced. If s is too long, the middle is
// omitted, because the beginning says what failed and the end why.
func wireText(s string) string {
	if len(s) > maxWireText {
		s = s[:maxWireText/2] + " … " + s[len(s)-maxWireText/2:]
	}
	return ValidText(s)
}

// ValidText replaces invalid UTF-8 in a text from hardware or from a caller. A single invalid byte
// would make the whole response unsendable.
func ValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
