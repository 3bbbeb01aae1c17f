// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package records keeps what a node must know of itself after a restart of the daemon, and
// Windows doesn't tell. A record is a link to what it is about, in a directory below Windows'
// directory, where only administrators can make one.
package records

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/win"
)

// System is what records take of Windows.
type System interface {
	win.Files
	SystemWindowsDirectory(ctx context.Context) (string, error)
}

// Kind is a kind of records, by the name of its directory.
type Kind string

// The kinds.
const (
	// Mappings are SMB mappings that CSI Proxy has made for a staged path. A record leads to
	// the root of the share.
	Mappings Kind = "csi-proxy-mappings"
	// Links are links that CSI Proxy has made where a search for links doesn't come. A record
	// leads to the path of the link.
	Links Kind = "csi-proxy-links"
)

// Record is a record as it was read.
type Record struct {
	Name  string
	About string // what it is about
}

// Name returns the name of the record with a key, which may have any characters.
func Name(key string) string {
	name := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%x", name[:16])
}

// How long to wait for another call that has the record or the directory open.
const (
	patience = 5 * time.Second
	interval = 20 * time.Millisecond
)

// shared lets others look at a record, and drop it, while it is open.
const shared = win.ShareRead | win.ShareWrite | win.ShareDelete

// Make makes a record, and reports whether there was none. Nobody can drop it before release
// is called. So who releases it when the thing is there leaves none without a record.
func (k Kind) Make(ctx context.Context, sys System, name, about string) (isNew bool, release func(), _ error) {
	windows, err := sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return false, nil, err
	}
	directory := windows + `\` + string(k)
	open := func() (file win.File, err error) {
		return sys.OpenFile(ctx, directory+`\`+name, win.OpenOptions{
			Access: win.FileReadAttributes | win.FileWriteAttributes | win.Delete,
			Share:  win.ShareRead | win.ShareWrite, Disposition: win.FileOpenIf,
			Options: win.FileNonDirectoryFile | win.FileOpenReparsePoint,
		})
	}
	var file win.File
	err = operation.Retry(ctx, patience, interval, isBusy, func() (err error) {
		if file, err = open(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		dir, err := sys.OpenFile(ctx, directory, win.OpenOptions{ // the first record
			Access: win.FileListDirectory, Share: win.ShareRead | win.ShareWrite, Disposition: win.FileOpenIf,
			Options: win.FileDirectoryFile | win.FileOpenReparsePoint,
		})
		if err != nil {
			return err
		}
		defer dir.Close()
		file, err = open()
		return err
	})
	if err != nil {
		return false, nil, fmt.Errorf("%s: %w", directory, err)
	}
	made := false
	defer func() { // also if that ends in a panic, which the daemon survives
		if !made {
			file.Close()
		}
	}()
	info, err := file.Info(ctx)
	if err == nil && !info.IsReparsePoint() {
		isNew = true
		_, err = file.Control(ctx, win.FsctlSetReparsePoint, win.NewSymlink(about).Encode(), nil)
	}
	made = err == nil
	return isNew, func() { file.Close() }, err
}

// isBusy reports whether err says that another call makes or drops a record.
func isBusy(err error) bool {
	return win.IsAny(err, win.ErrorSharingViolation, win.ErrorDeletePending)
}

// Has reports whether there is a record.
func (k Kind) Has(ctx context.Context, sys System, name string) (bool, error) {
	file, err := k.open(ctx, sys, name, win.FileReadAttributes, win.FileNonDirectoryFile)
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

// Drop removes a record, if there is one, and the directory with the last. If stale isn't nil,
// it is asked first, while nobody can make the record. A record that is being made stays.
func (k Kind) Drop(ctx context.Context, sys System, name string, stale func() (bool, error)) error {
	dropped, err := k.drop(ctx, sys, name, stale)
	if err != nil || !dropped {
		return err
	}
	dir, err := k.open(ctx, sys, "", win.Delete, win.FileDirectoryFile)
	if err != nil {
		return nil // another call makes a record
	}
	defer dir.Close()
	if err := dir.Delete(ctx); !errors.Is(err, win.ErrorDirNotEmpty) && !isBusy(err) {
		return err
	}
	return nil
}

func (k Kind) drop(ctx context.Context, sys System, name string, stale func() (bool, error)) (dropped bool, _ error) {
	file, err := k.open(ctx, sys, name, win.Delete, win.FileNonDirectoryFile)
	if isBusy(err) || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	if stale != nil {
		if is, err := stale(); err != nil || !is {
			return false, err
		}
	}
	if err = file.Delete(ctx); isBusy(err) { // another call has dropped it
		return false, nil
	}
	return err == nil, err
}

// All returns all records, and removes what makers have left that have died half-way.
func (k Kind) All(ctx context.Context, sys System) (all []Record, _ error) {
	dir, err := k.open(ctx, sys, "", win.FileListDirectory, win.FileDirectoryFile)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, win.ErrorDeletePending) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for restart := true; ; restart = false {
		entries, err := dir.ReadDir(ctx, restart)
		if errors.Is(err, win.ErrorNoMoreFiles) || err == nil && len(entries) == 0 {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			about, err := k.read(ctx, sys, e.Name)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, win.ErrorDeletePending) {
				continue
			}
			if err == nil && about == "" {
				err = k.Drop(ctx, sys, e.Name, func() (bool, error) {
					about, err := k.read(ctx, sys, e.Name)
					return about == "", err
				})
			}
			if err != nil {
				return nil, err
			}
			if about != "" {
				all = append(all, Record{e.Name, about})
			}
		}
	}
}

// read returns what a record is about, "" if it is half made.
func (k Kind) read(ctx context.Context, sys System, name string) (about string, _ error) {
	file, err := k.open(ctx, sys, name, win.FileReadAttributes, win.FileNonDirectoryFile)
	if err != nil {
		return "", err
	}
	defer file.Close()
	b := make([]byte, win.MaximumReparseDataSize)
	n, err := file.Control(ctx, win.FsctlGetReparsePoint, nil, b)
	if errors.Is(err, win.ErrorNotAReparsePoint) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	link, err := win.DecodeReparsePoint(b[:n])
	return link.Target(), err
}

// open opens a record, or the directory if name is "". What isn't there is fs.ErrNotExist.
func (k Kind) open(
	ctx context.Context, sys System, name string, access win.Access, what win.CreateOptions,
) (win.File, error) {
	windows, err := sys.SystemWindowsDirectory(ctx)
	if err != nil {
		return nil, err
	}
	path := windows + `\` + string(k)
	if name != "" {
		path += `\` + name
	}
	file, err := sys.OpenFile(ctx, path, win.OpenOptions{
		Access: access, Share: shared, Disposition: win.FileOpen, Options: what | win.FileOpenReparsePoint,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, nil
}
