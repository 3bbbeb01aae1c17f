// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
)

// The iSCSI group against Windows' own initiator and target server, both on this
// machine, which Microsoft supports for tests only. It is skipped unless
// CSI_PROXY_TEST_ISCSI is set, since it needs a feature of Windows Server and changes
// what the machine offers to others:
//
//	Install-WindowsFeature FS-iSCSITarget-Server
func TestGuessISCSI(t *testing.T) {
	notOnWine(t, "it has no iSCSI initiator")
	if os.Getenv("CSI_PROXY_TEST_ISCSI") == "" {
		t.Skip("CSI_PROXY_TEST_ISCSI is not set")
	}
	kubelet := kubeletDirectory(t)
	s := install(t, "-kubelet-path="+kubelet)
	s.start()
	address := targetServerAddress(t)
	at := fields{"target_portal": fields{"target_address": address, "target_port": 3260}}
	run := func(name string, test func(t *testing.T, i *initiator)) {
		t.Run(name, func(t *testing.T) { test(t, &initiator{newest(t, "iscsi"), address, at}) })
	}
	run("service", startsService)
	run("portals", portals)
	c := newest(t, "iscsi")
	c.call("AddTargetPortal", at)
	defer c.call("RemoveTargetPortal", at)
	run("session", session)
	run("grown disk", grownDisk)
	run("session in use", func(t *testing.T, i *initiator) { sessionInUse(t, i, kubelet+`\used`) })
	run("CHAP", chap)
	run("mutual CHAP", mutual)
	run("persistent login", persistentLogin)
	wantNoSecrets(t, s)
}

// secretMark is part of every secret, which has 12 to 16 bytes.
const secretMark = "CHAPchap"

// initiator is a client with the portal of this machine's target server.
type initiator struct {
	*client
	address string
	at      fields // a request about the portal
}

// The types of authentication, as all versions number them.
const (
	oneWayCHAP = 1
	mutualCHAP = 2
)

// of is a request about a target.
func (i *initiator) of(target iscsiTarget) fields { return i.at.With("iqn", target.iqn) }

// login is a request that connects a target with a secret.
func (i *initiator) login(target iscsiTarget, auth int, user, secret string) fields {
	return i.of(target).With("auth_type", auth).With("chap_username", user).With("chap_secret", secret)
}

func (i *initiator) discover() []string {
	i.t.Helper()
	return i.call("DiscoverTargetPortal", i.at).texts("iqns")
}

func (i *initiator) disks(target iscsiTarget) []string {
	i.t.Helper()
	return i.call("GetTargetDisks", i.of(target)).texts("diskIDs")
}

// onlyDisk returns the number of the disk of a target that has one.
func (i *initiator) onlyDisk(target iscsiTarget) uint32 {
	i.t.Helper()
	disks := i.disks(target)
	if len(disks) != 1 {
		i.t.Fatalf("the target has the disks %q, want one", disks)
	}
	number, err := strconv.ParseUint(disks[0], 10, 32)
	must(i.t, err)
	return uint32(number)
}

// The initiator's service, which Windows doesn't start by itself, is started.
func startsService(t *testing.T, i *initiator) {
	powershell(t, nil, "Stop-Service MSiSCSI -Force")
	i.call("ListTargetPortals", nil)
}

func portals(t *testing.T, i *initiator) {
	target := newISCSITarget(t, "")
	for range 2 { // the second time it is known already
		i.call("AddTargetPortal", i.at)
	}
	var known []struct{ TargetPortalAddress string }
	powershell(t, &known, "Get-IscsiTargetPortal | Select-Object TargetPortalAddress")
	answer := i.call("ListTargetPortals", nil)
	listed := prototext.Format(answer.m.Interface())
	if answer.get("target_portals").List().Len() != len(known) || !strings.Contains(listed, `"`+i.address+`"`) {
		t.Errorf("ListTargetPortals gives %s; Get-IscsiTargetPortal %+v", listed, known)
	}
	if found := i.discover(); !slices.Contains(found, target.iqn) {
		t.Errorf("DiscoverTargetPortal gives %q, without %s", found, target.iqn)
	}
	late := newISCSITarget(t, "")
	if found := i.discover(); !slices.Contains(found, late.iqn) {
		t.Errorf("DiscoverTargetPortal gives %q, without the new %s", found, late.iqn)
	}
	i.call("RemoveTargetPortal", i.at)
	i.fail(codes.NotFound, "RemoveTargetPortal", i.at)
	nowhere := fields{"target_portal": fields{"target_address": "192.0.2.1"}} // which no network has
	if _, err := i.try("AddTargetPortal", nowhere); err == nil {
		t.Error("a portal that can't be reached was added")
	}
}

