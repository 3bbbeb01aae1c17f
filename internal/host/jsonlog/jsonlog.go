// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonlog writes a log as lines of JSON, in the form that the components of
// Kubernetes have with --logging-format=json, so that what reads their logs reads this one:
//
//	{"ts":1580306777047.28,"severity":"INFO","v":0,"caller":"disks/partition.go:177","msg":"disk partitioned","disk":"1"}
//
// ts is the Unix time in milliseconds; v is the verbosity from which a line is written, and
// only lines that aren't failures have it; err is why something failed. Kubernetes' own
// lines don't tell warnings from errors: severity, which these have in addition, is INFO,
// WARNING or ERROR.
//
// Kubernetes' own package for it, k8s.io/component-base, would bring zap, client-go and
// OpenTelemetry into the module, for what log/slog does.
//
// Sources: https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#json-log-format,
// https://github.com/kubernetes/component-base/blob/master/logs/json/json.go
package jsonlog

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// New returns a handler that writes to w, in one call of Write for each line, up to a
// verbosity: klog's -v.
func New(w io.Writer, verbosity int) slog.Handler {
	return slog.NewJSONHandler(escaping{w}, &slog.HandlerOptions{
		AddSource:   true,
		Level:       slog.Level(-verbosity),
		ReplaceAttr: replace,
	})
}

// escaping escapes what would turn or hide the text of a line where it is shown.
type escaping struct{ w io.Writer }

func (e escaping) Write(line []byte) (int, error) {
	if _, err := e.w.Write(quote.JSON(line)); err != nil {
		return 0, err
	}
	return len(line), nil
}

func replace(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch a.Key {
		case slog.TimeKey:
			if a.Value.Kind() == slog.KindTime {
				return slog.Float64("ts", float64(a.Value.Time().UnixMicro())/1000)
			}
		case slog.SourceKey:
			if s, ok := a.Value.Any().(*slog.Source); ok {
				return slog.String("caller", filepath.Base(filepath.Dir(s.File))+"/"+filepath.Base(s.File)+":"+strconv.Itoa(s.Line))
			}
		case slog.LevelKey:
			if level, ok := a.Value.Any().(slog.Level); ok {
				return severity(level)
			}
		}
	}
	switch v := a.Value.Any().(type) {
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	case time.Time:
	case fmt.Stringer:
		a.Value = slog.StringValue(v.String())
	}
	return a
}

// severity is what becomes of a level: one or two attributes of the line.
func severity(level slog.Level) slog.Attr {
	name := "INFO"
	switch {
	case level >= slog.LevelError:
		name = "ERROR"
	case level >= slog.LevelWarn:
		name = "WARNING"
	default:
		// A group without a key stands for its attributes.
		return slog.Attr{Value: slog.GroupValue(slog.String("severity", name), slog.Int("v", max(0, -int(level))))}
	}
	return slog.String("severity", name)
}
