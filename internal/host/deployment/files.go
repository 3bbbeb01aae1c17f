// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// RealFiles are the files of this system.
type RealFiles struct{}

// busyLimit is how long a rename or removal is tried again: a virus scanner may have a
// program open that was just written or has just ended.
const busyLimit = 15 * time.Second

// Read implements [Files].
func (RealFiles) Read(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

// Write implements [Files].
func (f RealFiles) Write(ctx context.Context, path string, content []byte) error {
	// What a death has cut off has this name.
	part := path + ".part"
	err := f.Remove(part)
	if err == nil {
		err = writeTo(part, content)
	}
	if err == nil {
		err = f.Rename(ctx, part, path)
	}
	if err != nil {
		return errors.Join(err, f.Remove(part))
	}
	return nil
}

// writeTo writes to a new file. If one were there, it could be somebody's who goes on to
// write to it, or a link.
func writeTo(path string, content []byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(content); err != nil {
		return err
	}
	return file.Sync()
}

// Rename implements [Files].
func (RealFiles) Rename(ctx context.Context, from, to string) error {
	return retryBusy(ctx, func() error { return os.Rename(from, to) })
}

// Remove implements [Files].
func (RealFiles) Remove(path string) error {
	if err := retryBusy(context.Background(), func() error { return os.Remove(path) }); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// retryBusy repeats do until it succeeds or there is no such file, for busyLimit.
func retryBusy(ctx context.Context, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, busyLimit)
	defer cancel()
	for {
		err := do()
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// List implements [Files].
func (RealFiles) List(dir string) (paths []string, _ error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, entry := range entries {
		paths = append(paths, filepath.Join(dir, entry.Name()))
	}
	return paths, err
}
