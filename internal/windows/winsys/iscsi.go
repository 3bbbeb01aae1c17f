// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
	"unsafe"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// The structures of iscsidsc.h with the layout of 64-bit Windows. In structures filled by Windows,
// addresses are numbers: each is checked to lie in the buffer before use.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/

const (
	iscsiAllInitiatorPorts   = 0xFFFFFFFF // ISCSI_ALL_INITIATOR_PORTS, ISCSI_ANY_INITIATOR_PORT
	iscsiDiscoveryMechanisms = 2          // DiscoveryMechanisms of TARGET_INFORMATION_CLASS
	maxISCSINameLen          = 223        // MAX_ISCSI_NAME_LEN: UTF-16 units
)

// The bits of ISCSI_LOGIN_OPTIONS.InformationSpecified.
const (
	loginOptionUsername = 0x20
	loginOptionPassword = 0x40
	loginOptionAuthType = 0x80
)

type (
	iscsiHBAName [256]uint16 // WCHAR[MAX_ISCSI_HBANAME_LEN]
	iscsiName    [maxISCSINameLen + 1]uint16
	devicePath   [maxPath]uint16

	// ISCSI_UNIQUE_SESSION_ID and ISCSI_UNIQUE_CONNECTION_ID.
	iscsiUniqueID = win.ISCSISessionID
)

// targetPortal is ISCSI_TARGET_PORTALW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/ns-iscsidsc-iscsi_target_portalw
type targetPortal struct {
	symbolicName [256]uint16 // WCHAR[MAX_ISCSI_PORTAL_NAME_LEN]
	address      [256]uint16 // WCHAR[MAX_ISCSI_PORTAL_ADDRESS_LEN]
	socket       uint16
}

// portalInfo is ISCSI_TARGET_PORTAL_INFO_EXW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/ns-iscsidsc-iscsi_target_portal_info_exw
type portalInfo struct {
	_      iscsiHBAName // InitiatorName
	_      uint32       // InitiatorPortNumber
	portal targetPortal
	_      uint64               // SecurityFlags
	_      reportedLoginOptions // LoginOptions
}

// loginOptions is ISCSI_LOGIN_OPTIONS as an argument. The user's name and password are bytes
// without a NUL.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/ns-iscsidsc-iscsi_login_options
type loginOptions struct {
	version              uint32 // ISCSI_LOGIN_OPTIONS_VERSION is 0
	informationSpecified uint32
	loginFlags           uint32
	authType             win.ISCSIAuthType
	headerDigest         uint32
	dataDigest           uint32
	maximumConnections   uint32
	defaultTime2Wait     uint32
	defaultTime2Retain   uint32
	usernameLength       uint32
	passwordLength       uint32
	username             *byte
	password             *byte
}

// reportedLoginOptions is ISCSI_LOGIN_OPTIONS as reported by Windows. The addresses, among them a
// password's, are ignored.
type reportedLoginOptions [8]uint64

// sessionInfo is ISCSI_SESSION_INFOW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/ns-iscsidsc-iscsi_session_infow
type sessionInfo struct {
	sessionID       iscsiUniqueID
	_               uint64  // InitiatorName: address of a string
	targetNodeName  uint64  // address of a string
	targetName      uint64  // address of a string
	_               [6]byte // ISID
	_               [2]byte // TSID
	connectionCount uint32
	connections     uint64 // address of ISCSI_CONNECTION_INFOW
}

// connectionInfo is ISCSI_CONNECTION_INFOW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/ns-iscsidsc-iscsi_connection_infow
type connectionInfo struct {
	_             iscsiUniqueID // ConnectionId
	_             uint64        // InitiatorAddress: address of a string
	targetAddress uint64        // address of a string
	_             uint16        // InitiatorSocket
	targetSocket  uint16
	_             [2]byte // CID
}

// deviceOnSession is ISCSI_DEVICE_ON_SESSIONW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/ns-iscsidsc-iscsi_device_on_sessionw
type deviceOnSession struct {
	_                   iscsiHBAName // InitiatorName
	_                   iscsiName    // TargetName
	scsiAddress         [8]byte      // SCSI_ADDRESS
	_                   winid.GUID   // DeviceInterfaceType
	_                   devicePath   // DeviceInterfaceName
	_                   devicePath   // LegacyName
	storageDeviceNumber [12]byte     // STORAGE_DEVICE_NUMBER
	_                   uint32       // DeviceInstance
}

// persistentLogin is PERSISTENT_ISCSI_LOGIN_INFOW.
//
// Source: https://learn.microsoft.com/windows/win32/api/iscsidsc/ns-iscsidsc-persistent_iscsi_login_infow
type persistentLogin struct {
	targetName          iscsiName
	_                   uint8 // IsInformationalSession
	initiatorInstance   iscsiHBAName
	initiatorPortNumber uint32
	targetPortal        targetPortal
	_                   uint64               // SecurityFlags
	_                   uint64               // Mappings: address of ISCSI_TARGET_MAPPINGW
	_                   reportedLoginOptions // LoginOptions
}

