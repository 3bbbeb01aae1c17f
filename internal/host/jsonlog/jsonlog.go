// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package jsonlog writes a log as the components of Kubernetes do with --logging-format=json:
//
//	{"ts":1580306777047.28,"severity":"INFO","v":0,"caller":"disks/partition.go:177","msg":"disk partitioned","disk":"1"}
//
// ts is the Unix time in milliseconds. Only lines that aren't failures have v, the verbosity from which
// they are written. severity is added here, since Kubernetes' own lines don't tell warnings from errors.
//
// https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#json-log-format
package jsonlog

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// New returns a handler that writes each line to w in one call, up to klog's verbosity -v.
func New(w io.Writer, verbosity int) slog.Handler {
	return slog.NewJSONHandler(escaping{w}, &slog.HandlerOptions{AddSource: true, Level: slog.Level(-verbosity),
		ReplaceAttr: replace})
}

// escaping escapes what would turn or hide the text of a line where it is shown.
type escaping struct{ io.Writer }

func (e escaping) Write(line []byte) (int, error) {
	_, err := e.Writer.Write(quote.JSON(line))
	return len(line), err
}

func replace(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Time:
		if a.Key == slog.TimeKey {
			return slog.Float64("ts", float64(v.UnixMicro())/1000)
		}
	case *slog.Source:
		return slog.String("caller", fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(v.File)), filepath.Base(v.File), v.Line))
	case slog.Level:
		switch {
		case v >= slog.LevelError:
			return slog.String("severity", "ERROR")
		case v >= slog.LevelWarn:
			return slog.String("severity", "WARNING")
		}
		// A group without a key stands for its attributes.
		return slog.Attr{Value: slog.GroupValue(slog.String("severity", "INFO"), slog.Int("v", max(0, -int(v))))}
	case fmt.Stringer:
		return slog.String(a.Key, v.String())
	}
	return a
}
