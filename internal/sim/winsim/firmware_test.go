// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// TestFirmwareTable reads the tables with dmidecode, if it is there.
func TestFirmwareTable(t *testing.T) {
	dmidecode, err := exec.LookPath("dmidecode")
	if err != nil {
		t.Skip("needs dmidecode")
	}
	s := newNode(t, Delays{})
	raw, err := s.FirmwareTable(t.Context())
	must(t, err)
	table := raw[8:]

	// The file that dmidecode writes: an entry point and the table at 32.
	entry := make([]byte, 32)
	copy(entry, "_SM3_")
	entry[6], entry[7], entry[8], entry[10] = 24, raw[1], raw[2], 1
	binary.LittleEndian.PutUint32(entry[12:], uint32(len(table)))
	binary.LittleEndian.PutUint64(entry[16:], 32)
	var sum byte
	for _, b := range entry[:24] {
		sum += b
	}
	entry[5] = -sum
	file := filepath.Join(t.TempDir(), "dump")
	must(t, os.WriteFile(file, append(entry, table...), 0o600))
	out, err := exec.Command(dmidecode, "--from-dump", file).CombinedOutput()
	if err != nil {
		t.Fatalf("dmidecode: %v\n%s", err, out)
	}
	for _, want := range []string{"BIOS Information", "\tSerial Number: " + defaultBIOSSerial + "\n", "End Of Table"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q isn't in what dmidecode reads:\n%s", want, out)
		}
	}
	for _, bad := range []string{"Wrong", "Invalid", "truncated", "<BAD INDEX>", "<OUT OF SPEC>"} {
		if strings.Contains(string(out), bad) {
			t.Errorf("dmidecode says %q:\n%s", bad, out)
		}
	}
}

func TestBIOSSerial(t *testing.T) {
	s := newNode(t, Delays{})
	const longest = "................................................................"
	for _, serial := range []string{"x", " blanks ", "", longest} {
		must(t, s.SetBIOSSerial(serial))
		must(t, s.PowerLoss())
		raw, err := s.FirmwareTable(t.Context())
		must(t, err)
		if n := binary.LittleEndian.Uint32(raw[4:]); int(n) != len(raw)-8 {
			t.Errorf("%q: the table has %d bytes, its header says %d", serial, len(raw)-8, n)
		}
		machine := raw[8+0x18+len("Phoenix Technologies LTD\x006.00\x0011/12/2020\x00\x00"):]
		if machine[0] != 1 || machine[1] != 0x1b {
			t.Fatalf("%q: a structure of type %d with %d bytes", serial, machine[0], machine[1])
		}
		var got string
		if index := machine[7]; index > 0 {
			got = strings.Split(string(machine[0x1b:]), "\x00")[index-1]
		}
		if got != serial {
			t.Errorf("serial number %q, want %q", got, serial)
		}
	}
	for _, serial := range []string{longest + ".", "a\x00b", "ä"} {
		wantErr(t, "set "+serial, s.SetBIOSSerial(serial), winerr.ErrorInvalidParameter)
	}
}
