// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// LevelRequest is the level for successful calls: klog's -v=2.
const LevelRequest = slog.Level(-2)

// logCall logs an ended call, with its arguments, its duration, and the calling process. req is nil
// if the request was undecodable. failed reports whether err is a failure.
func (s *Server) logCall(ctx context.Context, method string, req any, start time.Time, err error, failed bool) {
	level := levelOf(method, codes.OK)
	if failed {
		level = levelOf(method, status.Code(err))
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{slog.String("method", method)}
	if message, ok := req.(proto.Message); ok {
		attrs = append(attrs, slog.Attr{Key: "request", Value: arguments(message.ProtoReflect())})
	}
	attrs = append(attrs, slog.String("code", status.Code(err).String()),
		slog.Duration("duration", time.Since(start).Round(time.Microsecond)))
	if caller := infoOf(ctx).caller; caller.process != 0 {
		attrs = append(attrs, slog.Int64("pid", int64(caller.process)))
		if caller.program != "" {
			attrs = append(attrs, slog.String("program", caller.program))
		}
	}
	text := "call"
	if failed {
		text = "call failed"
		attrs = append(attrs, slog.String("err", status.Convert(err).Message()))
	}
	s.log.LogAttrs(ctx, level, text, attrs...)
}

// mayBeMissing are the methods with which drivers ask whether something exists, and for which
// NotFound is a normal answer.
var mayBeMissing = map[string]bool{
	"GetVolumeIDFromTargetPath": true, "GetVolumeIDFromMount": true,
	"IsSymlink": true, "IsMountPoint": true,
}

// levelOf returns the log level of a call. Health checks, and failures that are a normal answer,
// are at debug level. A failure is an error if the daemon or the node has a fault. A failure is a
// warning if it may pass, or if the caller caused it.
func levelOf(method string, code codes.Code) slog.Level {
	switch code {
	case codes.OK:
		if strings.HasPrefix(method, "/grpc.") { // health checks
			return slog.LevelDebug
		}
		return LevelRequest
	case codes.NotFound:
		if mayBeMissing[path.Base(method)] {
			return slog.LevelDebug
		}
	case codes.Internal, codes.Unknown, codes.DataLoss:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// redacted replaces secrets, as in the logs of CSI drivers.
const redacted = "***stripped***"

// arguments returns the fields of a request for the log, including zero and empty fields: a disk
// may have the number 0. Fields marked with debug_redact in the API are redacted. Bytes are logged
// by their length only, and long texts are cut.
func arguments(m protoreflect.Message) slog.Value {
	var attrs []slog.Attr
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		if field.ContainingOneof() != nil && !m.Has(field) {
			continue
		}
		attrs = append(attrs, slog.Attr{Key: field.JSONName(), Value: argument(field, m.Get(field))})
	}
	return slog.GroupValue(attrs...)
}

func argument(field protoreflect.FieldDescriptor, v protoreflect.Value) slog.Value {
	if field.Options().(*descriptorpb.FieldOptions).GetDebugRedact() {
		return slog.StringValue(redacted)
	}
	switch {
	case field.IsList():
		list := v.List()
		values := make([]any, min(list.Len(), maxListed))
		for i := range values {
			values[i] = scalar(field, list.Get(i)).Any()
		}
		return slog.AnyValue(values)
	case field.IsMap():
		return slog.StringValue(fmt.Sprintf("%d entries", v.Map().Len()))
	}
	return scalar(field, v)
}

// maxListed is how many elements of a list are logged.
const maxListed = 16

// scalar returns a value other than a list or a map.
func scalar(field protoreflect.FieldDescriptor, v protoreflect.Value) slog.Value {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return arguments(v.Message())
	case protoreflect.StringKind:
		return slog.StringValue(quote.Text(v.String()))
	case protoreflect.BytesKind:
		return slog.StringValue(fmt.Sprintf("%d bytes", len(v.Bytes())))
	case protoreflect.EnumKind:
		if value := field.Enum().Values().ByNumber(v.Enum()); value != nil {
			return slog.StringValue(string(value.Name()))
		}
		return slog.Int64Value(int64(v.Enum()))
	}
	return slog.AnyValue(v.Interface())
}
