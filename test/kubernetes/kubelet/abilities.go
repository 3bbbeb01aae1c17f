// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// abilities are what a driver can, as it says itself.
type abilities struct {
	attaches bool // volumes, with the help of -cloud if that is given
	grows    bool // volumes that are staged
	measures bool // what is used of a volume
	// shares says that it has no disks: its volumes are all on SMB shares, which nobody attaches.
	shares bool
}

// need is what a scenario takes.
type need int

const (
	aDisk need = 1 << iota
	growth
	usageCounts
	aDaemon
)

// askAbilities asks the driver for them. -cloud is in the place of its Controller.
func (l *lab) askAbilities(ctx context.Context) error {
	l.attaches = l.options.cloud != nil
	if !l.attaches {
		var answer csi.ControllerGetCapabilitiesResponse
		err := invoke(ctx, l.wire.driver, csi.Controller_ControllerGetCapabilities_FullMethodName, &csi.ControllerGetCapabilitiesRequest{}, &answer)
		if err != nil && status.Code(err) != codes.Unimplemented { // without a Controller
			return fmt.Errorf("the driver's ControllerGetCapabilities: %w", err)
		}
		l.attaches = slices.ContainsFunc(answer.Capabilities, func(c *csi.ControllerServiceCapability) bool {
			return c.GetRpc().GetType() == csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME
		})
	}
	var answer csi.NodeGetCapabilitiesResponse
	if err := invoke(ctx, l.wire.driver, csi.Node_NodeGetCapabilities_FullMethodName, &csi.NodeGetCapabilitiesRequest{}, &answer); err != nil {
		return fmt.Errorf("the driver's NodeGetCapabilities: %w", err)
	}
	for _, c := range answer.Capabilities {
		switch c.GetRpc().GetType() {
		case csi.NodeServiceCapability_RPC_EXPAND_VOLUME:
			l.grows = true
		case csi.NodeServiceCapability_RPC_GET_VOLUME_STATS:
			l.measures = true
		}
	}
	l.shares = !l.attaches && l.options.share != nil
	if l.shares && !slices.ContainsFunc(slices.Collect(maps.Values(l.options.share)), func(s string) bool { return strings.Contains(s, volumeWord) }) {
		return errors.New("-share: put " + volumeWord + " in the place of data: the driver attaches no disks, so each volume is on a share of its own")
	}
	return nil
}

// cannot returns why a scenario isn't for the driver; "" if it is.
func (l *lab) cannot(d definition) string {
	switch {
	case l.options.cannot[d.name] != "":
		return l.options.cannot[d.name]
	case d.name == "sub-path" && l.windows:
		return "Wine has no links in which kubelet could find the subdirectory"
	case d.needs&aDaemon != 0 && l.inProcess:
		return "CSI Proxy's code is in the driver"
	case d.needs&aDisk != 0 && l.shares:
		return "the driver attaches no disks"
	case d.needs&growth != 0 && !l.grows:
		return "the driver's Node service has no EXPAND_VOLUME"
	case d.needs&usageCounts != 0 && !l.measures:
		return "the driver's Node service has no GET_VOLUME_STATS"
	}
	return ""
}

// methods are the calls about a volume that the driver can get, beside those that ask for something.
func (a abilities) methods() (all []string) {
	if a.grows {
		all = append(all, grow)
	}
	for _, method := range cycle {
		if a.attaches || method != attach && method != detach {
			all = append(all, method)
		}
	}
	return all
}
