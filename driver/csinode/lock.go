// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csinode

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// takeoverTimeout is how long a process waits for the records of another one. In a rolling update
// the process before may take all of Kubernetes' grace period to end, 30 seconds by default, and is
// then killed. A process that is still there after twice that time isn't about to end, so the new
// one fails, and the reason is in its log and in the state of its pod.
var takeoverTimeout = time.Minute

// takeoverInterval is how often it looks.
const takeoverInterval = 100 * time.Millisecond

// errLocked is returned by tryLock if another process has the lock.
var errLocked = errors.New("another process has it")

// store is what a process has of a state directory: the records, and the lock without which another
// process could overwrite them with what it knew before. Servers of one process share it.
type store struct {
	records
	volumes locks // one call at a time on each

	dir   string
	file  *os.File // locked; the system unlocks it when the process ends, however it ends
	users int
}

// stores are the stores of this process, by their directories.
var stores = struct {
	sync.Mutex
	open map[string]*store
}{open: make(map[string]*store)}

// openStore makes the directory if it is missing, and waits until no other process has it.
func openStore(dir string, log *slog.Logger) (*store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	stores.Lock()
	defer stores.Unlock()
	s := stores.open[dir]
	if s == nil {
		file, err := lockFile(filepath.Join(dir, "lock"), log)
		if err != nil {
			return nil, err
		}
		s = &store{records: records{dir: dir, log: log}, dir: dir, file: file}
		stores.open[dir] = s
	}
	s.users++
	return s, nil
}

// release lets another process have the directory once no server of this one needs it.
func (s *store) release() error {
	stores.Lock()
	defer stores.Unlock()
	if s.users--; s.users > 0 {
		return nil
	}
	delete(stores.open, s.dir)
	return s.file.Close()
}

// lockFile locks a file, which it makes if it is missing and never removes: a process that waits
// for a file that is removed would get the lock of a file that nobody else sees.
func lockFile(path string, log *slog.Logger) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline, told := time.Now().Add(takeoverTimeout), false; ; told = true {
		err := tryLock(file)
		switch {
		case err == nil:
			return file, nil
		case errors.Is(err, errLocked) && time.Now().Before(deadline):
			if !told {
				log.Info("waiting for another process of the driver to end", "lock", path, "timeout", takeoverTimeout)
			}
			time.Sleep(takeoverInterval)
			continue
		case errors.Is(err, errLocked):
			err = fmt.Errorf("another process has had it for %v: end that one, or give this one a state directory of its own",
				takeoverTimeout)
		}
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
}
