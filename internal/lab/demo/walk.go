// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/client"
	"github.com/csi-proxy/csi-proxy/disk"
	"github.com/csi-proxy/csi-proxy/volume"
)

const (
	serial  = "vol-0a1b2c3d"
	staging = `C:\var\lib\kubelet\plugins\kubernetes.io\csi\pv\pvc-1\globalmount`
	pods    = `C:\var\lib\kubelet\pods\7f3e\volumes\kubernetes.io~csi\pvc-1`
	target  = pods + `\mount`
	file    = target + `\hello.txt`
	words   = "written by a pod"
)

// walk has the output and the state of the walk.
type walk struct {
	ctx    context.Context
	out    io.Writer
	dir    string
	client *client.Client
}

func newWalk(ctx context.Context, out io.Writer, dir string) *walk {
	return &walk{ctx: ctx, out: out, dir: dir, client: client.New(client.WithEndpointDir(dir))}
}

// volumesLife is the walk. It fails if a step has an unexpected result.
func (w *walk) volumesLife() (err error) {
	defer func() { err = errors.Join(err, w.client.Close()) }()
	if err := w.introduce(); err != nil {
		return err
	}
	var number disk.Number
	var id volume.ID
	return w.inOrder(
		func() error { return w.attach(&number) },
		func() error { return w.stage(number, &id) },
		func() error { return w.publish() },
		func() error { return w.grow(number, id) },
		func() error { return w.unpublish(number, id) },
		func() error { return w.again(&number, id) },
		func() error {
			fmt.Fprintln(w.out, "\nAll went as expected.")
			return nil
		},
	)
}

func (w *walk) inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) introduce() error {
	disk, err := w.client.Disk.Version(w.ctx)
	if err != nil {
		return err
	}
	volume, err := w.client.Volume.Version(w.ctx)
	if err != nil {
		return err
	}
	filesystem, err := w.client.Filesystem.Version(w.ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w.out, `CSI Proxy does for CSI drivers on Windows what a container can't: partition, format and mount.
Here it runs on a simulated Windows node. The client found disk %s, volume %s and filesystem %s.
`, disk, volume, filesystem)
	return nil
}

func (w *walk) chapter(title string) { fmt.Fprintf(w.out, "\n%s\n", title) }