// newTargetPortal is the inverse of [targetPortal.decode].
func newTargetPortal(p win.ISCSIPortal) (*targetPortal, error) {
	units := utf16.Encode([]rune(p.Address))
	portal := &targetPortal{socket: p.Port}
	if len(units) >= len(portal.address) || slices.Contains(units, 0) {
		return nil, fmt.Errorf("address of an iSCSI target portal: %w", winerr.ErrorInvalidParameter)
	}
	copy(portal.address[:], units)
	return portal, nil
}

func (p *targetPortal) decode() win.ISCSIPortal {
	return win.ISCSIPortal{Address: decodeWide(p.address[:]), Port: p.socket}
}

func (l *persistentLogin) decode() win.ISCSIPersistentLogin {
	return win.ISCSIPersistentLogin{
		Target:        decodeWide(l.targetName[:]),
		Initiator:     decodeWide(l.initiatorInstance[:]),
		InitiatorPort: l.initiatorPortNumber,
		Portal:        l.targetPortal.decode(),
	}
}

// newLoginOptions returns a login's credentials for a call, and a function for erasing them after
// the call. With an empty user name, Windows logs in with the node's iSCSI name.
func newLoginOptions(l win.ISCSILogin) (o *loginOptions, erase func()) {
	o = &loginOptions{authType: l.AuthType, informationSpecified: loginOptionAuthType}
	if l.AuthType == win.ISCSINoAuth {
		return o, func() {}
	}
	if l.Username != "" {
		username := []byte(l.Username)
		o.username, o.usernameLength = &username[0], uint32(len(username))
		o.informationSpecified |= loginOptionUsername
	}
	password := revealedBytes(l.Secret)
	if len(password) > 0 {
		o.password, o.passwordLength = &password[0], uint32(len(password))
		o.informationSpecified |= loginOptionPassword
	}
	return o, func() { clear(password) }
}

// revealedBytes returns a secret for a call. The caller must clear the bytes afterwards. They are
// never on a stack, because a growing stack leaves a copy behind.
//
//go:noinline
func revealedBytes(s csiproxy.Secret) []byte { return []byte(s.Reveal()) }

// checkISCSIName refuses a name too long for Windows.
func checkISCSIName(name string) error {
	if len(utf16.Encode([]rune(name))) > maxISCSINameLen || strings.ContainsRune(name, 0) {
		return winerr.ISDSCInvalidISCSIName
	}
	return nil
}

func decodePortals(b []byte, count uint32) ([]win.ISCSIPortal, error) {
	infos, err := elements[portalInfo]("ISCSI_TARGET_PORTAL_INFO_EXW", b, count)
	if err != nil {
		return nil, err
	}
	portals := make([]win.ISCSIPortal, len(infos))
	for i := range infos {
		portals[i] = infos[i].portal.decode()
	}
	return portals, nil
}

// decodeSessions reads the output of GetIScsiSessionListW from a buffer at an address.
func decodeSessions(b []byte, address uint64, count uint32) ([]win.ISCSISession, error) {
	infos, err := elements[sessionInfo]("ISCSI_SESSION_INFOW", b, count)
	if err != nil {
		return nil, err
	}
	sessions := make([]win.ISCSISession, len(infos))
	for i, info := range infos {
		target, err := wideAt(b, address, info.targetNodeName, int(unsafe.Sizeof(iscsiName{})))
		if err == nil && target == "" {
			target, err = wideAt(b, address, info.targetName, int(unsafe.Sizeof(iscsiName{})))
		}
		if err != nil {
			return nil, fmt.Errorf("ISCSI_SESSION_INFOW: target's name: %w", err)
		}
		portals, err := decodeConnections(b, address, info)
		if err != nil {
			return nil, err
		}
		sessions[i] = win.ISCSISession{ID: info.sessionID, Target: target, Portals: portals}
	}
	return sessions, nil
}

// decodeConnections returns the remote portals of a session's connections.
func decodeConnections(b []byte, address uint64, info sessionInfo) ([]win.ISCSIPortal, error) {
	if info.connectionCount == 0 || info.connections == 0 {
		return nil, nil
	}
	offset := info.connections - address // far behind the end, if they lie before the buffer
	if offset > uint64(len(b)) {
		return nil, fmt.Errorf("ISCSI_SESSION_INFOW: the connections aren't in the buffer of %d bytes", len(b))
	}
	infos, err := elements[connectionInfo]("ISCSI_CONNECTION_INFOW", b[offset:], info.connectionCount)
	if err != nil {
		return nil, err
	}
	var portals []win.ISCSIPortal
	for _, c := range infos {
		host, err := wideAt(b, address, c.targetAddress, int(unsafe.Sizeof(targetPortal{}.address)))
		if err != nil {
			return nil, fmt.Errorf("ISCSI_CONNECTION_INFOW: target's address: %w", err)
		}
		if host != "" {
			portals = append(portals, win.ISCSIPortal{Address: host, Port: c.targetSocket})
		}
	}
	return portals, nil
}

