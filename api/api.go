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
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
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
// ParentFile.
func Service(group, version string) (protoreflect.ServiceDescriptor, bool) {
	for _, v := range contract()[group] {
		if v.name == version {
			return v.service, true
		}
	}
	return nil, false
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

func serviceName(group string) string {
	initial := min(1, len(group))
	return strings.ToUpper(group[:initial]) + group[initial:]
}

//go:embed descriptors.binpb
var descriptors string

// version is one version of a group.
type version struct {
	name    string
	age     age
	service protoreflect.ServiceDescriptor
}

// contract parses the embedded descriptors, once, into the versions of each group, newest
// first. It panics only if the program was built with a file that protogen didn't write.
var contract = sync.OnceValue(func() map[string][]version {
	groups, err := parse([]byte(descriptors))
	if err != nil {
		panic(fmt.Sprintf("api: parse embedded descriptors: %v", err))
	}
	return groups
})

func parse(descriptors []byte) (map[string][]version, error) {
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(descriptors, &set); err != nil {
		return nil, err
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, err
	}

	groups := make(map[string][]version)
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		name := string(file.Package().Name())
		group := string(file.Package().Parent().Name())
		v := version{name: name}
		if v.age, err = parseAge(name); err != nil {
			return false
		}
		if v.service = file.Services().ByName(protoreflect.Name(serviceName(group))); v.service == nil {
			err = fmt.Errorf("file %s has no service %s", file.Path(), serviceName(group))
			return false
		}
		groups[group] = append(groups[group], v)
		return true
	})
	for _, versions := range groups {
		slices.SortFunc(versions, func(a, b version) int { return slices.Compare(b.age[:], a.age[:]) })
	}
	return groups, err
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
