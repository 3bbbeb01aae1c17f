// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winsys implements the seam of package win on Windows. Each method is one documented call,
// or the short sequence from Microsoft's documentation. The package makes no decisions and keeps no
// state.
//
// # Rights
//
// The process must be a member of the Administrators or LocalSystem. Open enables the privileges
// that LocalSystem holds but that are off in its token; they belong to the process, not to a
// handle:
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
// Missing privileges are logged; calls that don't need them still work. A service holds all
// privileges of its account, unless the service has a list of required privileges, as set with
// "sc.exe privs". Then the list must have these five.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/privilege-constants and
// https://learn.microsoft.com/windows/win32/api/winsvc/ns-winsvc-service_required_privileges_infow
//
// Each handle is opened with only the access requested by its caller.
//
// # Handles
//
// The caller that opens a device or a file must close the handle once, after all calls on the
// handle have ended: Windows reuses the number of a closed handle for another object. A method
// closes all handles opened for its own use. [System.Close] reports open handles.
//
// # Threads
//
// A call blocks its thread until Windows has answered. Package operation limits the number of
// blocked threads, and lets callers give up. When the context of a read-only call ends, the call is
// cancelled if its driver supports cancellation. A call that changes something always runs to its
// end, because an interrupted change would be left half done. COM runs on a locked thread for the
// length of one call.
//
// # Errors
//
// Each error is a [winerr.Errno], wraps one, or is the error of the context.
package winsys

//go:generate go run golang.org/x/sys/windows/mkwinsyscall -output zsyscall_windows.go syscall_windows.go iscsi_syscall_windows.go
