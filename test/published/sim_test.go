// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// What the cloud, the pods and the power supply do to the simulated node, and what
// they see of it: the operator's command plays them.

const (
	mib = 1 << 20
	gib = 1 << 30
)

// Windows error numbers.
const (
	errorInvalidFunction = 1
	errorAccessDenied    = 5
	errorIODevice        = 1117
)

// hardware is a disk to attach.
type hardware struct {
	size                      int64 // bytes
	serial, page83            string
	adapter, bus, target, lun int
	offline, readOnly         bool
	sectorSize                int
}

// attach attaches a disk and returns its number.
func (n *node) attach(h hardware) uint32 {
	n.t.Helper()
	args := []string{"disk", "attach", "--size", strconv.FormatInt(h.size, 10)}
	if h.serial != "" {
		args = append(args, "--serial", h.serial)
	}
	if h.page83 != "" {
		args = append(args, "--page83", h.page83)
	}
	if h.sectorSize != 0 {
		args = append(args, "--sector-size", strconv.Itoa(h.sectorSize))
	}
	if h.offline {
		args = append(args, "--offline")
	}
	if h.readOnly {
		args = append(args, "--read-only")
	}
	for flag, v := range map[string]int{"--adapter": h.adapter, "--bus": h.bus, "--target": h.target, "--lun": h.lun} {
		if v != 0 {
			args = append(args, flag, strconv.Itoa(v))
		}
	}
	var attached struct {
		DiskNumber uint32 `json:"disk_number"`
	}
	n.simInto(&attached, args...)
	return attached.DiskNumber
}

func (n *node) detach(disk uint32) { n.t.Helper(); n.sim("disk", "detach", decimal(disk)) }

func (n *node) grow(disk uint32, size int64) {
	n.t.Helper()
	n.sim("disk", "grow", decimal(disk), "--size", strconv.FormatInt(size, 10))
}

// writeDisk and readDisk are about the bytes of a disk below Windows, which the
// operator's command leaves alone: they call the node's own endpoint.
func (n *node) writeDisk(disk uint32, offset int64, data []byte) {
	n.t.Helper()
	n.simCall("WriteDisk", map[protoreflect.Name]any{"disk_number": disk, "offset": offset, "data": data})
}

func (n *node) readDisk(disk uint32, offset int64, length int) []byte {
	n.t.Helper()
	resp := n.simCall("ReadDisk", map[protoreflect.Name]any{"disk_number": disk, "offset": offset, "length": int64(length)})
	return resp.Get(resp.Descriptor().Fields().ByName("data")).Bytes()
}

// simCall calls the endpoint that controls the simulated node, with what it says of
// its messages itself.
func (n *node) simCall(method protoreflect.Name, request map[protoreflect.Name]any) protoreflect.Message {
	n.t.Helper()
	const service = "csiproxy.sim.v1.Sim"
	endpoint := version{group: "sim", name: "v1"}
	file, err := n.reflected(endpoint, service)
	if err != nil {
		n.t.Fatal(err)
	}
	m := file.Services().ByName("Sim").Methods().ByName(method)
	req, resp := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	for name, value := range request {
		req.Set(m.Input().Fields().ByName(name), protoreflect.ValueOf(value))
	}
	conn := n.mustDial(endpoint.group, endpoint.name)
	if err := conn.Invoke(context.Background(), "/"+service+"/"+string(method), req, resp); err != nil {
		n.t.Fatal(err)
	}
	return resp
}

func decimal(disk uint32) string { return strconv.FormatUint(uint64(disk), 10) }

// write and read are what a pod does.
func (n *node) write(path, text string) {
	n.t.Helper()
	n.sim("file", "write", path, "--text", text)
}

func (n *node) mkdir(path string) {
	n.t.Helper()
	n.sim("file", "mkdir", path)
}

// plant creates a symbolic link.
func (n *node) plant(target, link string) {
	n.t.Helper()
	n.sim("file", "symlink", target, link)
}

