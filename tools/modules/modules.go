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

// Of returns the modules of a program, as the linker has put them into it, or of a list:
// a file whose name ends in .modules, with a line "path version" for each. Programs of
// tests have none in them.
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
			return nil, fmt.Errorf("%q is no module with a version", line)
		}
		modules = append(modules, &debug.Module{Path: path, Version: version})
	}
	return modules, nil
}
