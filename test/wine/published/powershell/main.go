// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command powershell stands in for PowerShell under the published tests: it knows the commands and scripts that
// these run, and those of package node beside it, and carries them out on the simulated node. It uses the node's
// control, and so checks what the daemon has done without asking the daemon. Only to make a partition, stop a service
// or forget a portal, for which the control has no call, does it ask the daemon.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "powershell:", err)
		os.Exit(1)
	}
	fmt.Print(out)
}

func run(ctx context.Context, args []string) (string, error) {
	if len(args) != 2 {
		return "", fmt.Errorf("%q: must be /c COMMAND or -File SCRIPT", args)
	}
	text := args[1]
	if args[0] == "-File" {
		script, err := os.ReadFile(text)
		if err != nil {
			return "", err
		}
		text = string(script)
	}
	text = strings.TrimPrefix(text, "& { $global:ProgressPreference = 'SilentlyContinue'; ")
	text = strings.TrimSuffix(text, " }")

	conn, err := grpc.NewClient("passthrough:///"+simv1.EndpointName, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, name string) (net.Conn, error) {
			return pipe.Dial(ctx, pipe.Address(pipe.DefaultDir(), name))
		}))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	n := &node{ctx: ctx, conn: conn, daemon: client.New()}
	defer n.daemon.Close()
	for _, c := range commands {
		if values := c.text.FindStringSubmatch(text); values != nil {
			for i, value := range values {
				if name, ok := strings.CutPrefix(value, "$Env:"); ok {
					values[i] = os.Getenv(name)
				}
			}
			out := c.do(n, values[1:])
			return out, n.err
		}
	}
	return "", fmt.Errorf("no stand-in for %q", text)
}

// node is the simulated node. Once a call has failed, further ones do nothing.
type node struct {
	ctx    context.Context
	conn   *grpc.ClientConn
	daemon *client.Client
	err    error
}

// call calls a method of the node's control. If the call fails, the response is empty.
func call[Response any, Message interface {
	*Response
	proto.Message
}](n *node, method string, request proto.Message) Message {
	if n.err == nil {
		var response Message
		if response, n.err = simv1.Call[Response, Message](n.ctx, n.conn, method, request); n.err == nil {
			return response
		}
	}
	return new(Response)
}

func (n *node) do(method string, request proto.Message) { call[simv1.Empty](n, method, request) }

// try does what isn't a call of the control.
func (n *node) try(do func() error) {
	if n.err == nil {
		n.err = do()
	}
}

// disk returns the attached disk with a number, or the one that is a VHD.
func (n *node) disk(is func(*simv1.Disk) bool) *simv1.Disk {
	disks := call[simv1.ListDisksResponse](n, "ListDisks", &simv1.Empty{}).Disks
	i := slices.IndexFunc(disks, func(d *simv1.Disk) bool { return d.DiskNumber != nil && is(d) })
	if i < 0 {
		n.err = cmp.Or(n.err, errors.New("there is no such disk"))
		return &simv1.Disk{}
	}
	return disks[i]
}

func (n *node) numbered(number string) *simv1.Disk {
	return n.disk(func(d *simv1.Disk) bool { return fmt.Sprint(d.GetDiskNumber()) == number })
}

func (n *node) vhd(path string) *simv1.Disk {
	return n.disk(func(d *simv1.Disk) bool { return d.SerialNumber == serialNumber(path) })
}

// serialNumber is that of the disk while a VHD is mounted.
func serialNumber(vhd string) string {
	h := fnv.New64a()
	h.Write([]byte(vhd))
	return fmt.Sprintf("vhd-%016x", h.Sum64())
}

func (n *node) integer(text string) int64 {
	i, err := strconv.ParseInt(text, 10, 64)
	n.err = cmp.Or(n.err, err)
	return i
}

// exists follows links.
func (n *node) exists(path string) bool {
	_, err := simv1.Call[simv1.ListDirectoryResponse](n.ctx, n.conn, "ListDirectory", &simv1.Path{Path: path})
	if err != nil && status.Code(err) != codes.NotFound { // it may be a file
		_, err = simv1.Call[simv1.Data](n.ctx, n.conn, "ReadFile", &simv1.Path{Path: path})
	}
	if err != nil && status.Code(err) != codes.NotFound {
		n.err = err
	}
	return err == nil
}

