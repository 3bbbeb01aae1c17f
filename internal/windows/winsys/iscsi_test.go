// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/abitest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

func TestABIOfISCSI(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	abi.Check(abitest.Constants{
		"MAX_ISCSI_NAME_LEN":            maxISCSINameLen,
		"ISCSI_ANY_INITIATOR_PORT":      iscsiAllInitiatorPorts,
		"ISCSI_ALL_INITIATOR_PORTS":     iscsiAllInitiatorPorts,
		"ISCSI_LOGIN_OPTIONS_VERSION":   0,
		"ISCSI_LOGIN_OPTIONS_USERNAME":  loginOptionUsername,
		"ISCSI_LOGIN_OPTIONS_PASSWORD":  loginOptionPassword,
		"ISCSI_LOGIN_OPTIONS_AUTH_TYPE": loginOptionAuthType,
		"ISCSI_NO_AUTH_TYPE":            uint64(win.ISCSINoAuth),
		"ISCSI_CHAP_AUTH_TYPE":          uint64(win.ISCSICHAP),
		"ISCSI_MUTUAL_CHAP_AUTH_TYPE":   uint64(win.ISCSIMutualCHAP),
		"DiscoveryMechanisms":           iscsiDiscoveryMechanisms,
	})
	for name, structure := range map[string]any{
		"ISCSI_TARGET_PORTALW":         targetPortal{},
		"ISCSI_TARGET_PORTAL_INFO_EXW": portalInfo{},
		"ISCSI_LOGIN_OPTIONS":          loginOptions{},
		"ISCSI_UNIQUE_SESSION_ID":      iscsiUniqueID{},
		"ISCSI_SESSION_INFOW":          sessionInfo{},
		"ISCSI_CONNECTION_INFOW":       connectionInfo{},
		"ISCSI_DEVICE_ON_SESSIONW":     deviceOnSession{},
		"PERSISTENT_ISCSI_LOGIN_INFOW": persistentLogin{},
	} {
		abi.CheckStructure(name, structure)
	}
	abi.CheckSizes(map[string]uintptr{"ISCSI_LOGIN_OPTIONS": unsafe.Sizeof(reportedLoginOptions{})})
}

func TestNewTargetPortal(t *testing.T) {
	portal, err := newTargetPortal(win.ISCSIPortal{Address: "fd00::1", Port: 3261})
	must(t, err)
	want := abitest.Load(t, abiDir).Sample("iscsi_portal")
	if got := unsafe.Slice((*byte)(unsafe.Pointer(portal)), unsafe.Sizeof(*portal)); !bytes.Equal(got, want) {
		t.Errorf("ISCSI_TARGET_PORTALW is\n%x, want\n%x", got, want)
	}
	longest := strings.Repeat("x", 253) + "\U0001f4be" // of two units
	if portal, err = newTargetPortal(win.ISCSIPortal{Address: longest}); err != nil || portal.decode().Address != longest {
		t.Errorf("an address of 255 units: %v", err)
	}
	for name, address := range map[string]string{"256 units": longest + "x", "a NUL": "192.0.2.1\x00.example"} {
		if _, err := newTargetPortal(win.ISCSIPortal{Address: address}); !errors.Is(err, winerr.ErrorInvalidParameter) {
			t.Errorf("an address of %s: %v", name, err)
		}
	}
}

func TestCheckISCSIName(t *testing.T) {
	longest := "iqn.2026-01.example:" + strings.Repeat("x", 203)
	for name, want := range map[string]error{
		longest:               nil,
		longest + "x":         winerr.ISDSCInvalidISCSIName,
		"iqn.2026-01\x00.com": winerr.ISDSCInvalidISCSIName,
	} {
		if err := checkISCSIName(name); err != want {
			t.Errorf("%q: %v, want %v", name, err, want)
		}
	}
}

