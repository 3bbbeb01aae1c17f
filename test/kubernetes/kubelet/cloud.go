// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// cloud attaches disks by a command, for a driver without a Controller that knows the simulated
// node. The command gets what to do as arguments:
//
//	create NAME BYTES              prints a new volume as JSON: {"volumeId": …, "volumeContext": {…},
//	                               "serialNumber": …}; by default the serial number of its disk is its id
//	attach ID read-only|writable   attaches its disk; prints the publish context as JSON, or nothing
//	grow ID BYTES
//	detach ID
//	delete ID
type cloud struct {
	command []string
	share   map[string]string // the parameters of volumes without a disk
	node    func() *node      // which is current

	mu      sync.Mutex
	serials map[string]string // of the disks, by the volumes' ids
}

// made is what create prints.
type made struct {
	VolumeID      string            `json:"volumeId"`
	VolumeContext map[string]string `json:"volumeContext"`
	SerialNumber  string            `json:"serialNumber"`
}

// create has the command make a volume for a node. It keeps what it knows in the directory state.
func (c *cloud) create(ctx context.Context, n *node, state string, r *csi.CreateVolumeRequest) (*csi.Volume, error) {
	printed, err := c.run(ctx, n, state, "create", r.Name, required(r.CapacityRange))
	if err != nil {
		return nil, err
	}
	var m made
	decoder := json.NewDecoder(strings.NewReader(printed))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil || m.VolumeID == "" {
		return nil, fmt.Errorf("%s create prints %q, which must be JSON with a volumeId: %w", c.command[0], printed, cmp.Or(err, errors.New("it is missing")))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serials[m.VolumeID] = cmp.Or(m.SerialNumber, m.VolumeID)
	return &csi.Volume{VolumeId: m.VolumeID, VolumeContext: m.VolumeContext}, nil
}

// attach has the command attach a volume to a node.
func (c *cloud) attach(ctx context.Context, n *node, state string, r *csi.ControllerPublishVolumeRequest, response *csi.ControllerPublishVolumeResponse) error {
	how := "writable"
	if r.Readonly {
		how = "read-only"
	}
	printed, err := c.run(ctx, n, state, "attach", r.VolumeId, how)
	if err != nil || printed == "" {
		return err
	}
	return json.Unmarshal([]byte(printed), &response.PublishContext)
}

// serialNumber returns that of a volume's disk.
func (w *record) serialNumber(volume string) string {
	if c := w.instead(); c != nil {
		return c.serialNumber(volume)
	}
	return volume
}

// serialNumber is [controller]'s.
func (c *cloud) serialNumber(volume string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serials[volume]
}

// sharePrefix begins the ids of volumes without a disk, which the command isn't asked about.
const sharePrefix = "share-"

// ofController reports whether a call is for a driver's Controller.
func ofController(method string) bool {
	return strings.HasPrefix(method, "/"+csi.Controller_ServiceDesc.ServiceName+"/") ||
		method == csi.Identity_GetPluginCapabilities_FullMethodName
}

// can is what the lab's clouds say that they can do.
var can = []csi.ControllerServiceCapability_RPC_Type{
	csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	csi.ControllerServiceCapability_RPC_PUBLISH_READONLY, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
}

// tell says what the lab's clouds can do.
func tell(request, response proto.Message) error {
	switch request.(type) {
	case *csi.GetPluginCapabilitiesRequest:
		response.(*csi.GetPluginCapabilitiesResponse).Capabilities = []*csi.PluginCapability{{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
				Type: csi.PluginCapability_Service_CONTROLLER_SERVICE,
			}},
		}}
	case *csi.ControllerGetCapabilitiesRequest:
		answer := response.(*csi.ControllerGetCapabilitiesResponse)
		for _, capability := range can {
			answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{
				Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
			})
		}
	default:
		return status.Errorf(codes.Unimplemented, "the lab has no %T", request)
	}
	return nil
}

// call does what the driver's Controller would.
func (c *cloud) call(ctx context.Context, request, response proto.Message) error {
	n := c.node()
	switch r := request.(type) {
	case *csi.CreateVolumeRequest:
		v := &csi.Volume{VolumeId: sharePrefix + r.Name, VolumeContext: r.Parameters}
		if c.share == nil || !maps.Equal(r.Parameters, c.share) {
			var err error
			if v, err = c.create(ctx, n, n.dir, r); err != nil {
				return err
			}
		}
		response.(*csi.CreateVolumeResponse).Volume = v
	case *csi.ControllerPublishVolumeRequest:
		return c.attach(ctx, n, n.dir, r, response.(*csi.ControllerPublishVolumeResponse))
	case *csi.ControllerUnpublishVolumeRequest:
		_, err := c.run(ctx, n, n.dir, "detach", r.VolumeId)
		return err
	case *csi.ControllerExpandVolumeRequest:
		expanded := response.(*csi.ControllerExpandVolumeResponse)
		expanded.CapacityBytes, expanded.NodeExpansionRequired = r.CapacityRange.RequiredBytes, true
		_, err := c.run(ctx, n, n.dir, "grow", r.VolumeId, required(r.CapacityRange))
		return err
	case *csi.DeleteVolumeRequest:
		_, err := c.run(ctx, n, n.dir, "delete", r.VolumeId)
		return err
	default:
		return tell(request, response)
	}
	return nil
}

func required(r *csi.CapacityRange) string { return strconv.FormatInt(r.RequiredBytes, 10) }

// run runs the command for a node, and returns what it prints.
func (c *cloud) run(ctx context.Context, n *node, state string, arguments ...string) (string, error) {
	if strings.HasPrefix(arguments[1], sharePrefix) {
		return "", nil
	}
	words := append(append([]string{}, c.command...), arguments...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(n.environment(), "ENDPOINTS="+n.endpoints(), "STATE="+state)
	cmd.Stderr = new(strings.Builder)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, cmd.Stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