// tool runs csi-proxyctl, for steps that a driver doesn't do.
func (w *walk) tool(who string, args ...string) ([]byte, error) {
	shown := "csi-proxyctl"
	for _, arg := range args {
		if strings.Contains(arg, " ") {
			arg = strconv.Quote(arg)
		}
		shown += " " + arg
	}
	cmd := exec.CommandContext(w.ctx, filepath.Join("bin", "csi-proxyctl"), append([]string{"--endpoint-dir", w.dir, "-o", "json"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	start := time.Now()
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", shown, err, stderr.String())
	}
	w.line(who, shown, time.Since(start), "")
	return output, nil
}

// call shows a call of the driver. do returns what to show of its result.
func (w *walk) call(name string, do func() (string, error)) error {
	start := time.Now()
	result, err := do()
	took := time.Since(start)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	w.line("driver", name, took, result)
	return nil
}

func (w *walk) line(who, what string, took time.Duration, result string) {
	if result != "" {
		what += "  → " + result
	}
	fmt.Fprintf(w.out, "%8.2f ms  %-7s %s\n", float64(took.Microseconds())/1000, who, what)
}

// quiet is a call without a result to show.
func (w *walk) quiet(name string, do func(context.Context) error) error {
	return w.call(name, func() (string, error) { return "", do(w.ctx) })
}

// expect turns a wrong result into an error.
func expect(ok bool, what string, got any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("expected %s, got %v", what, got)
}

func (w *walk) attach(number *disk.Number) error {
	w.chapter("The cloud attaches a disk of 10 GiB. Windows keeps it offline, as it does with shared disks.")
	return w.plugIn(number, "--size", "10GiB", "--offline")
}

// plugIn attaches the disk and finds its number as a driver does.
func (w *walk) plugIn(number *disk.Number, args ...string) error {
	output, err := w.tool("cloud", append([]string{"sim", "disk", "attach", "--serial", serial}, args...)...)
	if err != nil {
		return err
	}
	var attached struct {
		DiskNumber disk.Number `json:"disk_number"`
	}
	if err := json.Unmarshal(output, &attached); err != nil {
		return err
	}
	w.chapter("The driver looks for it.")
	return w.inOrder(
		func() error { return w.quiet("Rescan", w.client.Disk.Rescan) },
		func() error {
			return w.call("ListDiskLocations", func() (string, error) {
				locations, err := w.client.Disk.ListDiskLocations(w.ctx)
				l, ok := locations[attached.DiskNumber]
				return fmt.Sprintf("disk %d is at adapter %s, target %s, LUN %s", attached.DiskNumber, l.Adapter, l.Target, l.LUNID),
					errors.Join(err, expect(ok, "the new disk", locations))
			})
		},
		func() error {
			return w.call("ListDiskIDs", func() (string, error) {
				ids, err := w.client.Disk.ListDiskIDs(w.ctx)
				for n, id := range ids {
					if id.SerialNumber == serial {
						*number = n
						return fmt.Sprintf("disk %d has the serial number %s", n, serial), err
					}
				}
				return "", errors.Join(err, expect(false, "a disk with the serial number "+serial, ids))
			})
		},
	)
}

func (w *walk) stage(number disk.Number, id *volume.ID) error {
	w.chapter("NodeStageVolume: the driver makes a volume of it and mounts that for the node.")
	return w.inOrder(
		func() error {
			return w.quiet(fmt.Sprintf("PartitionDisk(%d)", number), func(ctx context.Context) error { return w.client.Disk.PartitionDisk(ctx, number) })
		},
		func() error {
			return w.quiet(fmt.Sprintf("SetDiskState(%d, online)", number), func(ctx context.Context) error { return w.client.Disk.SetDiskState(ctx, number, true) })
		},
		func() error { return w.findVolume(number, id) },
		func() error { return w.formatted(*id, false) },
		func() error {
			return w.quiet("FormatVolume", func(ctx context.Context) error { return w.client.Volume.FormatVolume(ctx, *id) })
		},
		func() error {
			return w.call("FormatVolume, by mistake", func() (string, error) {
				err := w.client.Volume.FormatVolume(w.ctx, *id)
				return "refused: there is a file system on it", expect(errors.Is(err, csiproxy.ErrFailedPrecondition), "a refusal", err)
			})
		},
		func() error { return w.mount(*id) },
	)
}

func (w *walk) findVolume(number disk.Number, id *volume.ID) error {
	return w.call(fmt.Sprintf("ListVolumesOnDisk(%d)", number), func() (string, error) {
		ids, err := w.client.Volume.ListVolumesOnDisk(w.ctx, number, 0)
		if err := errors.Join(err, expect(len(ids) == 1, "one volume", ids)); err != nil {
			return "", err
		}
		*id = ids[0]
		return string(*id), nil
	})
}

func (w *walk) formatted(id volume.ID, want bool) error {
	return w.call("IsVolumeFormatted", func() (string, error) {
		got, err := w.client.Volume.IsVolumeFormatted(w.ctx, id)
		return fmt.Sprint(got), errors.Join(err, expect(got == want, fmt.Sprint(want), got))
	})
}

func (w *walk) mount(id volume.ID) error {
	return w.quiet(`MountVolume(…\pvc-1\globalmount)`, func(ctx context.Context) error { return w.client.Volume.MountVolume(ctx, id, staging) })
}

func (w *walk) publish() error {
	w.chapter("NodePublishVolume: a link leads the pod to it, and the pod writes a file.")
	return w.inOrder(
		func() error {
			return w.quiet(`Mkdir(…\kubernetes.io~csi\pvc-1)`, func(ctx context.Context) error { return w.client.Filesystem.Mkdir(ctx, pods) })
		},
		func() error {
			return w.quiet(`CreateSymlink(…\pvc-1\mount)`, func(ctx context.Context) error { return w.client.Filesystem.CreateSymlink(ctx, staging, target) })
		},
		func() error {
			_, err := w.tool("pod", "sim", "file", "write", file, "--text", words)
			return err
		},
	)
}

func (w *walk) grow(number disk.Number, id volume.ID) error {
	w.chapter("NodeExpandVolume: the cloud grows the disk, the driver the volume. The pod goes on meanwhile.")
	return w.inOrder(
		func() error {
			_, err := w.tool("cloud", "sim", "disk", "grow", number.String(), "--size", "20GiB")
			return err
		},
		func() error {
			return w.quiet("ResizeVolume(0: as large as possible)", func(ctx context.Context) error { return w.client.Volume.ResizeVolume(ctx, id, 0) })
		},
		func() error {
			return w.call("GetVolumeStats", func() (string, error) {
				stats, err := w.client.Volume.GetVolumeStats(w.ctx, id)
				return fmt.Sprintf("%.2f GiB, %.2f MiB used", float64(stats.TotalBytes)/(1<<30), float64(stats.UsedBytes)/(1<<20)),
					errors.Join(err, expect(stats.TotalBytes > 19<<30, "over 19 GiB", stats))
			})
		},
	)
}

func (w *walk) unpublish(number disk.Number, id volume.ID) error {
	w.chapter("NodeUnpublishVolume and NodeUnstageVolume: the pod has ended. Then the cloud takes the disk.")
	return w.inOrder(
		func() error {
			return w.quiet(`Rmdir(…\pvc-1\mount), which is the link`, func(ctx context.Context) error { return w.client.Filesystem.Rmdir(ctx, target, true) })
		},
		func() error {
			return w.quiet("UnmountVolume, which writes out the cache", func(ctx context.Context) error { return w.client.Volume.UnmountVolume(ctx, id, staging) })
		},
		func() error {
			return w.quiet(fmt.Sprintf("SetDiskState(%d, offline)", number), func(ctx context.Context) error { return w.client.Disk.SetDiskState(ctx, number, false) })
		},
		func() error {
			_, err := w.tool("cloud", "sim", "disk", "detach", number.String())
			return err
		},
	)
}

func (w *walk) again(number *disk.Number, id volume.ID) error {
	w.chapter("The pod comes back: the same disk, attached and staged again.")
	var found volume.ID
	return w.inOrder(
		func() error { return w.plugIn(number) },
		func() error {
			return w.quiet(fmt.Sprintf("PartitionDisk(%d), which changes nothing", *number), func(ctx context.Context) error { return w.client.Disk.PartitionDisk(ctx, *number) })
		},
		func() error {
			return w.quiet(fmt.Sprintf("SetDiskState(%d, online)", *number), func(ctx context.Context) error { return w.client.Disk.SetDiskState(ctx, *number, true) })
		},
		func() error { return w.findVolume(*number, &found) },
		func() error { return expect(found.Equal(id), "the volume "+string(id), found) },
		func() error { return w.formatted(id, true) },
		func() error { return w.mount(id) },
		func() error {
			return w.quiet(`CreateSymlink(…\pvc-1\mount)`, func(ctx context.Context) error { return w.client.Filesystem.CreateSymlink(ctx, staging, target) })
		},
		func() error { return w.readBack() },
	)
}

// readBack checks that the pod's file is still there.
func (w *walk) readBack() error {
	output, err := w.tool("pod", "sim", "file", "read", file)
	if err != nil {
		return err
	}
	if err := expect(slices.Contains(strings.Split(string(output), `"`), words), words, string(output)); err != nil {
		return err
	}
	fmt.Fprintf(w.out, "                     The file is still there: %q\n", words)
	return nil
}
