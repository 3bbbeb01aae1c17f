// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	noDisk   = uint32(4_000_000_000)
	noVolume = `\\?\Volume{deadbeef-0000-4000-8000-000000000000}\`
	outside  = `C:\Windows\csi`

	// oneWayCHAP is the authentication type, as both versions number it.
	oneWayCHAP = protoreflect.EnumNumber(1)
)

// portal is where the test's target is, at the default port.
var portal = fields{"target_address": "10.0.0.1"}

// use is a call of a method that succeeds, and one that fails.
type use struct {
	method  string
	request fields
	field   string // of the answer, and its value; "" for one that isn't looked at
	value   string
	wrong   fields // what is else in the request that fails, and how it does
	want    codes.Code
	// broken is a call to Windows whose failure fails a request that has nothing to be wrong.
	broken string
}

// Each method of each version succeeds and fails through the generated client of that version.
// What else methods do is tested in internal/ops and internal/serve, with descriptors that are the same.
func TestEveryMethod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	files.add(n)
	n.simCall("AddIscsiTarget", fields{"iqn": "iqn.2026-01.example:target", "portals": []fields{{"address": portal["target_address"]}}})
	n.simCall("AddService", fields{"name": "plain"})
	for _, v := range versions {
		t.Run(v.String(), func(t *testing.T) {
			n := n.in(t)
			c := n.client(v)
			unused := v.service().Methods().Len()
			for _, u := range usesOf[v.group](n) {
				if !c.has(u.method) {
					continue
				}
				unused--
				if a := c.succeed(u.method, u.request); u.field != "" && a.text(u.field) != u.value {
					t.Errorf("%s: %s is %s, want %s", u.method, u.field, a.text(u.field), u.value)
				}
				request := u.request
				for name, value := range u.wrong {
					request = request.With(name, value)
				}
				if u.broken != "" {
					n.failNext(u.broken, errorAccessDenied)
					u.want = codes.PermissionDenied
				}
				c.fail(u.want, u.method, request)
			}
			if unused != 0 {
				t.Errorf("%d methods have no use", unused)
			}
		})
	}
}

// usesOf are the uses of the methods of a group. Each one needs those before.
var usesOf = map[string]func(n *node) []use{
	"disk": func(n *node) []use {
		number := n.attach(hardware{size: gib, page83: "Google  PersistentDisk  pvc-1"})
		n.t.Cleanup(func() { n.detach(number) })
		disk, none := fields{"disk": number}, fields{"disk": noDisk}
		const list = "CM_Get_Device_Interface_ListW"
		return []use{
			{method: "Rescan", broken: list},
			{method: "ListDiskLocations", broken: list},
			{method: "ListDiskIDs", broken: list},
			{"GetDiskNumberByName", fields{"disk_name": "Google  PersistentDisk  pvc-1"}, "disk", decimal(number),
				fields{"disk_name": "none"}, codes.NotFound, ""},
			{"PartitionDisk", disk, "", "", none, codes.NotFound, ""},
			{"SetDiskState", disk.With("online", true), "", "", none, codes.NotFound, ""},
			{"GetDiskState", disk, "online", "true", none, codes.NotFound, ""},
			{"GetDiskStats", disk, "total", "1073741824", none, codes.NotFound, ""},
		}
	},
	"volume": func(n *node) []use {
		const path = kubeletPath + `\mounted`
		number := n.attach(hardware{size: gib})
		n.t.Cleanup(func() { n.detach(number) })
		id := n.operator().rawVolume(number)
		volume, none := fields{"volume_id": id}, fields{"volume_id": noVolume}
		return []use{
			{"ListVolumesOnDisk", fields{"disk": number}, "", "", fields{"disk": noDisk}, codes.NotFound, ""},
			{"IsVolumeFormatted", volume, "formatted", "false", none, codes.NotFound, ""},
			{"FormatVolume", volume, "", "", none, codes.NotFound, ""},
			{"MountVolume", volume.With("path", path), "", "", none, codes.NotFound, ""},
			{"GetVolumeIDFromTargetPath", fields{"path": path}, "volume_id", id,
				fields{"path": kubeletPath}, codes.NotFound, ""},
			{"GetClosestVolumeIDFromTargetPath", fields{"path": path}, "volume_id", id,
				fields{"path": outside}, codes.InvalidArgument, ""},
			{"GetDiskNumberFromVolumeID", volume, "disk", decimal(number), none, codes.NotFound, ""},
			{"GetVolumeStats", volume, "", "", none, codes.NotFound, ""},
			{"ResizeVolume", volume, "", "", none, codes.NotFound, ""},
			{"WriteVolumeCache", volume, "", "", none, codes.NotFound, ""},
			{"UnmountVolume", volume.With("path", path), "", "", fields{"volume_id": "x"}, codes.InvalidArgument, ""},
		}
	},
	"filesystem": func(*node) []use {
		dir, link := fields{"path": kubeletPath + `\dir`}, fields{"path": kubeletPath + `\dir\link`}
		away := fields{"path": outside}
		return []use{
			{"Mkdir", dir, "", "", away, codes.InvalidArgument, ""},
			{"PathExists", dir, "exists", "true", away, codes.InvalidArgument, ""},
			{"CreateSymlink", fields{"source": dir["path"], "target": link["path"]}, "", "",
				fields{"target": outside}, codes.InvalidArgument, ""},
			{"IsSymlink", link, "isLink", "true", away, codes.InvalidArgument, ""},
			{"RmdirContents", dir, "", "", away, codes.InvalidArgument, ""},
			{"Rmdir", dir.With("force", true), "", "", away, codes.InvalidArgument, ""},
		}
	},
	"smb": func(*node) []use {
		wrong := fields{"remote_path": "x"}
		return []use{
			{"NewSmbGlobalMapping", files.mapping(files.path(), kubeletPath+`\share`), "", "", wrong, codes.InvalidArgument, ""},
			{"RemoveSmbGlobalMapping", fields{"remote_path": files.path()}, "", "", wrong, codes.InvalidArgument, ""},
		}
	},
	"iscsi": func(n *node) []use {
		at, nowhere := fields{"target_portal": portal}, fields{"target_portal": fields{}}
		target := at.With("iqn", "iqn.2026-01.example:target")
		return []use{
			{"AddTargetPortal", at, "", "", nowhere, codes.InvalidArgument, ""},
			{method: "ListTargetPortals", broken: "ReportIScsiSendTargetPortalsExW"},
			{"DiscoverTargetPortal", at, "", "", nowhere, codes.InvalidArgument, ""},
			{"SetMutualChapSecret", fields{"MutualChapSecret": newSecret(1)}, "", "",
				fields{"MutualChapSecret": "short"}, codes.InvalidArgument, ""},
			{"ConnectTarget", target, "", "", fields{"auth_type": oneWayCHAP + 7}, codes.InvalidArgument, ""},
			{"GetTargetDisks", target, "", "", nowhere, codes.InvalidArgument, ""},
			{"DisconnectTarget", target, "", "", nowhere, codes.InvalidArgument, ""},
			{"RemoveTargetPortal", at, "", "", nowhere, codes.InvalidArgument, ""},
		}
	},
	"system": func(*node) []use {
		service, none := fields{"name": "plain"}, fields{"name": "none"}
		return []use{
			{method: "GetBIOSSerialNumber", broken: "GetSystemFirmwareTable"},
			{"StartService", service, "", "", none, codes.NotFound, ""},
			{"GetService", service, "display_name", "plain", none, codes.NotFound, ""},
			{"StopService", service, "", "", none, codes.NotFound, ""},
		}
	},
}
