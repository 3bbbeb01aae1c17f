// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/host/logfile"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// addOwnFiles names the daemon's own files on this node to the operations, which don't touch them: its program, the file of
// drivers, and the log.
func (o *options) addOwnFiles() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	files := []string{program}
	if o.driversPath != "" {
		files = append(files, o.driversPath)
	}
	if logDirectory(o.logging, true) != "" {
		log := logFile(o.logging)
		files = append(files, log, logfile.OldName(log))
	}
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		o.OwnFiles = append(o.OwnFiles, path)
	}
	return nil
}

// warnOfWorkingDirs warns of working directories that hold files of the system.
func (o *options) warnOfWorkingDirs() error {
	paths, err := pathpolicy.New(o.pathOptions())
	if err != nil {
		return err
	}
	for _, dir := range o.WorkingDirs {
		if held := paths.SystemPathsIn(dir); len(held) > 0 {
			o.warnings = append(o.warnings, fmt.Sprintf("-working-dir=%s: it holds %s. Drivers can't touch these, but can delete "+
				"everything beside them; name the directories that drivers need", dir, quote.Text(strings.Join(held, ", "))))
		}
	}
	return nil
}

// pathOptions are the allowed directories.
func (o *options) pathOptions() pathpolicy.Options {
	return pathpolicy.Options{KubeletPath: o.KubeletPath, WorkingDirs: o.WorkingDirs, OwnFiles: o.OwnFiles}
}
