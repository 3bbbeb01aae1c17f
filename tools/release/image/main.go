// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds the images of CSI Proxy, for a HostProcess container and of the simulated
// node for Linux, and pushes them. It needs no Docker, no Windows and no base image. From the
// repository's root:
//
//	go -C tools build -o ../bin/ ./release/image
//	bin/image build -version v1.2.3 -commit 0123abc -created 1767225600 \
//		windows/amd64 csi-proxy.exe=bin/csi-proxy.exe … >image.tar
//	bin/image check registry.example.org/csi-proxy
//	bin/image push image.tar registry.example.org/csi-proxy:v1.2.3
//
// The second one asks the registry whether it would take a push. The same files and flags give the
// same bytes. RELEASE.md says what is in the image.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/csi-proxy/csi-proxy/tools/release/oci"
)

const usage = `usage: image build [flag]... (os/arch name=file...)... >archive
       image push archive repository:tag
       image check repository...`

func main() {
	if err := run(os.Args[1:], os.Stdout); errors.Is(err, errUsage) {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("wrong usage")

func run(args []string, stdout io.Writer) error {
	switch {
	case len(args) > 1 && args[0] == "build":
		return build(args[1:], stdout)
	case len(args) == 3 && args[0] == "push":
		return push(args[1], args[2], stdout)
	case len(args) > 1 && args[0] == "check":
		return oci.CheckPush(args[1:])
	}
	return errUsage
}

// build writes the archive of an index of images, with the files that args names for each system.
func build(args []string, stdout io.Writer) error {
	var about description
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.StringVar(&about.version, "version", "", "the version of the programs")
	flags.StringVar(&about.commit, "commit", "", "the commit that they were built from")
	created := flags.Int64("created", 0, "the time of the image, in seconds since 1970")
	if err := flags.Parse(args); err != nil {
		return errUsage
	}
	about.created = time.Unix(*created, 0).UTC()

	var systems []system
	for _, arg := range flags.Args() {
		name, source, ok := strings.Cut(arg, "=")
		if os, arch, isSystem := strings.Cut(arg, "/"); !ok && isSystem {
			systems = append(systems, system{platform: v1.Platform{OS: os, Architecture: arch}})
			continue
		}
		if !ok || name == "" || strings.ContainsAny(name, `/\`) || len(systems) == 0 {
			return fmt.Errorf("%s: it must be name=file, with a name without folders, after a system like linux/amd64", arg)
		}
		contents, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		last := &systems[len(systems)-1]
		last.files = append(last.files, file{name, contents})
	}
	if len(systems) == 0 {
		return errUsage
	}
	for _, s := range systems {
		slices.SortFunc(s.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	}

	index, err := newIndex(systems, about)
	if err != nil {
		return err
	}
	var archive bytes.Buffer // nothing is written if it can't be whole
	if err := writeArchive(&archive, index, about); err != nil {
		return err
	}
	_, err = archive.WriteTo(stdout)
	return err
}

// push pushes the index of an archive.
func push(archive, reference string, stdout io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	index, err := readArchive(archive, dir)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	return oci.Push(reference, index, stdout)
}
