// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	smbv1 "github.com/csi-proxy/csi-proxy/api/smb/v1"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// markers are texts that nothing else has in it.
const (
	userMarker     = "Zaphod"
	passwordMarker = "xyzzy-4711"
)

// secretsNode is a daemon that says all it can, with what it has said and answered.
type secretsNode struct {
	t    *testing.T
	dir  string
	sim  grpc.ClientConnInterface
	said []string // errors that callers got
}

// try keeps the error of a call, which must succeed or must fail.
func (n *secretsNode) try(what string, succeeds bool, err error) {
	n.t.Helper()
	if (err == nil) != succeeds {
		n.t.Errorf("%s: error %v", what, err)
	}
	n.said = append(n.said, fmt.Sprintf("%v\n%+v\n%#v", err, err, err))
}

// must ends the test if a call of the simulated node's control fails.
func (n *secretsNode) must(_ any, err error) {
	n.t.Helper()
	must(n.t, err)
}

// What authenticates the node is in nothing that the daemon writes, serves as
// metrics or answers, whether a call succeeds or fails.
func TestSecretsStayInside(t *testing.T) {
	dir := simtest.SocketDir(t)
	p := startProcess(t, "main", "-endpoint-dir", dir, "-metrics-bind-address", "127.0.0.1:0", "-v=10")
	metrics := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(p.log.await("serving metrics"))
	p.log.await(served)
	conn := dialEndpoint(t, dir, simv1.EndpointName)
	n := &secretsNode{t: t, dir: dir, sim: conn}

	n.mapShares(t.Context())
	n.logIn(t.Context())
	n.stage(t.Context())
	n.said = append(n.said, scrape(t, metrics))
	p.signal(t, syscall.SIGTERM)
	log, _ := p.end()
	n.said = append(n.said, p.stdout.String(), strings.Join(log, "\n"))

	if !strings.Contains(strings.Join(log, "\n"), "call failed") {
		t.Error("the log doesn't even tell that calls failed")
	}
	for _, said := range n.said {
		for _, marker := range []string{userMarker, passwordMarker} {
			if at := strings.Index(said, marker); at >= 0 {
				t.Errorf("%s shows in …%s…", marker, said[max(0, at-200):min(len(said), at+100)])
			}
		}
	}
}

