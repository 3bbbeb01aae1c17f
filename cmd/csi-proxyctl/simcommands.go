// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !windows || simulated

package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

func (p *program) sim() *cobra.Command {
	fail := p.simFault("fail", "Make calls to Windows fail",
		simFlag{field: "windows_error", name: "error",
			usage: "Windows error `number` with which the calls fail, such as 5 or 0x80310000", required: true})
	fail.Long = `Make calls to Windows fail. The daemon repeats most changes that Windows refuses, for up to 30
seconds: after a fault with a small --count, such a change succeeds, and sim rules list shows the
fault's hits.`
	return p.group("sim", "Control the simulated node that the daemon runs on",
		p.simDisk(),
		p.simVolume(),
		p.simProcess(),
		p.simFile(),
		p.simSMB(),
		p.simISCSI(),
		p.simService(),
		p.simBIOS(),
		fail,
		p.simFault("delay", "Make calls to Windows take longer",
			simFlag{field: "delay_ns", name: "duration", usage: "how much longer the calls take", required: true},
			simFlag{field: "uncancellable", name: "uncancellable",
				usage: "the calls go on after their caller's deadline, as most of Windows' calls do"}),
		p.group("rules", "Manage the rules that sim fail and sim delay have added",
			p.simLeaf("list", "List all rules, including those whose count is used up",
				simCall{method: "ListRules", show: showList("rules",
					simColumn{header: "CALL", field: "call"}, simColumn{header: "OBJECT", field: "object"},
					simColumn{header: "SKIP", field: "skip"},
					simColumn{header: "COUNT", text: ruleCount}, simColumn{header: "HITS", field: "hits"}, simColumn{header: "EFFECT", text: ruleEffect})}),
			p.simLeaf("clear", "End all rules", simCall{method: "ClearRules"}),
		),
		p.simCalls(),
		p.simLeaf("power-loss", "Cut the node's power, and start the node again", simCall{method: "PowerLoss"}),
		p.simLeaf("reboot", "Shut the node down and start it again", simCall{method: "Reboot"}),
	)
}

