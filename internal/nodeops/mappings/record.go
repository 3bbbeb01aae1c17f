// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// A record says that CSI Proxy has made the mapping of a share for a staged path. Windows
// doesn't tell who has made a mapping, and administrators and their scripts make mappings,
// too. So only a mapping that has a record is removed without being asked for by name, once
// nothing uses it.
//
// The record is a link to the share, in a directory where only administrators can make one.
// It is made before the mapping, so a process that dies half-way leaves no mapping without a
// record. Mappings end with a restart of Windows and records don't: those of shares that
// aren't mapped are dropped when the mappings are listed.
const recordDirectory = "csi-proxy-mappings"

// shared lets others look at a record, and drop it, while it is open.
const shared = win.ShareRead | win.ShareWrite | win.ShareDelete

// recordName names the record of a share, without the characters that a file can't have.
func recordName(remote unc.Path) string {
	name := sha256.Sum256([]byte(remote.Root()))
	return fmt.Sprintf("%x", name[:16])
}

// recordPath returns the path of the record of a share, or of their directory if name is "".
func (m *Mappings) recordPath(ctx context.Context, name string) (string, error) {
	windows, err := m.sys.SystemWindowsDirectory(ctx)
	return strings.TrimSuffix(windows+`\`+recordDirectory+`\`+name, `\`), err
}

// openRecord opens the record of a share. If there is none, the error is fs.ErrNotExist.
func (m *Mappings) openRecord(ctx context.Context, remote unc.Path, access win.Access, d win.Disposition) (win.File, error) {
	path, err := m.recordPath(ctx, recordName(remote))
	if err != nil {
		return nil, err
	}
	return m.sys.OpenFile(ctx, path, win.OpenOptions{
		Access: access, Share: shared, Disposition: d, Options: win.FileNonDirectoryFile | win.FileOpenReparsePoint,
	})
}

// openRecords opens the directory of the records.
func (m *Mappings) openRecords(ctx context.Context, access win.Access, d win.Disposition) (_ win.File, path string, _ error) {
	path, err := m.recordPath(ctx, "")
	if err != nil {
		return nil, "", err
	}
	dir, err := m.sys.OpenFile(ctx, path, win.OpenOptions{
		Access: access, Share: shared, Disposition: d,
		Options: win.FileDirectoryFile | win.FileOpenReparsePoint,
	})
	return dir, path, err
}

// record notes that the mapping of a share is being made for a staged path, and reports whether
// that is new.
func (m *Mappings) record(ctx context.Context, remote unc.Path) (isNew bool, _ error) {
	if known, err := m.recorded(ctx, remote); err != nil || known {
		return false, err
	}
	file, err := m.openRecord(ctx, remote, win.FileWriteAttributes, win.FileOpenIf)
	if errors.Is(err, fs.ErrNotExist) { // the first one
		dir, _, dirErr := m.openRecords(ctx, win.FileListDirectory, win.FileOpenIf)
		if dirErr != nil {
			return false, dirErr
		}
		defer dir.Close()
		file, err = m.openRecord(ctx, remote, win.FileWriteAttributes, win.FileOpenIf)
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	_, err = file.Control(ctx, win.FsctlSetReparsePoint, win.NewSymlink(remote.Root()).Encode(), nil)
	return true, err
}

// recorded reports whether the mapping of a share was made for a staged path.
func (m *Mappings) recorded(ctx context.Context, remote unc.Path) (bool, error) {
	file, err := m.openRecord(ctx, remote, win.FileReadAttributes, win.FileOpen)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Info(ctx)
	return err == nil && info.IsReparsePoint(), err
}

// dropRecord removes the record of a share, if there is one, and their directory with the last.
func (m *Mappings) dropRecord(ctx context.Context, remote unc.Path) error {
	if err := m.deleteRecord(ctx, remote); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	dir, _, err := m.openRecords(ctx, win.Delete, win.FileOpen)
	if err != nil {
		return nil // another call makes a record
	}
	defer dir.Close()
	if err := dir.Delete(ctx); err != nil && !errors.Is(err, win.ErrorDirNotEmpty) {
		return err
	}
	return nil
}

func (m *Mappings) deleteRecord(ctx context.Context, remote unc.Path) error {
	file, err := m.openRecord(ctx, remote, win.Delete, win.FileOpen)
	if err != nil {
		return err
	}
	defer file.Close()
	return file.Delete(ctx)
}

// dropStaleRecords drops the records of shares that aren't mapped, such as after a restart of
// Windows: whoever maps such a share later isn't CSI Proxy.
func (m *Mappings) dropStaleRecords(ctx context.Context) error {
	shares, err := m.recordedShares(ctx)
	if err != nil {
		return err
	}
	for _, remote := range shares {
		if err := m.dropIfStale(ctx, remote); err != nil {
			return err
		}
	}
	return nil
}

func (m *Mappings) dropIfStale(ctx context.Context, remote unc.Path) error {
	mappings, err := m.options.Shares.Mappings(ctx)
	if err != nil || remote.MappedBy(mappings) {
		return err
	}
	// Whoever makes the mapping has recorded it before.
	ctx, rights, err := m.Rights(ctx, remote)
	if err != nil {
		return err
	}
	defer rights.Release()
	if mappings, err = m.sys.SMBGlobalMappings(ctx); err != nil || remote.MappedBy(mappings) {
		return err
	}
	return m.dropRecord(ctx, remote)
}

// recordedShares returns the shares that have a record.
func (m *Mappings) recordedShares(ctx context.Context) (shares []unc.Path, _ error) {
	dir, path, err := m.openRecords(ctx, win.FileListDirectory, win.FileOpen)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(ctx, restart)
		if errors.Is(err, win.ErrorNoMoreFiles) || err == nil && len(entries) == 0 {
			return shares, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if remote, ok := m.readRecord(ctx, path+`\`+e.Name); ok {
				shares = append(shares, remote)
			}
		}
	}
}

// readRecord returns the share of a record. A record that is being made or dropped has none.
func (m *Mappings) readRecord(ctx context.Context, path string) (remote unc.Path, ok bool) {
	file, err := m.sys.OpenFile(ctx, path, win.OpenOptions{
		Access: win.FileReadAttributes, Share: shared, Disposition: win.FileOpen,
		Options: win.FileNonDirectoryFile | win.FileOpenReparsePoint,
	})
	if err != nil {
		return remote, false
	}
	defer file.Close()
	b := make([]byte, win.MaximumReparseDataSize)
	n, err := file.Control(ctx, win.FsctlGetReparsePoint, nil, b)
	if err != nil {
		return remote, false
	}
	link, err := win.DecodeReparsePoint(b[:n])
	if err != nil {
		return remote, false
	}
	remote, err = unc.Parse(link.Target())
	return remote, err == nil
}
