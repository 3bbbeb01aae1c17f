// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package diskevent reads and masks what Windows' partition manager writes into its event log for
// each disk that arrives: how it is connected, its names, and its partition table as
// IOCTL_DISK_GET_DRIVE_LAYOUT_EX returns it.
package diskevent

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Channel is where the events are. It is on by default on Windows 10, Windows Server 2016 and later.
const Channel = "Microsoft-Windows-Partition/Diagnostic"

// Disk is what event 1006 says of a disk. A disk that has left has a Capacity of 0, and no table.
type Disk struct {
	Number     uint32
	Capacity   int64
	Descriptor win.DeviceDescriptor
	Location   string
	// Identifiers has the first designator of page 83, if there is one. The event has no others.
	Identifiers []win.Identifier
	Layout      []byte // DRIVE_LAYOUT_INFORMATION_EX
	// MBR is the first sector, which Windows records of a disk without a GPT only.
	MBR []byte
}

// event is the XML that EvtRender, wevtutil and evtxexport give.
type event struct {
	System struct {
		Provider struct {
			Name string `xml:"Name,attr"`
		}
		EventID int
	}
	EventData struct {
		Data []struct {
			Name string `xml:"Name,attr"`
			Text string `xml:",chardata"`
		}
	}
}

// Parse reads an event. ok is false for events other than 1006.
func Parse(text string) (disk Disk, ok bool, err error) {
	var e event
	reader := xml.NewDecoder(strings.NewReader(text))
	reader.Strict = false // evtxexport leaves each "&" of an instance id as it is
	if err := reader.Decode(&e); err != nil {
		return Disk{}, false, fmt.Errorf("an event of %s: %w", Channel, err)
	}
	if e.System.EventID != 1006 || e.System.Provider.Name != "Microsoft-Windows-Partition" {
		return Disk{}, false, nil
	}
	fields := map[string]string{}
	for _, f := range e.EventData.Data {
		fields[f.Name] = f.Text
	}
	number := func(name string) int64 {
		n, parseErr := strconv.ParseInt(cmp.Or(fields[name], "0"), 10, 64)
		if parseErr != nil {
			err = errors.Join(err, fmt.Errorf("%s of an event: %w", name, parseErr))
		}
		return n
	}
	octets := func(name string) []byte {
		b, decodeErr := hex.DecodeString(strings.ReplaceAll(fields[name], "-", ""))
		if decodeErr != nil {
			err = errors.Join(err, fmt.Errorf("%s of an event: %w", name, decodeErr))
		}
		return b
	}
	named := func(name string) string {
		if fields[name] == "NULL" { // what the driver prints for none
			return ""
		}
		return fields[name]
	}
	disk = Disk{
		Number: uint32(number("DiskNumber")), Capacity: number("Capacity"), Location: named("Location"),
		Descriptor: win.DeviceDescriptor{BusType: win.BusType(number("BusType")), VendorID: named("Manufacturer"),
			ProductID: named("Model"), Revision: named("Revision"), SerialNumber: named("SerialNumber")},
		Layout: octets("PartitionTable"), MBR: octets("Mbr"),
	}
	if number("StorageIdCount") > 0 {
		disk.Identifiers = []win.Identifier{{
			CodeSet: win.CodeSet(number("StorageIdCodeSet")), Type: win.IdentifierType(number("StorageIdType")),
			Association: win.Association(number("StorageIdAssociation")), ID: octets("StorageId"),
		}}
	}
	return disk, true, err
}

// Masker takes out of events what names one machine and its disks, and keeps the form: digits stay
// digits, letters stay letters, and zeros in bytes stay zeros. Within one Masker equal values stay
// equal, so that a disk can be told from its copies.
type Masker struct {
	Key []byte // random
}

// masked are the fields with names of one disk or one adapter.
var masked = regexp.MustCompile(`(<Data Name=['"](\w+)['"]>)([^<]*)(</Data>)`)

// Event masks the XML of one event, or of many.
func (m Masker) Event(text string) string {
	return masked.ReplaceAllStringFunc(text, func(field string) string {
		parts := masked.FindStringSubmatch(field)
		name, value := parts[2], parts[3]
		switch name {
		case "SerialNumber", "AdapterSerialNumber", "ParentId", "DiskId", "AdapterId", "RegistryId", "PoolId":
			value = m.Text(value)
		case "StorageId":
			value = m.octets(value, m.Identifier)
		case "PartitionTable":
			value = m.octets(value, m.Layout)
		case "Mbr":
			value = m.octets(value, m.MBR)
		case "Vbr0", "Vbr1", "Vbr2", "Vbr3": // the first sector of a file system, with its number and label
			value = ""
		}
		return parts[1] + value + parts[4]
	})
}

