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

// driversFiles is how the paths of the files of drivers that belong to a program begin: those of
// C:\k\csi-proxy.exe with C:\k\csi-proxy.drivers-. driversRest is how they end, also where a death has cut off
// the writing.
func driversFiles(program string) string {
	return strings.TrimSuffix(program, filepath.Ext(program)) + ".drivers-"
}

var driversRest = regexp.MustCompile(`^[0-9a-f]{16}\.json(\.part)?$`)

// placeDrivers puts the file of drivers beside the program, and returns the arguments with its path.
//
// Its name has a hash of its content, so no file that a service uses ever changes: the service's command line
// says which one counts, and a rollback of that brings the file before with it. At no moment does the command
// line name a file that isn't whole; and the daemon doesn't start without its file.
func (d *Deployer) placeDrivers(ctx context.Context, in Installation) (args []string, _ error) {
	sum := sha256.Sum256(in.Drivers)
	file := driversFiles(in.Program) + hex.EncodeToString(sum[:8]) + ".json"
	if err := d.Files.Write(ctx, file, in.Drivers); err != nil {
		return nil, &csiproxy.Error{Op: "write drivers", Object: file, Err: err}
	}
	args = slices.DeleteFunc(slices.Clone(in.Args), func(arg string) bool {
		return named([]string{arg}, "drivers") && strings.Contains(arg, "=") // which the service has had before
	})
	return append(args, "-drivers="+file), nil
}

// isDriversFile reports whether a file was made by placeDrivers for a program.
func isDriversFile(program, file string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(file), strings.ToLower(driversFiles(program)))
	return ok && driversRest.MatchString(rest)
}

// tidyDrivers removes the files of drivers beside some programs that neither one of the services nor what is
// recorded with it names.
func (d *Deployer) tidyDrivers(services []string, programs ...string) error {
	var lines []string
	for _, service := range services {
		status, err := d.Services.Query(service)
		if errors.Is(err, csiproxy.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		r, err := d.record(service)
		if err != nil {
			return err
		}
		lines = append(lines, status.Daemon())
		for _, b := range []*before{r.Pending, r.Replaced} {
			if b != nil {
				lines = append(lines, b.Settings.Daemon())
			}
		}
	}
	used := strings.ToLower(strings.Join(lines, "\n"))
	var errs []error
	for _, program := range slices.Compact(programs) {
		files, err := d.Files.List(directoryOf(program))
		errs = append(errs, err)
		for _, file := range files {
			if isDriversFile(program, file) && !strings.Contains(used, strings.ToLower(file)) {
				errs = append(errs, d.Files.Remove(file))
			}
		}
	}
	return errors.Join(errs...)
}

// warnLeftDrivers is tidyDrivers after a service was changed. A file that stays does no harm: nothing reads it.
func (d *Deployer) warnLeftDrivers(name string, programs ...string) {
	if err := d.tidyDrivers(append([]string{name}, Names...), programs...); err != nil {
		d.Log.Warn("a file of drivers that isn't used any more may be left", "err", err)
	}
}
