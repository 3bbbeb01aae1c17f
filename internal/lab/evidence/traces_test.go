// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// call is a call to Windows that changes something, or opens or closes what is changed.
type call struct {
	object, name string // a partition is a volume
	input        string // of a control code, in hex, "." for a digit that isn't compared; "" isn't compared
	optional     bool   // a program makes it on a condition only
}

func (c call) String() string { return c.object + " " + c.name }

// recorder notes the calls of the operations on a simulated node.
type recorder struct {
	*winsim.System
	calls []call
}

func (r *recorder) OpenDevice(ctx context.Context, path string, access win.Access) (win.Device, error) {
	object := "volume"
	if lower := strings.ToLower(path); strings.Contains(lower, "physicaldrive") || strings.Contains(lower, "#disk&") {
		object = "disk"
	}
	d, err := r.System.OpenDevice(ctx, path, access)
	if err != nil {
		return nil, err
	}
	if access&win.GenericWrite != 0 {
		r.calls = append(r.calls, call{object: object, name: win.CallOpen})
	}
	return recorded{d, object, access&win.GenericWrite != 0, r}, nil
}

func (r *recorder) SetVolumeMountPoint(ctx context.Context, mountPoint, volume string) error {
	r.calls = append(r.calls, call{object: "path", name: win.CallSetVolumeMountPoint})
	return r.System.SetVolumeMountPoint(ctx, mountPoint, volume)
}

func (r *recorder) DeleteVolumeMountPoint(ctx context.Context, mountPoint string) error {
	r.calls = append(r.calls, call{object: "path", name: win.CallDeleteVolumeMountPoint})
	return r.System.DeleteVolumeMountPoint(ctx, mountPoint)
}

type recorded struct {
	win.Device
	object   string
	writable bool
	to       *recorder
}

func (d recorded) Control(ctx context.Context, code win.IoctlCode, in, out []byte) (int, error) {
	if name, _ := code.Name(); changes(name) {
		d.to.calls = append(d.to.calls, call{object: d.object, name: name, input: hex.EncodeToString(in)})
	}
	return d.Device.Control(ctx, code, in, out)
}

func (d recorded) Flush(ctx context.Context) error {
	d.to.calls = append(d.to.calls, call{object: d.object, name: win.CallFlush})
	return d.Device.Flush(ctx)
}

func (d recorded) Close() error {
	if d.writable && d.object == "volume" { // what may be locked
		d.to.calls = append(d.to.calls, call{object: d.object, name: "CloseHandle"})
	}
	return d.Device.Close()
}

// changes reports whether a call is compared: one that changes something.
func changes(name string) bool {
	for _, asks := range []string{"IOCTL_STORAGE_", "IOCTL_SCSI_", "IOCTL_DISK_GET_", "IOCTL_DISK_ARE_", "IOCTL_VOLUME_GET_", "FSCTL_GET_",
		"Find", "GetDisk", "CM_"} {
		if strings.HasPrefix(name, asks) {
			return false
		}
	}
	return true
}

// trace is what a program does for a task.
type trace struct {
	task, program string
	calls         []call
}

// traces reads testdata/traces.txt, which says in which form.
func traces(t *testing.T) (all []trace) {
	text, err := os.ReadFile("testdata/traces.txt")
	simtest.Must(t, err)
	for i, line := range strings.Split(string(text), "\n") {
		if of, ok := strings.CutPrefix(line, "task "); ok {
			task, source, _ := strings.Cut(of, ": ")
			all = append(all, trace{task: task, program: strings.Fields(source)[0]})
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		place, rest, _ := strings.Cut(line, " ")
		fields := strings.Fields(rest)
		if len(fields) < 3 || !strings.Contains(place, ":") {
			t.Fatalf("line %d is no call: %s", i+1, line)
		}
		c := call{object: strings.Replace(fields[0], "partition", "volume", 1), name: fields[1], optional: strings.HasPrefix(place, "?")}
		if fields[2] != "-" && c.name != win.CallOpen {
			// The input's bytes, until the note, which stands behind two blanks.
			input, _, _ := strings.Cut(strings.TrimSpace(rest[strings.Index(rest, c.name)+len(c.name):]), "  ")
			c.input = strings.ReplaceAll(input, " ", "")
		}
		if c.name == win.CallOpen && fields[2] != "rw" && fields[2] != "all" || !changes(c.name) || c.String() == "disk CloseHandle" {
			continue
		}
		all[len(all)-1].calls = append(all[len(all)-1].calls, c)
	}
	return all
}

// differences compares our calls with a program's: "+" is a call of ours alone, "-" one of theirs
// alone, "~" one with another input.
func differences(ours, theirs []call) (all []string) {
	// The longest common sequence, from the end.
	common := make([][]int, len(ours)+1)
	for i := range common {
		common[i] = make([]int, len(theirs)+1)
	}
	for i := len(ours) - 1; i >= 0; i-- {
		for j := len(theirs) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); ours[i].String() == theirs[j].String() {
				common[i][j] = max(common[i][j], common[i+1][j+1]+1)
			}
		}
	}
	i, j := 0, 0
	for i < len(ours) || j < len(theirs) {
		switch {
		case i < len(ours) && j < len(theirs) && ours[i].String() == theirs[j].String():
			if !sameInput(ours[i].input, theirs[j].input) {
				all = append(all, "~ "+ours[i].String())
			}
			i, j = i+1, j+1
		case j == len(theirs) || i < len(ours) && common[i+1][j] >= common[i][j+1]:
			all = append(all, "+ "+ours[i].String())
			i++
		default:
			if !theirs[j].optional {
				all = append(all, "- "+theirs[j].String())
			}
			j++
		}
	}
	return all
}

