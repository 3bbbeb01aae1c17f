// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/disks"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/services"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/statefile"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/handletrack"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// Config says what node to open.
type Config struct {
	// StateFile is the file that holds the node. It is created if nothing has that
	// path, and locked while the node is open. A file that isn't the state of a node
	// is refused, also an empty one. "" keeps the node in memory.
	StateFile string
	// CopyOf is the state file of a node of which this one becomes a copy, in memory. The
	// file stays as it is.
	CopyOf string
	Delays Delays
	// Handles is told of each handle that is opened and closed, also of those of Hold.
	// Default: nobody is.
	Handles *handletrack.Tracker
}

// System is a simulated node. Its methods may be called from any goroutine.
type System struct {
	gate
	track *handletrack.Tracker // it doesn't change

	// mu is the kernel lock: one call at a time is inside the node. It guards all
	// fields below it with everything that they lead to, among that the parts in
	// packages of their own, which do no locking.
	//
	// It is never held while something waits or a hook runs, nor together with
	// gate.mu: a call first passes the gate, and then takes the lock. Each change is
	// made within control, or within a function that was given to later: these make
	// durable what has changed before they release the lock.
	mu       sync.Mutex
	closed   bool
	changed  bool // nodeRecord, since the last commit
	settings Settings
	disks    *disks.Manager
	volumes  *volumes.Manager
	paths    paths.Space
	handles  handles

	biosSerial string
	registry   registry
	processes  processes
	watchers   watchers
	services   *services.Manager
	smb        *smbserver.Network
	iscsi      *iscsitarget.Network
	file       *statefile.File
	parts      []statefile.Part // all that keep state in the file, in the order in which it is restored
	pending    int              // arrivals on their way
	arrived    sync.Cond        // on mu: pending went down

	ctx  context.Context // ends with Close
	stop context.CancelFunc
}

var errClosed = errors.New("the simulated node is closed")

// Open starts the node that c.StateFile holds or, if there is none yet, a new one
// with a system disk. The caller must close it.
func Open(c Config) (*System, error) {
	s := &System{
		track:   c.Handles,
		handles: handles{},

		processes: processes{started: map[win.ProcessID]*process{}},
		watchers:  watchers{},
	}
	s.arrived.L = &s.mu
	s.ctx, s.stop = context.WithCancel(context.Background())
	if err := s.gate.init(s.ctx, c.Delays); err != nil {
		s.stop()
		return nil, err
	}
	s.disks = disks.New(disks.Config{
		Settings: &s.settings, DiskArrival: s.delays.DiskArrival, VolumeArrival: s.delays.VolumeArrival,
	}, wiring{s})
	s.volumes = volumes.New(volumes.Config{Settings: &s.settings, Disks: s.disks, Arrival: s.delays.VolumeArrival},
		wiring{s})
	s.disks.Volumes = s.volumes
	s.services = services.New(services.Node{
		Later: s.later, Running: s.serviceRuns,
		StartTime: s.delays.Calls[win.CallStartService], StopTime: s.delays.Calls[win.CallStopService],
	})
	s.smb = smbserver.New(s.breakShare, &s.settings)
	s.paths = paths.Space{Settings: &s.settings, Volumes: s.volumes, Shares: s.smb}
	s.iscsi = iscsitarget.New(wiring{s})
	s.mu.Lock()
	defer s.mu.Unlock()
	open, path := statefile.Open, c.StateFile
	if c.CopyOf != "" {
		open, path = statefile.Copy, c.CopyOf
	}
	s.parts = []statefile.Part{itself{s}, s.disks, s.volumes, s.services, s.iscsi, s.smb}
	file, isNew, err := open(path, s.parts...)
	if err != nil {
		s.stop()
		return nil, err
	}
	s.file = file
	if isNew {
		err = s.install()
	} else {
		s.resume()
	}
	if err == nil {
		err = s.commit()
	}
	if err != nil {
		s.closed = true
		s.stop()
		s.settle()
		return nil, errors.Join(err, file.Close())
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
	return s.file.Close()
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

// call runs a call of the seam: first its hook, delays and rules, then f under the
// lock.
func (s *System) call(ctx context.Context, c Call, f func() error) error {
	if err := s.gate.enter(ctx, c); err != nil {
		return err
	}
	return s.control(f)
}

// ask is [System.call] of a call that has an answer.
func ask[T any](ctx context.Context, s *System, c Call, f func() (T, error)) (answer T, err error) {
	err = s.call(ctx, c, func() error {
		answer, err = f()
		return err
	})
	return answer, err
}

// sure is f for ask, of a call that can't fail.
func sure[T any](f func() T) func() (T, error) {
	return func() (T, error) { return f(), nil }
}

// look returns what f sees under the lock.
func look[T any](s *System, f func() T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// control runs f under the lock and makes durable what it changed, also if it fails
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

// later runs f under the lock after d, and never before the present call is over. The
// caller holds the lock.
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

// wiring is what the parts below the System need of it and of one another.
type wiring struct{ sys *System }

// Later implements [disks.Node] and [volumes.Node].
func (w wiring) Later(d time.Duration, f func()) { w.sys.later(d, f) }

// Notify implements [disks.Node] and [volumes.Node].
func (w wiring) Notify(class winid.GUID) { w.sys.notify(class) }

// KeptChanged implements [disks.Node].
func (w wiring) KeptChanged() { w.sys.changed = true }

// DiskGone implements [disks.Node].
func (w wiring) DiskGone(d *disks.Disk) {
	w.sys.handles.kill(w.sys.settings.GoneError(), func(h *handle) bool { return h.disk == d })
}

// InUse implements [volumes.Node].
func (w wiring) InUse(v *volumes.Volume, besides volumes.Handle) bool {
	return w.sys.handles.inUse(v, besides)
}

// Kill implements [volumes.Node].
func (w wiring) Kill(v *volumes.Volume, onlyFiles bool, e winerr.Errno) {
	w.sys.handles.kill(e, func(h *handle) bool { return h.on(v) && (h.file != nil || !onlyFiles) })
}

// Attach implements [iscsitarget.LUNs]: the LUNs of targets are disks of the node.
func (w wiring) Attach(iqn string) { w.sys.disks.AttachLUNs(iqn) }

// Detach implements [iscsitarget.LUNs].
func (w wiring) Detach(iqn string) { w.sys.disks.DetachLUNs(iqn) }

// Dismount implements [iscsitarget.LUNs]: it flushes the volumes on the disks.
func (w wiring) Dismount(iqn string) error {
	for _, d := range w.sys.disks.LUNs(iqn) {
		if w.sys.handles.diskInUse(d) {
			return winerr.ISDSCDeviceBusyOnSession
		}
	}
	for _, d := range w.sys.disks.LUNs(iqn) {
		w.sys.volumes.Flush(d)
	}
	return nil
}

// Devices implements [iscsitarget.LUNs].
func (w wiring) Devices(iqn string) []win.ISCSIDevice { return w.sys.disks.LUNDevices(iqn) }
