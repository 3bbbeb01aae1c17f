// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"net"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/iscsi"
)

// Parameters of a StorageClass, or volume attributes of a PersistentVolume, that
// say where a volume's data are. Others are ignored: COs add their own.
const (
	paramType   = "type"         // disk, the default; smb or iscsi
	paramShare  = "source"       // smb: //server/share, with a directory of it or without
	paramPortal = "targetPortal" // iscsi: address, with a port or without
	paramIQN    = "iqn"          // iscsi: name of the target
	paramLUN    = "lun"          // iscsi: number of the disk on the target; 0 if it is missing
)

// Types of sources.
const (
	typeDisk  = "disk"  // the disk whose serial number is the volume id
	typeSMB   = "smb"   // an SMB share
	typeISCSI = "iscsi" // a disk of an iSCSI target
)

// source is where the data of a volume are. It has no secrets.
type source struct {
	Type   string       `json:"type"`
	Share  string       `json:"share,omitzero"` // \\server\share[\directory]
	Portal iscsi.Portal `json:"portal,omitzero"`
	IQN    iscsi.IQN    `json:"iqn,omitzero"`
	LUN    uint32       `json:"lun,omitzero"`
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
		return source{Type: typeISCSI, Portal: portal, IQN: iscsi.IQN(params[paramIQN]), LUN: uint32(lun)}, required(paramIQN, params[paramIQN])
	default:
		return source{}, invalid("%s %q must be %s, %s or %s", paramType, t, typeDisk, typeSMB, typeISCSI)
	}
}

// parsePortal reads "192.0.2.1", "192.0.2.1:3260", "[2001:db8::1]:3260" or a host name.
func parsePortal(text string) (iscsi.Portal, error) {
	if err := required(paramPortal, text); err != nil {
		return iscsi.Portal{}, err
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil { // without a port
		return iscsi.Portal{Address: strings.Trim(text, "[]"), Port: iscsi.DefaultPort}, nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 || host == "" {
		return iscsi.Portal{}, invalid("%s %q must have the form 192.0.2.1:3260", paramPortal, text)
	}
	return iscsi.Portal{Address: host, Port: uint16(number)}, nil
}
