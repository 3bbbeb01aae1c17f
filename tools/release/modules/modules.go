// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package modules says which Go modules are in a program.
package modules

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// Of returns the modules that the linker has recorded in a program, or those of a list: a
// file whose name ends in .modules, with a line "path version" for each. Test programs
// have no such record, so they need a list.
func Of(name string) ([]*debug.Module, error) {
	if !strings.HasSuffix(name, ".modules") {
		info, err := buildinfo.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return info.Deps, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var modules []*debug.Module
	for line := range strings.Lines(string(b)) {
		path, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return nil, fmt.Errorf("the line %q must be a module's path and version", line)
		}
		modules = append(modules, &debug.Module{Path: path, Version: version})
	}
	return modules, nil
}