func (p *program) simDisk() *cobra.Command {
	attach := p.simLeaf("attach", "Attach a new disk, or a detached one by its serial number",
		simCall{method: "AttachDisk", flags: hardwareFlags(""), show: showField("disk_number")})
	attach.Long = `Attach a new disk, or a detached one by its serial number. Of a detached disk only --size, which may
be greater, the address, --location, --number, --late and --needs-rescan count. The number of the
disk is printed.`
	attach.MarkFlagsOneRequired("size", "serial")
	// The namespace says where the disk is.
	attach.MarkFlagsMutuallyExclusive("nvme-namespace", "adapter")
	attach.MarkFlagsMutuallyExclusive("nvme-namespace", "lun")
	clone := p.simLeaf("clone DISK", "Attach a new disk with the contents of another one, as from a snapshot",
		simCall{method: "CloneDisk", args: []string{"disk_number"}, flags: hardwareFlags("disk."),
			show: showField("disk_number")})
	clone.Long = `Attach a new disk with the contents that another one has now, and so with its ids, as a disk made
from a snapshot has them. Windows gives it new ids when it goes online beside the other one and is
writable, and keeps it offline if it is read-only. Its size is at least that of the other disk, and
its sector size the same. The number of the new disk is printed.`
	attach.Example = `  csi-proxyctl sim disk attach --size 10GiB --designator naa=600224801234 --designator "t10=Google  PersistentDisk  data"
  csi-proxyctl sim disk attach --size 10GiB --designator eui64=0025385b71b016aa --designator name=eui.0025385b71b016aa
  csi-proxyctl sim disk attach --size 10GiB --designator target:name=iqn.2026-01.com.example:disk --designator port:relative-port=1
  csi-proxyctl sim disk attach --size 10GiB --serial vol0abc --nvme --product "Amazon Elastic B"
  csi-proxyctl sim disk attach --size 10GiB --nvme-controller azure --nvme-namespace 3 --product "MSFT NVMe Accele"`
	clone.Example = `  csi-proxyctl sim disk clone 1 --serial vol0abc-copy`
	set := p.simLeaf("set DISK", "Take a disk offline or online, or make it read-only or writable",
		simCall{method: "SetDiskAttributes", args: []string{"disk_number"}, flags: []simFlag{
			{field: "offline", name: "offline", usage: "take the disk offline; =false brings it online"},
			{field: "read_only", name: "read-only", usage: "make the disk read-only; =false makes it writable"},
			{field: "persist", name: "persist", usage: "the change outlasts a restart of the node"},
			{field: "offline_reason", name: "reason",
				usage: "with --offline: Windows does it by itself, because of `this`: policy, redundant-path, snapshot, " +
					"collision, resource-exhaustion, write-failures, integrity-scan"},
		}})
	set.Long = `Take a disk offline or online, or make it read-only or writable. Only sim disk list shows the
--reason: Windows tells it by WMI (MSFT_Disk), which the daemon doesn't ask for disks.`
	set.MarkFlagsOneRequired("offline", "read-only")
	return p.group("disk", "Play the cloud: attach, clone, grow, detach, move and delete disks",
		attach, clone,
		p.simLeaf("grow DISK", "Give a disk more capacity",
			simCall{method: "GrowDisk", args: []string{"disk_number"}, flags: []simFlag{
				{field: "size_bytes", name: "size", usage: "new `size`", required: true},
			}}),
		set,
		p.simLeaf("detach DISK", "Detach a disk without warning; its data are kept until it is attached again by its "+
			"serial number",
			simCall{method: "DetachDisk", args: []string{"disk_number"}}),
		p.simLeaf("delete SERIAL", "Delete a detached disk and its data",
			simCall{method: "DeleteDisk", args: []string{"serial_number"}}),
		p.simLeaf("take SERIAL FILE", "Move a detached disk to a new file of this machine, for another node",
			simCall{method: "TakeDisk", args: []string{"serial_number", "file"}}),
		p.simLeaf("give FILE", "Give the node, detached, the disk that another one had",
			simCall{method: "GiveDisk", args: []string{"file"}}),
		p.simLeaf("list", "List all disks, including detached ones", simCall{method: "ListDisks", show: showList("disks",
			simColumn{header: "DISK", field: "disk_number"}, simColumn{header: "STATE", field: "state"},
			simColumn{header: "SIZE", field: "size_bytes"}, simColumn{header: "SEEN", field: "seen_bytes"},
			simColumn{header: "ONLINE", text: func(m protoreflect.Message) string {
				text := fieldText(m, "!offline")
				if reason := fieldText(m, "offline_reason"); reason != "" {
					text += " (" + reason + ")"
				}
				return text
			}},
			simColumn{header: "WRITABLE", field: "!read_only"}, simColumn{header: "ADAPTER", field: "address.adapter"},
			simColumn{header: "BUS", field: "address.bus"}, simColumn{header: "TARGET", field: "address.target"},
			simColumn{header: "LUN", field: "address.lun"}, simColumn{header: "SERIAL NUMBER", field: "serial_number"})}),
		p.simLeaf("export DISK FILE", "Write a disk as a sparse raw image to a new file of this machine",
			simCall{method: "ExportDisk", args: []string{"disk_number", "file"}}),
	)
}

