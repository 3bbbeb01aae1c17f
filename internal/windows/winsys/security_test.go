// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// unhex reads hexadecimal digits with blanks between.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	must(t, err)
	return b
}

const (
	// SYSTEM may do everything, inherited by files and directories; the entry was inherited.
	systemACE = "00 13 1400 ff011f00 0101000000000005 12000000"
	denyACE   = "01 00 1400 06000000 0101000000000001 00000000"
)

func TestDenyCreation(t *testing.T) {
	for name, tt := range map[string]struct{ without, with string }{
		"a list that inherits": {
			"01 00 0484 00000000 00000000 00000000 14000000" + "02 00 1c00 0100 0000" + systemACE,
			"01 00 0485 00000000 00000000 00000000 14000000" + "02 00 3000 0200 0000" + denyACE + systemACE,
		},
		"a protected list": {
			"01 00 0490 00000000 00000000 00000000 14000000" + "02 00 1c00 0100 0000" + systemACE,
			"01 00 0490 00000000 00000000 00000000 14000000" + "02 00 3000 0200 0000" + denyACE + systemACE,
		},
		"an empty list": {
			"01 00 0480 00000000 00000000 00000000 14000000" + "02 00 0800 0000 0000",
			"01 00 0480 00000000 00000000 00000000 14000000" + "02 00 1c00 0100 0000" + denyACE,
		},
	} {
		t.Run(name, func(t *testing.T) {
			without, with := unhex(t, tt.without), unhex(t, tt.with)
			got, err := denyCreation(without, true)
			if err != nil || !bytes.Equal(got, with) {
				t.Errorf("denied: % x, %v; want % x", got, err, with)
			}
			for descriptor, want := range map[string]bool{string(without): false, string(with): true} {
				// Buffers of Windows are longer than what is in them.
				long := append([]byte(descriptor), make([]byte, 9)...)
				if denied, err := creationDenied(long); err != nil || denied != want {
					t.Errorf("% x: denied %t, %v", descriptor, denied, err)
				}
				if changed, err := denyCreation(long, want); err != nil || changed != nil {
					t.Errorf("% x: changed to % x, %v; nothing was to change", descriptor, changed, err)
				}
			}
			back, err := denyCreation(with, false)
			must(t, err)
			if back[descriptorControl+1]&^1 != without[descriptorControl+1]&^1 ||
				!bytes.Equal(back[descriptorSize:], without[descriptorSize:]) {
				t.Errorf("allowed again: % x; want % x", back, without)
			}
		})
	}
}

// A directory without an access list is open to everybody. The entry alone would close it.
func TestDenyCreationWithoutList(t *testing.T) {
	for name, descriptor := range map[string]string{
		"no list":     "01 00 0080 00000000 00000000 00000000 00000000",
		"a null list": "01 00 0480 00000000 00000000 00000000 00000000",
	} {
		if got, err := denyCreation(unhex(t, descriptor), true); !errors.Is(err, errorInvalidACL) || got != nil {
			t.Errorf("%s: % x, %v", name, got, err)
		}
		if got, err := denyCreation(unhex(t, descriptor), false); err != nil || got != nil {
			t.Errorf("%s, not denied: % x, %v", name, got, err)
		}
	}
}

// What isn't the very entry stays, and doesn't count.
func TestOtherEntries(t *testing.T) {
	for name, ace := range map[string]string{
		"that is inherited":      "01 10 1400 06000000 0101000000000001 00000000",
		"that others inherit":    "01 03 1400 06000000 0101000000000001 00000000",
		"that denies more":       "01 00 1400 ff011f00 0101000000000001 00000000",
		"of another account":     "01 00 1400 06000000 0101000000000005 12000000",
		"that allows":            "00 00 1400 06000000 0101000000000001 00000000",
		"of an unknown kind, 4B": "ff 00 0400",
	} {
		entry := unhex(t, ace)
		list := slices.Concat(unhex(t, "01 00 0480 00000000 00000000 00000000 14000000 02 00 0000 0100 0000"), entry)
		list[descriptorSize+aclSize] = byte(aclHeader + len(entry))
		if denied, err := creationDenied(list); err != nil || denied {
			t.Errorf("an entry %s: denied %t, %v", name, denied, err)
		}
		got, err := denyCreation(list, true)
		if err != nil || !bytes.HasSuffix(got, slices.Concat(denyCreationACE, entry)) {
			t.Errorf("an entry %s: % x, %v", name, got, err)
		}
	}
}

