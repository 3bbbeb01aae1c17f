// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/win"
)

// Config says what node to open.
type Config struct {
	// StateFile is the file that holds the node. It is created if it doesn't
	// exist, and locked while the node is open. "" keeps the node in memory.
	StateFile string
	Delays    Delays
}

// Settings are the switches of the node's Windows. They are kept in the state
// file.
type Settings struct {
	// NoAutomount is `mountvol /N`: a volume that was never seen before stays
	// offline until IOCTL_VOLUME_ONLINE and gets no drive letter.
	NoAutomount bool
	// AutomaticMSR makes IOCTL_DISK_CREATE_DISK add the reserved partition, as its
	// documentation says.
	AutomaticMSR bool
	// FixedUsableLength keeps IOCTL_DISK_UPDATE_DRIVE_SIZE from moving the backup
	// GPT to the new end of a disk.
	FixedUsableLength bool
}

// System is a simulated node. Its methods may be called from any goroutine.
type System struct {
	gate gate

	// mu is the kernel lock: one call at a time is inside the node. It guards all
	// below, and is never held while something waits or a hook runs.
	mu       sync.Mutex
	closed   bool
	node     nodeRecord
	changed  bool // node, since the last commit
	disks    disks
	volumes  volumes
	mounts   mounts
	handles  handles
	watchers watchers
	services services
	smb      smb
	store    *store
	pending  int       // arrivals on their way
	arrived  sync.Cond // on mu: pending went down

	ctx  context.Context // ends with Close
	stop context.CancelFunc
}

var errClosed = errors.New("the simulated node is closed")

// Open starts the node that c.StateFile holds or, if there is none yet, a new one
// with a system disk. Whoever opens it closes it.
func Open(c Config) (*System, error) {
	s := &System{
		disks: disks{byID: map[uint64]*disk{}, dirty: map[*disk]struct{}{}},
		volumes: volumes{
			known: map[string]*volumeRecord{}, changed: map[string]struct{}{}, arriving: map[string]struct{}{},
		},
		mounts:   mounts{records: map[string]mountRecord{}},
		handles:  handles{},
		watchers: watchers{},
		services: services{changed: map[string]struct{}{}},
		smb:      newSMB(),
	}
	if err := s.gate.setDelays(c.Delays); err != nil {
		return nil, err
	}
	s.arrived.L = &s.mu
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	st, isNew, err := openStore(c.StateFile, s.restore)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.store = st
	if isNew {
		err = s.install()
	} else {
		err = s.resume()
	}
	if err == nil {
		err = s.commit()
	}
	if err != nil {
		s.closed = true
		s.stop()
		s.settle()
		return nil, errors.Join(err, st.close())
	}
	return s, nil
}

// Close ends the process's side of the node: all calls fail from now on, and the
// state file can be opened again.
func (s *System) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.closed = true
	s.stop()
	s.settle()
	return s.store.close()
}

// Settle waits until the disks and volumes that are on their way have arrived, and
// the services that are starting or stopping have done so.
func (s *System) Settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
}

func (s *System) settle() {
	for s.pending > 0 {
		s.arrived.Wait()
	}
}

// SetSettings sets all switches.
func (s *System) SetSettings(v Settings) error {
	return s.control(func() error {
		s.node.Settings, s.changed = v, true
		return nil
	})
}

// call runs a call of the seam: first what gate has for it, then f in the node.
func (s *System) call(ctx context.Context, c Call, f func() error) error {
	if err := s.gate.enter(ctx, c); err != nil {
		return err
	}
	return s.control(f)
}

// control runs f in the node and makes durable what it changed, also if it fails
// half-way.
func (s *System) control(f func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	err := f()
	if commitErr := s.commit(); commitErr != nil {
		return commitErr
	}
	return err
}

// later runs f in the node after d, never before the present call has left it. The
// caller holds the kernel lock.
func (s *System) later(d time.Duration, f func()) {
	s.pending++
	go func() {
		_ = win.Sleep(s.ctx, d) // it ends early only when the node is closed
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			f()
			_ = s.commit() // what fails here is repeated, and reported, by the next call
		}
		s.pending--
		s.arrived.Broadcast()
	}()
}
