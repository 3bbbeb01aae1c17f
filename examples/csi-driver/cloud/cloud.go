// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package cloud is the cloud of the example driver: volumes that are created, attached
// to its one node, grown and deleted. Its disks are the hardware of a simulated node.
// A driver for a real cloud has that cloud's client in its place.
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
	"github.com/csi-proxy/csi-proxy/examples/csi-driver/internal/atomicfile"
)

// Sizes of volumes in bytes.
const (
	unit        = 1 << 20 // what sizes are multiples of
	defaultSize = 1 << 30
	minSize     = 64 << 20 // a smaller disk has no room for a partition table and NTFS
	maxSize     = 64 << 40
)

// Hardware is the node's: where disks are plugged in. Each call may be repeated.
type Hardware interface {
	// Attach plugs in the disk with a serial number: a new and empty one the first
	// time.
	Attach(ctx context.Context, serial string, sizeBytes int64, readOnly bool) error
	// Detach unplugs a disk; its data are kept.
	Detach(ctx context.Context, serial string) error
	// Grow makes a disk that is plugged in larger.
	Grow(ctx context.Context, serial string, sizeBytes int64) error
	// Delete throws away a disk that isn't plugged in, with its data, if there is one.
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

// Nodes returns the nodes that the volume is attached to.
func (v Volume) Nodes() []string {
	if v.Node == "" {
		return nil
	}
	return []string{v.Node}
}

// Range bounds a size in bytes; 0 doesn't.
type Range struct{ Required, Limit int64 }

// holds reports whether a size is in the range.
func (r Range) holds(size int64) bool { return size >= r.Required && (r.Limit == 0 || size <= r.Limit) }

// Cloud is a cloud with one node. Its methods may be called concurrently. Errors are
// of csiproxy's classes, as CSI wants them.
type Cloud struct {
	hardware Hardware
	node     string
	file     string

	mu      sync.Mutex // guards volumes and the file, and orders what happens to disks
	volumes map[string]Volume
}

// Open returns the cloud whose volumes are listed in a file, or a new one. node is
// the name of its node, which has the hardware.
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

// save makes volumes the cloud's, if they can be written. c.mu is held.
func (c *Cloud) save(volumes map[string]Volume) error {
	data, err := json.MarshalIndent(volumes, "", "  ")
	if err == nil {
		err = atomicfile.Write(c.file, data)
	}
	if err != nil {
		return fmt.Errorf("save cloud: %w", err)
	}
	c.volumes = volumes
	return nil
}

// Create creates a volume, or returns the one that has the name already. isDisk is
// false for storage that is there without the cloud: it has no size.
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
			return Volume{}, failure("create", name, csiproxy.ErrAlreadyExists, "there is a volume of this name, and it is different")
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

// newID returns a volume id that never was one: late calls for a volume that was
// deleted must not mean another.
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
		return Volume{}, failure(op, id, csiproxy.ErrNotFound, "there is no such volume")
	}
	return v, nil
}

// List returns all volumes in the order of their creation.
func (c *Cloud) List() []Volume {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.volumes), func(a, b Volume) int { return int(a.Sequence - b.Sequence) })
}

// Delete deletes a volume; success if there is none. One that is attached is refused.
func (c *Cloud) Delete(ctx context.Context, id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.volumes[id]
	if !ok {
		return nil
	}
	if v.Node != "" {
		return failure("delete", id, csiproxy.ErrFailedPrecondition, "it is attached to "+v.Node)
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
		return failure("attach", id, csiproxy.ErrNotFound, "there is no node "+node)
	case v.Node != "" && v.ReadOnly != readOnly:
		return failure("attach", id, csiproxy.ErrAlreadyExists, "it is attached with another readOnly")
	}
	v.Node, v.ReadOnly = node, readOnly
	if err := c.put(v); err != nil || !v.Disk {
		return err
	}
	return c.hardware.Attach(ctx, id, v.SizeBytes, readOnly)
}

// Detach detaches a volume from a node, or from any if node is empty; success if it
// isn't attached there, or there is no such volume.
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

// Grow makes a volume larger, also one that is attached.
func (c *Cloud) Grow(ctx context.Context, id string, size Range) (Volume, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, err := c.get("grow", id)
	if err != nil {
		return Volume{}, err
	}
	if !v.Disk {
		return Volume{}, failure("grow", id, csiproxy.ErrFailedPrecondition, "its storage isn't the cloud's")
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