// hardwareFlags are the flags of the message DiskHardware, which is the field with the
// prefix in a request. Those whose names are given are left out.
func hardwareFlags(prefix string, without ...string) []simFlag {
	flags := []simFlag{
		{field: "size_bytes", name: "size", usage: "`size` of the disk; not needed for a detached disk"},
		{field: "sector_size", name: "sector-size", usage: "size of a logical sector in `bytes`: 512 or 4096", value: "512"},
		{field: "serial_number", name: "serial", usage: "serial number; generated if empty"},
		{field: "page83", name: "page83", usage: "identifier of vital product data page 0x83; generated if empty"},
		{field: "designators", name: "designator",
			usage: "a designator of page 0x83, in the place of --page83; may be given several times: naa, eui64 or md5 with " +
				"hexadecimal digits, t10, vendor or name with a text, relative-port or port-group with a number; port: or " +
				"target: before it says that it isn't of the disk itself"},
		{field: "vendor", name: "vendor", usage: "vendor; if empty, Msft or NVMe"},
		{field: "product", name: "product", usage: "product; if empty, Virtual Disk or Simulated Disk"},
		{field: "revision", name: "revision", usage: "revision of the product; if empty, 1.0"},
		{field: "location", name: "location", usage: "Windows' `text` for where the disk is; generated if empty"},
		{field: "address.adapter", name: "adapter",
			usage: "`number` of the adapter; if no part of the address is given, the next free address is used", value: "1"},
		{field: "address.bus", name: "bus", usage: "`number` of the SCSI bus"},
		{field: "address.target", name: "target", usage: "`number` of the SCSI target"},
		{field: "address.lun", name: "lun", usage: "`number` of the SCSI logical unit"},
		{field: "nvme", name: "nvme", usage: "the disk is a namespace of an NVMe controller; so it is with any of the " +
			"following flags"},
		{field: "nvme.namespace_id", name: "nvme-namespace", usage: "`id` of the namespace", value: "1"},
		{field: "nvme.controller_serial_number", name: "nvme-controller",
			usage: "`serial` number of the controller; if empty, that of the disk"},
		{field: "nvme.eui64", name: "nvme-eui64",
			usage: "EUI-64 of the namespace, 16 `digits`; without, the controller gives none"},
		{field: "nvme.nguid", name: "nvme-nguid",
			usage: "NGUID of the namespace, 32 `digits`; without, the controller gives none"},
		{field: "offline", name: "offline", usage: "the disk arrives offline, as shared disks do"},
		{field: "read_only", name: "read-only", usage: "the disk arrives read-only"},
		{field: "needs_rescan", name: "needs-rescan",
			usage: "Windows sees the disk only after a rescan; it has its number before"},
		{field: "disk_number", name: "number",
			usage: "disk `number` that Windows gives to the disk, if it is free; without, the lowest one that is"},
		{field: "late_ns", name: "late", usage: "how much later than others the disk arrives"},
	}
	for i := range flags {
		flags[i].field = prefix + flags[i].field
	}
	return slices.DeleteFunc(flags, func(f simFlag) bool { return slices.Contains(without, f.name) })
}

// designatorKinds are the types of designators, in the order of SPC's numbers.
var designatorKinds = []string{"vendor", "t10", "eui64", "naa", "relative-port", "port-group", "unit-group", "md5",
	"name"}

// parseDesignator reads a designator, as [port:|target:]KIND=VALUE.
func parseDesignator(d protoreflect.Message, s string) error {
	kind, value, ok := strings.Cut(s, "=")
	association := 0
	for i, prefix := range []string{"port:", "target:"} {
		if rest, found := strings.CutPrefix(kind, prefix); found {
			kind, association = rest, i+1
		}
	}
	number := slices.Index(designatorKinds, kind)
	if !ok || number < 0 {
		return fmt.Errorf("must be KIND=VALUE, where KIND is %s; with port: or target: before it if it isn't of the disk "+
			"itself", strings.Join(designatorKinds, ", "))
	}
	const binary, ascii, utf8 = 1, 2, 3
	codeSet, id := binary, []byte(nil)
	switch kind {
	case "vendor", "t10":
		codeSet, id = ascii, []byte(value)
	case "name":
		codeSet, id = utf8, []byte(value)
	case "eui64", "naa", "md5":
		var err error
		if id, err = hex.DecodeString(value); err != nil || len(id) == 0 {
			return fmt.Errorf("the value of %s must be hexadecimal digits, two for each byte", kind)
		}
	default: // a number of two bytes, behind two that are reserved
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return fmt.Errorf("the value of %s must be a number below 65536", kind)
		}
		id = []byte{0, 0, byte(n >> 8), byte(n)}
	}
	for field, n := range map[string]int{"code_set": codeSet, "type": number, "association": association} {
		d.Set(fieldOf(d.Descriptor(), field), protoreflect.ValueOfUint32(uint32(n)))
	}
	d.Set(fieldOf(d.Descriptor(), "id"), protoreflect.ValueOfBytes(id))
	return nil
}

