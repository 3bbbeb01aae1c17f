// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// secretFile writes a secret to where the operator's command reads it.
func secretFile(t testing.TB, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// wantNoSecrets asserts that the daemon's log has none of the tests' secrets.
func wantNoSecrets(t testing.TB, s *service) {
	t.Helper()
	for _, mark := range []string{passwordMark, secretMark} {
		if strings.Contains(s.written(), mark) {
			t.Errorf("the daemon's log has a secret that begins with %s", mark)
		}
	}
}

// Of the simulated node's network.
const (
	simUser   = `CORP\svc-smb`
	simPortal = "10.0.0.1"
)

// simShare puts a share on the simulated node's network and returns its path as
// storage classes write it.
func simShare(t testing.TB, server, password string) (source string) {
	t.Helper()
	sim(t, "smb", "share", "add", server, "Exports")
	simPassword(t, server, password)
	return "//" + server + "/Exports"
}

func simPassword(t testing.TB, server, password string) {
	t.Helper()
	sim(t, "smb", "user", "set", server, simUser, "--password-file", secretFile(t, password))
}

// simReadLink returns what os.Readlink says on the simulated node.
func simReadLink(t testing.TB, path string) string {
	t.Helper()
	var link struct{ Target string }
	simInto(t, &link, "file", "readlink", path)
	return link.Target
}

func testSMB(t *testing.T, c *client) {
	server, local := c.name+".example.com", kubeletPath+`\smb-`+c.name
	source := simShare(t, server, passwordMark+"1")
	request := fields{"remote_path": source + "/pvc-1", "local_path": local, "username": simUser,
		"password": passwordMark + "1"}
	for range 2 { // the second time it is mapped and linked already
		c.call("NewSmbGlobalMapping", request)
		if got, want := simReadLink(t, local), `\\`+server+`\Exports\pvc-1\`; got != want {
			t.Errorf("the link leads to %q, want %q", got, want)
		}
	}
	sim(t, "file", "mkdir", `\\`+server+`\exports\pvc-1`)
	sim(t, "file", "write", local+`\data`, "--text", "of a pod")
	if got := sim(t, "file", "read", `\\`+server+`\exports\pvc-1\data`); got != "of a pod" {
		t.Errorf("on the share the file reads %q", got)
	}

	simPassword(t, server, passwordMark+"2")
	c.fail(codes.Unauthenticated, "NewSmbGlobalMapping", request)
	request["password"] = passwordMark + "2"
	c.call("NewSmbGlobalMapping", request)
	if got := sim(t, "file", "read", local+`\data`); got != "of a pod" {
		t.Errorf("with the new password the file reads %q", got)
	}

	c.call("RemoveSmbGlobalMapping", fields{"remote_path": simReadLink(t, local)})
	c.fail(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote_path": source})
	c.fail(codes.InvalidArgument, "RemoveSmbGlobalMapping", fields{"remote_path": `\\?\UNC\` + server + `\Exports`})
}

func testISCSI(t *testing.T, c *client) {
	const noAuth, oneWayCHAP, mutualCHAP = protoreflect.EnumNumber(0), protoreflect.EnumNumber(1),
		protoreflect.EnumNumber(2)
	const secret, own = secretMark + "-one", secretMark + "-two"
	open, guarded := "iqn.2026-01.example:open-"+c.name, "iqn.2026-01.example:guarded-"+c.name
	at := fields{"target_portal": fields{"target_address": simPortal}}
	sim(t, "iscsi", "target", "add", open, "--portal", simPortal)
	sim(t, "iscsi", "target", "add", guarded, "--portal", simPortal, "--chap-user", "node",
		"--chap-secret-file", secretFile(t, secret), "--mutual-chap-secret-file", secretFile(t, own))
	for _, iqn := range []string{open, guarded} {
		sim(t, "iscsi", "lun", "add", iqn, "--size", "1Gi")
	}

	for range 2 { // the second time it is known already
		c.call("AddTargetPortal", at)
	}
	portals := c.call("ListTargetPortals", nil).get("target_portals").List()
	if portals.Len() != 1 {
		t.Errorf("the node knows %d portals, want one", portals.Len())
	}
	found := c.call("DiscoverTargetPortal", at).texts("iqns")
	for _, iqn := range []string{open, guarded} {
		if !strings.Contains(fmt.Sprint(found), iqn) {
			t.Errorf("the targets %q lack %s", found, iqn)
		}
	}

	authentication := func(kind protoreflect.EnumNumber) fields {
		request := fields{"target_portal": at["target_portal"], "iqn": guarded, "auth_type": kind, "chap_username": "node",
			"chap_secret": secret}
		if kind == noAuth {
			request = fields{"target_portal": at["target_portal"], "iqn": open}
		}
		return request
	}
	logins := []fields{authentication(noAuth), authentication(oneWayCHAP)}
	if c.has("SetMutualChapSecret") {
		c.call("SetMutualChapSecret", fields{"MutualChapSecret": own})
		logins = append(logins, authentication(mutualCHAP))
	}
	for _, login := range logins {
		target := fields{"target_portal": at["target_portal"], "iqn": login["iqn"]}
		for range 2 {
			c.call("ConnectTarget", login)
			if disks := c.call("GetTargetDisks", target).texts("diskIDs"); len(disks) != 1 {
				t.Errorf("%s has the disks %q, want one", login["iqn"], disks)
			}
		}
		for range 2 {
			c.call("DisconnectTarget", target)
			if disks := c.call("GetTargetDisks", target).texts("diskIDs"); len(disks) != 0 {
				t.Errorf("without a session %s has the disks %q", login["iqn"], disks)
			}
		}
	}
	wrong := authentication(oneWayCHAP)
	wrong["chap_secret"] = secretMark + "-bad"
	c.fail(codes.Unauthenticated, "ConnectTarget", wrong)
	// Without the portal, the published daemon crashes.
	for _, method := range []string{"AddTargetPortal", "DiscoverTargetPortal", "RemoveTargetPortal", "ConnectTarget",
		"GetTargetDisks", "DisconnectTarget"} {
		c.fail(codes.InvalidArgument, method, nil)
	}
	c.call("RemoveTargetPortal", at)
	c.fail(codes.NotFound, "RemoveTargetPortal", at)
}

func testSystem(t *testing.T, c *client) {
	const serial = "VMware-56 4d 0f 1e 2d 3c 4b 5a-69 78 87 96 a5 b4 c3 d2"
	sim(t, "bios", serial)
	if got := c.call("GetBIOSSerialNumber", nil).get("serial_number").String(); got != serial {
		t.Errorf("the serial number is %q, want %q", got, serial)
	}
	sim(t, "service", "add", "base", "--display-name", "A service")
	sim(t, "service", "add", "top", "--depends-on", "base")
	want := func(name string, state protoreflect.EnumNumber) {
		t.Helper()
		if got := c.call("GetService", fields{"name": name}).get("status").Enum(); got != state {
			t.Errorf("the service %s is in state %d, want %d", name, got, state)
		}
	}
	const stopped, running = 1, 4
	for range 2 {
		c.call("StartService", fields{"name": "top"}) // and what it depends on
		want("base", running)
		want("top", running)
	}
	c.fail(codes.FailedPrecondition, "StopService", fields{"name": "base"})
	for range 2 {
		c.call("StopService", fields{"name": "base", "force": true})
		want("base", stopped)
		want("top", stopped)
	}
	if got := c.call("GetService", fields{"name": "base"}).get("display_name").String(); got != "A service" {
		t.Errorf("the service's name is %q", got)
	}
	for _, method := range []string{"GetService", "StartService", "StopService"} {
		c.fail(codes.NotFound, method, fields{"name": "none"})
		c.fail(codes.InvalidArgument, method, nil)
	}
}
