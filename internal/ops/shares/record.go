// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/ops/usage"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// recordDirectory has the records. A record marks the mapping of a share as made by CSI Proxy.
// Administrators and other programs make mappings, too, and Windows hides the maker. A mapping
// without a record is removed only on a request with its name.
//
// A record is an empty file, named after the share and the kind of the record, in a directory below
// the Windows directory, where only administrators can make files. The record is made before the
// mapping, and a process that dies half-way leaves no mapping without a record. Calls that make or
// drop a record have the share locked. Mappings end with a restart of Windows, whereas records
// stay. When mappings are listed, the records of unmapped shares are dropped. Other files in the
// directory stay.
const recordDirectory = `csi-proxy-mappings`

// recordKind is the purpose of a mapping. The character stands between server and share in the
// record's name; server names contain neither character.
type recordKind string

const (
	stagedRecord recordKind = "+" // for a staged path: the mapping goes with the last link
	madeRecord   recordKind = "=" // for a caller who uses the mapping without a link
)

// recordName returns the name of the record of a share.
func recordName(root string, kind recordKind) string {
	server, share, _ := strings.Cut(strings.TrimPrefix(root, `\\`), `\`)
	return server + string(kind) + share
}

// parseRecord returns the share that a record is named after.
func parseRecord(name string) (remote win.UNCPath, ok bool) {
	index := strings.IndexAny(name, string(stagedRecord+madeRecord))
	if index < 0 {
		return remote, false
	}
	remote, err := win.ParseUNC(`\\` + name[:index] + `\` + name[index+1:])
	return remote, err == nil && recordName(remote.Root(), recordKind(name[index:index+1])) == name
}

// isRecord reports whether a file with the name of a record can be a record.
func isRecord(info win.FileInfo) bool { return !info.IsDir() && !info.IsReparsePoint() }

// RecordSystem has the Windows calls on records.
type RecordSystem interface {
	SystemWindowsDirectory(ctx context.Context) (string, error)
	OpenFile(ctx context.Context, path string, o win.OpenOptions) (win.File, error)
}

// openRecords opens the file name in the directory of the records, or the directory itself if name
// is "".
func openRecords(ctx context.Context, sys RecordSystem, name string, o win.OpenOptions) (win.File, error) {
	windowsDir, err := sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return nil, err
	}
	path := windowsDir + `\` + recordDirectory
	if name != "" {
		path += `\` + name
	}
	o.Share = win.ShareRead | win.ShareWrite | win.ShareDelete
	o.Options |= win.FileOpenReparsePoint
	file, err := sys.OpenFile(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}

// record makes the record of a share before its mapping is made. isNew is false if the record
// existed.
func (m *Mappings) record(ctx context.Context, r *usage.LockedShare, kind recordKind) (isNew bool, _ error) {
	file := win.OpenOptions{Disposition: win.FileCreate, Options: win.FileNonDirectoryFile}
	err := m.makeRecord(ctx, recordName(r.Root, kind), file)
	if errors.Is(err, fs.ErrNotExist) { // the first record needs the directory
		err = m.makeRecord(ctx, "", win.OpenOptions{Disposition: win.FileOpenIf, Options: win.FileDirectoryFile})
		if err == nil {
			err = m.makeRecord(ctx, recordName(r.Root, kind), file)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// makeRecord makes an empty file, or the directory of the records if name is "".
func (m *Mappings) makeRecord(ctx context.Context, name string, o win.OpenOptions) error {
	o.Access = win.FileReadAttributes
	file, err := openRecords(ctx, m.sys, name, o)
	if err != nil {
		return err
	}
	return file.Close()
}

// recorded reports whether the mapping of a share has a record of a kind.
func (m *Mappings) recorded(ctx context.Context, remote win.UNCPath, kind recordKind) (bool, error) {
	file, err := openRecords(ctx, m.sys, recordName(remote.Root(), kind),
		win.OpenOptions{Access: win.FileReadAttributes, Disposition: win.FileOpen})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Info(ctx)
	return err == nil && isRecord(info), err
}

// dropRecords removes the records of a share.
func (m *Mappings) dropRecords(ctx context.Context, r *usage.LockedShare) error {
	if err := m.dropRecord(ctx, r, stagedRecord); err != nil {
		return err
	}
	return m.dropRecord(ctx, r, madeRecord)
}

// dropRecord removes a share's record of a kind, if there is one.
func (m *Mappings) dropRecord(ctx context.Context, r *usage.LockedShare, kind recordKind) error {
	file, err := openRecords(ctx, m.sys, recordName(r.Root, kind),
		win.OpenOptions{Access: win.FileReadAttributes | win.Delete, Disposition: win.FileOpen})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Info(ctx)
	if err != nil || !isRecord(info) {
		return err
	}
	return file.Delete(ctx)
}

// ForeignRecords returns the paths of damaged records and of other programs' files in the directory
// of the records. They are ignored until an administrator removes them.
func ForeignRecords(ctx context.Context, sys RecordSystem) (paths []string, _ error) {
	_, names, err := records(ctx, sys)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	windowsDir, err := sys.SystemWindowsDirectory(ctx)
	for _, name := range names {
		paths = append(paths, windowsDir+`\`+recordDirectory+`\`+name)
	}
	return paths, err
}

// records returns the shares that have records, and the names of other files in the directory.
func records(ctx context.Context, sys RecordSystem) (shares []win.UNCPath, others []string, _ error) {
	dir, err := openRecords(ctx, sys, "",
		win.OpenOptions{Access: win.FileListDirectory, Disposition: win.FileOpen, Options: win.FileDirectoryFile})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(ctx, restart)
		if errors.Is(err, winerr.ErrorNoMoreFiles) || err == nil && len(entries) == 0 {
			return shares, others, nil
		}
		if err != nil {
			return nil, nil, err
		}
		for _, e := range entries {
			if remote, ok := parseRecord(e.Name); ok && isRecord(e.FileInfo) {
				shares = append(shares, remote)
			} else {
				others = append(others, e.Name)
			}
		}
	}
}

// dropStaleRecords drops the records of shares without a plain mapping, such as after a restart of
// Windows. A stale record would count for a later mapping of another program. A driver drops the
// records of its own shares.
func (m *Mappings) dropStaleRecords(ctx context.Context) error {
	shares, others, err := records(ctx, m.sys)
	if err != nil {
		return err
	}
	mapped, err := m.List(ctx)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		m.options.Logger.Warn("skipping a file that isn't a record of an SMB mapping", "directory", recordDirectory,
			"names", quote.List(others), "count", len(others))
	}
	isMapped := make(map[string]bool) // by the root of a share with a plain mapping
	for _, mapping := range mapped {
		remote, err := win.ParseUNC(mapping.RemotePath)
		if err == nil && IsOwnKind(mapping, remote) {
			isMapped[remote.Root()] = true
		}
	}
	left, isHeld := maxDropped, make(map[string]bool) // by the driver
	for _, remote := range shares {
		owner := m.options.Users.OwnerOfShare(remote.Root())
		if isMapped[remote.Root()] || !m.paths.HasShare(remote.Root()) || isHeld[owner] {
			continue
		}
		if left--; left < 0 {
			break
		}
		timeout := staleTimeout
		if owner != m.options.Users.Driver() {
			timeout = driversStaleTimeout
		}
		if dropErr := m.dropIfStale(ctx, remote, timeout); dropErr != nil {
			err, isHeld[owner] = cmp.Or(err, dropErr), true
		}
	}
	return err
}

// driversStaleTimeout is staleTimeout for the node's wait for the locks of a driver.
const driversStaleTimeout = 50 * time.Millisecond

// staleTimeout is how long a query of mappings waits for the locks to drop a record. The owner of
// the locks may wait for a silent server. Then the next query drops the record.
const staleTimeout = time.Second

// maxDropped is how many records a query of mappings drops. Each call that ends before its server
// answers may leave a record.
const maxDropped = 64

func (m *Mappings) dropIfStale(ctx context.Context, remote win.UNCPath, timeout time.Duration) error {
	soon, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	locked, err := m.LockForRemoval(soon, remote)
	if err != nil {
		return err
	}
	defer locked.Release()
	// Check again with the locks held: a call that makes a mapping makes the record first.
	mapped, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil || hasPlain(mapped, remote) {
		return err
	}
	return m.dropRecords(ctx, locked.Share)
}