func (p *program) simVolume() *cobra.Command {
	set := p.simLeaf("set VOLUME", "Change the state of a volume",
		simCall{method: "SetVolume", args: []string{"volume"}, flags: []simFlag{
			{field: "dirty", name: "dirty", usage: "Windows wants to check the file system; =false takes that back"},
			{field: "read_only", name: "read-only",
				usage: "the volume is read-only, by an attribute of its GPT partition; =false makes it writable"},
			{field: "bitlocker_locked", name: "bitlocker", usage: "BitLocker has locked the volume; =false unlocks it"},
			{field: "letter", name: "letter",
				usage: "drive `letter` of the volume, such as D, as -protected-volume may name it; empty removes it"},
			{field: "damage", name: "damage", usage: "what is wrong with the file system, of this `kind`: none; spot, which " +
				"a scan finds and a spot fix repairs; or offline, which only an offline repair does"},
		}})
	set.Long = `Change the state of a volume. VOLUME is its id, or where it is mounted: a drive such as D:\, or a
directory. What isn't given stays as it is.`
	set.MarkFlagsOneRequired("dirty", "read-only", "bitlocker", "letter", "damage")
	ofFileSystem := func(field string) func(protoreflect.Message) string {
		return func(m protoreflect.Message) string {
			if fieldText(m, "file_system") == "" {
				return ""
			}
			return fieldText(m, field)
		}
	}
	return p.group("volume", "Damage volumes, make them dirty or read-only, and list them", set,
		p.simLeaf("list", "List the volumes that are present", simCall{method: "ListVolumes", show: showList("volumes",
			simColumn{header: "VOLUME", field: "volume_id"}, simColumn{header: "DISK", field: "disk_number"},
			simColumn{header: "FILE SYSTEM", field: "file_system"},
			simColumn{header: "SIZE", text: ofFileSystem("total_bytes")},
			simColumn{header: "FREE", text: ofFileSystem("free_bytes")},
			simColumn{header: "STATE", text: volumeStates}, simColumn{header: "MOUNTED AT", field: "paths"})}),
	)
}

func volumeStates(m protoreflect.Message) string {
	var states []string
	for _, s := range [][2]string{{"offline", "offline"}, {"read_only", "read-only"},
		{"bitlocker_locked", "locked by BitLocker"}, {"dirty", "dirty"}} {
		if fieldText(m, s[0]) == "yes" {
			states = append(states, s[1])
		}
	}
	if damage := fieldText(m, "damage"); damage != "" && damage != "none" {
		states = append(states, "damage: "+damage)
	}
	return strings.Join(states, ", ")
}

func (p *program) simProcess() *cobra.Command {
	start := p.simLeaf("start PATH...", "Start a process that keeps files, directories or volumes open", simCall{
		method: "StartProcess", args: []string{"paths"}, show: showField("process_id"),
		flags: []simFlag{{field: "program", name: "program", usage: "`path` of the program, which needn't exist", value: `C:\app\app.exe`}},
	})
	start.Long = `Start a process that keeps files, directories or volumes open for reading, until it is ended or the
node restarts. PATH is a file or directory, or the id of a volume without the backslash at its end.
The process survives a restart of the daemon. Its id is printed.`
	return p.group("process", "Start and end processes that keep files and volumes open", start,
		p.simLeaf("end ID", "End a process", simCall{method: "EndProcess", args: []string{"process_id"}}),
		p.simLeaf("list", "List the processes that were started", simCall{method: "ListProcesses", show: showList("processes",
			simColumn{header: "PROCESS", field: "process_id"}, simColumn{header: "PROGRAM", field: "program"},
			simColumn{header: "KEEPS OPEN", field: "paths"})}),
	)
}

