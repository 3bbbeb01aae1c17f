// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win

import (
	"context"
	"time"
)

// Share is the share mode of an open (FILE_SHARE_*). An open without ShareDelete prevents renaming
// and deleting the file for as long as the handle lives, if the open's access includes reading or
// writing data, listing or traversing: attribute access alone takes no part in sharing.
type Share uint32

// Share modes.
const (
	ShareRead   Share = 1
	ShareWrite  Share = 2
	ShareDelete Share = 4
)

// Disposition selects between opening and creating a file (CreateDisposition of NtCreateFile).
type Disposition uint32

// Dispositions.
const (
	FileOpen   Disposition = 1 // open it; fail if it isn't there
	FileCreate Disposition = 2 // create it; fail if it is there
	FileOpenIf Disposition = 3 // open it or create it
)

// CreateOptions are the options of an open (CreateOptions of NtCreateFile).
type CreateOptions uint32

// Options of an open.
const (
	FileDirectoryFile    CreateOptions = 0x00000001 // must be, or becomes, a directory
	FileNonDirectoryFile CreateOptions = 0x00000040 // must not be a directory
	// its name goes with the handle, also if the process dies; needs Delete
	FileDeleteOnClose    CreateOptions = 0x00001000
	FileOpenForBackup    CreateOptions = 0x00004000 // FILE_FLAG_BACKUP_SEMANTICS
	FileOpenReparsePoint CreateOptions = 0x00200000 // open a link itself, never its target
)

// OpenOptions are the arguments of an open.
//
// Source: https://learn.microsoft.com/windows/win32/api/winternl/nf-winternl-ntcreatefile
type OpenOptions struct {
	Access      Access
	Share       Share
	Disposition Disposition
	Options     CreateOptions
	// Private gives a new file to SYSTEM and the Administrators alone: Administrators own the file,
	// and its access list has these two and inherits nothing. An existing file keeps its access
	// list.
	Private bool
}

// FileAttributes are FILE_ATTRIBUTE_* bits.
type FileAttributes uint32

// File attributes.
const (
	AttributeReadOnly     FileAttributes = 0x1
	AttributeDirectory    FileAttributes = 0x10
	AttributeReparsePoint FileAttributes = 0x400
)

// ReparseTag is the kind of a reparse point.
type ReparseTag uint32

// Reparse tags of links. A junction and a mount point of a volume have the same
// tag; their targets tell them apart.
const (
	TagMountPoint ReparseTag = 0xA0000003
	TagSymlink    ReparseTag = 0xA000000C
)

// FileInfo is FILE_ATTRIBUTE_TAG_INFO; ReparseTag is 0 where the attribute AttributeReparsePoint is
// not set.
type FileInfo struct {
	Attributes FileAttributes
	ReparseTag ReparseTag
}

// IsDir reports whether the file is a directory, or looks like a directory: a link or mount point.
func (i FileInfo) IsDir() bool { return i.Attributes&AttributeDirectory != 0 }

// IsReparsePoint reports whether opening the file by name would lead elsewhere.
func (i FileInfo) IsReparsePoint() bool { return i.Attributes&AttributeReparsePoint != 0 }

// DirEntry is one entry of a directory. The name is WTF-8, the encoding of AppendUTF16: half a
// surrogate pair is invalid UTF-8, and File.OpenAt accepts such names.
type DirEntry struct {
	Name string
	FileInfo
	Created FileTime
	// Size is the size of a file in bytes, as of the last close of a handle that has written.
	Size int64
}

// FileTime is a FILETIME: intervals of 100 ns since 1601, in UTC. 0 is unknown.
//
// Source: https://learn.microsoft.com/windows/win32/api/minwinbase/ns-minwinbase-filetime
type FileTime int64

// fileTimeOf1970 is the FILETIME of the Unix epoch.
const fileTimeOf1970 = 116444736000000000