// sameInput compares the digits that theirs has, of which "." is any.
func sameInput(ours, theirs string) bool {
	if len(ours) < len(theirs) {
		return false
	}
	for i := range theirs {
		if theirs[i] != '.' && theirs[i] != ours[i] {
			return false
		}
	}
	return true
}

// ourCalls runs the task of each trace on a simulated node.
func ourCalls(t *testing.T) map[string][]call {
	sys := simtest.Open(t, winsim.Delays{})
	r := &recorder{System: sys}
	ops, err := nodeops.New(r, nodeops.Options{})
	simtest.Must(t, err)
	all := map[string][]call{}
	done := func(task string) { all[task], r.calls = r.calls, nil }

	n := simtest.Attach(t, sys, winsim.DiskSpec{SizeBytes: 1 << 30, Offline: true})
	simtest.Must(t, ops.Disk.SetDiskState(t.Context(), n, true))
	done("online")
	staged := simtest.Kubelet + `\stage`
	_, err = ops.Storage.StageVolume(t.Context(), csiproxy.StageVolumeRequest{Disk: csiproxy.Selector{Number: &n}, StagingPath: staged})
	simtest.Must(t, err)
	mounted := slices.IndexFunc(r.calls, func(c call) bool { return c.name == win.CallSetVolumeMountPoint })
	all["mount"] = slices.Clone(r.calls[mounted:][:1])
	r.calls = slices.Delete(r.calls, mounted, mounted+1)
	done("partition")
	simtest.Must(t, sys.GrowDisk(n, 2<<30))
	_, err = ops.Storage.ExpandVolume(t.Context(), csiproxy.ExpandVolumeRequest{StagingPath: staged})
	simtest.Must(t, err)
	done("grow")
	_, err = ops.Storage.UnstageVolume(t.Context(), csiproxy.UnstageVolumeRequest{StagingPath: staged})
	simtest.Must(t, err)
	unmounted := slices.IndexFunc(r.calls, func(c call) bool { return c.name == win.CallDeleteVolumeMountPoint })
	all["unmount"] = slices.Clone(r.calls[unmounted:][:1])
	r.calls = slices.Delete(r.calls, unmounted, unmounted+1)
	done("offline")
	return all
}

