// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// TestISCSIConnectionLost: a portal that goes away takes the disks with it, and
// gives them back.
func TestISCSIConnectionLost(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	newTarget(t, s, iscsitarget.Target{}, DiskSpec{})
	newTarget(t, s, iscsitarget.Target{IQN: "iqn.other", Portals: []win.ISCSIPortal{portal1}}, DiskSpec{})
	startInitiator(t, s)
	must(t, s.AddISCSISendTargetPortal(ctx, portal2))
	id, err := s.LoginISCSITarget(ctx, win.ISCSILogin{Target: iqn, Portal: portal2})
	must(t, err)
	other := connect(t, s, "iqn.other")
	if all := s.Disks(); *all[1].Spec.SCSI == *all[2].Spec.SCSI {
		t.Errorf("two LUNs have the address %+v", *all[1].Spec.SCSI)
	}
	d := openDevice(t, s, drivePath(1), win.GenericRead)
	must(t, s.ISCSI().SetPortal(portal2, false))
	wantNumbers(t, "without the portal", devices(t, s, id))
	wantNumbers(t, "over another portal", devices(t, s, other), 2)
	wantErr(t, "read", errorOf(d.ReadAt(ctx, make([]byte, 512), 0)), winerr.ErrorDeviceNotConnected)
	closeHandle(t, d)
	must(t, s.ISCSI().AddLUN(iqn, DiskSpec{SizeBytes: gib}))
	wantNumbers(t, "a new LUN without the portal", devices(t, s, id))
	must(t, s.ISCSI().SetPortal(portal2, true))
	s.Settle()
	must(t, s.ISCSI().SetPortal(portal2, true)) // again
	wantNumbers(t, "with the portal", devices(t, s, id), 1, 3)

	must(t, s.StopService(ctx, services.ISCSIInitiator)) // the driver below it goes on
	closeHandle(t, openDevice(t, s, drivePath(1), win.AccessNone))
	must(t, s.StartService(ctx, services.ISCSIInitiator))
	wantNumbers(t, "after a restart of the service", devices(t, s, id), 1, 3)
}

func TestISCSIRemoveTarget(t *testing.T) {
	s := newNode(t, Delays{})
	ctx := t.Context()
	newTarget(t, s, iscsitarget.Target{}, DiskSpec{Serial: "kept"})
	startInitiator(t, s)
	connect(t, s, iqn)
	must(t, s.WriteImage(1, []byte("data"), mib))
	wantErr(t, "detach a LUN", s.DetachDisk(1), winerr.ErrorNotSupported)
	must(t, s.ISCSI().RemoveTarget(iqn))
	if sessions, err := s.ISCSISessions(ctx); err != nil || len(sessions) != 0 {
		t.Errorf("sessions %v, %v", sessions, err)
	}
	if list := s.ISCSI().Targets(); len(list) != 0 {
		t.Errorf("targets %v", list)
	}
	newTarget(t, s, iscsitarget.Target{IQN: "iqn.new"}, DiskSpec{Serial: "kept"})
	wantErr(t, "attach a LUN", errorOf(s.AttachDisk(DiskSpec{Serial: "kept"})), winerr.ErrorAlreadyExists)
	must(t, s.RefreshISCSISendTargetPortal(ctx, portal1))
	connect(t, s, "iqn.new")
	b := make([]byte, 4)
	must(t, s.ReadImage(1, b, mib))
	if string(b) != "data" {
		t.Errorf("the disk holds %q", b)
	}
}

