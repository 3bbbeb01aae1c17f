// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// What the lines have beside ts and caller.
func TestLines(t *testing.T) {
	for want, log := range map[string]func(*slog.Logger){
		`"severity":"INFO","v":0,"msg":"a"`:                                                    func(l *slog.Logger) { l.Info("a") },
		`"severity":"INFO","v":2,"msg":"a"`:                                                    func(l *slog.Logger) { l.Log(t.Context(), -2, "a") },
		`"severity":"WARNING","msg":"a","err":"no"`:                                            func(l *slog.Logger) { l.Warn("a", "err", errors.New("no")) },
		`"severity":"ERROR","msg":"a","err":"the request is not supported (Windows error 50)"`: func(l *slog.Logger) { l.Error("a", "err", winerr.ErrorNotSupported) },
		`"severity":"INFO","v":0,"msg":"a","disk":"1","took":"1.5s","path":"C:\\"`: func(l *slog.Logger) {
			l.Info("a", "disk", csiproxy.DiskNumber(1), "took", 1500*time.Millisecond, "path", `C:\`)
		},
		`"severity":"INFO","v":0,"msg":"a","id":"` + winid.GUID{}.String() + `"`: func(l *slog.Logger) {
			l.Info("a", "id",
				winid.GUID{})
		},
		`"severity":"INFO","v":0,"msg":"a","request":{"level":1,"msg":"b","n":7}`: func(l *slog.Logger) {
			l.Info("a", slog.Group("request", "level", 1, "msg", "b", "n", uint32(7)))
		},
		`"severity":"INFO","v":0,"msg":"a","serial":"\u202e\u009b\ufeff"`: func(l *slog.Logger) {
			l.Info("a", "serial", "\u202e\u009b\ufeff")
		},
		"": func(l *slog.Logger) { l.Log(t.Context(), -3, "too much") },
	} {
		var out bytes.Buffer
		log(slog.New(New(&out, 2)))
		line := regexp.MustCompile(`^\{"ts":[0-9.]+,(.*),"caller":"jsonlog/jsonlog_test.go:\d+"(.*)\}\n$`).ReplaceAllString(out.String(), "$1$2")
		if line != want {
			t.Errorf("got %s, want %s", line, want)
		}
		if out.Len() > 0 && !json.Valid(out.Bytes()) {
			t.Errorf("not JSON: %s", &out)
		}
	}
}

func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(1234567 * time.Microsecond)
		var out bytes.Buffer
		slog.New(New(&out, 0)).Info("a")
		want := float64(time.Now().UnixMicro()) / 1000
		var line struct{ TS float64 }
		if err := json.NewDecoder(strings.NewReader(out.String())).Decode(&line); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, line.TS); diff != "" {
			t.Errorf("ts (-want +got):\n%s", diff)
		}
	})
}