func TestNewLoginOptions(t *testing.T) {
	const authType, username, password = 0x80, 0x20, 0x40
	for _, test := range []struct {
		name               string
		login              win.ISCSILogin
		specified          uint32
		username, password string
	}{
		{"none", win.ISCSILogin{Username: "user", Secret: csiproxy.NewSecret("password1234")}, authType, "", ""},
		{"CHAP", win.ISCSILogin{AuthType: win.ISCSICHAP, Username: "üser", Secret: csiproxy.NewSecret("password1234")},
			authType | username | password, "üser", "password1234"},
		{"CHAP as the node", win.ISCSILogin{AuthType: win.ISCSIMutualCHAP, Secret: csiproxy.NewSecret("password1234")},
			authType | password, "", "password1234"},
		{"CHAP without secret", win.ISCSILogin{AuthType: win.ISCSICHAP, Username: "u"}, authType | username, "u", ""},
	} {
		o, erase := newLoginOptions(test.login)
		given := unsafe.Slice(o.password, o.passwordLength)
		if o.authType != test.login.AuthType || o.informationSpecified != test.specified ||
			string(unsafe.Slice(o.username, o.usernameLength)) != test.username || string(given) != test.password {
			t.Errorf("%s: %+v with user %q, password %q", test.name, o, unsafe.Slice(o.username, o.usernameLength), given)
		}
		if erase(); bytes.ContainsFunc(given, func(r rune) bool { return r != 0 }) {
			t.Errorf("%s: the password isn't erased", test.name)
		}
		if test.login.Secret.Reveal() != "" && test.login.Secret.Reveal() != "password1234" {
			t.Errorf("%s: the caller's secret was erased", test.name)
		}
	}
}

