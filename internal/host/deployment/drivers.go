// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// driversFiles is the beginning of the paths of a program's files of drivers: for C:\k\csi-proxy.exe,
// C:\k\csi-proxy.drivers-. driversRest is the end of these paths, also after a death while writing.
func driversFiles(program string) string {
	return strings.TrimSuffix(program, filepath.Ext(program)) + ".drivers-"
}

var driversRest = regexp.MustCompile(`^[0-9a-f]{16}\.json(\.part)?$`)

// placeDrivers puts the file of drivers beside the program, and returns the arguments with its path.
//
// The file is named by a hash of its content, so the file of a service never changes. The command line of the
// service selects the file, and a rollback of the command line also restores the file. The command line always
// names a whole file; without the file, the daemon does not start.
func (d *Deployer) placeDrivers(ctx context.Context, in Installation) (args []string, _ error) {
	sum := sha256.Sum256(in.Drivers)
	file := driversFiles(in.Program) + hex.EncodeToString(sum[:8]) + ".json"
	if err := d.Files.Write(ctx, file, in.Drivers); err != nil {
		return nil, &csiproxy.Error{Op: "write drivers", Object: file, Err: err}
	}
	args = slices.DeleteFunc(slices.Clone(in.Args), func(arg string) bool {
		return named([]string{arg}, "drivers") && strings.Contains(arg, "=") // the file before
	})
	return append(args, "-drivers="+file), nil
}

// isDriversFile reports whether a file was made by placeDrivers for a program.
func isDriversFile(program, file string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(file), strings.ToLower(driversFiles(program)))
	return ok && driversRest.MatchString(rest)
}

// tidyDrivers removes files of drivers beside programs. A file that a service or its record names stays. So
// does every file after a failure, which harms nobody and is logged.
func (d *Deployer) tidyDrivers(services []string, programs ...string) {
	if err := d.removeUnusedDrivers(services, programs); err != nil {
		d.Log.Warn("an unused file of drivers may be left", "err", err)
	}
}

func (d *Deployer) removeUnusedDrivers(services, programs []string) error {
	var used strings.Builder
	for _, service := range services {
		status, err := d.Services.Query(service)
		if errors.Is(err, csiproxy.ErrNotFound) {
			continue
		}
		r, recordErr := d.record(service)
		if err := errors.Join(err, recordErr); err != nil {
			return err
		}
		for _, b := range []*before{{Settings: status.Settings}, r.Pending, r.Replaced} {
			if b != nil {
				used.WriteString(strings.ToLower(b.Settings.Daemon()) + "\n")
			}
		}
	}
	var errs []error
	for _, program := range slices.Compact(programs) {
		files, err := d.Files.List(directoryOf(program))
		errs = append(errs, err)
		for _, file := range files {
			if isDriversFile(program, file) && !strings.Contains(used.String(), strings.ToLower(file)) {
				errs = append(errs, d.Files.Remove(file))
			}
		}
	}
	return errors.Join(errs...)
}
