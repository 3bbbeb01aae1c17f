// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package windows

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	api "github.com/kubernetes-csi/csi-proxy/client/api/iscsi/v1alpha2"
	iscsi "github.com/kubernetes-csi/csi-proxy/client/groups/iscsi/v1alpha2"
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
	client, err := iscsi.NewClient()
	must(t, err)
	t.Cleanup(func() { client.Close() })
	i := &initiator{client, targetServerPortal(t)}

	t.Run("service", i.startsService)
	t.Run("portals", i.portals)
	must(t, i.addPortal())
	t.Cleanup(func() {
		if err := i.removePortal(); err != nil {
			t.Error(err)
		}
	})
	t.Run("session", i.session)
	t.Run("grown disk", i.grownDisk)
	t.Run("session in use", func(t *testing.T) { i.sessionInUse(t, kubelet+`\used`) })
	t.Run("CHAP", i.chap)
	t.Run("mutual CHAP", i.mutualCHAP)
	t.Run("persistent login", i.persistentLogin)
	wantNoSecrets(t, s)
}

// secretMark is part of every secret, which has 12 to 16 bytes.
const secretMark = "CHAPchap"

// The initiator's service, which Windows doesn't start by itself, is started.
func (i *initiator) startsService(t *testing.T) {
	powershell(t, nil, "Stop-Service MSiSCSI -Force")
	if _, err := i.list(t); err != nil {
		t.Error(err)
	}
}

func (i *initiator) portals(t *testing.T) {
	target := newISCSITarget(t, "")
	for range 2 { // the second time it is known already
		must(t, i.addPortal())
	}
	var known []struct{ TargetPortalAddress string }
	powershell(t, &known, "Get-IscsiTargetPortal | Select-Object TargetPortalAddress")
	portals, err := i.list(t)
	if err != nil || len(portals) != len(known) || !slices.Contains(portals, i.portal.TargetAddress) {
		t.Errorf("ListTargetPortals gives %q, %v; Get-IscsiTargetPortal %+v", portals, err, known)
	}
	if found := i.discover(t); !slices.Contains(found, target.iqn) {
		t.Errorf("DiscoverTargetPortal gives %q, without %s", found, target.iqn)
	}
	late := newISCSITarget(t, "")
	if found := i.discover(t); !slices.Contains(found, late.iqn) {
		t.Errorf("DiscoverTargetPortal gives %q, without the new %s", found, late.iqn)
	}
	must(t, i.removePortal())
	wantCode(t, "RemoveTargetPortal of an unknown one", i.removePortal(), codes.NotFound)
	gone := &initiator{i.Client, &api.TargetPortal{TargetAddress: "192.0.2.1"}} // of no network
	if err := gone.addPortal(); err == nil {
		t.Error("a portal that can't be reached was added")
	}
}