func (p *program) simFile() *cobra.Command {
	return p.group("file", "Play a pod: use files by their paths on the node",
		p.simLeaf("write PATH", "Write a file", simCall{method: "WriteFile", args: []string{"path"}, flags: []simFlag{
			{field: "data", name: "text", usage: "contents of the file", required: true},
			{field: "user", name: "user", usage: "`who` writes: ContainerUser or ContainerAdministrator; by default SYSTEM"},
		}}),
		p.simLeaf("read PATH", "Print the contents of a file, unchanged in both output formats",
			simCall{method: "ReadFile", args: []string{"path"},
				show: func(m protoreflect.Message) reply {
					return reply{raw: append([]byte{}, m.Get(fieldOf(m.Descriptor(), "data")).Bytes()...)}
				}}),
		p.simLeaf("ls PATH", "List a directory",
			simCall{method: "ListDirectory", args: []string{"path"}, show: showList("entries",
				simColumn{header: "NAME", field: "name"}, simColumn{header: "KIND", text: func(m protoreflect.Message) string {
					kind := map[string]string{"yes": "directory", "no": "file"}[fieldText(m, "directory")]
					if fieldText(m, "reparse") == "yes" {
						kind += " link"
					}
					return kind
				}})}),
		p.simLeaf("mkdir PATH", "Make a directory and the missing ones above it",
			simCall{method: "MakeDirectory", args: []string{"path"}}),
		p.simLeaf("rm PATH", "Delete a file, an empty directory, or a link but not its target",
			simCall{method: "Remove", args: []string{"path"}}),
		p.simLeaf("symlink SOURCE TARGET", "Make the symbolic link TARGET, which leads to SOURCE", simCall{
			method: "CreateSymlink", args: []string{"source_path", "target_path"},
			flags: []simFlag{{field: "file", name: "file",
				usage: "SOURCE is a file: Windows distinguishes links to files and to directories"}},
		}),
		p.simLeaf("readlink PATH", "Show the target of a link or mount point",
			simCall{method: "ReadLink", args: []string{"path"}, show: showField("target")}),
	)
}

func (p *program) simSMB() *cobra.Command {
	share := []string{"server", "name"}
	user := p.simLeaf("set SERVER USER", "Add a user, or change the user's password",
		simCall{method: "SetSmbUser", args: []string{"server", "user"}, flags: []simFlag{
			{field: "password", name: "password-file", usage: "the user's password", secret: true, required: true},
		}})
	user.Long = `Add a user to a server, or change the user's password. Mappings with the old password fail at
their next use. USER must be the name that mappings use, with or without a domain.

` + secretHelp
	return p.group("smb", `Control SMB servers, whose files have the paths \\SERVER\SHARE\…`,
		p.simLeaf("list", "List the servers with their shares and users",
			simCall{method: "ListSmbServers", show: showList("servers",
				simColumn{header: "SERVER", field: "name"}, simColumn{header: "REACHABLE", field: "!unreachable"},
				simColumn{header: "CAN ENCRYPT", field: "!no_encryption"}, simColumn{header: "SHARES", field: "shares"},
				simColumn{header: "USERS", field: "users"})}),
		p.group("share", "Add, grow and remove shares",
			p.simLeaf("add SERVER SHARE", "Add an empty share, and its server if there is none",
				simCall{method: "AddSmbShare", args: share, flags: []simFlag{
					{field: "users", name: "user", usage: "only this `user` may connect; may be given several times"},
					{field: "size_bytes", name: "size", usage: "`size` of the share; 0 for 1 TiB"},
					{field: "read_only", name: "read-only", usage: "the server lets nobody write"},
				}}),
			p.simLeaf("grow SERVER SHARE", "Make a share larger", simCall{method: "GrowSmbShare", args: share, flags: []simFlag{
				{field: "size_bytes", name: "size", usage: "new `size`", required: true},
			}}),
			p.simLeaf("remove SERVER SHARE", "Remove a share with its files", simCall{method: "RemoveSmbShare", args: share}),
		),
		p.group("user", "Set and remove users, who have one password for all shares of a server", user,
			p.simLeaf("remove SERVER USER", "Remove a user", simCall{method: "RemoveSmbUser", args: []string{"server", "user"}}),
		),
		p.group("server", "Make servers unreachable and reachable again",
			p.simLeaf("set SERVER", "Set the state of a server; without flags, it works",
				simCall{method: "SetSmbServer", args: []string{"name"}, flags: []simFlag{
					{field: "unreachable", name: "unreachable", usage: "the server doesn't answer"},
					{field: "no_encryption", name: "no-encryption", usage: "the server can't encrypt connections"},
					{field: "knows_node", name: "knows-node", usage: "the server is in the node's domain, so a mapping without a user works"},
				}}),
		),
	)
}