func TestDecodePortals(t *testing.T) {
	b := abitest.Load(t, abiDir).Sample("iscsi_portals")
	longest := "a23456789012345" + strings.Repeat("b234567890", 16) + strings.Repeat("c2345", 16) // 255 units
	want := []win.ISCSIPortal{{Address: "192.0.2.1", Port: 3260}, {Address: longest, Port: 65535}}
	got, err := decodePortals(append(b, 1, 2, 3), 2)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

// The address at which the sample of sessions begins.
const sessionsAddress = 0x7ff612340000

func TestDecodeSessions(t *testing.T) {
	b := abitest.Load(t, abiDir).Sample("iscsi_sessions")
	want := []win.ISCSISession{
		{ID: win.ISCSISessionID{AdapterUnique: 0xffff8d8012345010, AdapterSpecific: 0x4000013700000002},
			Target: "iqn.2026-01.a:1", Portals: []win.ISCSIPortal{{Address: "192.0.2.1", Port: 860}}},
		{ID: win.ISCSISessionID{AdapterUnique: 3, AdapterSpecific: 4}, Target: "iqn.2026-01.a:2"}, // has no node name
	}
	got, err := decodeSessions(b, sessionsAddress, 2)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

func TestDecodeSessionsRefuses(t *testing.T) {
	abi := abitest.Load(t, abiDir)
	good := abi.Sample("iscsi_sessions")
	field := func(field string, value uint64) []byte {
		b := slices.Clone(good)
		le.PutUint64(b[abi.Offset("ISCSI_SESSION_INFOW."+field):], value)
		return b
	}
	portal := func(address uint64) []byte {
		b := slices.Clone(good)
		le.PutUint64(b[2*abi.Size("ISCSI_SESSION_INFOW")+abi.Offset("ISCSI_CONNECTION_INFOW.TargetAddress"):], address)
		return b
	}
	name := func(address uint64) []byte { return field("TargetNodeName", address) }
	end := uint64(sessionsAddress + len(good))
	for what, b := range map[string][]byte{
		"a name before the buffer":          name(sessionsAddress - 2),
		"a name just behind it":             name(end),
		"a name far behind it":              name(1 << 63),
		"half a character at the end":       name(end - 1),
		"a name without end":                append(name(end - 4)[:len(good)-4], "x\x00y\x00"...),
		"connections before the buffer":     field("Connections", sessionsAddress-8),
		"connections at its end":            field("Connections", end),
		"more connections than it can have": field("ConnectionCount", 0xFFFF),
		"a portal behind the buffer":        portal(end),
		"a name of 224 units":               append(name(end), wide(strings.Repeat("x", 224)+"\x00")...),
	} {
		if got, err := decodeSessions(b, sessionsAddress, 1); err == nil {
			t.Errorf("%s gives %v", what, got)
		}
	}
	if got, err := decodeSessions(good, sessionsAddress, 0xFFFFFFFF); err == nil {
		t.Errorf("more sessions than the buffer has room for give %d", len(got))
	}
}

func TestDecodeSessionDevices(t *testing.T) {
	b := abitest.Load(t, abiDir).Sample("iscsi_devices")
	want := []win.ISCSIDevice{
		{
			SCSIAddress: win.SCSIAddress{PortNumber: 5, PathID: 6, TargetID: 7, LUN: 8},
			Device:      win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: 3},
		},
		{
			SCSIAddress: win.SCSIAddress{PortNumber: 5, PathID: 6, TargetID: 7, LUN: 9},
			Device: win.DeviceNumber{DeviceType: win.FileDeviceDisk, DeviceNumber: win.NoNumber,
				PartitionNumber: win.NoNumber},
		},
	}
	got, err := decodeSessionDevices(b, 2)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if got, err := decodeSessionDevices(b[:len(b)-1], 2); err == nil {
		t.Errorf("a device that is cut off gives %v", got)
	}
}

func TestDecodePersistentLogins(t *testing.T) {
	b := abitest.Load(t, abiDir).Sample("iscsi_persistent_login")
	logins, err := decodePersistentLogins(b, 1)
	must(t, err)
	want := win.ISCSIPersistentLogin{
		Target: "iqn.2026-01.a:1", Initiator: `ROOT\ISCSIPRT\0000_0`, InitiatorPort: 2,
		Portal: win.ISCSIPortal{Address: "192.0.2.1", Port: 3260},
	}
	if diff := cmp.Diff(want, logins[0].decode()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := decodeWide(logins[0].targetPortal.symbolicName[:]); got != "symbolic" {
		t.Errorf("the portal's symbolic name is %q", got)
	}
}

// wide returns text as Windows has it.
func wide(text string) []byte {
	var b []byte
	for _, u := range utf16.Encode([]rune(text)) {
		b = le.AppendUint16(b, u)
	}
	return b
}

func TestDecodeMultiSZ(t *testing.T) {
	for text, want := range map[string][]string{
		"":                         nil,
		"\x00":                     nil,
		"\x00\x00":                 nil,
		"a\x00\x00":                {"a"},
		"a\x00":                    {"a"}, // the buffer ends it
		"a\x00bc\x00\x00d\x00":     {"a", "bc"},
		"名 \U0001f4be\x00\x00\x00": {"名 \U0001f4be"},
	} {
		got, err := decodeMultiSZ(wide(text))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got)\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"a", "a\x00b"} {
		if got, err := decodeMultiSZ(wide(text)); err == nil {
			t.Errorf("%q, which is cut off, gives %q", text, got)
		}
	}
}

// initiator plays one that has so many elements to report.
type initiator struct {
	elements uint32
	tooSmall winerr.Errno
	silent   bool     // doesn't say how many it needs
	rooms    []uint32 // that it was called with
}

func (i *initiator) report(room *uint32, buf []byte) error {
	i.rooms = append(i.rooms, *room)
	if *room < i.elements {
		if !i.silent {
			*room = i.elements
		}
		return i.tooSmall
	}
	*room = i.elements
	buf[0] = 42
	return nil
}

func TestISCSIReport(t *testing.T) {
	const first = firstISCSIReport / 16
	for _, test := range []struct {
		name      string
		initiator initiator
		rooms     []uint32
		err       error
	}{
		{"fits", initiator{elements: first}, []uint32{first}, nil},
		{"too small", initiator{elements: 5000, tooSmall: winerr.ErrorInsufficientBuffer}, []uint32{first, 5000}, nil},
		{"wrapped number", initiator{elements: 5000, tooSmall: 0x8007007A}, []uint32{first, 5000}, nil},
		{"code of the initiator", initiator{elements: 5000, tooSmall: winerr.ISDSCBufferTooSmall}, []uint32{first, 5000}, nil},
		{"it doesn't say how much", initiator{elements: 1000, tooSmall: winerr.ErrorInsufficientBuffer, silent: true},
			[]uint32{first, 2 * first, 4 * first}, nil},
		{"too many", initiator{elements: maxISCSIReport/16 + 1, tooSmall: winerr.ISDSCBufferTooSmall}, []uint32{first},
			winerr.ErrorInsufficientBuffer},
		{"far too many", initiator{elements: 0xFFFFFFFF, tooSmall: winerr.ISDSCBufferTooSmall}, []uint32{first},
			winerr.ErrorInsufficientBuffer},
		{"another error", initiator{elements: 1000, tooSmall: winerr.ISDSCServiceNotRunning}, []uint32{first},
			winerr.ISDSCServiceNotRunning},
	} {
		t.Run(test.name, func(t *testing.T) {
			var seen []byte
			got, err := iscsiReport(t.Context(), 16, test.initiator.report, func(buf []byte) (byte, error) {
				seen = buf
				return buf[0], nil
			})
			if !errors.Is(err, test.err) || err == nil && got != 42 {
				t.Errorf("gives %d, %v, want %v", got, err, test.err)
			}
			if diff := cmp.Diff(test.rooms, test.initiator.rooms); diff != "" {
				t.Errorf("room for elements (-want +got):\n%s", diff)
			}
			if slices.ContainsFunc(seen, func(b byte) bool { return b != 0 }) {
				t.Error("the buffer isn't erased")
			}
		})
	}
}

// One whose need grows with each call isn't asked forever.
func TestISCSIReportEnds(t *testing.T) {
	calls := 0
	_, err := iscsiReport(t.Context(), 1, func(room *uint32, _ []byte) error {
		calls++
		*room++
		return winerr.ErrorInsufficientBuffer
	}, decodeMultiSZ)
	if !errors.Is(err, winerr.ErrorInsufficientBuffer) || calls > 100 {
		t.Errorf("ends with %v after %d calls", err, calls)
	}
}

func TestISCSIReportHeedsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := iscsiReport(ctx, 1, func(room *uint32, _ []byte) error {
		calls++
		cancel()
		*room *= 2
		return winerr.ErrorInsufficientBuffer
	}, decodeMultiSZ)
	if !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("ends with %v after %d calls", err, calls)
	}
}

