// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

// The functions of iscsidsc.dll return an ISDSC_STATUS, of 32 bits. A Windows without
// the initiator lacks the DLL.

//sys	addISCSISendTargetPortal(initiator *uint16, initiatorPort uint32, options *loginOptions, security uint64, portal *targetPortal) (regerrno error) = iscsidsc.AddIScsiSendTargetPortalW?
//sys	removeISCSISendTargetPortal(initiator *uint16, initiatorPort uint32, portal *targetPortal) (regerrno error) = iscsidsc.RemoveIScsiSendTargetPortalW?
//sys	refreshISCSISendTargetPortal(initiator *uint16, initiatorPort uint32, portal *targetPortal) (regerrno error) = iscsidsc.RefreshIScsiSendTargetPortalW?
//sys	reportISCSISendTargetPortals(count *uint32, size *uint32, portals *byte) (regerrno error) = iscsidsc.ReportIScsiSendTargetPortalsExW?
//sys	reportISCSITargets(forceUpdate bool, units *uint32, targets *byte) (regerrno error) = iscsidsc.ReportIScsiTargetsW?
//sys	getISCSITargetInformation(target *uint16, mechanism *uint16, class uint32, size *uint32, buffer *byte) (regerrno error) = iscsidsc.GetIScsiTargetInformationW?
//sys	loginISCSITarget(target *uint16, informational bool, initiator *uint16, initiatorPort uint32, portal *targetPortal, security uint64, mappings *byte, options *loginOptions, keySize uint32, key *byte, persistent bool, session *iscsiUniqueID, connection *iscsiUniqueID) (regerrno error) = iscsidsc.LoginIScsiTargetW?
//sys	logoutISCSITarget(session *iscsiUniqueID) (regerrno error) = iscsidsc.LogoutIScsiTarget?
//sys	getISCSISessionList(size *uint32, count *uint32, sessions *byte) (regerrno error) = iscsidsc.GetIScsiSessionListW?
//sys	getDevicesForISCSISession(session *iscsiUniqueID, count *uint32, devices *byte) (regerrno error) = iscsidsc.GetDevicesForIScsiSessionW?
//sys	reportISCSIPersistentLogins(count *uint32, logins *byte, size *uint32) (regerrno error) = iscsidsc.ReportIScsiPersistentLoginsW?
//sys	removeISCSIPersistentTarget(initiator *uint16, initiatorPort uint32, target *uint16, portal *targetPortal) (regerrno error) = iscsidsc.RemoveIScsiPersistentTargetW?
//sys	setISCSIInitiatorCHAPSharedSecret(length uint32, chap *byte) (regerrno error) = iscsidsc.SetIScsiInitiatorCHAPSharedSecret?
