// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
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

// Copy implements [Files].
func (f RealFiles) Copy(ctx context.Context, from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() // nothing was written
	return f.put(ctx, source, to)
}

// Write implements [Files].
func (f RealFiles) Write(ctx context.Context, path string, content []byte) error {
	return f.put(ctx, bytes.NewReader(content), path)
}

func (f RealFiles) put(ctx context.Context, source io.Reader, to string) error {
	// A copy that a death cut off has this name.
	part := to + ".part"
	err := f.Remove(part)
	if err == nil {
		err = copyTo(part, source)
	}
	if err == nil {
		err = f.Rename(ctx, part, to)
	}
	if err != nil {
		return errors.Join(err, f.Remove(part))
	}
	return nil
}

// copyTo copies to a new file. If one were there, it could be somebody's who goes on to
// write to it, or a link.
func copyTo(to string, source io.Reader) (err error) {
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if _, err := io.Copy(target, source); err != nil {
		return err
	}
	return target.Sync()
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

// Exists implements [Files].
func (RealFiles) Exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Same implements [Files].
func (RealFiles) Same(a, b string) (bool, error) {
	first, err := hash(a)
	if err != nil {
		return false, err
	}
	second, err := hash(b)
	return bytes.Equal(first, second), err
}

func hash(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
