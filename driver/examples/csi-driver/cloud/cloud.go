// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloud is the cloud of the example driver. Its volumes are created, attached to
// its one node, grown and deleted. Its disks are the hardware of a simulated node. A
// driver for a real cloud has that cloud's client instead.
package cloud

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Sizes of volumes in bytes.
const (
	unit        = 1 << 20 // sizes are multiples of it
	defaultSize = 1 << 30
	minSize     = 64 << 20 // a smaller disk has no room for a partition table and NTFS
	maxSize     = 64 << 40
)

// Hardware is the hardware of the node, to which disks are attached. Each call may be
// repeated.
type Hardware interface {
	// Attach attaches the disk with a serial number. The first time it is a new, empty
	// disk.
	Attach(ctx context.Context, serial string, sizeBytes int64, readOnly bool) error
	// Detach detaches a disk. Its data are kept.
	Detach(ctx context.Context, serial string) error
	// Grow makes an attached disk larger.
	Grow(ctx context.Context, serial string, sizeBytes int64) error
	// Delete deletes a detached disk with its data. It is no error if there is none.
	Delete(ctx context.Context, serial string) error
}

// Volume is a volume of the cloud.
type Volume struct {
	ID         string            `json:"id"` // also the serial number of its disk
	Name       string            `json:"name"`
	Sequence   int64             `json:"sequence"` // grows with each volume
	Disk       bool              `json:"disk"`     // false for storage that isn't the cloud's
	SizeBytes  int64             `json:"sizeBytes"`
	Parameters map[string]string `json:"parameters,omitzero"`
	Node       string            `json:"node,omitzero"` // that it is, or is being, attached to
	ReadOnly   bool              `json:"readOnly,omitzero"`
}

// Nodes returns the nodes to which the volume is attached.
func (v Volume) Nodes() []string {
	if v.Node == "" {
		return nil
	}
	return []string{v.Node}
}

// Range limits a size, in bytes; 0 means no limit.
type Range struct{ Required, Limit int64 }

// holds reports whether a size is in the range.
func (r Range) holds(size int64) bool { return size >= r.Required && (r.Limit == 0 || size <= r.Limit) }

// Cloud is a cloud with one node. Its methods may be called concurrently. Errors have
// the classes of csiproxy that CSI requires.
type Cloud struct {
	hardware Hardware
	node     string
	file     string

	mu      sync.Mutex // guards volumes and the file, and serialises changes of disks
	volumes map[string]Volume
}

// Open returns the cloud whose volumes are listed in a file, or a new one. node is the
// name of its node, to which the hardware belongs.
func Open(file, node string, h Hardware) (*Cloud, error) {
	c := &Cloud{hardware: h, node: node, file: file, volumes: make(map[string]Volume)}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &c.volumes)
	}
	if err != nil {
		return nil, fmt.Errorf("open cloud %s: %w", file, err)
	}
	return c, nil
}

// put saves a volume. c.mu is held.
func (c *Cloud) put(v Volume) error {
	changed := maps.Clone(c.volumes)
	changed[v.ID] = v
	return c.save(changed)
}

// save writes volumes to the file and, if that succeeds, makes them the cloud's. c.mu is
// held.
func (c *Cloud) save(volumes map[string]Volume) error {
	data, err := json.MarshalIndent(volumes, "", "  ")
	if err == nil {
		err = save(c.file, data)
	}
	if err != nil {
		return fmt.Errorf("save cloud: %w", err)
	}
	c.volumes = volumes
	return nil
}

// Create creates a volume, or returns the existing one of that name. isDisk is false for
// storage that isn't the cloud's, which has no size.
func (c *Cloud) Create(name string, size Range, isDisk bool, parameters map[string]string) (Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last int64
	for _, v := range c.volumes {
		if v.Name != name {
			last = max(last, v.Sequence)
			continue
		}
		if v.Disk != isDisk || !size.holds(v.SizeBytes) || !maps.Equal(v.Parameters, parameters) {
			return Volume{}, failure("create", name, csiproxy.ErrAlreadyExists, "a different volume has this name")
		}
		return v, nil
	}
	v := Volume{ID: newID(), Name: name, Sequence: last + 1, Disk: isDisk, Parameters: parameters}
	if isDisk {
		var err error
		if v.SizeBytes, err = size.choose(); err != nil {
			return Volume{}, err
		}
	}
	return v, c.put(v)
}

