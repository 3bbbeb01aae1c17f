// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/host/winservice"
)

// RealPrograms runs programs of this system.
type RealPrograms struct{}

const (
	// checkLimit bounds the run of a program. A virus scanner may hold it up.
	checkLimit = time.Minute
	// maxReason bounds the text that says why a program fails, in bytes.
	maxReason = 4 << 10
)

// Check implements [Programs].
func (RealPrograms) Check(ctx context.Context, program string, args []string) (winservice.Report, error) {
	if !filepath.IsAbs(program) { // or another one could be found
		return winservice.Report{}, errors.New("it must be a full path")
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, append([]string{"-check", "-o=json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		reason := strings.ReplaceAll(strings.TrimSpace(stderr.String()), "\n", "; ") // a line for each problem of the file of drivers
		return winservice.Report{}, fmt.Errorf("%s -check: %w: %s", filepath.Base(program), err,
			reason[:min(len(reason), maxReason)])
	}
	var report winservice.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		return winservice.Report{}, fmt.Errorf("%s -check prints no report: %w", filepath.Base(program), err)
	}
	return report, nil
}

// Origin implements [Programs]. It goes by what the Go linker recorded in the program.
func (RealPrograms) Origin(program string) (Origin, error) {
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return Unknown, nil
	}
	info, err := buildinfo.ReadFile(program)
	if pathErr := new(fs.PathError); errors.As(err, &pathErr) {
		return Unknown, err
	}
	if err != nil {
		return Unknown, nil // not a program of Go
	}
	return originOf(info.Path), nil
}

// originOf returns the origin of a main package.
func originOf(path string) Origin {
	switch {
	case strings.HasPrefix(path, "github.com/csi-proxy/csi-proxy/"):
		return Ours
	case strings.HasPrefix(path, "github.com/kubernetes-csi/csi-proxy/"):
		return Published
	}
	return Unknown
}