// removeAll removes links, and not what they lead to.
func (n *node) removeAll(path string) {
	for _, e := range call[simv1.ListDirectoryResponse](n, "ListDirectory", &simv1.Path{Path: path}).Entries {
		if below := path + `\` + e.Name; e.Directory && !e.Reparse {
			n.removeAll(below)
		} else {
			n.do("Remove", &simv1.Path{Path: below})
		}
	}
	n.do("Remove", &simv1.Path{Path: path})
}

func (n *node) service(name string) *simv1.WindowsService {
	services := call[simv1.ListServicesResponse](n, "ListServices", &simv1.Empty{}).Services
	i := slices.IndexFunc(services, func(s *simv1.WindowsService) bool { return strings.EqualFold(s.Name, name) })
	if i < 0 {
		n.err = cmp.Or(n.err, fmt.Errorf("there is no service %s", name))
		return &simv1.WindowsService{}
	}
	return services[i]
}

func (n *node) stop(service string) {
	n.try(func() error { return n.daemon.System.StopService(n.ctx, service, false) })
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		panic(err)
	}
	return name
}

// localUser is how the tests name a user of this machine when they map a share.
func localUser(name string) string { return `domain\` + name }

// userFile keeps the password of a user until there is a share, and so a server.
func userFile(name string) string { return filepath.Join(os.TempDir(), "user-"+name) }

// target reads what setTarget has kept, since the node's control doesn't tell secrets.
func (n *node) target(name string) *simv1.IscsiTarget {
	target := &simv1.IscsiTarget{}
	n.try(func() error {
		kept, err := os.ReadFile(targetFile(name))
		return cmp.Or(err, proto.Unmarshal(kept, target))
	})
	return target
}

func targetFile(name string) string { return filepath.Join(os.TempDir(), "target-"+name) }

// setTarget puts a target on the network in the place of the one that is there.
func (n *node) setTarget(name string, target *simv1.IscsiTarget) {
	n.do("AddIscsiTarget", target)
	n.try(func() error {
		kept, err := proto.Marshal(target)
		return cmp.Or(err, os.WriteFile(targetFile(name), kept, 0o600))
	})
}

type command struct {
	text *regexp.Regexp
	do   func(n *node, v []string) string
}

func says(pattern string, do func(n *node, v []string) string) command {
	return command{regexp.MustCompile(`^(?:` + pattern + `)$`), do}
}

func does(pattern string, do func(n *node, v []string)) command {
	return says(pattern, func(n *node, v []string) string {
		do(n, v)
		return ""
	})
}

// truth is how PowerShell writes a bool.
func truth(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// Prefixes of iSCSI scripts, whose parentheses are what is put into them.
const (
	script     = `(?s)\s*\$ErrorActionPreference = "Stop".*`
	targetName = script + `\$targetName = "([^"]*)".*`
)

const portal = "192.0.2.1"