func TestIsPrivate(t *testing.T) {
	const (
		system         = "0101000000000005 12000000"
		administrators = "0102000000000005 20000000 20020000"
		everyone       = "0101000000000001 00000000"
		user           = "0102000000000005 15000000 e9030000"
		// A descriptor with an owner behind the header, and a list of one entry behind that.
		head     = "01 00 0480 14000000 00000000 00000000"
		one, two = "02 00 1c00 0100 0000", "02 00 2000 0100 0000" // of a SID with one number, and with two
	)
	self := unhex(t, user)
	for name, tt := range map[string]struct {
		descriptor string
		want       bool
	}{
		"of SYSTEM":             {head + "20000000" + system + one + "00 00 1400 ff011f00" + system, true},
		"of the Administrators": {head + "24000000" + administrators + two + "00 00 1800 ff011f00" + administrators, true},
		"of this process":       {head + "24000000" + user + two + "00 00 1800 ff011f00" + user, true},
		"of nobody else":        {head + "20000000" + system + one + "01 00 1400 ff011f00" + everyone, true},
		"closed to all":         {head + "20000000" + system + "02 00 0800 0000 0000", true},
		"of Everyone":           {head + "20000000" + everyone + one + "00 00 1400 ff011f00" + system, false},
		"open to Everyone":      {head + "20000000" + system + one + "00 00 1400 01000000" + everyone, false},
		"of an unknown kind":    {head + "20000000" + system + one + "05 00 1400 ff011f00" + system, false},
		"without an owner": {"01 00 0480 00000000 00000000 00000000 14000000" + one + "00 00 1400 ff011f00" + system,
			false},
		"without a list":   {"01 00 0080 14000000 00000000 00000000 00000000" + system, false},
		"with a null list": {"01 00 0480 14000000 00000000 00000000 00000000" + system, false},
		"with a cut off SID": {head + "20000000" + system + one + "00 00 1400 ff011f00" + administrators[:25],
			false},
		"with a cut off entry": {head + "20000000" + system + "02 00 0c00 0100 0000" + "00 00 0400", false},
		"with an owner far away": {"01 00 0480 f0ffffff 00000000 00000000 14000000" + one + "00 00 1400 ff011f00" + system,
			false},
	} {
		if got, err := isPrivate(unhex(t, tt.descriptor), self); err != nil || got != tt.want {
			t.Errorf("a file %s: private %t, %v", name, got, err)
		}
	}
}

func FuzzIsPrivate(f *testing.F) {
	f.Add(unhex(f, "01 00 0484 00000000 00000000 00000000 14000000 02 00 1c00 0100 0000"+systemACE))
	f.Fuzz(func(t *testing.T, descriptor []byte) {
		private, err := isPrivate(descriptor, nil)
		known := bytes.Contains(descriptor, systemSID) || bytes.Contains(descriptor, administratorsSID)
		if private && (err != nil || !known) {
			t.Errorf("% x is private, %v", descriptor, err)
		}
	})
}

func FuzzDenyCreation(f *testing.F) {
	f.Add(unhex(f, "01 00 0484 00000000 00000000 00000000 14000000 02 00 1c00 0100 0000"+systemACE))
	f.Add(unhex(f, "01 00 0484 00000000 00000000 00000000 f0ffffff 02 00 1c00 0100 0000"+systemACE))
	f.Add(unhex(f, "01 00 0484 00000000 00000000 00000000 14000000 02 00 1c00 0200 0000"+systemACE))
	f.Fuzz(func(t *testing.T, descriptor []byte) {
		for _, deny := range []bool{true, false} {
			changed, err := denyCreation(descriptor, deny)
			if err != nil || changed == nil {
				continue
			}
			if denied, err := creationDenied(changed); err != nil || denied != deny {
				t.Errorf("% x became % x: denied %t, %v", descriptor, changed, denied, err)
			}
		}
	})
}

