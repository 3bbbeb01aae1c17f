// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rpc translates between the wire and the node's operations: gRPC requests of every API
// version to calls of the operations, and the operations' errors to gRPC statuses.
//
// Handlers exist once for each shape of a group's messages. A version is a row in the table beside
// the handlers: the sets of methods for the version. [Prove] checks each row against the
// descriptors: the sets have exactly the version's methods, and each message of the version is
// wire-identical to the Go type in the handler. Tests prove all rows, and so does csi-proxy -check.
// The daemon skips the proof at startup: table and descriptors are both in the program, so the
// result is always the same, and the descriptors would keep 2 MiB of memory.
package rpc

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoregistry"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/published"
)

// Operations are the operations of the node to serve. A group without operations is left out.
type Operations struct {
	Disk       published.DiskOperations
	Volume     published.VolumeOperations
	Filesystem published.FilesystemOperations
	SMB        published.SMBOperations
	ISCSI      published.ISCSIOperations
	System     published.SystemOperations
	Storage    csiproxy.StorageOperations
}

// Service is one version of a group, served at an endpoint of its own.
type Service struct {
	Group, Version string

	methods methods
}

// versions is the table of a group: by version, the sets of methods.
type versions map[string][]methods

var (
	errMissingVersion = errors.New("no row answers this version")
	errUnknownVersion = errors.New("the group has no such version")
)

// Services returns all versions of each group with operations, newest first within a group. An
// error is a fault of the program: the versions of a table differ from the published contract, or a
// method is duplicated. After an error, the daemon must serve nothing.
func Services(ops Operations) ([]*Service, error) {
	tables := make(map[string]versions)
	addTable(tables, "disk", ops.Disk, diskVersions)
	addTable(tables, "volume", ops.Volume, volumeVersions)
	addTable(tables, "filesystem", ops.Filesystem, filesystemVersions)
	addTable(tables, "smb", ops.SMB, smbVersions)
	addTable(tables, "iscsi", ops.ISCSI, iscsiVersions)
	addTable(tables, "system", ops.System, systemVersions)
	addTable(tables, "storage", ops.Storage, storageVersions)

	var services []*Service
	for _, group := range slices.Sorted(maps.Keys(tables)) {
		bound, err := bindGroup(group, tables[group])
		if err != nil {
			return nil, err
		}
		services = append(services, bound...)
	}
	return services, nil
}

// addTable adds the table of a group, if the group has operations.
func addTable[Operations comparable](tables map[string]versions, group string, ops Operations,
	table func(Operations) versions) {
	var none Operations
	if ops != none {
		tables[group] = table(ops)
	}
}

// bindGroup returns the versions of a group. The table must have a row for exactly these versions.
func bindGroup(group string, table versions) ([]*Service, error) {
	var faults []error
	for version := range table {
		if !slices.Contains(api.Versions(group), version) {
			faults = append(faults, fmt.Errorf("%s %s: %w", group, version, errUnknownVersion))
		}
	}
	var services []*Service
	for _, version := range api.Versions(group) {
		sets, ok := table[version]
		if !ok {
			faults = append(faults, fmt.Errorf("%s %s: %w", group, version, errMissingVersion))
			continue
		}
		united, err := unite(sets)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s %s: %w", group, version, err))
		}
		services = append(services, &Service{group, version, united})
	}
	return services, errors.Join(faults...)
}

// Prove checks the services' methods and messages against the descriptors of their versions. An
// error is a fault of the program.
func Prove(services []*Service) error {
	var faults []error
	for _, s := range services {
		descriptor, ok := api.Service(s.Group, s.Version)
		if !ok {
			faults = append(faults, fmt.Errorf("%s %s: %w", s.Group, s.Version, errUnknownVersion))
			continue
		}
		faults = append(faults, s.methods.check(descriptor))
	}
	return errors.Join(faults...)
}

// Names returns the names under which the service is registered: the published name, if its group
// has one, and the qualified name.
func (s *Service) Names() []string {
	return slices.Compact([]string{
		api.ServiceName(s.Group, s.Version),
		api.QualifiedServiceName(s.Group, s.Version),
	})
}

// Register registers the service under each of its Names. Errors of its methods are gRPC statuses, as
// [wire.ToStatus] makes them.
func (s *Service) Register(registrar grpc.ServiceRegistrar) {
	for _, name := range s.Names() {
		desc := &grpc.ServiceDesc{ServiceName: name, HandlerType: (*any)(nil),
			Methods: make([]grpc.MethodDesc, 0, len(s.methods))}
		for methodName, m := range s.methods {
			if m.stream != nil {
				desc.Streams = append(desc.Streams, m.streamDesc(methodName))
			} else {
				desc.Methods = append(desc.Methods, m.desc(name, methodName))
			}
		}
		registrar.RegisterService(desc, nil)
	}
}

// Files returns a new registry with the descriptors of the service under all of its Names, for gRPC
// reflection. The caller may add the descriptors of further services at the same endpoint.
func (s *Service) Files() (*protoregistry.Files, error) {
	descriptor, ok := api.Service(s.Group, s.Version)
	if !ok {
		return nil, fmt.Errorf("%s %s: %w", s.Group, s.Version, errUnknownVersion)
	}
	qualified := descriptor.ParentFile()
	files := new(protoregistry.Files)
	if err := files.RegisterFile(qualified); err != nil || !api.IsPublished(s.Group) {
		return files, err
	}
	published, err := publishedFile(qualified)
	if err != nil {
		return nil, err
	}
	return files, files.RegisterFile(published)
}
