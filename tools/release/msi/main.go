// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command msi builds the MSI from packaging/msi with wixl and msibuild. From the
// repository's root:
//
//	go -C tools/release build -o ../../bin/ ./msi
//	bin/msi -version v1.2.3 -created 1767225600 -source packaging/msi -files folder csi-proxy.msi
//
// The folder has the files that are installed. The same files and flags give the same
// bytes; for that, wixl runs under Debian's faketime.
package main

import (
	"crypto/sha1"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	var p product
	flag.StringVar(&p.version, "version", "", "the version, such as v1.2.3 or the output of git describe")
	flag.Int64Var(&p.created, "created", 0, "the time of the files, in seconds since 1970")
	flag.StringVar(&p.source, "source", "packaging/msi", "the folder with csi-proxy.wxs, tables.sql and icon.ico")
	flag.StringVar(&p.files, "files", "", "the folder with the files to install")
	flag.Parse()
	if flag.NArg() != 1 || p.files == "" {
		fmt.Fprintln(os.Stderr, "usage: msi [flag]... -files folder csi-proxy.msi")
		os.Exit(2)
	}
	if err := p.build(flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "msi:", err)
		os.Exit(1)
	}
}

// product is what an MSI installs.
type product struct {
	version       string
	created       int64
	source, files string
}

// build writes the MSI.
func (p product) build(name string) error {
	version, err := msiVersion(p.version)
	if err != nil {
		return err
	}
	statements, err := p.statements(version)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "msi-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // nothing but copies
	// wixl takes the files from its current directory, and their times into the MSI.
	if err := os.CopyFS(dir, os.DirFS(p.files)); err != nil {
		return err
	}
	icon, err := os.ReadFile(filepath.Join(p.source, "icon.ico"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "icon.ico"), icon, 0o600); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	created := time.Unix(p.created, 0)
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(dir, e.Name()), created, created); err != nil {
			return err
		}
	}
	source, err := filepath.Abs(filepath.Join(p.source, "csi-proxy.wxs"))
	if err != nil {
		return err
	}
	out, err := filepath.Abs(name)
	if err != nil {
		return err
	}

	if err := p.run(dir, "wixl", "--arch", "x64", "--output", out,
		"-D", "Version="+version, "-D", "FullVersion="+p.version, "-D", "ProductCode="+guid("product "+p.version),
		source); err != nil {
		return err
	}
	for _, statement := range statements {
		if err := p.run(dir, "msibuild", out, "-q", statement); err != nil {
			return err
		}
	}
	// The last id is the package code, which wixl takes at random.
	return p.run(dir, "msibuild", out, "-s", "CSI Proxy "+p.version, "The CSI Proxy Authors", "x64;1033",
		guid(fmt.Sprint("package ", p.version, p.created)))
}

// statements returns those of tables.sql.
func (p product) statements(version string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(p.source, "tables.sql"))
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "--") {
			all = append(all, strings.ReplaceAll(line, "${Version}", version))
		}
	}
	return all, nil
}

// run runs a program of msitools at the time that the files have. These programs warn on
// stderr of what they don't understand, and go on, so that is an error here.
func (p product) run(dir, program string, args ...string) error {
	var stderr strings.Builder
	cmd := exec.Command("faketime", append(
		[]string{"-f", time.Unix(p.created, 0).UTC().Format("2006-01-02 15:04:05"), program}, args...)...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	cmd.Env = append(os.Environ(), "TZ=UTC")
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("%w; Debian has it in the package faketime, and the others in wixl and msitools", err)
	}
	if err != nil || stderr.Len() > 0 {
		return fmt.Errorf("%s %q: %v\n%s", program, args, err, &stderr)
	}
	return nil
}

var release = regexp.MustCompile(`^v(\d+)\.(\d+)\.(\d+)`)

// msiVersion returns the version as Windows Installer compares it: three numbers. It is
// 0.0.0 for a text that doesn't begin with a version, as in a repository without tags.
//
// https://learn.microsoft.com/en-us/windows/win32/msi/productversion
func msiVersion(version string) (string, error) {
	numbers := release.FindStringSubmatch(version)
	if numbers == nil {
		return "0.0.0", nil
	}
	for i, bits := range []int{8, 8, 16} {
		if _, err := strconv.ParseUint(numbers[i+1], 10, bits); err != nil {
			return "", fmt.Errorf("version %q: Windows Installer takes at most 255.255.65535", version)
		}
	}
	return strings.Join(numbers[1:], "."), nil
}

// guid returns an id that is the same for the same name: a UUID of version 5.
//
// https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-5
func guid(name string) string {
	namespace := [16]byte{0x7e, 0x6b, 0x2c, 0x0d, 0x4b, 0x1c, 0x4e, 0x0e, 0x9c, 0x55, 0x7b, 0x1f, 0x7c, 0x0f, 0x3a, 0x61}
	sum := sha1.Sum(append(namespace[:], name...))
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	return strings.ToUpper(fmt.Sprintf("{%x-%x-%x-%x-%x}", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]))
}
