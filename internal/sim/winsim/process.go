// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/paths"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/refusal"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/volumes"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// Process is a process of the node, other than the one that makes the calls of the seam.
type Process struct {
	ID    win.ProcessID
	Image string   // path of its program
	Holds []string // paths of what it keeps open
}

// processes are the processes that control calls have started. They live in the state file,
// as other processes of a node outlive the daemon, until a restart of the node.
type processes struct {
	started  map[win.ProcessID]*process
	restored []Process // from the state file, until they are resumed
}

type process struct {
	Process
	handles []*handle
}

// firstProcess is the id of the first process that is started. Windows' ids are multiples
// of four.
const firstProcess = 2000

// someProcess is whose the handles of [System.Hold] are.
const someProcess win.ProcessID = 1996

// self is the process that makes the calls of the seam.
var self = win.ProcessID(os.Getpid())

// StartProcess starts a process that runs the program image and keeps paths open for
// reading, without keeping others from them. A path is that of a file or directory,
// \\server\share\… included, or the name of a volume without the backslash at its end, for
// a process that reads the volume itself. The process ends by EndProcess or with a restart
// of the node.
func (s *System) StartProcess(image string, paths ...string) (win.ProcessID, error) {
	var id win.ProcessID
	err := s.control(func() error {
		if image == "" {
			return fmt.Errorf("start a process: it has no program: %w", winerr.ErrorInvalidParameter)
		}
		id = firstProcess
		for s.processes.started[id] != nil || id == self {
			id += 4
		}
		p := &process{Process: Process{ID: id, Image: image, Holds: slices.Clone(paths)}}
		for _, path := range paths {
			if err := s.holdFor(p, path); err != nil {
				p.close()
				return fmt.Errorf("start process %s: open %s: %w", image, path, err)
			}
		}
		s.processes.started[id] = p
		s.changed = true
		return nil
	})
	return id, err
}

// holdFor opens a path for a process.
func (s *System) holdFor(p *process, path string) error {
	if _, rest, ok := volumes.ParseName(path); ok && rest == "" {
		v, err := s.volumes.ByPath(path)
		if err == nil {
			err = v.Admits(win.GenericRead)
		}
		if err != nil {
			return err
		}
		p.handles = append(p.handles, s.open(handle{
			object: objectName{name: path}, volume: v, length: v.Length, access: win.GenericRead, process: p.ID,
		}))
		return nil
	}
	op, err := s.paths.Open(path, existing(win.GenericRead, 0))
	if err != nil {
		return err
	}
	p.handles = append(p.handles, s.openFile(op, path, win.GenericRead, p.ID).handle)
	return nil
}

// close closes what the process has open. The caller holds the lock.
func (p *process) close() {
	for _, h := range p.handles {
		if !h.closed {
			h.close()
		}
	}
}

// EndProcess ends a process: what it had open is closed. No such process gives
// ErrorNotFound.
func (s *System) EndProcess(id win.ProcessID) error {
	return s.control(func() error {
		p, ok := s.processes.started[id]
		if !ok {
			return refusal.NotFound("process", fmt.Sprint(id))
		}
		p.close()
		delete(s.processes.started, id)
		s.changed = true
		return nil
	})
}

// Processes lists the processes that were started and haven't ended, in the order of their
// ids.
func (s *System) Processes() []Process { return look(s, s.processes.list) }

func (ps *processes) list() []Process {
	var list []Process
	for _, p := range ps.started {
		list = append(list, p.Process)
	}
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// resumeProcesses lets the processes of the state file go on. What they had open and can't
// open again, they have lost.
func (s *System) resumeProcesses() {
	for _, record := range s.processes.restored {
		p := &process{Process: record}
		for _, path := range p.Holds {
			_ = s.holdFor(p, path)
		}
		s.processes.started[p.ID] = p
	}
}

// end is what a restart of the node does.
func (ps *processes) end() {
	for _, p := range ps.started {
		p.close()
	}
	clear(ps.started)
}

// ProcessImage is QueryFullProcessImageNameW.
func (s *System) ProcessImage(ctx context.Context, id win.ProcessID) (string, error) {
	return ask(ctx, s, Call{win.CallProcessImage, fmt.Sprint(id)}, func() (string, error) {
		switch p, ok := s.processes.started[id]; {
		case ok:
			return p.Image, nil
		case id == self:
			return `C:\Program Files\csi-proxy\csi-proxy.exe`, nil
		case id == someProcess:
			return `C:\app\app.exe`, nil
		}
		return "", winerr.ErrorInvalidParameter
	})
}

// ProcessIDs implements [win.Device] and [win.File].
func (h *handle) ProcessIDs(ctx context.Context) (ids []win.ProcessID, err error) {
	err = h.call(ctx, win.CallProcessIDs, func() error {
		set := h.sys.settings
		if _, isShare := h.root.(paths.Share); set.NoProcessIDs || isShare || h.disk != nil {
			return winerr.ErrorInvalidParameter
		}
		for other := range h.sys.handles {
			if other.dead == 0 && h.isUsedBy(other, set.VolumeProcessesOnly) {
				ids = append(ids, other.process)
			}
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		return nil
	})
	return ids, err
}

// isUsedBy reports whether another handle is one to the same file or volume.
//
// Guess: NtQueryInformationFile tells of a volume the processes that have any file on it
// open.
func (h *handle) isUsedBy(other *handle, volumeOnly bool) bool {
	if h.file != nil {
		return other.file != nil && other.file.Node() == h.file.Node()
	}
	return other.volume == h.volume || !volumeOnly && other.on(h.volume)
}
