// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
)

// Node does on the daemon's node what others do there without the daemon: a pod in its volume, or another
// system on a disk.
type Node interface {
	// Mkdir makes a directory, whose parent is there.
	Mkdir(ctx context.Context, path string) error
	// Symlink makes a symbolic link to a directory.
	Symlink(ctx context.Context, link, target string) error
	// Names returns the names in a directory, in their order.
	Names(ctx context.Context, path string) ([]string, error)
	// Remove deletes an empty directory, or a link itself.
	Remove(ctx context.Context, path string) error
	// Overwrite writes the first sectors of a disk. It fails if before isn't what is there; before and
	// after are equally long, and whole sectors.
	Overwrite(ctx context.Context, disk uint32, before, after []byte) error
}

// node returns what plants links and data.
func (t *trial) node() Node {
	if t.Node == nil {
		t.notApplicable("it needs links and data that others have made: allow that with --plant")
	}
	return t.Node
}

func (t *trial) must(what string, err error) {
	if err != nil {
		t.failf("%s: %v", what, err)
	}
}

// outside makes a directory beside those that the daemon allows, with another one in it.
func (t *trial) outside() string {
	path := t.KubeletPath[:len(`C:\`)] + t.own[strings.LastIndex(t.own, `\`)+1:]
	for _, path := range []string{path, path + `\kept`} {
		t.must("make "+path, t.node().Mkdir(t.ctx, path))
		t.later(func() { t.must("remove "+path, t.node().Remove(t.ctx, path)) })
	}
	return path
}

// plantedLinks tries each call of the version with paths that lead out by a link.
func (t *trial) plantedLinks() {
	if t.Group == "smb" {
		t.unmapLater()
	}
	outside, dir := t.outside(), t.dir()
	link := dir + `\planted`
	t.must("plant a link", t.node().Symlink(t.ctx, link, outside))
	t.later(func() { _ = t.node().Remove(t.ctx, link) }) // the daemon may have removed it, which is right
	for _, f := range pathFields {
		if f.group != t.Group || !t.hasField(f.method, f.word) {
			continue
		}
		for _, path := range []string{link + `\kept`, link + `\new`} {
			request := fields{}
			if t.Group == "smb" {
				request = t.mapping("")
			}
			for word, value := range f.rest {
				switch value {
				case "own":
					request[word] = dir + `\other`
				case unknownVolume: // the path has to be the only reason
					request[word] = t.volumeDisk().volume
				}
			}
			request[f.word] = path
			t.refused(codes.PermissionDenied, f.method, request)
		}
	}
	if t.has("Rmdir") {
		t.do("Rmdir", fields{"path": dir, "force": true})
	}
	names, err := t.node().Names(t.ctx, outside)
	t.must("list "+outside, err)
	t.want(slices.Equal(names, []string{"kept"}), "the calls have left %q where the link leads, want [kept]", names)
}

var plantedChecks = []Check{
	plantedLinks("filesystem", "Mkdir", "Rmdir"), plantedLinks("volume", "MountVolume"),
	plantedLinks("smb", "NewSmbGlobalMapping"),
}

// plantedLinks is the check of a group.
func plantedLinks(group string, methods ...string) Check {
	return Check{
		Name: group + ".planted-links", Group: group, Methods: methods, Better: true,
		Promise: "No call follows a link out of the kubelet directory, where a pod may have made it.",
		run:     func(t *trial) { t.plantedLinks() },
	}
}

// luks is the beginning of an encrypted disk of Linux.
const luks = "LUKS\xba\xbe\x00\x01"

// foreignData puts data of another system on a raw disk, and tries to partition it.
func (t *trial) foreignData() {
	d := t.rawDisk()
	number, err := strconv.ParseUint(d.number, 10, 32)
	t.must("read the disk's number", err)
	nothing, data := make([]byte, 4096), make([]byte, 4096)
	copy(data, luks)
	t.must("write to the disk", t.node().Overwrite(t.ctx, uint32(number), nothing, data))
	t.later(func() {
		t.must("erase the disk again", t.node().Overwrite(t.ctx, uint32(number), data, nothing))
	})
	t.refused(codes.FailedPrecondition, "PartitionDisk", fields{"disk": d.number})
}
