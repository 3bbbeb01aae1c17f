// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mounter

import (
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// formatOptions are the options of format.com that a Mounter knows, and /writers, which is our own. Their
// case doesn't count. What Windows does without /S and /I isn't the same everywhere, so only the values
// are taken that can be asked for.
const formatOptions = "/A:size, such as /A:64K; /FS:NTFS or /FS:ReFS; /I:enable; /Q; /S:disable; /V:label; " +
	"/writers:who, such as /writers:Users,S-1-5-11"

// parseFormat returns how a raw disk is formatted. fstype and /FS must agree.
func parseFormat(fstype string, options []string) (o csiproxy.FormatOptions, err error) {
	if strings.EqualFold(fstype, string(csiproxy.ReFS)) {
		o.FileSystem = csiproxy.ReFS
	}
	for _, option := range options {
		name, value, _ := strings.Cut(option, ":")
		switch name = strings.ToUpper(name); {
		case name == "/A":
			if o.AllocationUnitBytes, err = csiproxy.ParseAllocationUnit(value); err != nil {
				return csiproxy.FormatOptions{}, err
			}
		case name == "/V":
			o.Label = value
		case name == "/WRITERS":
			o.Writers = append(o.Writers, strings.Split(value, ",")...)
		case name == "/FS":
			if fstype != "" && !strings.EqualFold(fstype, value) {
				return csiproxy.FormatOptions{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument,
					"the format option %s contradicts the file system %s", option, fstype)
			}
			o.FileSystem = csiproxy.FileSystem(value)
		case name == "/S" && strings.EqualFold(value, "disable"):
			o.NoShortNames = true
		case name == "/I" && strings.EqualFold(value, "enable"):
			o.IntegrityStreams = true
		case name == "/Q" && value == "": // a format is always quick
		default:
			return csiproxy.FormatOptions{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument,
				"the format option %q isn't known; known are %s", option, formatOptions)
		}
	}
	return o, o.Validate()
}
