// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command protogen turns the .proto files of the API into the files that are
// checked in beside them: api/descriptors.binpb, which describes every version of
// the contract, and the Go code of the messages that the program handles. It also writes
// the API reference, docs/api-v1.md and docs/api-storage.md.
//
// It compiles the files itself, so protoc isn't needed, and runs the two Go
// plugins at the versions that go.mod of this module pins. From the repository's
// root:
//
//	go -C tools run ./protogen
//
// Running it again changes nothing.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	// module is cut from the Go import paths to get file names.
	module = "github.com/csi-proxy/csi-proxy"
	// namePrefix and the path below api/ make the name under which a file is
	// registered. With it the name matches the proto package, and is unique in
	// programs that link other descriptors too.
	namePrefix = "csiproxy/"
)

// goVersions are the versions that get Go code: the newest one of each group and
// those with a shape of their own. All others are wire-identical to one of these.
var goVersions = []string{
	"disk/v1", "disk/v1beta2", "disk/v1alpha1",
	"volume/v2alpha1", "volume/v1beta2",
	"filesystem/v2alpha1", "filesystem/v1beta1",
	"smb/v1", "smb/v1beta1",
	"iscsi/v1alpha2",
	"system/v1alpha1",
	"storage/v1alpha1",
}

// controlAPIs get Go code too, but aren't part of the contract with drivers, so the
// embedded descriptors don't have them.
var controlAPIs = []string{"sim/v1"}

// plugin is the tool of go.mod that generates Go code. Services have no stubs: both ends call
// their methods by name.
const plugin = "protoc-gen-go"

func main() {
	root := flag.String("root", "..", "the repository's `directory`")
	flag.Parse()
	if err := run(context.Background(), *root); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string) error {
	files, err := generate(ctx, root)
	if err != nil {
		return err
	}
	stale, err := staleFiles(root, files)
	if err != nil {
		return err
	}
	for _, name := range stale {
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(root, name), files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the contents of all generated files by their slash-separated
// path below root.
func generate(ctx context.Context, root string) (map[string][]byte, error) {
	described, err := compile(ctx, filepath.Join(root, "api"))
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	if err := runPlugin(ctx, slices.Concat(goVersions, controlAPIs), described, files); err != nil {
		return nil, fmt.Errorf("%s: %w", plugin, err)
	}

	contract := slices.DeleteFunc(described, func(file *descriptorpb.FileDescriptorProto) bool {
		return slices.Contains(controlAPIs, strings.TrimPrefix(path.Dir(file.GetName()), namePrefix))
	})
	pages, err := reference(contract)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	maps.Copy(files, pages)

	for _, file := range contract {
		file.SourceCodeInfo = nil
	}
	set := &descriptorpb.FileDescriptorSet{File: contract}
	files["api/descriptors.binpb"], err = proto.MarshalOptions{Deterministic: true}.Marshal(set)
	return files, err
}

// compile compiles every .proto file below dir and returns them sorted by name.
func compile(ctx context.Context, dir string) ([]*descriptorpb.FileDescriptorProto, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".proto" {
			names = append(names, namePrefix+name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)

	compiler := protocompile.Compiler{
		Resolver: &protocompile.SourceResolver{
			Accessor: func(name string) (io.ReadCloser, error) {
				return os.Open(filepath.Join(dir, strings.TrimPrefix(name, namePrefix)))
			},
		},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	var described []*descriptorpb.FileDescriptorProto
	for _, file := range compiled {
		described = append(described, protodesc.ToFileDescriptorProto(file))
	}
	return described, nil
}

// runPlugin runs the plugin as protoc would and adds what it generates to files.
func runPlugin(ctx context.Context, versions []string, described []*descriptorpb.FileDescriptorProto,
	files map[string][]byte) error {
	request := &pluginpb.CodeGeneratorRequest{Parameter: proto.String("module=" + module), ProtoFile: described}
	for _, version := range versions {
		name := namePrefix + version + "/" + path.Dir(version) + ".proto"
		request.FileToGenerate = append(request.FileToGenerate, name)
	}
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}

	cmd := exec.CommandContext(ctx, "go", "tool", plugin)
	cmd.Stdin = bytes.NewReader(in)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}

	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.File {
		files[file.GetName()] = []byte(file.GetContent())
	}
	return nil
}

// staleFiles returns the generated Go files below root/api that files doesn't have.
func staleFiles(root string, files map[string][]byte) ([]string, error) {
	var stale []string
	err := fs.WalkDir(os.DirFS(root), "api", func(name string, _ fs.DirEntry, err error) error {
		if _, ok := files[name]; !ok && strings.HasSuffix(name, ".pb.go") {
			stale = append(stale, name)
		}
		return err
	})
	return stale, err
}
