// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

func gptLayout() *DriveLayout {
	return &DriveLayout{
		Style:                StyleGPT,
		DiskID:               mustGUID("11223344-5566-7788-99aa-bbccddeeff00"),
		StartingUsableOffset: 17408,
		UsableLength:         10<<30 - 2*17408,
		MaxPartitionCount:    128,
		Partitions: []Partition{
			{
				Style: StyleGPT, StartingOffset: 17408, Length: 16759808, Number: 1, RewritePartition: true,
				Type: PartitionTypeMicrosoftReserved, ID: mustGUID("00000000-0000-0000-0000-000000000001"),
				Name: "Microsoft reserved partition",
			},
			{
				Style: StyleGPT, StartingOffset: 16 << 20, Length: 10<<30 - 17<<20, Number: 2,
				Type: PartitionTypeBasicData, ID: mustGUID("00000000-0000-0000-0000-000000000002"),
				Attributes: GPTAttributeNoDriveLetter, Name: "Grüße 𝕏",
			},
		},
	}
}

func TestDriveLayoutRefusesBadBytes(t *testing.T) {
	good := gptLayout().Encode()
	cutOff := good[:len(good)-1]
	style := append([]byte{9}, good[1:]...)
	count := append([]byte{}, good...)
	count[4], count[7] = 0xff, 0xff
	for name, b := range map[string][]byte{"empty": nil, "short": good[:47], "cut off": cutOff, "style": style,
		"count": count} {
		if _, err := DecodeDriveLayout(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLongPartitionNameIsCut(t *testing.T) {
	l := &DriveLayout{Style: StyleGPT, Partitions: []Partition{{Style: StyleGPT, Name: strings.Repeat("x", 50)}}}
	got, err := DecodeDriveLayout(l.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if name := got.Partitions[0].Name; name != strings.Repeat("x", 36) {
		t.Errorf("name is %q", name)
	}
}

func TestGUID(t *testing.T) {
	const text = "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"
	g, ok := winid.ParseGUID(strings.ToUpper(text))
	if !ok || g.String() != text || g != PartitionTypeBasicData {
		t.Errorf("ParseGUID gave %v, %v", g, ok)
	}
	for _, bad := range []string{"", text[1:], text + "0", strings.Replace(text, "-", "x", 1), "zz" + text[2:],
		strings.Replace(text, "a0a2", "a0-2", 1)} {
		if g, ok := winid.ParseGUID(bad); ok {
			t.Errorf("ParseGUID(%q) gave %v", bad, g)
		}
	}
	if a, b := winid.NewGUID(), winid.NewGUID(); a == b || a.String()[14] != '4' {
		t.Errorf("NewGUID gave %v and %v", a, b)
	}
}

func TestRequiredAccess(t *testing.T) {
	for code, want := range map[IoctlCode]Access{
		IoctlDiskGetDriveLayoutEx: AccessNone,
		IoctlDiskGetLengthInfo:    GenericRead,
		IoctlDiskSetDriveLayoutEx: GenericRead | GenericWrite,
	} {
		if got := code.RequiredAccess(); got != want {
			t.Errorf("%v needs access %#x, want %#x", code, got, want)
		}
	}
}

func FuzzDecodeDriveLayout(f *testing.F) {
	f.Add(gptLayout().Encode())
	f.Add((&DriveLayout{Style: StyleRAW}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := DecodeDriveLayout(b)
		if err != nil {
			return
		}
		again, err := DecodeDriveLayout(l.Encode())
		if err != nil {
			t.Fatalf("what was decoded can't be encoded: %v", err)
		}
		if diff := cmp.Diff(l.Encode(), again.Encode()); diff != "" {
			t.Errorf("not stable:\n%s", diff)
		}
	})
}
