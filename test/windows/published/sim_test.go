// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
)

// What the cloud, the pods and the power supply do to the simulated node, and what
// they see of it.

const gib = 1 << 30

// Windows error numbers.
const (
	errorAccessDenied = 5
	errorIODevice     = 1117
)

// hardware is a disk to attach.
type hardware struct {
	size           int64 // bytes
	serial, page83 string
	adapter, lun   int
	offline        bool
}

// attach attaches a disk and returns its number.
func (n *node) attach(h hardware) uint32 {
	n.t.Helper()
	request := fields{"size_bytes": h.size, "serial_number": h.serial, "page83": h.page83, "offline": h.offline}
	if h.adapter != 0 || h.lun != 0 {
		request["address"] = fields{"adapter": h.adapter, "lun": h.lun}
	}
	return uint32(n.simCall("AttachDisk", request).get("disk_number").Uint())
}

func (n *node) detach(disk uint32) {
	n.t.Helper()
	n.simCall("DetachDisk", fields{"disk_number": disk})
}

func (n *node) grow(disk uint32, size int64) {
	n.t.Helper()
	n.simCall("GrowDisk", fields{"disk_number": disk, "size_bytes": size})
}

// simCall calls the endpoint that controls the simulated node, with what it says of
// its messages itself.
func (n *node) simCall(method protoreflect.Name, request fields) answer {
	n.t.Helper()
	a, err := n.simTry(method, request)
	if err != nil {
		n.t.Fatalf("sim %s(%v): %v", method, request, err)
	}
	return a
}

// simTry is simCall for what may fail.
func (n *node) simTry(method protoreflect.Name, request fields) (answer, error) {
	service, err := n.simService()
	if err != nil {
		return answer{}, err
	}
	m := service.Methods().ByName(method)
	req, resp := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	if err := drivers.Encode(req, request); err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = n.sim.Invoke(ctx, "/"+string(service.FullName())+"/"+string(method), req, resp)
	return answer{n.t, resp}, err
}

// simService is what the endpoint that controls the simulated node says of itself.
func (n *node) simService() (protoreflect.ServiceDescriptor, error) {
	n.simMu.Lock()
	defer n.simMu.Unlock()
	if n.simKnown == nil {
		file, err := n.reflected(version{group: n.sim.group, name: n.sim.version}, "csiproxy.sim.v1.Sim")
		if err != nil {
			return nil, err
		}
		n.simKnown = file.Services().ByName("Sim")
	}
	return n.simKnown, nil
}

func decimal(disk uint32) string { return strconv.FormatUint(uint64(disk), 10) }

// write and read are what a pod does.
func (n *node) write(path, text string) {
	n.t.Helper()
	n.simCall("WriteFile", fields{"path": path, "data": []byte(text)})
}

func (n *node) mkdir(path string) {
	n.t.Helper()
	n.simCall("MakeDirectory", fields{"path": path})
}

// plant creates a symbolic link.
func (n *node) plant(target, link string) {
	n.t.Helper()
	n.simCall("CreateSymlink", fields{"source_path": target, "target_path": link})
}

func (n *node) read(path string) string {
	n.t.Helper()
	return string(n.simCall("ReadFile", fields{"path": path}).get("data").Bytes())
}

// failNext makes the next call of a name fail with a Windows error number.
func (n *node) failNext(call string, number int) {
	n.t.Helper()
	n.simCall("AddRule", fields{"call": call, "windows_error": number, "count": 1})
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
	for _, e := range n.simCall("ListDirectory", fields{"path": dir}).messages("entries") {
		entries = append(entries, entry{e.text("name"), e.bool("directory"), e.bool("reparse")})
	}
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
