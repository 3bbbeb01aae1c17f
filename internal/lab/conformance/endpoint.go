// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-proxy/csi-proxy/api"
)

// idleConnections are how many drivers' first connections a check keeps open.
const idleConnections = 20

// harmless is a call of each group that changes nothing, whatever it is answered.
var harmless = map[string]struct {
	method string
	fields fields
}{
	"disk":       {"ListDiskLocations", nil},
	"filesystem": {"PathExists", fields{"path": "relative"}},
	"iscsi":      {"ListTargetPortals", nil},
	"smb":        {"RemoveSmbGlobalMapping", fields{"remote": ""}},
	"system":     {"GetBIOSSerialNumber", nil},
	"volume":     {"IsVolumeFormatted", fields{"volume": ""}},
}

// endpointChecks are about each endpoint, whatever its group.
func endpointChecks() []Check {
	var all []Check
	for _, group := range api.PublishedGroups() {
		all = append(all, Check{
			Name: group + ".served", Group: group, Methods: []string{harmless[group].method},
			Promise: "Each published version is served at an endpoint of its own, under the service name <version>.<Group>.",
			run:     checkServed,
		}, Check{
			Name: group + ".idle-connections", Group: group, Methods: []string{harmless[group].method},
			Promise: "A connection that never sends a byte and is never closed, as each published Go client opens first, " +
				"disturbs nobody.",
			run: checkIdleConnections,
		})
	}
	return all
}

// answers calls the harmless method of the group; any answer of the method itself will
// do, also that this node can't do it.
func (t *trial) answers() {
	call := harmless[t.Group]
	_, err := t.call(call.method, call.fields)
	st := status.Convert(err)
	switch st.Code() {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		t.failf("%s isn't answered: %v", call.method, err)
	case codes.Unimplemented:
		// So say gRPC's servers of what isn't registered with them.
		unknown := strings.HasPrefix(st.Message(), "unknown service") || strings.HasPrefix(st.Message(), "unknown method")
		t.want(!unknown, "%s isn't answered: %v", call.method, err)
	}
}

func checkServed(t *trial) {
	if err := t.absent[endpoint{t.Group, t.version}]; err != nil {
		t.failf("nobody serves %s: %v", api.EndpointName(t.Group, t.version), err)
	}
	t.answers()
}

func checkIdleConnections(t *trial) {
	if t.absent[endpoint{t.Group, t.version}] != nil {
		t.notApplicable("%s isn't served", api.EndpointName(t.Group, t.version))
	}
	for range idleConnections {
		conn, err := t.Dial(t.ctx, t.Group, t.version)
		t.want(err == nil, "connect beside idle connections: %v", err)
		defer conn.Close()
	}
	t.answers() // on the connection from before
	e := endpoint{t.Group, t.version}
	fresh, err := connect(t.ctx, t.Options, e)
	t.want(err == nil, "connect beside idle connections: %v", err)
	before := t.connections[e]
	t.connections[e] = fresh
	defer func() { t.connections[e] = before; fresh.close() }()
	t.answers()
}

// errorCases are a call of each group that fails.
var errorCases = []struct {
	group, method string
	fields        fields
	code          codes.Code
	object        string // is in the message
	windowsError  bool   // Windows itself says so
}{
	{"disk", "PartitionDisk", fields{"disk": unknownDisk}, codes.NotFound, unknownDisk, true},
	{"volume", "IsVolumeFormatted", fields{"volume": unknownVolume}, codes.NotFound, unknownVolume, true},
	{"filesystem", "PathExists", fields{"path": "relative"}, codes.InvalidArgument, "relative", false},
	{"smb", "RemoveSmbGlobalMapping", fields{"remote": unknownShare}, codes.NotFound, unknownShare, false},
	{"iscsi", "GetTargetDisks", fields{"portal": fields{"address": "192.0.2.1", "port": 65536}, "iqn": unknownTarget},
		codes.InvalidArgument, "65536", false},
	{"system", "GetService", fields{"name": unknownService}, codes.NotFound, unknownService, true},
}

func errorChecks() []Check {
	var all []Check
	for _, c := range errorCases {
		all = append(all, Check{
			Name: c.group + ".error-details", Group: c.group, Methods: []string{c.method}, Better: true,
			Promise: "A failure has the code of its class; its message names operation and object; a detail has a stable " +
				"reason and the Windows error number.",
			run: func(t *trial) {
				_, err := t.call(c.method, c.fields)
				st := status.Convert(err)
				t.want(st.Code() == c.code, "%s %v: code %v, want %v", c.method, c.fields, st.Code(), c.code)
				t.want(strings.Contains(st.Message(), c.object), "the message %q doesn't name %s", st.Message(), c.object)
				for _, detail := range st.Details() {
					info, ok := detail.(*errdetails.ErrorInfo)
					if !ok {
						continue
					}
					t.want(info.Reason == reasons[c.code], "the reason is %q, want %q", info.Reason, reasons[c.code])
					t.want(info.Metadata["operation"] != "" && strings.Contains(st.Message(), info.Metadata["operation"]),
						"the message %q doesn't begin with an operation", st.Message())
					t.want(!c.windowsError || info.Metadata["windows_error"] != "", "the Windows error number is missing")
					return
				}
				t.failf("the status has no detail of the type google.rpc.ErrorInfo: %v", err)
			},
		})
	}
	return all
}

// reasons are the stable reasons of the classes of errors above.
var reasons = map[codes.Code]string{codes.InvalidArgument: "INVALID_ARGUMENT", codes.NotFound: "NOT_FOUND"}

// Objects that no node has.
const (
	unknownDisk    = "4294967294"
	unknownVolume  = `\\?\Volume{c51aad6e-0000-4000-8000-c0f0c0f0c0f0}\`
	unknownShare   = `\\csi-proxy-conformance.invalid\none`
	unknownTarget  = "iqn.2000-01.invalid.csi-proxy-conformance:none"
	unknownService = "csi-proxy-conformance-none"
)
