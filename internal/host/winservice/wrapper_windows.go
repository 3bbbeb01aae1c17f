// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// maxWrapperFile bounds what is read of a file beside a service's program.
const maxWrapperFile = 1 << 20

// wrapped returns the command line that the wrapper with this command line starts for a service;
// empty if it is no wrapper.
func wrapped(name, commandLine string) (string, error) {
	program, _, err := Services{}.SplitCommandLine(commandLine)
	if err != nil {
		return "", nil // it has no program at all
	}
	return wrapper{
		program:   program,
		parameter: func(value string) (string, error) { return parameter(name, value) },
		file:      readBeside,
		expand:    registry.ExpandString,
		line:      windows.ComposeCommandLine,
	}.commandLine()
}

func parameter(service, name string) (string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, servicesKey+service+`\Parameters`, registry.QUERY_VALUE)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer key.Close() // nothing depends on it
	text, kind, err := key.GetStringValue(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, registry.ErrUnexpectedType):
		return "", nil
	case err != nil || kind != registry.EXPAND_SZ:
		return text, err
	}
	return registry.ExpandString(text)
}

func readBeside(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil // no file beside the program, or none that can be read
	}
	defer file.Close() // nothing was written
	return io.ReadAll(io.LimitReader(file, maxWrapperFile))
}

// OnSystemDrive takes a path without a drive against the drive of Windows, where the services'
// working directory is.
func OnSystemDrive(path string) string {
	windowsDirectory, err := windows.GetSystemWindowsDirectory()
	if err != nil || len(windowsDirectory) < 2 {
		return path
	}
	return onDrive(windowsDirectory[:2], path)
}
