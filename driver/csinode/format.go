// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"slices"
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// The parameters of a StorageClass, or volume attributes of a PersistentVolume, that say how a raw
// volume is formatted, beside csi.storage.k8s.io/fstype, which is ntfs or refs.
const (
	ParamAllocationUnit   = "allocationUnitSize" // the size of a cluster, such as 64K
	ParamLabel            = "volumeLabel"        // the volume's name
	ParamNoShortNames     = "noShortNames"       // true: NTFS makes no 8.3 names
	ParamWriters          = "volumeWriters"      // who may write at the root, such as Users, with commas between
	ParamIntegrityStreams = "integrityStreams"   // true: ReFS checks the contents of files by checksums
)

// ParamPrivacy is the parameter of a StorageClass for [Source.Privacy]: required or not-required.
const ParamPrivacy = "smbPrivacy"

// FormatParameters are all parameters for formatting.
var FormatParameters = []string{ParamAllocationUnit, ParamIntegrityStreams, ParamLabel, ParamNoShortNames,
	ParamWriters}

// FormatOptions reads the format parameters. own are the names of the driver's own parameters: any other
// is refused, with the list of all, unless it has a slash, as those that Kubernetes adds. A name that is
// misspelt would be noticed only when the volume has data, and its format can't be changed any more.
//
// The driver's Controller calls it in CreateVolume, with the file system of the capability, and returns
// the format parameters in the volume's context. Its [Options.Source] calls it with that context.
func FormatOptions(fsType string, parameters map[string]string, own ...string) (csiproxy.FormatOptions, error) {
	var o csiproxy.FormatOptions
	if strings.EqualFold(fsType, string(csiproxy.ReFS)) {
		o.FileSystem = csiproxy.ReFS
	}
	known := slices.Sorted(slices.Values(slices.Concat(FormatParameters, own)))
	for name, value := range parameters {
		var err error
		switch name {
		case ParamAllocationUnit:
			o.AllocationUnitBytes, err = csiproxy.ParseAllocationUnit(value)
		case ParamLabel:
			o.Label = value
		case ParamNoShortNames:
			o.NoShortNames, err = parseBool(name, value)
		case ParamIntegrityStreams:
			o.IntegrityStreams, err = parseBool(name, value)
		case ParamWriters:
			for writer := range strings.SplitSeq(value, ",") {
				o.Writers = append(o.Writers, strings.TrimSpace(writer))
			}
		default:
			if !slices.Contains(own, name) && !strings.Contains(name, "/") {
				err = invalid("the parameter %q isn't known; it must be one of %s", name, strings.Join(known, ", "))
			}
		}
		if err != nil {
			return csiproxy.FormatOptions{}, withCode(err)
		}
	}
	return o, withCode(o.Validate())
}

func parseBool(name, value string) (bool, error) {
	is, err := strconv.ParseBool(value)
	if err != nil {
		return false, invalid("the parameter %s is %q; it must be true or false", name, value)
	}
	return is, nil
}
