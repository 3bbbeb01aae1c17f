// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
)

// writeFile replaces a file's contents, or makes the file. A crash leaves either the old
// contents or the new ones. Only its owner may read it. The lock is held while it is replaced.
func writeFile(path string, data []byte, lock sync.Locker) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil { // somebody may have removed it
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.new")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	lock.Lock()
	defer lock.Unlock()
	return os.Rename(f.Name(), path)
}