func session(t *testing.T, i *initiator) {
	target := newISCSITarget(t, "")
	if disks := i.disks(target); len(disks) != 0 {
		t.Errorf("a target without session has the disks %q", disks)
	}
	// It came after the portal was asked last, so it has to be found. The second time it
	// is connected already.
	for range 2 {
		i.call("ConnectTarget", i.of(target))
	}
	var sessions []struct{ IsConnected, IsPersistent bool }
	powershell(t, &sessions, "Get-IscsiSession | Where-Object TargetNodeAddress -eq '%s' | Select-Object "+
		"IsConnected,IsPersistent", target.iqn)
	if len(sessions) != 1 || !sessions[0].IsConnected || sessions[0].IsPersistent {
		t.Errorf("Get-IscsiSession says %+v", sessions)
	}
	var numbers []struct{ Number uint32 }
	powershell(t, &numbers, "Get-IscsiSession | Where-Object TargetNodeAddress -eq '%s' | Get-Disk | Select-Object Number",
		target.iqn)
	if disks := i.disks(target); len(numbers) != 1 || len(disks) != 1 || disks[0] != decimal(numbers[0].Number) {
		t.Errorf("GetTargetDisks gives %q, Get-Disk %+v", disks, numbers)
	}
	for range 2 { // the second time it isn't connected any more
		i.call("DisconnectTarget", i.of(target))
	}
	if disks := i.disks(target); len(disks) != 0 {
		t.Errorf("after DisconnectTarget it has the disks %q", disks)
	}
}

// A LUN that grows while it is connected is larger after Rescan.
func grownDisk(t *testing.T, i *initiator) {
	target := newISCSITarget(t, "")
	i.discover()
	i.call("ConnectTarget", i.of(target))
	disk := fields{"disk_number": i.onlyDisk(target)}
	powershell(t, nil, "Resize-IscsiVirtualDisk -Path '%s' -SizeBytes 300MB", target.lun)
	disks := newest(t, "disk")
	disks.call("Rescan", nil)
	if got := disks.call("GetDiskStats", disk).get("total_bytes").Int(); got != 300<<20 {
		t.Errorf("the grown disk has %d bytes, want 300 MiB", got)
	}
	i.call("DisconnectTarget", i.of(target))
}

// A session whose volume has an open file can't end.
func sessionInUse(t *testing.T, i *initiator, path string) {
	target := newISCSITarget(t, "")
	i.discover()
	i.call("ConnectTarget", i.of(target))
	number := i.onlyDisk(target)
	newest(t, "disk").call("SetDiskState", fields{"disk_number": number, "is_online": true})
	volumes := newest(t, "volume")
	at := fields{"volume_id": formatted(t, number), "target_path": path}
	volumes.call("MountVolume", at)
	f, err := os.Create(path + `\open`)
	must(t, err)
	defer f.Close()
	i.fail(codes.Unavailable, "DisconnectTarget", i.of(target))
	wantThere(t, path+`\open`)
	must(t, f.Close())
	volumes.call("UnmountVolume", at)
	i.call("DisconnectTarget", i.of(target))
}

func chap(t *testing.T, i *initiator) {
	right := secretMark + rand.Text()[:6]
	target := newISCSITarget(t, "-EnableChap $true -Chap (%s)", credential("user", right))
	i.discover()
	i.fail(codes.Unauthenticated, "ConnectTarget", i.login(target, oneWayCHAP, "user", secretMark+"wrong"))
	for what, login := range map[string]fields{
		"without CHAP":    i.of(target),
		"another secret":  i.login(target, oneWayCHAP, "user", secretMark+"wrong"),
		"another's name":  i.login(target, oneWayCHAP, "another", right),
		"the node's name": i.login(target, oneWayCHAP, "", right),
	} {
		if _, err := i.try("ConnectTarget", login); err == nil || strings.Contains(err.Error(), secretMark) {
			t.Errorf("ConnectTarget %s gives %v", what, err)
		}
	}
	i.call("ConnectTarget", i.login(target, oneWayCHAP, "user", right))
	i.call("DisconnectTarget", i.of(target))
}