func (n *node) read(path string) string {
	n.t.Helper()
	return n.sim("file", "read", path)
}

// failNext makes the next call of a name fail with a Windows error number. More
// flags say more about the calls that are meant.
func (n *node) failNext(call string, number int, flags ...string) {
	n.t.Helper()
	n.sim(append([]string{"fail", "--call", call, "--error", strconv.Itoa(number), "--count", "1"}, flags...)...)
}

// hangNext makes the next call of a name take longer than any test.
func (n *node) hangNext(call string) {
	n.t.Helper()
	n.sim("delay", "--call", call, "--duration", time.Hour.String(), "--count", "1")
}

// countCalls tells how often each Windows call was made since the daemon was
// started.
func (m *machine) countCalls() (map[string]int, error) {
	out, err := m.ctl("sim", "calls")
	if err != nil {
		return nil, err
	}
	var made []struct {
		Call  string
		Count int
	}
	err = json.Unmarshal([]byte(out), &made)
	calls := map[string]int{}
	for _, c := range made {
		calls[c.Call] = c.Count
	}
	return calls, err
}

func (n *node) calls() map[string]int {
	n.t.Helper()
	calls, err := n.countCalls()
	if err != nil {
		n.t.Fatal(err)
	}
	return calls
}

func (n *node) powerLoss() { n.t.Helper(); n.sim("power-loss") }
func (n *node) reboot()    { n.t.Helper(); n.sim("reboot") }

// diskState is what the node says of a disk.
type diskState struct {
	Number    *uint32 // missing while the disk is detached
	Online    bool
	ReadOnly  bool  `json:"read_only"`
	SeenBytes int64 `json:"seen_bytes"`
}

func (n *node) disk(number uint32) diskState {
	n.t.Helper()
	var all []diskState
	n.simInto(&all, "disk", "list")
	for _, d := range all {
		if d.Number != nil && *d.Number == number {
			return d
		}
	}
	n.t.Fatalf("the node has no disk %d", number)
	return diskState{}
}

// entry is a name in a directory, as a pod sees it.
type entry struct {
	Name      string
	Directory bool
	Reparse   bool
}

// entries lists a directory.
func (n *node) entries(dir string) []entry {
	n.t.Helper()
	var entries []entry
	n.simInto(&entries, "file", "ls", dir)
	return entries
}

// find returns the entry of a path, nil if there is none. The path has to be in a
// directory that exists.
func (n *node) find(path string) *entry {
	n.t.Helper()
	for _, e := range n.entries(parent(path)) {
		if strings.EqualFold(e.Name, base(path)) {
			return &e
		}
	}
	return nil
}

// tree lists all that is below a directory, whose path ends in a backslash,
// without following links.
func (n *node) tree(dir string) []string {
	n.t.Helper()
	var all []string
	for _, e := range n.entries(dir) {
		path := dir + e.Name
		all = append(all, fmt.Sprintf("%s %+v", path, e))
		if e.Directory && !e.Reparse {
			all = append(all, n.tree(path+`\`)...)
		}
	}
	return all
}

func (n *node) wantDir(path string) {
	n.t.Helper()
	if e := n.find(path); e == nil || !e.Directory {
		n.t.Errorf("at %s is %+v, want a directory", path, e)
	}
}

func (n *node) wantGone(path string) {
	n.t.Helper()
	if e := n.find(path); e != nil {
		n.t.Errorf("at %s is %+v, want nothing", path, e)
	}
}

func (n *node) wantText(path, text string) {
	n.t.Helper()
	if got := n.read(path); got != text {
		n.t.Errorf("%s reads %q, want %q", path, got, text)
	}
}

func parent(path string) string { return path[:strings.LastIndexByte(path, '\\')] }
func base(path string) string   { return path[strings.LastIndexByte(path, '\\')+1:] }
