// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package node has the functions of os and io/ioutil that the published tests call, for files of the simulated
// node. It is the stand-in for PowerShell that makes the calls. test/wine/published/run puts it among the
// tests, so it imports nothing but the standard library.
package node

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const ModeDir = os.ModeDir

var ErrNotExist, IsNotExist, Environ = os.ErrNotExist, os.IsNotExist, os.Environ

// powershell runs a command, in which each word $Env:name is one of values: a name, its value, and so on.
func powershell(command string, values ...string) (string, error) {
	cmd := exec.Command("powershell", "/c", command)
	cmd.Env = os.Environ()
	for i := 0; i < len(values); i += 2 {
		cmd.Env = append(cmd.Env, values[i]+"="+values[i+1])
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %q: %w: %s", command, values, err, out)
	}
	return string(out), nil
}

func Stat(path string) (any, error) {
	out, err := powershell("Test-Path $Env:path", "path", path)
	if err == nil && out != "True" {
		err = &os.PathError{Op: "stat", Path: path, Err: ErrNotExist}
	}
	return nil, err
}

func Mkdir(path string, _ os.FileMode) error { return MkdirAll(path, ModeDir) }

func MkdirAll(path string, _ os.FileMode) error {
	_, err := powershell("mkdir $Env:path", "path", path)
	return err
}

func Remove(path string) error {
	_, err := powershell("rm $Env:path", "path", path)
	return err
}

func RemoveAll(path string) error {
	_, err := powershell("rm -Recurse $Env:path", "path", path)
	return err
}

func Symlink(target, path string) error {
	_, err := powershell("New-Item -ItemType SymbolicLink -Path $Env:path -Target $Env:target", "path", path, "target", target)
	return err
}

func ReadDir(path string) ([]string, error) {
	out, err := powershell("Get-ChildItem -Path $Env:path -Name", "path", path)
	return strings.Fields(out), err
}

func ReadFile(path string) ([]byte, error) {
	out, err := powershell("Get-Content -Path $Env:path -Raw", "path", path)
	return []byte(out), err
}

// File is a file that isn't kept open.
type File struct{ path string }

func Open(path string) (*File, error) {
	_, err := Stat(path)
	return &File{path}, err
}

func Create(path string) (*File, error) {
	f := &File{path}
	_, err := f.WriteString("")
	return f, err
}

// WriteString replaces all that is in the file.
func (f *File) WriteString(text string) (int, error) {
	_, err := powershell("Set-Content -Path $Env:path -Value $Env:text -NoNewline", "path", f.path, "text", text)
	return len(text), err
}

func (f *File) Sync() error  { return nil }
func (f *File) Close() error { return nil }