// What the initiator writes can't make the decoders read outside of it.
func FuzzDecodeISCSI(f *testing.F) {
	abi := abitest.Load(f, abiDir)
	for _, sample := range []string{"iscsi_portals", "iscsi_sessions", "iscsi_devices", "iscsi_persistent_login"} {
		f.Add(abi.Sample(sample), uint64(sessionsAddress), uint32(2))
	}
	f.Add(wide("iqn.a\x00iqn.b\x00\x00"), uint64(0), uint32(1))
	f.Fuzz(func(t *testing.T, b []byte, address uint64, count uint32) {
		lengths := map[string]int{}
		check := func(name string, n int, size uintptr, err error) {
			if lengths[name] = n; err == nil && uint64(n)*uint64(size) > uint64(len(b)) || err != nil && n != 0 {
				t.Errorf("%s: %d elements of %d bytes, error %v", name, n, len(b), err)
			}
		}
		portals, err := decodePortals(b, count)
		check("portals", len(portals), unsafe.Sizeof(portalInfo{}), err)
		sessions, err := decodeSessions(b, address, count)
		check("sessions", len(sessions), unsafe.Sizeof(sessionInfo{}), err)
		devices, err := decodeSessionDevices(b, count)
		check("devices", len(devices), unsafe.Sizeof(deviceOnSession{}), err)
		logins, err := decodePersistentLogins(b, count)
		check("logins", len(logins), unsafe.Sizeof(persistentLogin{}), err)
		for i := range logins {
			_ = logins[i].decode()
		}
		list, err := decodeMultiSZ(b)
		check("list", len(list), 4, err) // a character and a NUL
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
