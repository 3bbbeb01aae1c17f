// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package csiproxy

import "encoding/json"

// MarshalJSON writes unknown properties of a disk as null: SizeBytes if 0; and for a disk with an
// Error, Online and ReadOnly if neither is set, and empty texts and lists.
func (d Disk) MarshalJSON() ([]byte, error) {
	type fields Disk
	if d.Error == "" {
		d.Identifiers, d.Partitions = nonNil(d.Identifiers), nonNil(d.Partitions)
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
		fields(d), orNil(d.SizeBytes, d.SizeBytes != 0), orNil(d.Online, !unknown), orNil(d.ReadOnly, !unknown),
		reported(d, d.SerialNumber), reported(d, d.Vendor), reported(d, d.Product),
		reported(d, d.Bus), reported(d, d.Location.Text), reported(d, d.Style),
	})
}

// reported returns a text reported by a disk, or nil if an Error explains the empty text.
func reported[T ~string](disk Disk, text T) *T { return orNil(text, text != "" || disk.Error == "") }

// MarshalJSON writes unknown properties of a volume as null: all sizes if SizeBytes is 0, and
// ReadOnly if the file system is unknown.
func (v Volume) MarshalJSON() ([]byte, error) {
	type fields Volume
	v.Conditions = nonNil(v.Conditions)
	sized := v.SizeBytes != 0
	return json.Marshal(struct {
		fields
		SizeBytes *int64 `json:"size_bytes"`
		UsedBytes *int64 `json:"used_bytes"`
		FreeBytes *int64 `json:"free_bytes"`
		ReadOnly  *bool  `json:"read_only"`
	}{
		fields(v), orNil(v.SizeBytes, sized), orNil(v.UsedBytes, sized), orNil(v.FreeBytes, sized),
		orNil(v.ReadOnly, v.FileSystem != "" && v.FileSystem != NoFileSystem),
	})
}

// MarshalJSON writes empty lists as [].
func (l VolumeList) MarshalJSON() ([]byte, error) {
	type fields VolumeList
	l.Mounts = nonNil(l.Mounts)
	return json.Marshal(fields(l))
}

// MarshalJSON writes empty lists as [].
func (l Leftovers) MarshalJSON() ([]byte, error) {
	type fields Leftovers
	l.Mounts = nonNil(l.Mounts)
	return json.Marshal(fields(l))
}

// MarshalJSON writes empty lists as [].
func (c DiskChanges) MarshalJSON() ([]byte, error) {
	type fields DiskChanges
	return json.Marshal(fields{nonNil(c.Removed), nonNil(c.Added), nonNil(c.Changed)})
}

// MarshalJSON writes the Duration in milliseconds, as in the API, and empty lists as [].
func (v CheckedVolume) MarshalJSON() ([]byte, error) {
	type fields CheckedVolume
	v.Conditions = nonNil(v.Conditions)
	return json.Marshal(struct {
		fields
		Milliseconds int64 `json:"duration_milliseconds"`
	}{fields(v), v.Duration.Milliseconds()})
}

// nonNil returns s, or an empty list for nil.
func nonNil[S ~[]E, E any](s S) S {
	if s == nil {
		return S{}
	}
	return s
}

// orNil returns v, or nil if ok is false.
func orNil[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}