func (i *initiator) session(t *testing.T) {
	target := newISCSITarget(t, "")
	if disks := i.disks(t, target); len(disks) != 0 {
		t.Errorf("a target without session has the disks %q", disks)
	}
	// It came after the portal was asked last, so it has to be found. The second time it
	// is connected already.
	for range 2 {
		must(t, i.connect(target, api.AuthenticationType_NONE, "", ""))
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
	if disks := i.disks(t, target); len(numbers) != 1 || len(disks) != 1 || disks[0] != decimal(numbers[0].Number) {
		t.Errorf("GetTargetDisks gives %q, Get-Disk %+v", disks, numbers)
	}
	for range 2 { // the second time it isn't connected any more
		must(t, i.disconnect(target))
	}
	if disks := i.disks(t, target); len(disks) != 0 {
		t.Errorf("after DisconnectTarget it has the disks %q", disks)
	}
}

// A LUN that grows while it is connected is larger after Rescan.
func (i *initiator) grownDisk(t *testing.T) {
	target := newISCSITarget(t, "")
	i.discover(t)
	must(t, i.connect(target, api.AuthenticationType_NONE, "", ""))
	disk := fields{"disk_number": i.onlyDisk(t, target)}
	powershell(t, nil, "Resize-IscsiVirtualDisk -Path '%s' -SizeBytes 300MB", target.lun)
	disks := newest(t, "disk")
	disks.call("Rescan", nil)
	if got := disks.call("GetDiskStats", disk).get("total_bytes").Int(); got != 300<<20 {
		t.Errorf("the grown disk has %d bytes, want 300 MiB", got)
	}
	must(t, i.disconnect(target))
}

// A session whose volume has an open file can't end.
func (i *initiator) sessionInUse(t *testing.T, path string) {
	target := newISCSITarget(t, "")
	i.discover(t)
	must(t, i.connect(target, api.AuthenticationType_NONE, "", ""))
	number := i.onlyDisk(t, target)
	disk, volumes := newest(t, "disk"), newest(t, "volume")
	disk.call("SetDiskState", fields{"disk_number": number, "is_online": true})
	disk.call("PartitionDisk", fields{"disk_number": number})
	ids := volumes.call("ListVolumesOnDisk", fields{"disk_number": number}).texts("volume_ids")
	if len(ids) != 1 {
		t.Fatalf("the disk has the volumes %q", ids)
	}
	volumes.call("FormatVolume", fields{"volume_id": ids[0]})
	at := fields{"volume_id": ids[0], "target_path": path}
	volumes.call("MountVolume", at)
	f, err := os.Create(path + `\open`)
	must(t, err)
	defer f.Close()
	wantCode(t, "DisconnectTarget in use", i.disconnect(target), codes.Unavailable)
	wantThere(t, path+`\open`)
	must(t, f.Close())
	volumes.call("UnmountVolume", at)
	must(t, i.disconnect(target))
}

func (i *initiator) chap(t *testing.T) {
	right := secretMark + rand.Text()[:6]
	target := newISCSITarget(t, "-EnableChap $true -Chap (%s)", credential("user", right))
	i.discover(t)
	for what, err := range map[string]error{
		"without CHAP":    i.connect(target, api.AuthenticationType_NONE, "", ""),
		"another secret":  i.connect(target, api.AuthenticationType_ONE_WAY_CHAP, "user", secretMark+"wrong"),
		"another's name":  i.connect(target, api.AuthenticationType_ONE_WAY_CHAP, "another", right),
		"the node's name": i.connect(target, api.AuthenticationType_ONE_WAY_CHAP, "", right),
	} {
		if err == nil || strings.Contains(err.Error(), secretMark) {
			t.Errorf("ConnectTarget %s gives %v", what, err)
		}
		if what == "another secret" {
			wantCode(t, "ConnectTarget with another secret", err, codes.Unauthenticated)
		}
	}
	must(t, i.connect(target, api.AuthenticationType_ONE_WAY_CHAP, "user", right))
	must(t, i.disconnect(target))
}

func (i *initiator) mutualCHAP(t *testing.T) {
	targets, nodes := secretMark+rand.Text()[:6], secretMark+rand.Text()[:7]
	target := newISCSITarget(t, "-EnableChap $true -Chap (%s) -EnableReverseChap $true -ReverseChap (%s)",
		credential("user", targets), credential("target", nodes))
	i.discover(t)
	must(t, i.setMutualSecret(secretMark+"wrong"))
	wantCode(t, "ConnectTarget with another secret of the node",
		i.connect(target, api.AuthenticationType_MUTUAL_CHAP, "user", targets), codes.Unauthenticated)
	must(t, i.setMutualSecret(nodes))
	must(t, i.connect(target, api.AuthenticationType_MUTUAL_CHAP, "user", targets))
	must(t, i.disconnect(target))
}

// A login that somebody else made for good ends for good.
func (i *initiator) persistentLogin(t *testing.T) {
	target := newISCSITarget(t, "")
	i.discover(t)
	powershell(t, nil, "Connect-IscsiTarget -NodeAddress '%s' -TargetPortalAddress '%s' -TargetPortalPortNumber 3260 "+
		"-IsPersistent $true",
		target.iqn, i.portal.TargetAddress)
	persistent := func() bool {
		var lines []string
		powershell(t, &lines, "iscsicli.exe ListPersistentTargets")
		return strings.Contains(strings.Join(lines, ""), target.iqn)
	}
	if !persistent() {
		t.Fatal("the login isn't persistent")
	}
	must(t, i.disconnect(target))
	if persistent() {
		t.Error("DisconnectTarget left the persistent login")
	}
}

// initiator is a client with the portal of this machine's target server.
type initiator struct {
	*iscsi.Client
	portal *api.TargetPortal
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do makes a call with a time limit.
func do(call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	return call(ctx)
}

func (i *initiator) addPortal() error {
	return do(func(ctx context.Context) error {
		_, err := i.AddTargetPortal(ctx, &api.AddTargetPortalRequest{TargetPortal: i.portal})
		return err
	})
}

func (i *initiator) removePortal() error {
	return do(func(ctx context.Context) error {
		_, err := i.RemoveTargetPortal(ctx, &api.RemoveTargetPortalRequest{TargetPortal: i.portal})
		return err
	})
}

// list returns the addresses of the known portals.
func (i *initiator) list(t *testing.T) (addresses []string, err error) {
	t.Helper()
	err = do(func(ctx context.Context) error {
		answer, err := i.ListTargetPortals(ctx, &api.ListTargetPortalsRequest{})
		for _, p := range answer.GetTargetPortals() {
			addresses = append(addresses, p.TargetAddress)
		}
		return err
	})
	return addresses, err
}

func (i *initiator) discover(t *testing.T) (iqns []string) {
	t.Helper()
	must(t, do(func(ctx context.Context) error {
		answer, err := i.DiscoverTargetPortal(ctx, &api.DiscoverTargetPortalRequest{TargetPortal: i.portal})
		iqns = answer.GetIqns()
		return err
	}))
	return iqns
}

func (i *initiator) connect(target iscsiTarget, auth api.AuthenticationType, user, secret string) error {
	return do(func(ctx context.Context) error {
		_, err := i.ConnectTarget(ctx, &api.ConnectTargetRequest{
			TargetPortal: i.portal, Iqn: target.iqn, AuthType: auth, ChapUsername: user, ChapSecret: secret,
		})
		return err
	})
}

func (i *initiator) disconnect(target iscsiTarget) error {
	return do(func(ctx context.Context) error {
		_, err := i.DisconnectTarget(ctx, &api.DisconnectTargetRequest{TargetPortal: i.portal, Iqn: target.iqn})
		return err
	})
}

func (i *initiator) disks(t *testing.T, target iscsiTarget) (numbers []string) {
	t.Helper()
	must(t, do(func(ctx context.Context) error {
		answer, err := i.GetTargetDisks(ctx, &api.GetTargetDisksRequest{TargetPortal: i.portal, Iqn: target.iqn})
		numbers = answer.GetDiskIDs()
		return err
	}))
	return numbers
}

// onlyDisk returns the number of the disk of a target that has one.
func (i *initiator) onlyDisk(t *testing.T, target iscsiTarget) uint32 {
	t.Helper()
	disks := i.disks(t, target)
	if len(disks) != 1 {
		t.Fatalf("the target has the disks %q, want one", disks)
	}
	number, err := strconv.ParseUint(disks[0], 10, 32)
	must(t, err)
	return uint32(number)
}

func (i *initiator) setMutualSecret(secret string) error {
	return do(func(ctx context.Context) error {
		_, err := i.SetMutualChapSecret(ctx, &api.SetMutualChapSecretRequest{MutualChapSecret: secret})
		return err
	})
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s gives %v, want the code %v", what, err, want)
	}
}

// targetServerPortal returns an address at which this machine's target server
// listens; it doesn't at the loopback addresses.
func targetServerPortal(t *testing.T) *api.TargetPortal {
	t.Helper()
	var addresses []string
	powershell(t, &addresses, "(Get-IscsiTargetServerSetting).Portals | Where-Object Enabled | "+
		"ForEach-Object { $_.IPEndpoint } | Where-Object { $_.AddressFamily -eq 'InterNetwork' -and $_.Port -eq 3260 } | "+
		"ForEach-Object { $_.Address.ToString() }")
	if len(addresses) == 0 {
		t.Fatal("the iSCSI target server listens nowhere")
	}
	return &api.TargetPortal{TargetAddress: addresses[0], TargetPort: 3260}
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
