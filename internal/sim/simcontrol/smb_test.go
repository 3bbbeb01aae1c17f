// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package simcontrol

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/descriptorpb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

func TestSMB(t *testing.T) {
	sys, sim := start(t)
	ctx := t.Context()
	want := &simv1.SmbServer{
		Name: "server", Users: []string{"user"},
		Shares: []*simv1.SmbShare{
			{Server: "server", Name: "a", SizeBytes: 1 << 30},
			{Server: "server", Name: "b", Users: []string{"user", "other"}, SizeBytes: 1 << 40},
		},
	}
	check := func(when string) {
		t.Helper()
		got := get[simv1.ListSmbServersResponse](sim, "ListSmbServers").Servers
		if diff := cmp.Diff([]*simv1.SmbServer{want}, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	for _, share := range want.Shares {
		sim.do("AddSmbShare", share)
	}
	sim.do("SetSmbUser", &simv1.SmbUser{Server: "server", User: "user", Password: "password"})
	check("added")
	sim.do("GrowSmbShare", &simv1.SmbShare{Server: "server", Name: "a", SizeBytes: 2 << 30})
	want.Shares[0].SizeBytes = 2 << 30
	check("grown")

	options := win.SMBMappingOptions{Username: "user", Password: secret.New("password")}
	if err := sys.CreateSMBGlobalMapping(ctx, `\\server\b`, options); err != nil {
		t.Fatal(err)
	}
	sim.do("WriteFile", &simv1.WriteFileRequest{Path: `\\server\b\file`, Data: []byte("text")})
	if data := get[simv1.Data](sim, "ReadFile", &simv1.Path{Path: `\\SERVER\B\FILE`}).Data; string(data) != "text" {
		t.Errorf("the file holds %q", data)
	}

	sim.do("SetSmbServer", &simv1.SmbServer{Name: "server", Unreachable: true})
	want.Unreachable = true
	check("down")
	sim.refused(csiproxy.ErrUnavailable, "ReadFile", &simv1.Path{Path: `\\server\b\file`})
	sim.do("SetSmbServer", &simv1.SmbServer{Name: "server", NoEncryption: true})
	want.Unreachable, want.NoEncryption = false, true
	check("up, without encryption")
	sim.do("SetSmbServer", &simv1.SmbServer{Name: "server"})
	want.NoEncryption = false
	check("as before")

	sim.do("RemoveSmbUser", &simv1.SmbUser{Server: "server", User: "user"})
	want.Users = nil
	check("without users")
	sim.refused(csiproxy.ErrUnauthenticated, "ReadFile", &simv1.Path{Path: `\\server\b\file`})
	sim.do("RemoveSmbShare", &simv1.SmbShare{Server: "server", Name: "b"})
	want.Shares = want.Shares[:1]
	check("with one share")
}

// TestSecretsAreMarked: what prints requests must know what to leave out.
func TestSecretsAreMarked(t *testing.T) {
	marked := func(field protoreflect.FieldDescriptor) bool {
		options, ok := field.Options().(*descriptorpb.FieldOptions)
		return ok && options.GetDebugRedact()
	}
	found := 0
	messages := simv1.File_csiproxy_sim_v1_sim_proto.Messages()
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			name := string(fields.Get(j).Name())
			if !strings.Contains(name, "password") && !strings.Contains(name, "secret") {
				continue
			}
			found++
			if !marked(fields.Get(j)) {
				t.Errorf("%s isn't marked", fields.Get(j).FullName())
			}
		}
	}
	if found == 0 {
		t.Error("there is no secret at all")
	}
}