func (p *program) simISCSI() *cobra.Command {
	target := p.simLeaf("add IQN", "Add a target without disks to the network",
		simCall{method: "AddIscsiTarget", args: []string{"iqn"}, flags: []simFlag{
			{field: "portals", name: "portal",
				usage: "`portal` that offers the target: ADDRESS or ADDRESS:PORT; may be given several times", required: true},
			{field: "chap_user", name: "chap-user", usage: "`name` of the CHAP user"},
			{field: "chap_secret", name: "chap-secret-file", usage: "the secret of the CHAP user, of 12 to 16 bytes",
				secret: true},
			{field: "mutual_chap_secret", name: "mutual-chap-secret-file",
				usage: "the secret with which the target proves its identity, of 12 to 16 bytes", secret: true},
		}})
	target.Long = `Add a target without disks to the network; sim iscsi lun add adds disks to it. With
--chap-user, the target requires CHAP with that name and secret. With
--mutual-chap-secret-file, the target can also prove its identity to the node.

` + secretHelp
	target.MarkFlagsRequiredTogether("chap-user", "chap-secret-file")
	lun := p.simLeaf("add IQN", "Add a new disk to a target, or a detached one by its serial number", simCall{
		method: "AddIscsiLun", args: []string{"iqn"},
		flags: hardwareFlags("lun.", "adapter", "bus", "target", "lun", "nvme", "nvme-namespace", "nvme-controller",
			"nvme-eui64", "nvme-nguid"),
	})
	lun.MarkFlagsOneRequired("size", "serial")
	return p.group("iscsi", "Control the iSCSI targets on the node's network",
		p.group("target", "Add, remove and list targets", target,
			p.simLeaf("remove IQN", "Remove a target; its disks become detached disks",
				simCall{method: "RemoveIscsiTarget", args: []string{"iqn"}}),
			p.simLeaf("list", "List the targets", simCall{method: "ListIscsiTargets", show: showList("targets",
				simColumn{header: "TARGET", field: "iqn"}, simColumn{header: "PORTALS", field: "portals"},
				simColumn{header: "CHAP USER", field: "chap_user"}, simColumn{header: "LUNS", field: "luns"})}),
		),
		p.group("lun", "Add disks to targets", lun),
		p.group("portal", "Make portals unreachable and reachable again",
			p.simLeaf("set PORTAL", "Set the state of a portal; without flags, it works",
				simCall{method: "SetIscsiPortal", args: []string{"portal"}, flags: []simFlag{
					{field: "!reachable", name: "unreachable", usage: "the portal doesn't answer, and sessions over it have no disks",
						value: "false"},
				}}),
			p.simLeaf("list", "List the portals, including those without a target",
				simCall{method: "ListIscsiTargets", show: showList("portals",
					simColumn{header: "PORTAL", field: "portal"}, simColumn{header: "REACHABLE", field: "reachable"})}),
		),
	)
}

const portalName = "csiproxy.sim.v1.IscsiPortal"

// parseSimPortal reads a portal from the command line.
func parseSimPortal(m protoreflect.Message, text string) error {
	portal, err := parsePortal(text)
	m.Set(fieldOf(m.Descriptor(), "address"), protoreflect.ValueOfString(portal.Address))
	m.Set(fieldOf(m.Descriptor(), "port"), protoreflect.ValueOfUint32(uint32(portal.Port)))
	return err
}

func simPortalText(m protoreflect.Message) string {
	return net.JoinHostPort(fieldText(m, "address"), fieldText(m, "port"))
}

func (p *program) simService() *cobra.Command {
	return p.group("service", "Add, remove and list Windows services",
		p.simLeaf("add NAME", "Add a service", simCall{method: "AddService", args: []string{"name"}, flags: []simFlag{
			{field: "display_name", name: "display-name", usage: "display `name`; if empty, the name of the service"},
			{field: "start_type", name: "start", usage: "`when` it starts: automatic, with the node; manual; or disabled, never",
				value: "manual"},
			{field: "depends_on", name: "depends-on",
				usage: "`service` that must run before this one starts; may be given several times"},
			{field: "running", name: "running", usage: "the service is running"},
			{field: "start_error", name: "start-error",
				usage: "Windows error `number` with which its start fails, such as 1053 or 1066; 0 for a service that can start"},
		}}),
		p.simLeaf("remove NAME", "Remove a service in any state", simCall{method: "RemoveService", args: []string{"name"}}),
		p.simLeaf("list", "List the services", simCall{method: "ListServices", show: showList("services",
			simColumn{header: "SERVICE", field: "name"}, simColumn{header: "START", field: "start_type"},
			simColumn{header: "RUNNING", field: "running"},
			simColumn{header: "DEPENDS ON", field: "depends_on"},
			simColumn{header: "START ERROR", text: func(
				m protoreflect.Message) string {
				return strings.TrimPrefix(fieldText(m, "start_error"), "0")
			}},
			simColumn{header: "DISPLAY NAME", field: "display_name"})}),
	)
}

