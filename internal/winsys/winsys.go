// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package winsys is the seam of package win on Windows itself: each method is one
// documented call, or the short sequence that Microsoft's documentation gives for
// it. It decides nothing and keeps nothing.
//
// # Rights
//
// The process must be a member of the Administrators or LocalSystem. Open enables
// the privileges that LocalSystem holds but that are off in its token; they belong
// to the process, not to a handle:
//
//   - SeBackupPrivilege and SeRestorePrivilege, for files that are opened with
//     [win.FileOpenForBackup]: whatever a file's access list says, the first grants
//     all rights to read and the second all rights to write and to delete. Without
//     them a pod could deny SYSTEM the files that it leaves behind, and they
//     couldn't be removed. Of this module only internal/pathpolicy opens files so,
//     and only below the directories that it allows.
//   - SeLoadDriverPrivilege, for CM_Reenumerate_DevNode
//   - SeManageVolumePrivilege, for FSCTL_EXTEND_VOLUME
//   - SeCreateSymbolicLinkPrivilege, for FSCTL_SET_REPARSE_POINT with a symlink
//
// What the process doesn't hold is reported and leaves the other calls as they are.
// A service holds all privileges of its account, unless it was given a list of those
// that it requires, as with "sc.exe privs": then these five must be in that list.
//
// Source: https://learn.microsoft.com/windows/win32/secauthz/privilege-constants and
// https://learn.microsoft.com/windows/win32/api/winsvc/ns-winsvc-service_required_privileges_infow
//
// Each handle is opened with the access that its caller asks for and no more.
//
// # Handles
//
// Whoever opens a device or a file closes it, once, when no call to it is under way
// any more: Windows gives the number of a closed handle to another object. A handle
// that a method needs for itself ends with the method. [System.Close] says if
// handles are left.
//
// # Threads
//
// A call blocks its thread until Windows has answered it; package operation bounds
// how many do, and lets callers go. When the context of a call that changes nothing
// ends, the call is interrupted, where its driver can do that. One that changes
// something always runs to its end, since half a change helps nobody. COM runs on a
// locked thread, for as long as one call lasts.
//
// # Errors
//
// Each error is a [win.Errno], or wraps one, or is the context's.
package winsys

//go:generate go run golang.org/x/sys/windows/mkwinsyscall -output zsyscall_windows.go syscall_windows.go iscsi_syscall_windows.go
