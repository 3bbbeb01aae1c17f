// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winsys implements the seam of package win on Windows. Each method is one
// documented call, or the short sequence that Microsoft's documentation gives for it.
// The package makes no decisions and keeps no state.
//
// # Rights
//
// The process must be a member of the Administrators or LocalSystem. Open enables
// the privileges that LocalSystem holds but that are off in its token; they belong
// to the process, not to a handle:
//
//   - SeBackupPrivilege and SeRestorePrivilege, for files that are opened with
//     [win.FileOpenForBackup]. Regardless of a file's access list, the first grants
//     all rights to read, and the second all rights to write and to delete. Without
//     them, files of a pod that denies them to SYSTEM couldn't be removed. In this
//     module only internal/ops/pathpolicy opens files this way, and only below the
//     allowed directories.
//   - SeLoadDriverPrivilege, for CM_Reenumerate_DevNode
//   - SeManageVolumePrivilege, for FSCTL_EXTEND_VOLUME
//   - SeCreateSymbolicLinkPrivilege, for FSCTL_SET_REPARSE_POINT with a symlink
//
// A privilege that the process doesn't hold is logged; calls that don't need it still
// work. A service holds all privileges of its account, unless it has a list of required
// privileges, as set with "sc.exe privs". Then that list must have these five.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/privilege-constants and
// https://learn.microsoft.com/windows/win32/api/winsvc/ns-winsvc-service_required_privileges_infow
//
// Each handle is opened with the access that its caller asks for, and no more.
//
// # Handles
//
// The caller that opens a device or a file must close it once, when no call on it is
// under way: Windows reuses the number of a closed handle for another object. A method
// closes the handles that it opens for its own use. [System.Close] reports handles that
// are still open.
//
// # Threads
//
// A call blocks its thread until Windows has answered it. Package operation limits how
// many do, and package operation lets callers give up. If the context of a call that
// changes nothing ends, the call is cancelled, if its driver can do that. A call that
// changes something always runs to its end, so that no change is left half done. COM
// runs on a locked thread for the length of one call.
//
// # Errors
//
// Each error is a [winerr.Errno], wraps one, or is the error of the context.
package winsys

//go:generate go run golang.org/x/sys/windows/mkwinsyscall -output zsyscall_windows.go syscall_windows.go iscsi_syscall_windows.go