func (p *program) simBIOS() *cobra.Command {
	cmd := p.simLeaf("bios SERIAL", "Change the serial number in the machine's firmware",
		simCall{method: "SetBiosSerial", args: []string{"serial_number"}})
	cmd.Long = `Change the serial number in the machine's firmware: up to 64 printable ASCII characters, or ''
for a firmware that has none.`
	return cmd
}

// simFault is a command that adds a rule.
func (p *program) simFault(use, short string, effect ...simFlag) *cobra.Command {
	cmd := p.simLeaf(use, short, simCall{method: "AddRule", flags: append([]simFlag{
		{field: "call", name: "call", usage: "`name` of the call; csi-proxyctl sim calls --all lists the names",
			required: true},
		{field: "object", name: "object", usage: "only for calls on this object: `part` of a path or device name, such " +
			"as PhysicalDrive1"},
		{field: "skip", name: "skip", usage: "skip this many calls first"},
		{field: "count", name: "count", usage: "apply to this many calls; 0 for all until sim rules clear"},
	}, effect...)})
	complete(cmd, "call", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completions(cmd, func(ctx context.Context) ([]cobra.Completion, error) {
			counts, err := p.callCounts(ctx)
			return slices.Sorted(maps.Keys(counts)), err
		})
	})
	return cmd
}

func ruleCount(m protoreflect.Message) string {
	if count := fieldText(m, "count"); count != "0" {
		return count
	}
	return "all"
}

func ruleEffect(m protoreflect.Message) string {
	delay := fieldText(m, "delay_ns")
	switch {
	case delay == "":
		return "fails with " + fieldText(m, "windows_error")
	case fieldText(m, "uncancellable") == "yes":
		return "takes " + delay + " longer, even if its caller gives up"
	}
	return "takes " + delay + " longer"
}

func (p *program) simCalls() *cobra.Command {
	type callJSON struct {
		Call  string `json:"call"`
		Count int64  `json:"count"`
	}
	var all bool
	cmd := p.leaf("calls", "List how often each call to Windows was made",
		func(ctx context.Context, _ []string) (reply, error) {
			counts, err := p.callCounts(ctx)
			r := reply{header: []string{"CALL", "COUNT"}}
			list := []callJSON{}
			for _, name := range slices.Sorted(maps.Keys(counts)) {
				if counts[name] > 0 || all {
					list = append(list, callJSON{name, counts[name]})
					r.rows = append(r.rows, []string{name, strconv.FormatInt(counts[name], 10)})
				}
			}
			r.json = list
			return r, err
		})
	cmd.Flags().BoolVar(&all, "all", false, "also list calls that were never made")
	return cmd
}

// callCounts returns how often each call to Windows was made.
func (p *program) callCounts(ctx context.Context) (map[string]int64, error) {
	var response simv1.ListCallsResponse
	err := p.callSim(ctx, "ListCalls", &simv1.Empty{}, &response)
	return response.Counts, err
}

// simExamples is more of examples.
const simExamples = `sim delay --call CreateFileW --duration 5s --count 1
sim disk grow 2 --size 20GiB
sim disk set 2 --offline --reason write-failures
sim fail --call GetDiskFreeSpaceExW --error 1117
sim file write C:\data\a.txt --text hello --user ContainerUser
sim iscsi lun add iqn.2026-01.com.example:disk --size 10GiB
sim iscsi portal set 192.0.2.1 --unreachable
sim iscsi target add iqn.2026-01.com.example:a --portal 192.0.2.1
sim service add example --start automatic --running
sim smb server set files --unreachable
sim smb share add files data --size 100GiB
sim smb share grow files data --size 200GiB
sim smb user set files pods --password-file -
sim volume set C:\var\lib\kubelet\pv --dirty
`