// FileTimeOf returns t as a FILETIME.
func FileTimeOf(t time.Time) FileTime {
	return FileTime(t.Unix()*1e7 + int64(t.Nanosecond())/100 + fileTimeOf1970)
}

// Time returns t in UTC.
func (t FileTime) Time() time.Time {
	t -= fileTimeOf1970
	return time.Unix(int64(t/1e7), int64(t%1e7)*100).UTC()
}

// File is an open handle to a file or directory. Methods fail with an Errno or
// with ctx's error.
type File interface {
	// OpenAt opens or creates the file name in this directory, or below it if name has several
	// elements (NtCreateFile with RootDirectory and OBJ_DONT_REPARSE): changes to the directory, or
	// to the names above, cannot lead OpenAt astray. A reparse point on the way is refused with
	// ErrorReparsePointEncountered; the last element is opened itself with FileOpenReparsePoint and
	// refused without. So is everything below a directory that has become a reparse point since it
	// was opened.
	//
	// Errors are those of [Files].OpenFile. An empty name gives ErrorInvalidName, as do elements
	// that are empty, "." or "..", or that have a slash, a colon, or a character that no name can
	// have.
	OpenAt(ctx context.Context, name string, o OpenOptions) (File, error)
	// Info is GetFileInformationByHandleEx(FileAttributeTagInfo). The handle needs
	// FileReadAttributes. A file system lacking reparse points, such as FAT, may give
	// ErrorInvalidParameter.
	Info(ctx context.Context) (FileInfo, error)
	// FinalPath is GetFinalPathNameByHandleW with VOLUME_NAME_GUID: the path by which the
	// file is found now without any link, \\?\Volume{guid}\directory\name. A file on an
	// SMB share gives ErrorPathNotFound, a deleted one ErrorFileNotFound or
	// ErrorAccessDenied.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-getfinalpathnamebyhandlew
	FinalPath(ctx context.Context) (string, error)
	// Volume is the name of the volume that the file is on, \\?\Volume{guid}\. The errors are those
	// of FinalPath.
	Volume(ctx context.Context) (string, error)
	// ReadDir gives the next entries of this directory, without "." and "..", some at a time, and
	// when each was made; after the last it returns ErrorNoMoreFiles. With restart, ReadDir begins
	// again (FileFullDirectoryRestartInfo). The handle needs FileListDirectory.
	ReadDir(ctx context.Context, restart bool) ([]DirEntry, error)
	// Read reads the beginning of this file into p, and returns the number of bytes: fewer than
	// len(p) if the file has fewer. The handle needs FileListDirectory, which is FILE_READ_DATA. A
	// directory gives ErrorInvalidFunction.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-readfile
	Read(ctx context.Context, p []byte) (int, error)
	// Control is DeviceIoControl on the file: reparse data are read and set with
	// it. FsctlGetReparsePoint and FsctlDeleteReparsePoint give ErrorNotAReparsePoint
	// where there is none. FsctlSetReparsePoint gives ErrorDirNotEmpty for a directory
	// with entries, and ErrorReparseTagMismatch where there is a reparse point with
	// another tag. With too little room FsctlGetReparsePoint gives ErrorMoreData.
	Control(ctx context.Context, code IoctlCode, in, out []byte) (int, error)
	// Delete marks the file for deletion, also a read-only one: its name is gone when this handle
	// is closed, if the file system supports FileDispositionInfoEx with POSIX semantics, else when
	// the last handle is closed. The handle needs Delete access. A directory with entries gives
	// ErrorDirNotEmpty. A file deleted through another, closed handle gives ErrorDeletePending.
	Delete(ctx context.Context) error
	// CreationDenied reports whether the access list of this directory has the entry of
	// DenyCreation. The handle needs ReadControl.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/securitybaseapi/nf-securitybaseapi-getkernelobjectsecurity
	CreationDenied(ctx context.Context) (bool, error)
	// DenyCreation adds an entry to the access list of this directory itself, or removes the entry:
	// the entry denies Everyone FileAddFile and FileAddSubdirectory, and nothing inherits it.
	// DenyCreation is idempotent in both directions. All other entries of the list stay. The handle
	// needs ReadControl and WriteDAC. If the handle was opened with FileOpenReparsePoint, the
	// directory of a mount point gets the entry; otherwise, the volume's root does.
	//
	// As long as the entry is there, whoever makes a file or a directory in this directory, or
	// moves one into it, gets ErrorAccessDenied, as does an open of the directory with one of the
	// two rights. Exempt are handles that were opened before, and opens with FileOpenForBackup in a
	// process that holds SeRestorePrivilege. The directory can be deleted, and its reparse point
	// set and deleted through a handle with FileWriteAttributes.
	//
	// Errors: 5 the handle lacks a right; 1336 the directory has no access list, giving everybody
	// all rights; 1 and 50 the file system has none. A file system without access lists, such as
	// FAT, may also report success: CreationDenied tells.
	//
	// Undocumented: whether the mount manager, which opens the directory itself, needs a right that
	// the entry denies.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/securitybaseapi/nf-securitybaseapi-setkernelobjectsecurity,
	// https://learn.microsoft.com/windows/win32/fileio/file-access-rights-constants,
	// https://learn.microsoft.com/windows/win32/secauthz/order-of-aces-in-a-dacl and, for
	// reparse points, MS-FSA 2.1.5.10.37
	DenyCreation(ctx context.Context, deny bool) error
	// Private reports whether only SYSTEM, the Administrators and the account of this process can
	// own this file and do anything with it, by its owner and its access list. The handle needs
	// ReadControl.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/securitybaseapi/nf-securitybaseapi-getkernelobjectsecurity
	Private(ctx context.Context) (bool, error)
	// AccessList returns the access list of this file or directory, in its order. The handle needs
	// ReadControl. The entry that DenyCreation adds is among its entries.
	//
	// Errors: 5 the handle lacks the right; 1336 the list is missing, giving everybody all rights;
	// 1 and 50 the file system has none.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/securitybaseapi/nf-securitybaseapi-getkernelobjectsecurity
	AccessList(ctx context.Context) ([]ACE, error)
	// AddAccess adds entries to the access list of this directory itself, behind the directory's
	// own entries and before inherited ones. One that the list has already isn't added again; all
	// other entries stay. Files below the directory keep their own lists: only what is made there
	// from now on inherits the entries. The handle needs ReadControl and WriteDAC.
	//
	// Errors are those of AccessList.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/securitybaseapi/nf-securitybaseapi-setkernelobjectsecurity,
	// https://learn.microsoft.com/windows/win32/secauthz/order-of-aces-in-a-dacl
	AddAccess(ctx context.Context, entries []ACE) error
	// LockByte is LockFileEx for one byte of this file, exclusively and without waiting. The byte
	// may lie behind the file's end, and takes no space on the disk. Until this handle is closed,
	// also by the end of its process, no handle can lock the byte; the lock may last a moment
	// longer. The handle needs GenericRead or GenericWrite.
	//
	// Errors: 33 the byte is locked, possibly by this handle; 5 the handle lacks the right; 87 this
	// is a directory.
	//
	// Source: https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-lockfileex
	LockByte(ctx context.Context, offset int64) error
	// ProcessIDs is NtQueryInformationFile for FileProcessIdsUsingFileInformation: the ids of the
	// processes with the file open, in any order. This process, whose handle it is, is among them.
	// The list may contain processes that end meanwhile.
	//
	// Errors: 1, 50 and 87 Windows or the file system can't tell, as for a file on a share. The WDK
	// lists the information class and its structure without a description, so callers must cope
	// with an error.
	//
	// Source: https://learn.microsoft.com/windows-hardware/drivers/ddi/wdm/ne-wdm-_file_information_class
	ProcessIDs(ctx context.Context) ([]ProcessID, error)
	// Close ends the handle.
	Close() error
}
