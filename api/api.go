// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api has the published wire contract: the groups, their versions, the names
// of their endpoints and services, and their descriptors.
//
// The .proto files in the directories <group>/<version> are the contract's source. A
// published version never changes: testdata/wire.json also describes it, and a test
// compares the two. The group storage is CSI Proxy's own, and isn't published. Go code is
// generated only for versions with a shape of their own. The descriptors of all versions are
// embedded here. Fields with credentials have the option debug_redact, so that they aren't
// printed with a message.
//
// A version is reached at an endpoint of its own ([EndpointName]). A version of a published
// group is there under two service names: the published one ([ServiceName]), which every
// driver uses, and one that is unique among all groups ([QualifiedServiceName]). Other
// groups have the unique name only.
package api

import (
	_ "embed" // for the descriptors
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

//go:generate go -C ../tools run ./protogen

// Groups returns the names of the API groups in alphabetical order, PublishedGroups and
// CSI Proxy's own.
func Groups() []string { return slices.Sorted(maps.Keys(contract())) }

// PublishedGroups returns the names of the groups that drivers have been built with for
// years, and whose versions never change, in alphabetical order.
func PublishedGroups() []string {
	return slices.DeleteFunc(Groups(), func(group string) bool { return !IsPublished(group) })
}

// IsPublished reports whether a group is one of PublishedGroups.
func IsPublished(group string) bool { return group != storage }

// storage is the only group that isn't published.
const storage = "storage"

// Versions returns the versions of a group, newest first: higher major versions come
// first, then stable before beta before alpha. It returns nothing for an unknown group.
func Versions(group string) []string {
	var names []string
	for _, v := range contract()[group] {
		names = append(names, v.name)
	}
	return names
}

// VersionCount returns how many versions all groups have together.
func VersionCount() int {
	n := 0
	for _, versions := range contract() {
		n += len(versions)
	}
	return n
}

// Service returns the descriptor of the service that a version of a group
// consists of, and whether there is such a version. The messages are in its
// ParentFile. The first call parses the descriptors of all versions.
func Service(group, version string) (protoreflect.ServiceDescriptor, bool) {
	if !slices.Contains(Versions(group), version) {
		return nil, false
	}
	found, err := described().FindDescriptorByName(protoreflect.FullName(QualifiedServiceName(group, version)))
	if err != nil {
		return nil, false
	}
	return found.(protoreflect.ServiceDescriptor), true
}

// ServiceName returns the service name that clients use on the wire. In a published group
// that is what published drivers use: "v1beta1.Filesystem". In another group it is the
// qualified one.
func ServiceName(group, version string) string {
	if !IsPublished(group) {
		return QualifiedServiceName(group, version)
	}
	return version + "." + serviceName(group)
}

// QualifiedServiceName returns the service name with the version's proto package,
// which no other group has: "csiproxy.filesystem.v1beta1.Filesystem".
func QualifiedServiceName(group, version string) string {
	return "csiproxy." + group + "." + version + "." + serviceName(group)
}

// EndpointName returns the name of the pipe or socket of a version, without
// directory and suffix: "csi-proxy-filesystem-v1beta1".
func EndpointName(group, version string) string {
	return "csi-proxy-" + group + "-" + version
}

// DriverEndpointName returns the name of the pipe or socket at which a driver that has endpoints of its own
// reaches a version: "csi-proxy-ebs.csi.aws.com-disk-v1". With an empty driver it is EndpointName.
func DriverEndpointName(driver, group, version string) string {
	if driver == "" {
		return EndpointName(group, version)
	}
	return "csi-proxy-" + driver + "-" + group + "-" + version
}

func serviceName(group string) string {
	initial := min(1, len(group))
	return strings.ToUpper(group[:initial]) + group[initial:]
}

//go:embed descriptors.binpb
var descriptors []byte

// version is one version of a group.
type version struct {
	name string
	age  age
}

// contract lists the versions of each group, newest first. It panics only if the program was
// built with a file that protogen didn't write.
//
// It reads the names of the packages alone, and keeps nothing else: with parse, a start would
// take 1.4 MiB of memory more, which few programs ever use.
var contract = sync.OnceValue(func() map[string][]version {
	groups, err := list(descriptors)
	if err != nil {
		panic(fmt.Sprintf("api: list embedded descriptors: %v", err))
	}
	return groups
})

// described has the descriptors of all versions, from when the first of them is asked for. It
// panics as contract does.
var described = sync.OnceValue(func() *protoregistry.Files {
	files, err := parse(descriptors)
	if err != nil {
		panic(fmt.Sprintf("api: parse embedded descriptors: %v", err))
	}
	return files
})

// Numbers of fields in descriptor.proto.
const (
	fileInSet     = 1 // FileDescriptorSet.file
	packageOfFile = 2 // FileDescriptorProto.package
)

// list returns the versions that a FileDescriptorSet has files of.
func list(set []byte) (map[string][]version, error) {
	groups := make(map[string][]version)
	err := eachField(set, fileInSet, func(file []byte) error {
		return eachField(file, packageOfFile, func(value []byte) error {
			pkg := protoreflect.FullName(value)
			v := version{name: string(pkg.Name())}
			var err error
			v.age, err = parseAge(v.name)
			group := string(pkg.Parent().Name())
			groups[group] = append(groups[group], v)
			return err
		})
	})
	for _, versions := range groups {
		sort.Slice(versions, func(i, j int) bool { return slices.Compare(versions[j].age[:], versions[i].age[:]) < 0 })
	}
	return groups, err
}

// eachField calls do with the bytes of each field with a number in an encoded message.
func eachField(message []byte, number protowire.Number, do func(value []byte) error) error {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return protowire.ParseError(size)
		}
		if n == number && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := do(value); err != nil {
				return err
			}
		}
		message = message[size:]
	}
	return nil
}

func parse(descriptors []byte) (*protoregistry.Files, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(descriptors, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		service := serviceName(string(file.Package().Parent().Name()))
		if file.Services().ByName(protoreflect.Name(service)) == nil {
			err = fmt.Errorf("file %s has no service %s", file.Path(), service)
		}
		return err == nil
	})
	return files, err
}

// age orders versions. Its numbers, compared in order, are the major version, the stage
// and the number within the stage; those of a newer version are greater.
type age [3]int

var (
	versionName = regexp.MustCompile(`^v(\d+)(?:(alpha|beta)(\d+))?$`)
	stages      = []string{"alpha", "beta", ""}
)

func parseAge(name string) (age, error) {
	part := versionName.FindStringSubmatch(name)
	if part == nil {
		return age{}, fmt.Errorf("%q is not the name of a version", name)
	}
	major, err1 := strconv.Atoi(part[1])
	minor, err2 := strconv.Atoi("0" + part[3]) // a stable version has no number here
	return age{major, slices.Index(stages, part[2]), minor}, errors.Join(err1, err2)
}
