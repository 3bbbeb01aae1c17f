// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/host/logfile"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
)

// besideProgram are the words of the programs that an upgrade keeps beside the service's: csi-proxy.exe has csi-proxy.previous.exe.
// Package deployment makes them.
var besideProgram = []string{"previous", "new", "rollback"}

// addOwnFiles names the daemon's own files on this node to the operations, which don't touch them: its program and those beside it,
// the file of drivers, and the log.
func (o *options) addOwnFiles() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	files := []string{program}
	extension := filepath.Ext(program)
	for _, word := range besideProgram {
		files = append(files, strings.TrimSuffix(program, extension)+"."+word+extension)
	}
	if o.driversPath != "" {
		files = append(files, o.driversPath)
	}
	if logDirectory(o.logging, true) != "" {
		log := logFile(o.logging)
		files = append(files, log, logfile.OldName(log))
	}
	directories := make(realDirectories)
	for _, file := range files {
		path, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		o.OwnFiles = append(o.OwnFiles, directories.namesOf(path)...)
	}
	return nil
}

// realDirectories maps directories to their names without links and short names; empty for those that can't be resolved. To resolve
// one takes Windows dozens of steps, the daemon serves only afterwards, and most own files share one.
type realDirectories map[string]string

// namesOf returns the names of a file: the one that is given, and those without links and short names, as far as the file and its
// directory are there and Windows tells them.
func (r realDirectories) namesOf(path string) []string {
	names := []string{path}
	directory, base := filepath.Dir(path), filepath.Base(path)
	if info, err := os.Lstat(path); err == nil {
		if file, err := filepath.EvalSymlinks(path); err == nil {
			names = append(names, file)
			if info.Mode().IsRegular() { // no link, so the file is in the directory that was given
				r[directory] = filepath.Dir(file)
			}
		}
	}
	if _, resolved := r[directory]; !resolved {
		r[directory], _ = filepath.EvalSymlinks(directory)
	}
	if r[directory] != "" {
		names = append(names, filepath.Join(r[directory], base))
	}
	slices.Sort(names)
	return slices.Compact(names)
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