func decodeSessionDevices(b []byte, count uint32) ([]win.ISCSIDevice, error) {
	infos, err := elements[deviceOnSession]("ISCSI_DEVICE_ON_SESSIONW", b, count)
	if err != nil {
		return nil, err
	}
	devices := make([]win.ISCSIDevice, len(infos))
	for i := range infos {
		address, addressErr := win.DecodeSCSIAddress(infos[i].scsiAddress[:])
		number, numberErr := win.DecodeDeviceNumber(infos[i].storageDeviceNumber[:])
		if err := errors.Join(addressErr, numberErr); err != nil {
			return nil, err
		}
		devices[i] = win.ISCSIDevice{SCSIAddress: address, Device: number}
	}
	return devices, nil
}

func decodePersistentLogins(b []byte, count uint32) ([]persistentLogin, error) {
	return elements[persistentLogin]("PERSISTENT_ISCSI_LOGIN_INFOW", b, count)
}

// decodeMultiSZ reads a list of strings, up to an empty string or the end of the buffer.
func decodeMultiSZ(b []byte) ([]string, error) {
	var list []string
	for len(b) >= 2 {
		end, err := wideLen(b)
		if err != nil {
			return nil, fmt.Errorf("string %d of a list: %w", len(list)+1, err)
		}
		if end == 0 {
			break
		}
		list = append(list, decodeWide(decodeUnits(b[:end])))
		b = b[end+2:]
	}
	return list, nil
}

// wideAt reads the text at an address in a buffer, of at most longest bytes including the NUL. The
// text at address 0 is empty.
func wideAt(b []byte, base, address uint64, longest int) (string, error) {
	if address == 0 {
		return "", nil
	}
	offset := address - base // far past the end if the address is before the buffer
	if offset >= uint64(len(b)) {
		return "", fmt.Errorf("its address isn't in the buffer of %d bytes", len(b))
	}
	b = b[offset:]
	end, err := wideLen(b[:min(len(b), longest)])
	if err != nil {
		return "", err
	}
	return decodeWide(decodeUnits(b[:end])), nil
}

// wideLen returns the number of bytes of b before a NUL.
func wideLen(b []byte) (int, error) {
	for i := 0; i+2 <= len(b); i += 2 {
		if b[i] == 0 && b[i+1] == 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no NUL in %d bytes", len(b))
}

// decodeWide reads a string from an array. A string filling the array has no NUL. Half a surrogate
// pair becomes U+FFFD: iSCSI names have none, and clients, the readers of these texts, accept only
// UTF-8.
func decodeWide(u []uint16) string {
	if end := slices.Index(u, 0); end >= 0 {
		u = u[:end]
	}
	return string(utf16.Decode(u))
}

// elements copies count structures from the front of b. T must be free of pointers.
func elements[T any](what string, b []byte, count uint32) ([]T, error) {
	size := unsafe.Sizeof(*new(T))
	if uint64(count) > uint64(len(b))/uint64(size) {
		return nil, fmt.Errorf("%s: %d of them don't fit into %d bytes", what, count, len(b))
	}
	list := make([]T, count)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(list))), uintptr(count)*size), b)
	return list, nil
}

// The first buffer for a report of the initiator has firstISCSIReport bytes. A report larger than
// maxISCSIReport is refused, because a portal can announce any number of targets.
const (
	firstISCSIReport = 4 << 10
	maxISCSIReport   = 16 << 20
)

// iscsiReport reads and decodes a report of the initiator. See readISCSIReport. The buffer is erased
// afterwards, because some reports contain passwords.
func iscsiReport[T any](ctx context.Context, size uint32, f func(room *uint32, buf []byte) error,
	decode func(buf []byte) (T, error)) (report T, err error) {
	buf, err := readISCSIReport(ctx, size, f)
	if err != nil {
		return report, err
	}
	defer clear(buf)
	return decode(buf)
}

// readISCSIReport calls f with increasing buffers until a buffer is large enough, and erases the
// others. f gets the number of elements of the given size that fit into the buffer, and returns the
// number of elements required or written.
func readISCSIReport(ctx context.Context, size uint32, f func(room *uint32, buf []byte) error) ([]byte, error) {
	return grown(int(max(size, firstISCSIReport)), func(buf []byte) (uint32, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		room := uint32(len(buf)) / size
		err := f(&room, buf)
		if err == nil {
			return 0, nil
		}
		clear(buf)
		if !bufferTooSmall(err) {
			return 0, err
		}
		if room > maxISCSIReport/size {
			return 0, fmt.Errorf("%d elements of %d bytes: %w", room, size, winerr.ErrorInsufficientBuffer)
		}
		return room * size, winerr.ErrorInsufficientBuffer
	})
}

// bufferTooSmall reports whether a status means a small buffer. Some statuses have the error number
// only in their lower half.
func bufferTooSmall(err error) bool {
	var code winerr.Errno
	ok := errors.As(err, &code)
	return ok && (code&0xFFFF == winerr.ErrorInsufficientBuffer || code == winerr.ISDSCBufferTooSmall)
}