func (m Masker) octets(text string, mask func([]byte) []byte) string {
	b, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	if err != nil {
		return "" // nobody knows what it is
	}
	return strings.ToUpper(hex.EncodeToString(mask(b)))
}

// stream returns n bytes that value decides, and that can't be undone.
func (m Masker) stream(value string, n int) (b []byte) {
	for i := byte(0); len(b) < n; i++ {
		sum := sha256.Sum256(append(append(append([]byte{i}, m.Key...), 0), value...))
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// Text masks a text.
func (m Masker) Text(text string) string {
	if text == "NULL" || strings.Trim(text, "{}0-") == "" {
		return text
	}
	b := []byte(text)
	hexadecimal := strings.Trim(strings.ToUpper(text), "0123456789ABCDEF_-.{}") == ""
	for i, r := range m.stream(text, len(b)) {
		switch c := b[i]; {
		case '0' <= c && c <= '9':
			b[i] = '0' + r%10
		case hexadecimal && 'A' <= c && c <= 'F', hexadecimal && 'a' <= c && c <= 'f':
			b[i] = c&^0x1f | ('A'+r%6)&0x1f
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
			b[i] = c&^0x1f | ('A'+r%26)&0x1f
		case c >= 0x80:
			b[i] = '?'
		}
	}
	return string(b)
}

// identifierPrefix is how much of an identifier of page 83 says who made it: "eui.", a T10 vendor,
// the format and the company of an NAA.
const identifierPrefix = 4

// Identifier masks an identifier of page 83.
func (m Masker) Identifier(b []byte) []byte {
	keep := min(identifierPrefix, len(b))
	rest := string(b[keep:])
	text := strings.IndexFunc(rest, func(r rune) bool { return r != 0 && (r < ' ' || r > '~') }) < 0
	if text {
		return append(b[:keep:keep], m.Text(rest)...)
	}
	return append(b[:keep:keep], m.stream(rest, len(rest))...)
}

// Offsets in DRIVE_LAYOUT_INFORMATION_EX and PARTITION_INFORMATION_EX, and their sizes.
const (
	layoutHeader, partitionEntry       = 48, 144
	gptDiskID, gptPartitionID, gptName = 8, 48, 72
	mbrDiskSignature, mbrDiskChecksum  = 8, 12
	mbrPartitionID                     = 40
)

// Layout masks the ids of a disk and of its partitions, and empties what lies behind the end of a
// partition's name, which is memory of the kernel.
func (m Masker) Layout(b []byte) []byte {
	l, err := win.DecodeDriveLayout(b)
	if err != nil {
		return nil // not understood, hence not known to be harmless
	}
	b = bytes.Clone(b)
	switch l.Style {
	case win.StyleGPT:
		m.octetsAt(b[gptDiskID:][:16])
	case win.StyleMBR:
		m.signatureAt(b[mbrDiskSignature:])
		if sum := b[mbrDiskChecksum:][:4]; !isZero(sum) {
			copy(sum, "\xff\xff\xff\xff")
		}
	}
	for i, p := range l.Partitions {
		entry := b[layoutHeader+i*partitionEntry:][:partitionEntry]
		switch p.Style {
		case win.StyleGPT:
			m.octetsAt(entry[gptPartitionID:][:16])
			clear(entry[gptName+2*len(win.AppendUTF16(nil, p.Name)):])
		case win.StyleMBR:
			m.signatureAt(entry[mbrPartitionID:]) // followed by the partition's offset
		}
	}
	return b
}

// octetsAt masks bytes in place. Zeros, which stand for none, stay.
func (m Masker) octetsAt(b []byte) {
	if !isZero(b) {
		copy(b, m.stream(string(b), len(b)))
	}
}

// signatureAt masks a signature of four bytes in place.
func (m Masker) signatureAt(b []byte) { m.octetsAt(b[:4]) }

func isZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// Parts of a disk's first sector.
const (
	mbrSignature = 440
	mbrTable     = 446
)

// MBR masks a disk's first sector: its code, which may be data of somebody, becomes 0xFF where
// it isn't zero.
func (m Masker) MBR(b []byte) []byte {
	if len(b) < mbrTable {
		return nil
	}
	b = bytes.Clone(b)
	for i := range b[:mbrSignature] {
		if b[i] != 0 {
			b[i] = 0xff
		}
	}
	m.signatureAt(b[mbrSignature:])
	return b
}
