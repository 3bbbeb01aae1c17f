// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sparse holds the bytes of a simulated disk. Only blocks that are not
// all zero take memory, so that a disk of terabytes costs what was written to it.
package sparse

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
)

// BlockSize is the unit in bytes in which contents are kept and in which changes
// are reported.
const BlockSize = 4096

type block [BlockSize]byte

// Image is a run of bytes that reads as zeros where nothing was written. It is
// not safe for use by several goroutines at once.
type Image struct {
	size    int64
	blocks  map[int64]*block
	changed map[int64]struct{} // since the last TakeChanges

	// OnChange, if it isn't nil, is called at every change that TakeChanges owes.
	OnChange func()
}

// New returns an image of size bytes, all zero.
func New(size int64) *Image {
	return &Image{size: size, blocks: map[int64]*block{}, changed: map[int64]struct{}{}}
}

// Grow makes the image longer; the new bytes are zero. A size below the present
// one changes nothing.
func (m *Image) Grow(size int64) { m.size = max(m.size, size) }

// ReadAt implements [io.ReaderAt].
func (m *Image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at %d: negative offset", off)
	}
	n := int(min(int64(len(p)), max(0, m.size-off)))
	for done := 0; done < n; {
		index, start := (off+int64(done))/BlockSize, int((off+int64(done))%BlockSize)
		length := min(n-done, BlockSize-start)
		if b := m.blocks[index]; b != nil {
			copy(p[done:done+length], b[start:])
		} else {
			clear(p[done : done+length])
		}
		done += length
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements [io.WriterAt]. It writes nothing if p does not lie within
// the image.
func (m *Image) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > m.size || int64(len(p)) > m.size-off {
		return 0, fmt.Errorf("write %d bytes at %d: outside the %d bytes of the image", len(p), off, m.size)
	}
	for done := 0; done < len(p); {
		index, start := (off+int64(done))/BlockSize, int((off+int64(done))%BlockSize)
		length := min(len(p)-done, BlockSize-start)
		m.write(index, start, p[done:done+length])
		done += length
	}
	return len(p), nil
}

func (m *Image) write(index int64, start int, p []byte) {
	b := m.blocks[index]
	if b == nil {
		if allZero(p) {
			return
		}
		b = new(block)
		m.blocks[index] = b
	}
	copy(b[start:], p)
	if allZero(b[:]) {
		delete(m.blocks, index)
	}
	m.changed[index] = struct{}{}
	if m.OnChange != nil {
		m.OnChange()
	}
}

// TakeChanges returns the numbers of the blocks written since the last call, in
// order, with their contents; nil contents are all zero. The contents belong to
// the image: they hold until the next write.
func (m *Image) TakeChanges() iter.Seq2[int64, []byte] {
	changed := m.changed
	m.changed = map[int64]struct{}{}
	return func(yield func(int64, []byte) bool) {
		for _, index := range slices.Sorted(maps.Keys(changed)) {
			var contents []byte
			if b := m.blocks[index]; b != nil {
				contents = b[:]
			}
			if !yield(index, contents) {
				return
			}
		}
	}
}

// Restore puts back a block that TakeChanges gave. It is no change.
func (m *Image) Restore(index int64, contents []byte) error {
	if index < 0 || index > (m.size-1)/BlockSize || len(contents) != BlockSize {
		return fmt.Errorf("block %d of %d bytes does not fit an image of %d bytes", index, len(contents), m.size)
	}
	m.blocks[index] = (*block)(slices.Clone(contents))
	return nil
}

// Export writes the blocks that are not all zero to w, each at its offset.
func (m *Image) Export(w io.WriterAt) error {
	for _, index := range slices.Sorted(maps.Keys(m.blocks)) {
		off := index * BlockSize
		if _, err := w.WriteAt(m.blocks[index][:min(BlockSize, m.size-off)], off); err != nil {
			return err
		}
	}
	return nil
}

func allZero(p []byte) bool { return bytes.Count(p, []byte{0}) == len(p) }