func TestISCSITargetErrors(t *testing.T) {
	s := newNode(t, Delays{})
	attach(t, s, DiskSpec{Serial: "attached"})
	newTarget(t, s, iscsitarget.Target{}, DiskSpec{Serial: "taken"})
	before := dump(s)
	add := func(change func(*iscsitarget.Target), luns ...DiskSpec) error {
		target := iscsitarget.Target{
			IQN: "iqn.new", Portals: []win.ISCSIPortal{portal1}, CHAPUser: "user", CHAPSecret: chapSecret,
		}
		change(&target)
		err := s.ISCSI().AddTarget(target, luns...)
		if err != nil && strings.Contains(err.Error(), chapSecret.Reveal()) {
			t.Errorf("the error tells the secret: %v", err)
		}
		return err
	}
	nothing := func(*iscsitarget.Target) {}
	lun := func(spec DiskSpec) error {
		return errors.Join(add(nothing, DiskSpec{SizeBytes: gib}, spec), s.ISCSI().AddLUN(iqn, spec))
	}
	_, atAddress := s.AttachDisk(DiskSpec{SizeBytes: gib, SCSI: &win.SCSIAddress{PortNumber: 255}})
	for what, test := range map[string]struct {
		err  error
		want winerr.Errno
	}{
		"exists": {add(func(target *iscsitarget.Target) { target.IQN = strings.ToUpper(iqn) }),
			winerr.ErrorAlreadyExists},
		"no name": {add(func(target *iscsitarget.Target) { target.IQN = "" }), winerr.ErrorInvalidParameter},
		"no IQN":  {add(func(target *iscsitarget.Target) { target.IQN = "example" }), winerr.ErrorInvalidParameter},
		"blank":   {add(func(target *iscsitarget.Target) { target.IQN = "iqn.a b" }), winerr.ErrorInvalidParameter},
		"long name": {add(func(target *iscsitarget.Target) { target.IQN = "iqn." + strings.Repeat("x", 220) }),
			winerr.ErrorInvalidParameter},
		"no portal": {add(func(target *iscsitarget.Target) { target.Portals = nil }), winerr.ErrorInvalidParameter},
		"no address": {add(func(target *iscsitarget.Target) { target.Portals[0].Address = "" }),
			winerr.ErrorInvalidParameter},
		"secret, no user": {add(func(target *iscsitarget.Target) { target.CHAPUser = "" }), winerr.ErrorInvalidParameter},
		"user, no secret": {add(func(target *iscsitarget.Target) { target.CHAPSecret = csiproxy.Secret{} }),
			winerr.ErrorInvalidParameter},
		"mutual secret": {add(func(target *iscsitarget.Target) { target.MutualSecret = csiproxy.NewSecret("short") }),
			winerr.ErrorInvalidParameter},
		"no size":        {lun(DiskSpec{}), winerr.ErrorInvalidParameter},
		"address":        {lun(DiskSpec{SizeBytes: gib, SCSI: &win.SCSIAddress{}}), winerr.ErrorInvalidParameter},
		"attached":       {lun(DiskSpec{SizeBytes: gib, Serial: "attached"}), winerr.ErrorAlreadyExists},
		"LUN of another": {lun(DiskSpec{SizeBytes: gib, Serial: "taken"}), winerr.ErrorAlreadyExists},
		"twice": {add(nothing, DiskSpec{SizeBytes: gib, Serial: "x"}, DiskSpec{SizeBytes: gib, Serial: "x"}),
			winerr.ErrorAlreadyExists},
		"too many":          {add(nothing, slices.Repeat([]DiskSpec{{SizeBytes: gib}}, 257)...), winerr.ErrorNotSupported},
		"LUN of no target":  {s.ISCSI().AddLUN("iqn.unknown", DiskSpec{SizeBytes: gib}), winerr.ErrorNotFound},
		"remove no target":  {s.ISCSI().RemoveTarget("iqn.unknown"), winerr.ErrorNotFound},
		"portal":            {s.ISCSI().SetPortal(win.ISCSIPortal{Address: "a b"}, true), winerr.ErrorInvalidParameter},
		"adapter of others": {atAddress, winerr.ErrorBusy},
		"persistent login": {s.ISCSI().SetPersistentLogin(
			win.ISCSILogin{Target: iqn, Portal: portal1, AuthType: win.ISCSICHAP}), winerr.ISDSCShortCHAPSecret},
	} {
		wantErr(t, what, test.err, test.want)
	}
	if diff := cmp.Diff(before, dump(s)); diff != "" {
		t.Errorf("what failed did something (-before +after):\n%s", diff)
	}
}

// Neither the state file nor a list, nor anything that is printed, has a secret.
func TestSecretsStayOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	s := openNode(t, Config{StateFile: file})
	newMapping(t, s)
	err := s.SMB().SetUser("other", "user", password)
	printed := fmt.Sprintf("%v %+v %#v %+v", err, shareFiles(t, s), s.smb, s.SMB().Servers())
	if strings.Contains(printed, password.Reveal()) {
		t.Error("the password is printed")
	}
	newTarget(t, s, iscsitarget.Target{CHAPUser: "the-user", CHAPSecret: chapSecret, MutualSecret: mutualSecret},
		DiskSpec{})
	startInitiator(t, s)
	must(t, s.SetISCSIInitiatorCHAPSecret(t.Context(), mutualSecret))
	login := win.ISCSILogin{Target: iqn, Portal: portal1, AuthType: win.ISCSIMutualCHAP, Username: "the-user",
		Secret: chapSecret}
	must(t, s.ISCSI().SetPersistentLogin(login))
	_, err = s.LoginISCSITarget(t.Context(), login)
	must(t, err)
	list := s.ISCSI().Targets()
	if len(list) != 1 || list[0].CHAPUser != "the-user" ||
		list[0].CHAPSecret.Reveal()+list[0].MutualSecret.Reveal() != "" {
		t.Errorf("list %+v", list)
	}
	must(t, s.Close())
	b, err := os.ReadFile(file)
	must(t, err)
	if !bytes.Contains(b, []byte("the-user")) || !bytes.Contains(b, []byte("PasswordHash")) {
		t.Error("the file doesn't hold what is looked for in it")
	}
	for _, text := range []csiproxy.Secret{chapSecret, mutualSecret, password} {
		inJSON := base64.StdEncoding.EncodeToString([]byte(text.Reveal()))
		if bytes.Contains(b, []byte(text.Reveal())) || bytes.Contains(b, []byte(inJSON)) {
			t.Error("the state file holds a secret")
		}
	}
}
