// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-proxy/csi-proxy/internal/host/doctor"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
)

// bundledLogBytes is how much of each log file goes into a bundle. At the default
// verbosity that is days.
const bundledLogBytes = 32 << 20

func (p *program) supportBundle() *cobra.Command {
	var kubeletPath string
	var logs []string
	c := p.leaf("support-bundle", "Collect what support needs to know of this node in a zip",
		func(ctx context.Context, args []string) (r reply, err error) {
			now := time.Now()
			path := "csi-proxy-support-" + now.UTC().Format("20060102T150405Z") + ".zip"
			if len(args) > 0 {
				path = args[0]
			}
			n, closeNode, err := p.node(ctx, kubeletPath)
			if err != nil {
				return reply{}, err
			}
			defer func() { err = errors.Join(err, closeNode()) }()
			b := doctor.Bundle{
				Program: "csi-proxyctl " + currentBuild().String(), Time: now, Logs: append(serviceLogs(ctx, n), logs...),
				LogBytes: bundledLogBytes,
				Page:     func(ctx context.Context, page string) (string, error) { return admin.Get(ctx, p.endpointDir, page) },
			}
			if path == "-" {
				return printed, cmp.Or(doctor.WriteBundle(ctx, p.stdout, n, b), interrupted(ctx))
			}
			if err := writeBundle(ctx, path, n, b); err != nil {
				return reply{}, err
			}
			return line(struct {
				File string `json:"file"`
			}{path}, path), nil
		})
	c.Use = "support-bundle [FILE]"
	c.ValidArgsFunction = nil // files
	c.Long = `Write one zip for support, and print its name: the findings of csi-proxyctl doctor, versions, the
service with the daemon's flags, disks, volumes, mounts, the daemon's metrics and goroutines, and the
end of the daemon's log files.
Without FILE the zip is csi-proxy-support-TIME.zip in the current directory, with - it goes to
standard output. A file that exists is an error.

The daemon needn't run, but disks and mounts are its answers. What can't be read is listed in missing.txt, with the cause. The log files
are those that the service's flags name, 32 MiB of each at most; --log adds others.

No passwords are in the zip. But it has names of disks, servers, directories and pods: read it
before you send it to others.`
	kubeletPathFlag(c, &kubeletPath)
	c.Flags().StringArrayVar(&logs, "log", nil, "another log `file`; may be repeated")
	completeFiles(c, "log")
	return c
}

// writeBundle makes the file, which only its owner may read where files have modes. What
// can't be written whole is removed.
func writeBundle(ctx context.Context, path string, n *doctor.Node, b doctor.Bundle) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w; name another file", err)
	}
	if err != nil {
		return fmt.Errorf("support bundle: %w", err)
	}
	if err := errors.Join(doctor.WriteBundle(ctx, f, n, b), interrupted(ctx), f.Close()); err != nil {
		return fmt.Errorf("support bundle %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

// serviceLogs returns the log files that the services' flags name, with those before them.
func serviceLogs(ctx context.Context, n *doctor.Node) (logs []string) {
	var services []doctor.Service
	if n.Services != nil {
		var err error
		if services, err = n.Services(ctx); err != nil {
			services = nil // the bundle says so
		}
	}
	for _, s := range services {
		if s.Log != "" {
			logs = append(logs, s.Log, s.Log+".1")
		}
	}
	return logs
}

// logFile returns the path of the daemon's log file, by the daemon's arguments; "" if the daemon logs to stderr, or they
// name no file and no directory. docs/monitoring.md has the flags.
func logFile(args []string) string {
	file, dir := flagValue(args, "log_file"), flagValue(args, "log_dir")
	switch {
	case flagValue(args, "logtostderr") != "false":
		return ""
	case file == "" && dir != "":
		return dir + `\csi-proxy.log`
	}
	return file
}