func mutual(t *testing.T, i *initiator) {
	targets, nodes := secretMark+rand.Text()[:6], secretMark+rand.Text()[:7]
	target := newISCSITarget(t, "-EnableChap $true -Chap (%s) -EnableReverseChap $true -ReverseChap (%s)",
		credential("user", targets), credential("target", nodes))
	i.discover()
	login := i.login(target, mutualCHAP, "user", targets)
	i.call("SetMutualChapSecret", fields{"secret": secretMark + "wrong"})
	i.fail(codes.Unauthenticated, "ConnectTarget", login)
	i.call("SetMutualChapSecret", fields{"secret": nodes})
	i.call("ConnectTarget", login)
	i.call("DisconnectTarget", i.of(target))
}

// A login that somebody else made for good ends for good.
func persistentLogin(t *testing.T, i *initiator) {
	target := newISCSITarget(t, "")
	i.discover()
	powershell(t, nil, "Connect-IscsiTarget -NodeAddress '%s' -TargetPortalAddress '%s' -TargetPortalPortNumber 3260 "+
		"-IsPersistent $true", target.iqn, i.address)
	persistent := func() bool {
		var lines []string
		powershell(t, &lines, "iscsicli.exe ListPersistentTargets")
		return strings.Contains(strings.Join(lines, ""), target.iqn)
	}
	if !persistent() {
		t.Fatal("the login isn't persistent")
	}
	i.call("DisconnectTarget", i.of(target))
	if persistent() {
		t.Error("DisconnectTarget left the persistent login")
	}
}

// targetServerAddress returns an address at which this machine's target server
// listens; it doesn't at the loopback addresses.
func targetServerAddress(t *testing.T) string {
	t.Helper()
	var addresses []string
	powershell(t, &addresses, "(Get-IscsiTargetServerSetting).Portals | Where-Object Enabled | "+
		"ForEach-Object { $_.IPEndpoint } | Where-Object { $_.AddressFamily -eq 'InterNetwork' -and $_.Port -eq 3260 } | "+
		"ForEach-Object { $_.Address.ToString() }")
	if len(addresses) == 0 {
		t.Fatal("the iSCSI target server listens nowhere")
	}
	return addresses[0]
}

// iscsiTarget is one of this machine's target server with one LUN, for the time of a
// test.
type iscsiTarget struct {
	iqn string
	lun string // its file
}

// newISCSITarget makes a target with settings of Set-IscsiServerTarget.
func newISCSITarget(t *testing.T, settings string, args ...any) iscsiTarget {
	t.Helper()
	name := leftoverPrefix + strings.ToLower(rand.Text()[:8])
	lun := filepath.Join(t.TempDir(), name+".vhdx")
	powershell(t, nil, "New-IscsiVirtualDisk -Path '%s' -SizeBytes 200MB", lun)
	cleanUp(t, "Remove-IscsiVirtualDisk -Path '%s'", lun)
	powershell(t, nil, "New-IscsiServerTarget -TargetName %s -InitiatorIds 'IQN:*'", name)
	cleanUp(t, "Remove-IscsiServerTarget -TargetName %s", name)
	cleanUp(t, "Get-IscsiSession | Where-Object TargetNodeAddress -like '*%s*' | "+
		"ForEach-Object { Disconnect-IscsiTarget -NodeAddress $_.TargetNodeAddress -Confirm:$false }", name)
	if settings != "" {
		powershell(t, nil, "Set-IscsiServerTarget -TargetName %s %s", name, fmt.Sprintf(settings, args...))
	}
	powershell(t, nil, "Add-IscsiVirtualDiskTargetMapping -TargetName %s -Path '%s' -Lun 0", name, lun)
	var iqns []string
	powershell(t, &iqns, "(Get-IscsiServerTarget -TargetName %s).TargetIqn.ToString()", name)
	if len(iqns) != 1 {
		t.Fatalf("the target has the names %q", iqns)
	}
	return iscsiTarget{iqns[0], lun}
}

// credential is an expression of PowerShell.
func credential(user, secret string) string {
	return fmt.Sprintf("New-Object System.Management.Automation.PSCredential('%s', (%s))", user, secureString(secret))
}