// commands are what the tests run. The function gets what is in the parentheses of the pattern, and for $Env:name the
// value.
var commands = []command{
	says(`hostname`, func(n *node, v []string) string { return hostname() }),
	says(`Test-Path (\S+)`, func(n *node, v []string) string { return truth(n.exists(v[0])) }),
	does(`mkdir (\S+)`, func(n *node, v []string) { n.do("MakeDirectory", &simv1.Path{Path: v[0]}) }),
	does(`(?:rm|rmdir) (\S+)`, func(n *node, v []string) { n.do("Remove", &simv1.Path{Path: strings.TrimSuffix(v[0], `\`)}) }),
	does(`rm -Recurse (\S+)`, func(n *node, v []string) { n.removeAll(v[0]) }),
	does(`New-Item -ItemType SymbolicLink -Path (\S+) -Target (\S+)`, func(n *node, v []string) {
		_, err := simv1.Call[simv1.ListDirectoryResponse](n.ctx, n.conn, "ListDirectory", &simv1.Path{Path: v[1]})
		n.do("CreateSymlink", &simv1.CreateSymlinkRequest{SourcePath: v[1], TargetPath: v[0], File: err != nil})
	}),
	says(`Get-ChildItem -Path (\S+) -Name`, func(n *node, v []string) (names string) {
		for _, e := range call[simv1.ListDirectoryResponse](n, "ListDirectory", &simv1.Path{Path: v[0]}).Entries {
			names += e.Name + "\n"
		}
		return names
	}),
	says(`Get-Content -Path (\S+) -Raw`, func(n *node, v []string) string {
		return string(call[simv1.Data](n, "ReadFile", &simv1.Path{Path: v[0]}).Data)
	}),
	does(`Set-Content -Path (\S+) -Value (\S+) -NoNewline`, func(n *node, v []string) {
		n.do("WriteFile", &simv1.WriteFileRequest{Path: v[0], Data: []byte(v[1])})
	}),

	// The file of a VHD holds its size.
	does(`New-VHD -Path (\S+) -SizeBytes (\d+)`, func(n *node, v []string) {
		n.do("WriteFile", &simv1.WriteFileRequest{Path: v[0], Data: []byte(v[1])})
	}),
	does(`Mount-VHD -Path (\S+)`, func(n *node, v []string) {
		size := n.integer(string(call[simv1.Data](n, "ReadFile", &simv1.Path{Path: v[0]}).Data))
		call[simv1.DiskNumber](n, "AttachDisk", &simv1.DiskHardware{SerialNumber: serialNumber(v[0]), SizeBytes: size})
	}),
	says(`\(Get-VHD -Path (\S+)\)\.DiskNumber`, func(n *node, v []string) string { return fmt.Sprint(n.vhd(v[0]).GetDiskNumber()) }),
	does(`Resize-VHD -Path (\S+) -SizeBytes (\d+)`, func(n *node, v []string) {
		n.do("GrowDisk", &simv1.GrowDiskRequest{DiskNumber: n.vhd(v[0]).GetDiskNumber(), SizeBytes: n.integer(v[1])})
	}),
	does(`Dismount-VHD -Path (\S+)`, func(n *node, v []string) {
		n.do("DetachDisk", &simv1.DiskNumber{DiskNumber: n.vhd(v[0]).DiskNumber})
	}),
	// The partition comes with the partition table.
	does(`Initialize-Disk -Number (\d+) -PartitionStyle GPT`, func(n *node, v []string) { n.numbered(v[0]) }),
	does(`New-Partition -DiskNumber (\d+) -UseMaximumSize`, func(n *node, v []string) {
		number := csiproxy.DiskNumber(n.numbered(v[0]).GetDiskNumber())
		n.try(func() error { return n.daemon.Disk.PartitionDisk(n.ctx, number) })
	}),
	does(`Get-Disk -Number (\d+) \| Set-Disk -IsOffline \$true`, func(n *node, v []string) {
		n.do("SetDiskAttributes", &simv1.SetDiskAttributesRequest{DiskNumber: n.numbered(v[0]).GetDiskNumber(), Offline: proto.Bool(true)})
	}),
	says(`Get-Disk -Number (\d+) \| Select-Object -ExpandProperty IsOffline`, func(n *node, v []string) string {
		return truth(n.numbered(v[0]).Offline)
	}),
	says(`\(Get-Partition -DriveLetter C \| Get-Volume\)\.UniqueId`, func(n *node, v []string) string {
		for _, volume := range call[simv1.ListVolumesResponse](n, "ListVolumes", &simv1.Empty{}).Volumes {
			if slices.Contains(volume.Paths, `C:\`) {
				return volume.VolumeId
			}
		}
		return ""
	}),

	says(`\(Get-CimInstance -ClassName Win32_BIOS\)\.SerialNumber`, func(n *node, v []string) string { return os.Getenv("BIOS_SERIAL") }),
	does(`Stop-Service -Name "(\S+)"`, func(n *node, v []string) { n.stop(v[0]) }),
	says(`Get-Service -Name "(\S+)" \| Select-Object -ExpandProperty Status`, func(n *node, v []string) string {
		if n.service(v[0]).Running {
			return "Running"
		}
		return "Stopped"
	}),
	says(`Get-Service -Name "(\S+)" \| Select-Object DisplayName, Status, StartType \| ConvertTo-Json`, func(n *node, v []string) string {
		s, state := n.service(v[0]), 1
		if s.Running {
			state = 4
		}
		return fmt.Sprintf(`{"DisplayName": %q, "Status": %d, "StartType": %d}`, s.DisplayName, state, s.GetStartType())
	}),

	does(`\$PWord = ConvertTo-SecureString (\S+) -AsPlainText -Force;New-Localuser -name (\S+) -accountneverexpires -password \$PWord`,
		func(n *node, v []string) {
			n.try(func() error { return os.WriteFile(userFile(v[1]), []byte(v[0]), 0o600) })
		}),
	does(`New-SMBShare -Name (\S+) -Path \S+ -fullaccess (\S+)`, func(n *node, v []string) {
		password := ""
		n.try(func() error {
			text, err := os.ReadFile(userFile(v[1]))
			password = string(text)
			return err
		})
		n.do("AddSmbShare", &simv1.SmbShare{Server: hostname(), Name: v[0], Users: []string{localUser(v[1])}})
		n.do("SetSmbUser", &simv1.SmbUser{Server: hostname(), User: localUser(v[1]), Password: password})
	}),
	says(`\(Get-SmbGlobalMapping -RemotePath (\S+)\)\.Status`, func(n *node, v []string) string {
		// A share has files only while it is mapped.
		call[simv1.ListDirectoryResponse](n, "ListDirectory", &simv1.Path{Path: v[0]})
		return "OK"
	}),
	does(`Remove-SMBShare -Name (\S+) -Force`, func(n *node, v []string) {
		n.do("RemoveSmbShare", &simv1.SmbShare{Server: hostname(), Name: v[0]})
	}),
	does(`Remove-Localuser -name (\S+)`, func(n *node, v []string) {
		n.do("RemoveSmbUser", &simv1.SmbUser{Server: hostname(), User: localUser(v[0])})
	}),

	does(script+`Install-WindowsFeature FS-iSCSITarget-Server.*`, func(n *node, v []string) {}),
	says(targetName+`New-IscsiVirtualDisk -Path \S+ -Size 100MB.*ConvertTo-Json.*`, func(n *node, v []string) string {
		target := &simv1.IscsiTarget{Iqn: "iqn.1991-05.com.microsoft:" + strings.ToLower(v[0]) + "-target",
			Portals: []*simv1.IscsiPortal{{Address: portal}}, Luns: []*simv1.DiskHardware{{SizeBytes: 100 << 20}}}
		n.setTarget(v[0], target)
		return fmt.Sprintf(`{"iqn": %q, "ip": %q}`, target.Iqn, portal)
	}),
	does(targetName+`\$username = "([^"]*)"\s*\$password = "([^"]*)".* -EnableChap .*`, func(n *node, v []string) {
		target := n.target(v[0])
		n.do("RemoveIscsiTarget", target)
		target.ChapUser, target.ChapSecret = v[1], v[2]
		n.setTarget(v[0], target)
	}),
	does(targetName+`\$password = "([^"]*)".* -EnableReverseChap .*`, func(n *node, v []string) {
		target := n.target(v[0])
		n.do("RemoveIscsiTarget", target)
		target.MutualChapSecret = v[1]
		n.setTarget(v[0], target)
	}),
	does(script+`# Clean initiator.*Get-IscsiServerTarget.*Stop-Service.*`, func(n *node, v []string) {
		for _, target := range call[simv1.ListIscsiTargetsResponse](n, "ListIscsiTargets", &simv1.Empty{}).Targets {
			n.do("RemoveIscsiTarget", target)
		}
		n.try(func() error {
			portals, err := n.daemon.ISCSI.ListTargetPortals(n.ctx)
			for _, p := range portals {
				err = cmp.Or(err, n.daemon.ISCSI.RemoveTargetPortal(n.ctx, p))
			}
			return err
		})
		n.stop("MSiSCSI")
	}),
}