// known are the differences of our calls from those of others, in their order, with the reason for each.
var known = map[string][][2]string{
	"online microsoft/WSL": {
		{"~ disk IOCTL_DISK_SET_DISK_ATTRIBUTES", "Persist: a node that restarts has its volumes' disks as they were"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "rufus: diskpart sends it after each change"},
	},
	"online rafawo/virtdisk-rs": {
		{"~ disk IOCTL_DISK_SET_DISK_ATTRIBUTES", "Persist; and the read-only bit of another's disk stays, unless a volume is staged for writing"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "as above"},
	},
	"offline microsoft/WSL": {
		{"+ volume FlushFileBuffers", "what can't be written out is an error while the volume is still mounted"},
		{"+ disk IOCTL_DISK_SET_DISK_ATTRIBUTES", "before the locks end, so that nobody opens the volume in between; win32diskimager does so"},
		{"- disk IOCTL_DISK_SET_DISK_ATTRIBUTES", "WSL sends it when the locks have ended"},
	},
	"offline peacepenguin/win32diskimager": {
		{"+ disk CreateFileW", "the disk's identity is checked first, and by one handle to the end"},
		{"+ volume FlushFileBuffers", "as above"},
		{"- disk CreateFileW", "the disk is open already"},
		{"~ disk IOCTL_DISK_SET_DISK_ATTRIBUTES", "Persist"},
		{"- volume FSCTL_UNLOCK_VOLUME", "closing the handle unlocks, as FSCTL_LOCK_VOLUME's documentation says"},
	},
	"offline TalAloni/DynamicDiskPartitioner": {
		{"+ volume FlushFileBuffers", "as above"},
		{"+ volume FSCTL_DISMOUNT_VOLUME", "WSL and win32diskimager send it"},
		{"~ disk IOCTL_DISK_SET_DISK_ATTRIBUTES", "Persist"},
	},
	"partition pbatard/rufus": {
		{"- disk IOCTL_DISK_UPDATE_PROPERTIES", "rufus has erased the disk before"},
		{"~ disk IOCTL_DISK_CREATE_DISK", "rufus' first has the style RAW, which takes an old table away: we never do"},
		{"- disk IOCTL_DISK_CREATE_DISK", "its second is ours, but for 128 entries, which Windows makes of rufus' 16, too"},
		{"- disk IOCTL_DISK_UPDATE_PROPERTIES", "the same"},
		{"~ disk IOCTL_DISK_SET_DRIVE_LAYOUT_EX", "a reserved partition before the data, as Windows' own tools have it"},
	},
	"partition rafawo/virtdisk-rs": {
		{"~ disk IOCTL_DISK_CREATE_DISK", "an id of our own, so that what a dead process left can be told; 128 entries"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "rufus sends it there"},
		{"~ disk IOCTL_DISK_SET_DRIVE_LAYOUT_EX", "the places of Windows' own tools: 17408 and 16 MiB, and an end at a whole MiB"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "rufus: diskpart does it"},
		{"- volume CreateFileW", "only a volume that is offline is opened for that"},
		{"- volume IOCTL_VOLUME_OFFLINE", "the same"},
		{"- volume IOCTL_VOLUME_ONLINE", "the same"},
	},
	"grow rafawo/virtdisk-rs": {
		{"+ disk IOCTL_DISK_UPDATE_DRIVE_SIZE", "virtdisk-rs grows after ExpandVirtualDisk, which tells Windows; a cloud's disk may not"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "for the table's usable area, as after any change"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "as above"},
		{"+ volume FSCTL_IS_VOLUME_DIRTY", "a file system that is to be checked isn't grown"},
		{"+ volume CloseHandle", "at the end"},
	},
	"grow microsoft/hcsshim": {
		{"+ disk CreateFileW", "hcsshim's partition is as large as the disk already: Windows' container service has grown it"},
		{"+ disk IOCTL_DISK_UPDATE_DRIVE_SIZE", "the same"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "the same"},
		{"+ disk IOCTL_DISK_GROW_PARTITION", "the same"},
		{"+ disk IOCTL_DISK_UPDATE_PROPERTIES", "the same"},
		{"+ volume FSCTL_IS_VOLUME_DIRTY", "as above"},
		{"+ volume CloseHandle", "at the end"},
	},
	"unmount microsoft/hcsshim": {
		{"- path RemoveDirectoryW", "kubelet removes it, and does so with RmdirContents' care of links"},
	},
	"find microsoft/hcsshim": {
		{"- disk CreateFileW", "a list needs no rights, and a disk that refuses one is left out of it"},
	},
	"link containerd/containerd": {
		{"- path BfSetupFilter", "links are symbolic: drivers read them, and the published daemon makes such"},
	},
	"unlink containerd/containerd": {
		{"- path BfRemoveMapping", "the same"},
	},
}

// For the tasks of others' programs that run on Windows, our operations make the same calls, with the same
// input, in the same order, but for what is known.
func TestCallsOfOthers(t *testing.T) {
	ours := ourCalls(t)
	compared := map[string]bool{}
	for _, their := range traces(t) {
		name := their.task + " " + their.program
		compared[name] = true
		var want []string
		for _, d := range known[name] {
			want = append(want, d[0])
		}
		if got := differences(ours[their.task], their.calls); !slices.Equal(got, want) {
			t.Errorf("%s: the differences are\n\t%s\nand known are\n\t%s\nour calls:\n\t%v", name, strings.Join(got, "\n\t"),
				strings.Join(want, "\n\t"), ours[their.task])
		}
	}
	for name := range known {
		if !compared[name] {
			t.Errorf("testdata/traces.txt has no task %q", name)
		}
	}
}