// rootACL is what a fresh NTFS volume has at its root: BA, SY and CO full control, the Users (RX), (CI)(AD) and
// (CI)(IO)(WD), Everyone (RX).
const rootACL = "00 03 1800 ff011f00 0102000000000005 20000000 20020000" +
	"00 03 1400 ff011f00 0101000000000005 12000000" +
	"00 0b 1400 00000010 0101000000000003 00000000" +
	"00 03 1800 a9001200 0102000000000005 20000000 21020000" +
	"00 02 1800 04000000 0102000000000005 20000000 21020000" +
	"00 0a 1800 02000000 0102000000000005 20000000 21020000" +
	"00 00 1400 a9001200 0101000000000001 00000000"

func TestAddAccess(t *testing.T) {
	const (
		head   = "01 00 0480 00000000 00000000 00000000 14000000"
		modify = "00 03 1800 bf011300 0102000000000005 20000000 21020000"
	)
	users := win.ACE{Flags: win.ObjectInherit | win.ContainerInherit, Rights: win.FileModify, SID: winid.SIDUsers}
	for name, tt := range map[string]struct{ without, with string }{
		"the root of a volume": {head + "02 00 a400 0700 0000" + rootACL, head + "02 00 bc00 0800 0000" + rootACL + modify},
		"before what is inherited": {"01 00 0484 00000000 00000000 00000000 14000000" + "02 00 3000 0200 0000" + denyACE + systemACE,
			"01 00 0485 00000000 00000000 00000000 14000000" + "02 00 4800 0300 0000" + denyACE + modify + systemACE},
	} {
		t.Run(name, func(t *testing.T) {
			without, with := unhex(t, tt.without), unhex(t, tt.with)
			got, err := addAccess(append(slices.Clone(without), make([]byte, 9)...), []win.ACE{users, users})
			if err != nil || !bytes.Equal(got, with) {
				t.Errorf("% x, %v; want % x", got, err, with)
			}
			if again, err := addAccess(with, []win.ACE{users}); err != nil || again != nil {
				t.Errorf("again: % x, %v", again, err)
			}
		})
	}
	list, err := decodeAccess(unhex(t, head+"02 00 a400 0700 0000"+rootACL))
	must(t, err)
	if last := list[len(list)-1]; last != (win.ACE{Rights: win.FileReadExecute, SID: winid.SIDEveryone}) {
		t.Errorf("the last entry is %+v", last)
	}
	if creator := list[2]; creator.SID != winid.SIDCreatorOwner || creator.Rights != win.GenericAll ||
		creator.Flags != win.ObjectInherit|win.ContainerInherit|win.InheritOnly {
		t.Errorf("the creator's entry is %+v", creator)
	}
	for name, descriptor := range map[string]string{
		"no list":          "01 00 0080 00000000 00000000 00000000 00000000",
		"a null list":      "01 00 0480 00000000 00000000 00000000 00000000",
		"an entry too few": head + "02 00 1c00 0200 0000" + systemACE,
		"half a SID":       head + "02 00 1800 0100 0000" + "00 00 1000 ff011f00 0102000000000005",
	} {
		if got, err := addAccess(unhex(t, descriptor), []win.ACE{users}); !errors.Is(err, errorInvalidACL) || got != nil {
			t.Errorf("%s: % x, %v", name, got, err)
		}
	}
}

func FuzzAddAccess(f *testing.F) {
	f.Add(unhex(f, "01 00 0480 00000000 00000000 00000000 14000000 02 00 a400 0700 0000"+rootACL))
	f.Fuzz(func(t *testing.T, descriptor []byte) {
		entries := []win.ACE{{Rights: win.FileModify, SID: "S-1-5-93-2-9"}}
		before, err := decodeAccess(descriptor)
		changed, addErr := addAccess(descriptor, entries)
		if err != nil || addErr != nil || changed == nil {
			return
		}
		after, err := decodeAccess(changed)
		if err != nil || len(after) != len(before)+1 || !slices.Contains(after, entries[0]) {
			t.Errorf("%+v became %+v, %v", before, after, err)
		}
	})
}