// choose returns the smallest possible size in the range.
func (r Range) choose() (int64, error) {
	size := r.Required
	if size == 0 {
		size = defaultSize
		if r.Limit != 0 {
			size = min(size, r.Limit)
		}
	}
	if r.Required < 0 || r.Limit < 0 || size > maxSize {
		return 0, outOfRange(r)
	}
	size = max(minSize, (size+unit-1)/unit*unit)
	if !r.holds(size) {
		return 0, outOfRange(r)
	}
	return size, nil
}

// newID returns a volume id that was never used before. Otherwise, late calls for a
// deleted volume could affect another one.
func newID() string {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	return "vol-" + hex.EncodeToString(id)
}

// Get returns a volume.
func (c *Cloud) Get(id string) (Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.get("get", id)
}

func (c *Cloud) get(op, id string) (Volume, error) {
	v, ok := c.volumes[id]
	if !ok {
		return Volume{}, failure(op, id, csiproxy.ErrNotFound, "the cloud has no such volume")
	}
	return v, nil
}

// List returns all volumes in the order of their creation.
func (c *Cloud) List() []Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.volumes), func(a, b Volume) int { return int(a.Sequence - b.Sequence) })
}

// Delete deletes a volume. It is no error if there is none. An attached volume is refused.
func (c *Cloud) Delete(ctx context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.volumes[id]
	if !ok {
		return nil
	}
	if v.Node != "" {
		return failure("delete", id, csiproxy.ErrFailedPrecondition, "the volume is attached to "+v.Node)
	}
	if v.Disk {
		if err := c.hardware.Delete(ctx, id); err != nil {
			return err
		}
	}
	rest := maps.Clone(c.volumes)
	delete(rest, id)
	return c.save(rest)
}

// Attach attaches a volume to a node.
func (c *Cloud) Attach(ctx context.Context, id, node string, readOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.get("attach", id)
	switch {
	case err != nil:
		return err
	case node != c.node:
		return failure("attach", id, csiproxy.ErrNotFound, "the cloud has no node "+node)
	case v.Node != "" && v.ReadOnly != readOnly:
		return failure("attach", id, csiproxy.ErrAlreadyExists, "the volume is attached with another value of readOnly")
	}
	v.Node, v.ReadOnly = node, readOnly
	if err := c.put(v); err != nil || !v.Disk {
		return err
	}
	return c.hardware.Attach(ctx, id, v.SizeBytes, readOnly)
}

// Detach detaches a volume from a node, or from any if node is empty. It is no error if
// the volume isn't attached there or doesn't exist.
func (c *Cloud) Detach(ctx context.Context, id, node string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.volumes[id]
	if !ok || v.Node == "" || node != "" && node != v.Node {
		return nil
	}
	if v.Disk {
		if err := c.hardware.Detach(ctx, id); err != nil {
			return err
		}
	}
	v.Node, v.ReadOnly = "", false
	return c.put(v)
}

// Grow makes a volume larger, even if it is attached.
func (c *Cloud) Grow(ctx context.Context, id string, size Range) (Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.get("grow", id)
	if err != nil {
		return Volume{}, err
	}
	if !v.Disk {
		return Volume{}, failure("grow", id, csiproxy.ErrFailedPrecondition, "its storage doesn't belong to the cloud")
	}
	size.Required = max(size.Required, v.SizeBytes)
	if v.SizeBytes, err = size.choose(); err != nil {
		return Volume{}, err
	}
	if err := c.put(v); err != nil || v.Node == "" {
		return v, err // the disk grows when it is attached
	}
	return v, c.hardware.Grow(ctx, id, v.SizeBytes)
}

// save writes a file so that a crash of the process leaves the old one or the new one.
func save(file string, data []byte) error {
	fresh := file + ".new"
	if err := os.WriteFile(fresh, data, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}
