// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"errors"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// answer explains an error number of Windows' SMB client or of WMI during the mapping or use of a
// share.
type answer struct {
	// kind is the class of the error if a mapping fails; nil means the class of the number. Only
	// ErrUnavailable asks the caller to try again.
	kind error
	// remedy says in words what to do.
	remedy string
}

const (
	wrongPassword = "the user name or the password is wrong. A local user of the server may have to be written as SERVER\\user"
	notSigned     = "the server doesn't sign, or signs wrongly, which Windows 11 24H2 and Windows Server 2025 refuse: let it sign, or " +
		"run Set-SmbClientConfiguration -RequireSecuritySignature $false on the node"
	notEncrypted = "the server can't encrypt: let it do so (SMB 3.0 and later can). The flag -require-privacy=false allows a mapping " +
		"without encryption, but containers may lose access to that after about 15 minutes"
	noMappings = "this Windows has no SMB global mappings (Windows Server 2019 and later have), or its WMI repository is damaged: " +
		"winmgmt /verifyrepository"
)

// answers collects public reports about the numbers. A row without a report follows the text of the
// number. resolveConflict has the text of 1219, and notMapped of 2250.
var answers = map[winerr.Errno]answer{
	// kubernetes-csi/csi-driver-smb#294
	winerr.ErrorBadNetPath: {nil, "no server of that name answers: look at Resolve-DnsName and Test-NetConnection -Port 445. Names of " +
		"Services aren't resolved on Windows nodes"},
	// axboe/fio#898, of a write
	winerr.ErrorBadNetResp: {nil, "the server lacks what the mapping asks for, such as SMB 3 or encryption"},
	// docker/for-win#577, MicrosoftDocs/SupportArticles-docs#1863
	winerr.ErrorNetNameDeleted: {nil, "the connection was cut: the server restarts, or a device on the way inspects port 445"},
	// kubernetes-csi/csi-driver-smb#655, csi-proxy#311, #315
	winerr.ErrorNetworkAccessDenied: {nil, "the server refuses this node, or " + notEncrypted},
	// https://pt.ittrip.xyz/windows/troubleshooting/workstation-netlogon-erro, of a stopped service
	winerr.ErrorBadNetName: {nil, "the server has no such share, or the service LanmanWorkstation of the node is stopped"},
	// MicrosoftDocs/azure-docs#49481
	winerr.ErrorInvalidPassword: {nil, wrongPassword + ". From Windows Server 2025, perhaps the server's signatures are wrong"},
	winerr.ErrorVCDisconnected:  {nil, "the server has ended the session: its log may say why"},
	// MicrosoftDocs/windowsserverdocs#7763, namjaejeon/ksmbd#296, both without the number
	winerr.ErrorSMB1NotAvailable: {nil, "the server has SMB 1 only, which Windows refuses: give it SMB 2 or 3"},
	// MicrosoftDocs/SupportArticles-docs#1480
	winerr.ErrorNoNetOrBadPath: {nil, "no network provider has taken the path: if that persists, run Restart-Service LanmanWorkstation -Force"},
	// https://learn.microsoft.com/windows-server/storage/file-server/smb-signing
	winerr.ErrorExtended:          {nil, notSigned},
	winerr.StatusInvalidSignature: {nil, notSigned},
	// dperson/samba#359
	winerr.ErrorSMBGuestLogonBlocked: {nil, "the server has logged the user on as a guest, which Windows refuses: add the user to the server"},
	// kubernetes-csi/csi-driver-smb#625
	winerr.ErrorNoLogonServers: {nil, "no domain controller answers the node: look at the DNS of the domain, and ports 88 and 389"},
	// kubernetes-csi/csi-driver-smb#161, EdgelessPE/Edgeless#76
	winerr.ErrorNoSuchLogonSession: {csiproxy.ErrUnauthenticated,
		"Windows has no log-on for this user: write the user as SERVER\\user or DOMAIN\\user"},
	winerr.ErrorLogonFailure:     {nil, wrongPassword}, // kubernetes-csi/csi-driver-smb#520
	winerr.ErrorAccountDisabled:  {nil, "the account is disabled: enable it"},
	winerr.ErrorAccountLockedOut: {nil, "the account is locked: correct the password, then unlock the account. Each further try with a wrong one counts"},
	// MicrosoftDocs/azure-docs#51223
	winerr.ErrorWrongTargetName: {nil, "the server's account doesn't have this name: use the server's own name, or register an alias with setspn"},
	// microsoft/hcsshim#437, of the node; hierynomus/smbj#642, of the server
	winerr.ErrorNoSystemResources: {nil, "the node or the server is out of resources: look at the sessions at the server"},
	// MicrosoftDocs/windows-itpro-docs#11384
	winerr.ErrorNTLMBlocked: {nil, "this node forbids NTLM: use the server's name instead of its address, so that Kerberos works"},
	// kubernetes-csi/csi-driver-smb#754, #844
	winerr.NERRWkstaNotStarted: {nil, "run Restart-Service LanmanWorkstation -Force on the node, also if that service is shown as running"},
	winerr.NERRTimeDiffAtDC:    {nil, "the clocks of node and server differ: run w32tm /resync on the node"},

	// kubernetes/kubernetes#75180, Azure/aks-engine#327
	winerr.WBEMFailed: {nil, "the event log Microsoft-Windows-SMBClient/Connectivity may have the reason"},
	// microsoft/Virtualization-Documentation#831
	winerr.WBEMInvalidNamespace:  {nil, noMappings},
	winerr.WBEMInvalidClass:      {nil, noMappings},
	winerr.ErrorNotFound:         {csiproxy.ErrInternal, "WMI lacks an object of the mapping"}, // 0x80041002
	winerr.ErrorServiceDisabled:  {nil, "a service is disabled: Get-Service winmgmt, LanmanWorkstation"},
	winerr.ErrorServiceNotActive: {nil, "the service winmgmt doesn't run: Get-Service winmgmt"}, // 0x800706BA
}

// remedyOf returns the remedy for an error of Windows, or "".
func remedyOf(err error) string {
	var number winerr.Errno
	errors.As(err, &number)
	return answers[number].remedy
}

// explain adds the remedy to the error of a mapping that failed.
func explain(err error, requirePrivacy bool) error {
	var number winerr.Errno
	if !errors.As(err, &number) {
		return err
	}
	if number == winerr.ErrorAccessDenied && requirePrivacy {
		return &csiproxy.Error{Detail: "access denied: the user lacks rights to the share, or " + notEncrypted, Err: err}
	}
	known, ok := answers[number]
	if !ok {
		return err
	}
	return &csiproxy.Error{Kind: cmp.Or(known.kind, csiproxy.KindOf(err)), Detail: known.remedy, Err: err}
}

// tellsNothing reports whether an error of Windows leaves open whether a mapping was made.
func tellsNothing(err error) bool {
	return winerr.IsAny(err, winerr.WBEMFailed, winerr.ErrorGenFailure) ||
		errors.As(err, new(winerr.Errno)) && csiproxy.KindOf(err) == csiproxy.ErrInternal
}
