// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// cloud attaches disks by a command, for a driver without a Controller that knows the simulated
// node. The command gets what to do as arguments:
//
//	create NAME BYTES              prints the id of a new volume
//	attach ID read-only|writable   attaches its disk; prints the publish context as JSON, or nothing
//	grow ID BYTES
//	detach ID
//	delete ID
type cloud struct {
	command []string
	node    func() *node // which is current
}

// sharePrefix begins the ids of volumes without a disk, which the command isn't asked about.
const sharePrefix = "share-"

// call does what the driver's Controller would.
func (c *cloud) call(ctx context.Context, request, response proto.Message) error {
	switch r := request.(type) {
	case *csi.CreateVolumeRequest:
		v := &csi.Volume{VolumeId: sharePrefix + r.Name, VolumeContext: r.Parameters}
		if r.CapacityRange != nil {
			id, err := c.run(ctx, "create", r.Name, required(r.CapacityRange))
			if err != nil {
				return err
			}
			v.VolumeId = id
		}
		response.(*csi.CreateVolumeResponse).Volume = v
	case *csi.ControllerPublishVolumeRequest:
		how := "writable"
		if r.Readonly {
			how = "read-only"
		}
		printed, err := c.run(ctx, "attach", r.VolumeId, how)
		if err != nil || printed == "" {
			return err
		}
		return json.Unmarshal([]byte(printed), &response.(*csi.ControllerPublishVolumeResponse).PublishContext)
	case *csi.ControllerUnpublishVolumeRequest:
		_, err := c.run(ctx, "detach", r.VolumeId)
		return err
	case *csi.ControllerExpandVolumeRequest:
		expanded := response.(*csi.ControllerExpandVolumeResponse)
		expanded.CapacityBytes, expanded.NodeExpansionRequired = r.CapacityRange.RequiredBytes, true
		_, err := c.run(ctx, "grow", r.VolumeId, required(r.CapacityRange))
		return err
	case *csi.DeleteVolumeRequest:
		_, err := c.run(ctx, "delete", r.VolumeId)
		return err
	default:
		return status.Errorf(codes.Unimplemented, "the lab has no %T", request)
	}
	return nil
}

func required(r *csi.CapacityRange) string { return strconv.FormatInt(r.RequiredBytes, 10) }

// run runs the command, and returns what it prints.
func (c *cloud) run(ctx context.Context, arguments ...string) (string, error) {
	if strings.HasPrefix(arguments[1], sharePrefix) {
		return "", nil
	}
	words := append(append([]string{}, c.command...), arguments...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "ENDPOINTS="+c.node().endpoints(), "STATE="+c.node().dir)
	cmd.Stderr = new(strings.Builder)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, cmd.Stderr)
	}
	return strings.TrimSpace(string(out)), nil
}
