// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/driver/csinode"
)

// Parameters of a StorageClass, or volume attributes of a PersistentVolume, that
// say where a volume's data are. csinode.FormatParameters say how it is formatted. Others are refused,
// except those with a slash in their names: COs add these.
const (
	paramType   = "type"         // disk, the default; smb or iscsi
	paramShare  = "source"       // smb: //server/share, with a directory of it or without
	paramPortal = "targetPortal" // iscsi: address, with a port or without
	paramIQN    = "iqn"          // iscsi: name of the target
	paramLUN    = "lun"          // iscsi: number of the disk on the target; 0 if it is missing
)

var sourceParameters = []string{paramType, paramShare, paramPortal, paramIQN, paramLUN}

// Types of sources.
const (
	typeDisk  = "disk"  // the disk whose serial number is the volume id
	typeSMB   = "smb"   // an SMB share
	typeISCSI = "iscsi" // a disk of an iSCSI target
)

// source is where the data of a volume are.
type source struct {
	Type   string
	Share  string // \\server\share[\directory]
	Portal csiproxy.ISCSIPortal
	IQN    csiproxy.IQN
	LUN    uint32
}

// publishReadOnly is the key of the publish context that tells the node that the
// disk is attached read-only.
const publishReadOnly = "readOnly"

// Keys of the node-stage secret, for an SMB share and for an iSCSI target that requires
// CHAP.
const (
	secretUsername = "username"
	secretPassword = "password"
	// With this one an iSCSI target proves its identity to the node.
	secretMutual = "mutualPassword"
)

// sourceOf says where the data of a volume are that is to be staged.
func sourceOf(_ context.Context, r *csi.NodeStageVolumeRequest) (csinode.Source, error) {
	s, err := parseSource(r.VolumeContext)
	if err != nil {
		return csinode.Source{}, err
	}
	user, password := r.Secrets[secretUsername], csiproxy.NewSecret(r.Secrets[secretPassword])
	if s.Type == typeSMB {
		return csinode.Source{Share: s.Share, Credentials: csiproxy.SMBCredentials{Username: user, Password: password}}, nil
	}
	format, err := csinode.FormatOptions(r.VolumeCapability.GetMount().GetFsType(), r.VolumeContext, sourceParameters...)
	if err != nil {
		return csinode.Source{}, err
	}
	volume := csinode.Source{Disk: csiproxy.Selector{SerialNumber: r.VolumeId}, Format: format,
		ReadOnly: r.PublishContext[publishReadOnly] == "true"}
	if s.Type == typeISCSI {
		volume.Disk = csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: s.Portal, IQN: s.IQN, LUN: s.LUN}}
	}
	if r.Secrets[secretPassword] != "" {
		volume.Login.Type, volume.Login.Username, volume.Login.Secret = csiproxy.ISCSIOneWayCHAP, user, password
	}
	if mutual := r.Secrets[secretMutual]; mutual != "" {
		volume.Login.Type, volume.Login.MutualSecret = csiproxy.ISCSIMutualCHAP, csiproxy.NewSecret(mutual)
	}
	return volume, nil
}

// parseSource reads the parameters of a volume.
func parseSource(params map[string]string) (source, error) {
	switch t := params[paramType]; t {
	case "", typeDisk:
		return source{Type: typeDisk}, nil
	case typeSMB:
		share := strings.TrimRight(strings.ReplaceAll(params[paramShare], "/", `\`), `\`)
		parts := strings.Split(share, `\`)
		if len(parts) < 4 || parts[0] != "" || parts[1] != "" || parts[2] == "" || parts[3] == "" {
			return source{}, invalid("%s %q must have the form //server/share", paramShare, params[paramShare])
		}
		return source{Type: typeSMB, Share: share}, nil
	case typeISCSI:
		portal, err := parsePortal(params[paramPortal])
		if err != nil {
			return source{}, err
		}
		lun, err := strconv.ParseUint(cmp.Or(params[paramLUN], "0"), 10, 32)
		if err != nil {
			return source{}, invalid("%s %q must be a number from 0", paramLUN, params[paramLUN])
		}
		return source{Type: typeISCSI, Portal: portal, IQN: csiproxy.IQN(params[paramIQN]), LUN: uint32(lun)},
			required(paramIQN, params[paramIQN])
	default:
		return source{}, invalid("%s %q must be %s, %s or %s", paramType, t, typeDisk, typeSMB, typeISCSI)
	}
}

// parsePortal reads "192.0.2.1", "192.0.2.1:3260", "[2001:db8::1]:3260" or a host name.
func parsePortal(text string) (csiproxy.ISCSIPortal, error) {
	if err := required(paramPortal, text); err != nil {
		return csiproxy.ISCSIPortal{}, err
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil { // without a port
		return csiproxy.ISCSIPortal{Address: strings.Trim(text, "[]"), Port: csiproxy.DefaultISCSIPort}, nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || host == "" {
		return csiproxy.ISCSIPortal{}, invalid("%s %q must have the form 192.0.2.1:3260", paramPortal, text)
	}
	return csiproxy.ISCSIPortal{Address: host, Port: uint16(number)}, nil
}

// invalid is the error for a request that is wrong in any state of the node.
func invalid(format string, a ...any) error {
	return status.Errorf(codes.InvalidArgument, format, a...)
}

// required returns an error if a field of a request is empty.
func required(field, value string) error {
	if value == "" {
		return invalid("%s is missing", field)
	}
	return nil
}
