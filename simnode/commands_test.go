// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simnode_test

import (
	"errors"
	"slices"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// Commands in requests are text. Of the vulnerabilities of Kubernetes on Windows nodes in
// 2023 (CVE-2023-3676, 3893, 3955, 5528), each was a path or an id that became part of a
// command line of PowerShell or cmd. Here such a name is a name, or it is refused.
func TestCommandsInRequestsAreText(t *testing.T) {
	n := simnode.New(t)
	c := n.Client()
	const pods = `C:\var\lib\kubelet\pods`
	n.AddSMBShare(simnode.SMBShare{Server: "files", Name: "data"})
	number := n.AttachDisk(simnode.Disk{SizeBytes: 1 << 30})
	must(t, c.Disk.PartitionDisk(t.Context(), number))
	id, err := c.Volume.DataVolumeOfDisk(t.Context(), number)
	if err == nil {
		err = c.Volume.FormatVolume(t.Context(), id)
	}
	must(t, err)

	for _, command := range []string{
		"$(calc.exe)", "&calc.exe&", ";calc.exe;", "';calc.exe;'", "`calc.exe`", "%COMSPEC%", "$PSHOME", "%{calc.exe}",
		"a\u2019;calc.exe;\u2018",
	} {
		t.Run(command, func(t *testing.T) {
			dir, link, mount := pods+`\`+command, pods+`\link `+command, pods+`\mount `+command
			err := errors.Join(
				c.Filesystem.Mkdir(t.Context(), dir),
				c.Filesystem.CreateSymlink(t.Context(), dir, link),
				c.Volume.MountVolume(t.Context(), id, mount),
			)
			must(t, err)
			names, err := n.ReadDir(pods)
			must(t, err)
			if want := []string{command, "link " + command,
				"mount " + command}; !slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(want))) {
				t.Errorf("the directory has %q, want %q", names, want)
			}
			if is, err := c.Filesystem.IsSymlink(t.Context(), link); !is || err != nil {
				t.Errorf("IsSymlink = %v, %v", is, err)
			}
			if mounted, err := c.Volume.GetVolumeIDFromTargetPath(t.Context(), mount); mounted != id || err != nil {
				t.Errorf("mounted is %v, %v", mounted, err)
			}
			err = errors.Join(
				c.Volume.UnmountVolume(t.Context(), id, mount),
				c.Filesystem.Rmdir(t.Context(), mount, false),
				c.Filesystem.Rmdir(t.Context(), link, false),
				c.Filesystem.Rmdir(t.Context(), dir, false),
			)
			if err != nil {
				t.Error(err)
			}

			if err := c.Volume.FormatVolume(t.Context(), csiproxy.VolumeID(string(id)+command)); !errors.Is(err,
				csiproxy.ErrInvalidArgument) {
				t.Errorf("the id of a volume: %v", err)
			}
			credentials := csiproxy.SMBCredentials{Username: command, Password: csiproxy.NewSecret(command)}
			if err := c.SMB.NewSMBGlobalMapping(t.Context(), `\\files`+command+`\data`, "", credentials); err == nil {
				t.Error("a server of this name is mapped")
			}
			if err := c.System.StartService(t.Context(), command); err == nil {
				t.Error("a service of this name is started")
			}
		})
	}
	if len(n.Disks()) != 2 {
		t.Errorf("disks: %v", n.Disks())
	}
}
