// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	volumev1 "github.com/kubernetes-csi/csi-proxy/client/api/volume/v1"
)

// ext4 is the superblock of a file system that mke2fs 1.47.0 made on 64 MiB:
//
//	mke2fs -t ext4 image && dd if=image bs=1024 skip=1 count=1
//
//go:embed testdata/ext4.superblock
var ext4 []byte

const (
	superblock = 1024     // where it lies in a file system
	basicData  = 16 * mib // where PartitionDisk's data partition begins
)

// No call of a driver destroys what another system has on a disk. The daemon's
// administrator may allow it.
func TestForeignDataAreRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		flags []string
		want  codes.Code
	}{
		{"default", nil, codes.FailedPrecondition},
		{"allowed", []string{"-overwrite-recognized-data"}, codes.OK},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, test.flags...)
			o := n.operator()
			ctx := context.Background()

			// A file system on the whole disk.
			whole := n.attach(hardware{size: gib})
			n.writeDisk(whole, superblock, ext4)
			if err := o.PartitionDisk(ctx, whole); status.Code(err) != test.want {
				t.Errorf("PartitionDisk of a disk with ext4 gives %v, want %v", err, test.want)
			}
			// A file system in the partition.
			part := n.attach(hardware{size: gib})
			volume := o.rawVolume(part)
			n.writeDisk(part, basicData+superblock, ext4)
			if err := o.Format(ctx, volume); status.Code(err) != test.want {
				t.Errorf("formatting a volume with ext4 gives %v, want %v", err, test.want)
			}
			if test.want == codes.OK {
				return
			}
			if got := n.readDisk(whole, superblock, len(ext4)); !bytes.Equal(got, ext4) {
				t.Error("the superblock on the whole disk has changed")
			}
			if got := n.readDisk(part, basicData+superblock, len(ext4)); !bytes.Equal(got, ext4) {
				t.Error("the superblock in the partition has changed")
			}
		})
	}
}

// A disk that another system has partitioned is left as it is, and of its volumes
// none is the one that a disk's number could stand for.
func TestForeignPartitionsAreLeft(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	disk := n.attach(hardware{size: gib})
	table := mbr(2048, 4096)
	n.writeDisk(disk, 0, table)
	for range 2 {
		o.must(o.PartitionDisk(context.Background(), disk))
	}
	if got := n.readDisk(disk, 0, len(table)); !bytes.Equal(got, table) {
		t.Error("the partition table has changed")
	}
	if volumes := o.volumes(disk); len(volumes) != 2 {
		t.Errorf("the disk has the volumes %q, want two", volumes)
	}
	if err := o.ResizeVolume(context.Background(), decimal(disk), 0); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("resizing the only volume of a disk with two gives %v", err)
	}
}

// mbr returns a partition table of the old kind, with partitions of 1 MiB for NTFS
// at some sectors.
func mbr(sectors ...uint32) []byte {
	b := make([]byte, 512)
	copy(b[440:], "\x12\x34\x56\x78") // disk signature
	for i, sector := range sectors {
		entry := b[446+16*i:]
		entry[4] = 7
		binary.LittleEndian.PutUint32(entry[8:], sector)
		binary.LittleEndian.PutUint32(entry[12:], mib/512)
	}
	b[510], b[511] = 0x55, 0xAA
	return b
}

// A volume whose boot sector is gone looks raw, but isn't empty.
func TestDamagedNTFSIsRefused(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	disk := n.attach(hardware{size: gib})
	volume := o.formattedVolume(disk)
	if got := n.readDisk(disk, basicData+3, 4); string(got) != "NTFS" {
		t.Fatalf("the volume's boot sector has %q where NTFS has its name", got)
	}
	n.writeDisk(disk, basicData, make([]byte, 512))
	n.reboot() // Windows looks at the boot sector when it mounts the volume
	ctx := context.Background()
	formatted, err := o.volume.IsVolumeFormatted(ctx, &volumev1.IsVolumeFormattedRequest{VolumeId: volume})
	o.must(err)
	if formatted.Formatted {
		t.Fatal("without its boot sector the volume counts as formatted: the test proves nothing")
	}
	if err := o.Format(ctx, volume); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("formatting it gives %v", err)
	}
}

// What a recycled disk has left is no reason to refuse.
func TestLeftoversAreNoData(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	o := n.operator()
	leftovers := make([]byte, 256<<10)
	rand.NewChaCha8([32]byte{}).Read(leftovers)
	leftovers[510], leftovers[511] = 0, 0 // or it would be an MBR, of partitions that are nowhere
	disk := n.attach(hardware{size: gib})
	n.writeDisk(disk, 0, leftovers)
	volume := o.rawVolume(disk)
	n.writeDisk(disk, basicData, leftovers)
	o.must(o.Format(context.Background(), volume))
}