// mapShares gives credentials to every version of the smb group, in every way that
// may come out.
func (n *secretsNode) mapShares(ctx context.Context) {
	const user = `DOMAIN\` + userMarker
	right := csiproxy.SMBCredentials{Username: user, Password: csiproxy.NewSecret(passwordMarker + "-right")}
	wrong := csiproxy.SMBCredentials{Username: user, Password: csiproxy.NewSecret(passwordMarker + "-wrong")}
	for _, server := range []string{"files", "away", "plain"} {
		n.must(simv1.Call[simv1.Empty](ctx, n.sim, "AddSmbShare", &simv1.SmbShare{Server: server, Name: "data"}))
		n.must(simv1.Call[simv1.Empty](ctx, n.sim, "SetSmbUser",
			&simv1.SmbUser{Server: server, User: user, Password: right.Password.Reveal()}))
	}
	n.must(simv1.Call[simv1.Empty](ctx, n.sim, "SetSmbServer", &simv1.SmbServer{Name: "away", Unreachable: true}))
	n.must(simv1.Call[simv1.Empty](ctx, n.sim, "SetSmbServer", &simv1.SmbServer{Name: "plain", NoEncryption: true}))

	for _, version := range api.Versions("smb") {
		c := client.New(client.WithEndpointDir(n.dir), client.WithVersions("smb", version))
		defer c.Close()
		mappings := c.SMB
		for remote, succeeds := range map[string]bool{
			`\\files\data`: true, `\\files\other`: false, `\\away\data`: false, `\\plain\data`: false, `files`: false,
			`\\?\C:\`: false,
		} {
			n.try(version+" "+remote, succeeds, mappings.NewSMBGlobalMapping(ctx, remote, "", right))
		}
		n.try(version+" outside", false, mappings.NewSMBGlobalMapping(ctx, `\\files\data`, `C:\Windows\link`, right))
		n.try(version+" remove", true, mappings.RemoveSMBGlobalMapping(ctx, `\\files\data`))
		n.try(version+" wrong password", false, mappings.NewSMBGlobalMapping(ctx, `\\files\data`, "", wrong))
		for name, odd := range map[string]csiproxy.SMBCredentials{
			"no password":   {Username: user},
			"no user":       {Password: right.Password},
			"long password": {Username: user, Password: csiproxy.NewSecret(strings.Repeat(passwordMarker, 1000))},
			"long user":     {Username: strings.Repeat(userMarker, 1000), Password: right.Password},
			"NUL":           {Username: user + "\x00", Password: csiproxy.NewSecret(passwordMarker + "\x00")},
			"not UTF-8":     {Username: user, Password: csiproxy.NewSecret(passwordMarker + "\xff")},
		} {
			n.try(version+" "+name, false, mappings.NewSMBGlobalMapping(ctx, `\\files\data`, "", odd))
		}
		for _, call := range []string{"MSFT_SmbGlobalMapping", "MSFT_SmbGlobalMapping.Create"} {
			rule := &simv1.Rule{Call: call, Count: 1, Effect: &simv1.Rule_WindowsError{WindowsError: 1117}}
			n.must(simv1.Call[simv1.Empty](ctx, n.sim, "AddRule", rule))
			n.try(version+" "+call, false, mappings.NewSMBGlobalMapping(ctx, `\\files\data`, "", right))
		}
	}

	// What the client would not send.
	conn := dialEndpoint(n.t, n.dir, api.EndpointName("smb", "v1"))
	request := &smbv1.NewSmbGlobalMappingRequest{Username: userMarker, Password: passwordMarker}
	n.try("method of no version", false,
		conn.Invoke(ctx, "/v1.Smb/ListSmbGlobalMappings", request, &smbv1.NewSmbGlobalMappingResponse{}))
	n.try("bytes", false, conn.Invoke(ctx, "/v1.Smb/NewSmbGlobalMapping", []byte("\x22\x0b"+passwordMarker+"\xff"),
		new([]byte), grpc.ForceCodec(bytesCodec{})))
}

// logIn gives CHAP secrets to every version of the iscsi group, in every way that
// may come out.
func (n *secretsNode) logIn(ctx context.Context) {
	const target = "iqn.2026-01.example:closed"
	const right, mutual = passwordMarker + "-right", passwordMarker + "-both"
	portal := csiproxy.ISCSIPortal{Address: "10.0.0.1"}
	n.must(simv1.Call[simv1.Empty](ctx, n.sim, "AddIscsiTarget", &simv1.IscsiTarget{
		Iqn: target, ChapUser: userMarker,
		Portals:    []*simv1.IscsiPortal{{Address: portal.Address}},
		Luns:       []*simv1.DiskHardware{{SizeBytes: 1 << 30}},
		ChapSecret: right, MutualChapSecret: mutual,
	}))
	for _, version := range api.Versions("iscsi") {
		c := client.New(client.WithEndpointDir(n.dir), client.WithVersions("iscsi", version))
		defer c.Close()
		initiator := c.ISCSI
		n.try(version+" add portal", true, initiator.AddTargetPortal(ctx, portal))
		_, err := initiator.DiscoverTargetPortal(ctx, portal)
		n.try(version+" discover", true, err)
		n.try(version+" short mutual secret", false, initiator.SetMutualCHAPSecret(ctx, csiproxy.NewSecret(passwordMarker)))
		n.try(version+" mutual secret", version != "v1alpha1", initiator.SetMutualCHAPSecret(ctx, csiproxy.NewSecret(mutual)))
		for _, auth := range []csiproxy.ISCSIAuthType{csiproxy.ISCSINoAuth, csiproxy.ISCSIOneWayCHAP, csiproxy.ISCSIMutualCHAP} {
			for _, s := range []string{right, passwordMarker + "-wrong", passwordMarker, passwordMarker + passwordMarker,
				passwordMarker + "\xff", ""} {
				a := csiproxy.ISCSIAuthentication{Type: auth, Username: userMarker, Secret: csiproxy.NewSecret(s)}
				what := fmt.Sprintf("%s %v %q", version, auth, s)
				n.try(what, auth != csiproxy.ISCSINoAuth && s == right, initiator.ConnectTarget(ctx, portal, target, a))
				n.try(what+" to no target", false, initiator.ConnectTarget(ctx, portal, "iqn.2026-01.example:none", a))
				n.try(what+" disconnect", true, initiator.DisconnectTarget(ctx, portal, target))
			}
		}
	}
}

// stage gives all of that to the storage group.
func (n *secretsNode) stage(ctx context.Context) {
	c := client.New(client.WithEndpointDir(n.dir))
	defer c.Close()
	const directory = `C:\var\lib\kubelet\plugins\example\`
	share := func(remote, path, password string) {
		n.try("stage "+remote, password == "-right" && path == "share", c.Storage.StageShare(ctx, csiproxy.StageShareRequest{
			RemotePath: remote, StagingPath: directory + path,
			Credentials: csiproxy.SMBCredentials{Username: `DOMAIN\` + userMarker, Password: csiproxy.NewSecret(passwordMarker + password)},
		}))
	}
	share(`\\files\data`, "share", "-right")
	share(`\\files\data\none`, "other", "-right")
	share(`\\files\data`, "other", "-wrong")

	const target = "iqn.2026-01.example:mutual"
	portal := csiproxy.ISCSIPortal{Address: "10.0.0.2"}
	n.must(simv1.Call[simv1.Empty](ctx, n.sim, "AddIscsiTarget", &simv1.IscsiTarget{
		Iqn: target, ChapUser: userMarker,
		Portals:    []*simv1.IscsiPortal{{Address: portal.Address}},
		Luns:       []*simv1.DiskHardware{{SizeBytes: 1 << 30}},
		ChapSecret: passwordMarker + "-right", MutualChapSecret: passwordMarker + "-both",
	}))
	for _, mutual := range []string{"-wrong", "", "-both"} {
		login := csiproxy.ISCSILogin{MutualSecret: csiproxy.NewSecret(passwordMarker + mutual)}
		login.Type, login.Username, login.Secret = csiproxy.ISCSIMutualCHAP, userMarker, csiproxy.NewSecret(passwordMarker+"-right")
		_, err := c.Storage.StageVolume(ctx, csiproxy.StageVolumeRequest{
			Disk:  csiproxy.Selector{ISCSI: &csiproxy.ISCSISelector{Portal: portal, IQN: target}},
			Login: login, StagingPath: directory + "volume",
		})
		n.try("stage with mutual CHAP "+mutual, mutual == "-both", err)
	}
}

// dialEndpoint connects to an endpoint of the daemon.
func dialEndpoint(t *testing.T, dir, name string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+name, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return pipe.Dial(ctx, pipe.Address(dir, name))
		}))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// bytesCodec sends and receives bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}
