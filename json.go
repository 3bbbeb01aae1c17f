// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import "encoding/json"

// MarshalJSON writes unknown properties of a disk as null: SizeBytes if 0; and for a disk with an
// Error, Online and ReadOnly if neither is set, and empty texts and lists.
func (d Disk) MarshalJSON() ([]byte, error) {
	type fields Disk
	if d.Error == "" {
		d.Identifiers, d.Partitions = list(d.Identifiers), list(d.Partitions)
	}
	unknown := d.Error != "" && !d.Online && !d.ReadOnly
	return json.Marshal(struct {
		fields
		SizeBytes    *int64          `json:"size_bytes"`
		Online       *bool           `json:"online"`
		ReadOnly     *bool           `json:"read_only"`
		SerialNumber *string         `json:"serial_number"`
		Vendor       *string         `json:"vendor"`
		Product      *string         `json:"product"`
		Bus          *Bus            `json:"bus"`
		Text         *string         `json:"location"`
		Style        *PartitionStyle `json:"partition_style"`
	}{
		fields(d), known(d.SizeBytes, d.SizeBytes != 0), known(d.Online, !unknown), known(d.ReadOnly, !unknown),
		told(d, d.SerialNumber), told(d, d.Vendor), told(d, d.Product), told(d, d.Bus), told(d, d.Location.Text),
		told(d, d.Style),
	})
}

// told returns a text reported by a disk, or nil if an Error explains the empty text.
func told[T ~string](disk Disk, text T) *T { return known(text, text != "" || disk.Error == "") }

// MarshalJSON writes unknown properties of a volume as null: all sizes if SizeBytes is 0, and
// ReadOnly if the file system is unknown.
func (v Volume) MarshalJSON() ([]byte, error) {
	type fields Volume
	v.Conditions = list(v.Conditions)
	sized := v.SizeBytes != 0
	return json.Marshal(struct {
		fields
		SizeBytes *int64 `json:"size_bytes"`
		UsedBytes *int64 `json:"used_bytes"`
		FreeBytes *int64 `json:"free_bytes"`
		ReadOnly  *bool  `json:"read_only"`
	}{
		fields(v), known(v.SizeBytes, sized), known(v.UsedBytes, sized), known(v.FreeBytes, sized),
		known(v.ReadOnly, v.FileSystem != "" && v.FileSystem != NoFileSystem),
	})
}

// MarshalJSON writes empty lists as [].
func (l VolumeList) MarshalJSON() ([]byte, error) {
	type fields VolumeList
	l.Mounts = list(l.Mounts)
	return json.Marshal(fields(l))
}

// MarshalJSON writes empty lists as [].
func (l Leftovers) MarshalJSON() ([]byte, error) {
	type fields Leftovers
	l.Mounts = list(l.Mounts)
	return json.Marshal(fields(l))
}

// MarshalJSON writes empty lists as [].
func (c DiskChanges) MarshalJSON() ([]byte, error) {
	type fields DiskChanges
	return json.Marshal(fields{list(c.Removed), list(c.Added), list(c.Changed)})
}

// MarshalJSON writes the Duration in milliseconds, as in the API, and empty lists as [].
func (v CheckedVolume) MarshalJSON() ([]byte, error) {
	type fields CheckedVolume
	v.Conditions = list(v.Conditions)
	return json.Marshal(struct {
		fields
		Milliseconds int64 `json:"duration_milliseconds"`
	}{fields(v), v.Duration.Milliseconds()})
}

// list returns s, or an empty list for nil.
func list[S ~[]E, E any](s S) S {
	if s == nil {
		return S{}
	}
	return s
}

// known returns v, or nil if ok is false.
func known[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}
