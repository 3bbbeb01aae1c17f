// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/simnode"
)

// broken is a daemon of ours on a simulated node, whose answers a fault may change.
type broken struct {
	*simnode.Node
	o     Options
	fault atomic.Pointer[fault]
}

// fault changes the answer of a method, which answer gives. The names of group, version
// and method are as on the wire.
type fault func(group, version, method string, request proto.Message,
	answer func() (proto.Message, error)) (proto.Message, error)

func newBroken(t testing.TB) *broken {
	n, o := expendable(t)
	b := &broken{Node: n, o: o}
	b.o.Dial = serve(t, n, func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler) (any, error) {
		answer := func() (proto.Message, error) {
			resp, err := handler(ctx, req)
			if err != nil {
				return nil, err
			}
			return resp.(proto.Message), nil
		}
		f := b.fault.Load()
		service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
		version, group, _ := strings.Cut(service, ".")
		if f == nil {
			return answer()
		}
		return (*f)(strings.ToLower(group), version, method, req.(proto.Message), answer)
	})
	return b
}

// try runs a check with a fault.
func (b *broken) try(t testing.TB, c Check, version string, f fault) (Outcome, string) {
	t.Helper()
	if b.o.KubeletPath == "" {
		b.o.KubeletPath = `C:\var\lib\kubelet`
	}
	b.o.CallTimeout = 30 * time.Second
	s, err := open(t.Context(), b.o)
	if err != nil {
		t.Fatal(err)
	}
	b.fault.Store(&f)
	outcome, why := s.try(t.Context(), selected{c, version})
	b.fault.Store(nil)
	_ = s.close(t.Context()) // after a fault it may be unable to clean up
	return outcome, why
}

// undetectable are checks that pass if the methods say success and do nothing: what they
// do can't be seen, or nothing is what they should do.
var undetectable = map[string]string{
	"disk.rescan":               "nothing has changed",
	"volume.write-cache":        "only a loss of power shows it",
	"volume.resize-nothing":     "there is nothing to do",
	"volume.resize-smaller":     "nothing is to be done",
	"volume.resize-disk-number": "there is nothing to do",
}

// Each check fails on a daemon whose methods fail, and on one whose methods say success,
// do nothing and answer nothing.
func TestEachCheckCanFail(t *testing.T) {
	for _, c := range Checks() {
		versions := c.Versions()
		version := versions[len(versions)-1] // the newest ones make what a check needs
		answersAnyway := strings.HasSuffix(c.Name, ".served") || strings.HasSuffix(c.Name, ".idle-connections")
		isTheChecks := func(group, v, method string) bool {
			return v == version && (c.Group == driversGroup || group == c.Group &&
				slices.ContainsFunc(c.Methods, func(m string) bool { return m == method || olderMethods[m] == method }))
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			code, message := codes.Internal, "broken"
			if answersAnyway {
				code, message = codes.Unimplemented, "unknown method"
			}
			b := newBroken(t)
			outcome, why := b.try(t, c, version,
				func(group, v, method string, _ proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
					if isTheChecks(group, v, method) {
						return nil, status.Error(code, message)
					}
					return answer()
				})
			if outcome != Failed {
				t.Errorf("with methods that fail: %s: %s", outcome, why)
			}
			if answersAnyway || undetectable[c.Name] != "" {
				return
			}
			outcome, why = b.try(t, c, version,
				func(group, v, method string, _ proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
					if isTheChecks(group, v, method) {
						service, _ := api.Service(group, v)
						return dynamicpb.NewMessage(service.Methods().ByName(protoreflect.Name(method)).Output()), nil
					}
					return answer()
				})
			if outcome != Failed {
				t.Errorf("with methods that do nothing: %s: %s", outcome, why)
			}
		})
	}
}

// on is a fault of one method, by its newest name.
func on(newest string, f func(request proto.Message,
	answer func() (proto.Message, error)) (proto.Message, error)) fault {
	return func(_, _, method string, request proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
		if method == newest || method == olderMethods[newest] {
			return f(request, answer)
		}
		return answer()
	}
}

// changed is a fault that changes the answers of a method that succeeds.
func changed(newest string, change func(request, response protoreflect.Message)) fault {
	return on(newest, func(request proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
		response, err := answer()
		if err == nil {
			change(request.ProtoReflect(), response.ProtoReflect())
		}
		return response, err
	})
}

// once is a fault of a method that can't be repeated.
func once(newest string) fault {
	var mu sync.Mutex
	seen := make(map[string]bool)
	return on(newest, func(request proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
		mu.Lock()
		key := fmt.Sprint(request)
		repeated := seen[key]
		seen[key] = true
		mu.Unlock()
		if repeated {
			return nil, status.Error(codes.AlreadyExists, "done already")
		}
		return answer()
	})
}

// errorsAs is a fault that changes all errors.
func errorsAs(change func(*status.Status) error) fault {
	return func(_, _, _ string, _ proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
		response, err := answer()
		if err != nil {
			return nil, change(status.Convert(err))
		}
		return response, nil
	}
}

func set(m protoreflect.Message, word string, value any) {
	m.Set(fieldOf(m.Descriptor(), word), protoreflect.ValueOf(value))
}

func text(m protoreflect.Message, word string) string { return answer{m}.text(word) }

// takes is a fault of a method that is told another value than the caller's.
func takes(newest, word, from, to string) fault {
	return on(newest, func(request proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
		m := request.ProtoReflect()
		if f := fieldOf(m.Descriptor(), word); f.Kind() == protoreflect.StringKind {
			m.Set(f, protoreflect.ValueOfString(strings.Replace(m.Get(f).String(), from, to, 1)))
		}
		return answer()
	})
}

// Faults that daemons have had, or might have, fail the checks that are there for them.
func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  fault
		failed string // the trials that have to fail
	}{
		{"PartitionDisk can't be repeated", once("PartitionDisk"),
			"disk.partition-twice/v1 disk.partition-twice/v1alpha1 drivers.ebs/v1"},
		{"MountVolume can't be repeated", once("MountVolume"), "volume.mount/v1 volume.mount/v1alpha1"},
		{"UnmountVolume can't be repeated", once("UnmountVolume"), "volume.unmount-twice/v1 volume.unmount-twice/v1beta1"},
		{"Mkdir can't be repeated", once("Mkdir"), "filesystem.mkdir/v1 filesystem.mkdir/v1alpha1"},
		{"RmdirContents can't be repeated", once("RmdirContents"), "filesystem.rmdir-contents/v2alpha1"},
		{"Rmdir can't be repeated", once("Rmdir"), "filesystem.rmdir/v1"},
		{"NewSmbGlobalMapping can't be repeated", once("NewSmbGlobalMapping"), "smb.same-link/v1 smb.same-link/v1alpha1"},
		{"AddTargetPortal can't be repeated", once("AddTargetPortal"), "iscsi.portal/v1alpha1"},
		{"ConnectTarget can't be repeated", once("ConnectTarget"), "iscsi.connect/v1alpha2"},
		{"DisconnectTarget can't be repeated", once("DisconnectTarget"), "iscsi.connect/v1alpha1"},
		{"StartService can't be repeated", once("StartService"), "system.start-and-stop/v1alpha1"},
		{"WriteVolumeCache can't be repeated", once("WriteVolumeCache"), "volume.write-cache/v1"},
		{"Rescan can't be repeated", once("Rescan"), "disk.rescan/v1 drivers.azure-disk/v1"},
		{"ResizeVolume can't be repeated", once("ResizeVolume"), "volume.resize-nothing/v1"},

		{"errors have no details", errorsAs(func(st *status.Status) error { return status.Error(st.Code(), st.Message()) }),
			"disk.error-details/v1 volume.error-details/v1 filesystem.error-details/v1 smb.error-details/v1 " +
				"iscsi.error-details/v1alpha1 system.error-details/v1alpha1"},
		{"errors have no code", errorsAs(func(st *status.Status) error { return status.Error(codes.Unknown, st.Message()) }),
			"disk.unknown-number/v1 volume.bad-id/v1 volume.unknown-id/v1 filesystem.paths-malformed/v1 " +
				"smb.remove-unknown/v1 iscsi.bad-port/v1alpha2 system.unknown-service/v1alpha1"},
		{"errors don't name the object", errorsAs(func(st *status.Status) error { return status.Error(st.Code(), "no") }),
			"disk.error-details/v1 volume.id-from-path-missing/v1 volume.id-from-path-not-mounted/v1 drivers.ebs/v1"},

		{"numbers wrap at 32 bits", takes("GetDiskStats", "disk", "4294967296", "0"), "disk.number-beyond-32-bits/v1beta1"},
		{"numbers are cut off", takes("PartitionDisk", "disk", "1.5", "1"), "disk.bad-number/v1alpha1"},
		{"kubelet-evil is inside", takes("PathExists", "path", `kubelet-csi`, `kubelet\csi`), "filesystem.paths-beside/v1"},
		{"a dot at the end is ignored", takes("PathExists", "path", `-none.`, `-none`), "filesystem.paths-strict/v1beta1"},
		{"a..b is refused", takes("Mkdir", "path", "a..b", `a\..\b`), "filesystem.paths-odd/v1"},
		{"slashes are accepted", takes("PathExists", "path", "/", `\`), "filesystem.paths-malformed/v1"},
		{"long paths are accepted", takes("PathExists", "path", strings.Repeat("x", 60), "x"), "filesystem.paths-long/v1"},
		{"a drive is wanted", takes("IsSymlink", "path", `\var`, `:\var`), "filesystem.paths-without-drive/v1"},
		{"any password is right", takes("NewSmbGlobalMapping", "password", "not the password", "p&ss%word"),
			"smb.wrong-password/v1 smb.wrong-password/v1alpha1"},
		{"port 0 is itself", changed("ListTargetPortals", func(_, m protoreflect.Message) {
			list := m.Get(fieldOf(m.Descriptor(), "portals")).List()
			for i := range list.Len() {
				set(list.Get(i).Message(), "port", uint32(1))
			}
		}), "iscsi.default-port/v1alpha1 iscsi.portal/v1alpha2"},

		{"IsSymlink says yes", changed("IsSymlink", func(_, m protoreflect.Message) { set(m, "isLink", true) }),
			"filesystem.symlink/v1 filesystem.symlink-dangling/v1alpha1"},
		{"IsSymlink says no", changed("IsSymlink", func(_, m protoreflect.Message) { set(m, "isLink", false) }),
			"filesystem.symlink/v1 filesystem.symlink-mount-point/v1 smb.map/v1 drivers.smb/v1"},
		{"PathExists says yes", changed("PathExists", func(_, m protoreflect.Message) { set(m, "exists", true) }),
			"filesystem.mkdir/v1 filesystem.rmdir/v1 filesystem.rmdir-link/v1beta2"},
		{"all volumes are formatted", changed("IsVolumeFormatted",
			func(_, m protoreflect.Message) { set(m, "formatted", true) }), "volume.format/v1"},
		{"disks stay as they are", changed("GetDiskState", func(_, m protoreflect.Message) { set(m, "online", true) }),
			"disk.state/v1 disk.state/v1beta2"},
		{"disks have no size", changed("GetDiskStats", func(_, m protoreflect.Message) { set(m, "total", int64(0)) }),
			"disk.stats/v1 disk.stats/v1beta1"},
		{"volumes are on another disk", changed("GetDiskNumberFromVolumeID", func(_, m protoreflect.Message) {
			if f := fieldOf(m.Descriptor(), "disk"); f.Kind() == protoreflect.Uint32Kind {
				m.Set(f, protoreflect.ValueOfUint32(77))
			}
		}), "volume.disk-number/v1 drivers.ebs/v1"},
		{"volumes shrink", shrinking(), "volume.resize-smaller/v1 volume.resize-nothing/v1"},
		{"a volume is listed in each partition",
			on("ListVolumesOnDisk", func(request proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
				request.ProtoReflect().Clear(fieldOf(request.ProtoReflect().Descriptor(), "partition"))
				return answer()
			}), "volume.list-partition/v1"},
		{"a disk's address isn't a number", changed("ListDiskLocations", func(_, m protoreflect.Message) {
			for _, v := range m.Get(fieldOf(m.Descriptor(), "locations")).Map().Range {
				set(v.Message(), "LUNID", "one")
			}
		}), "disk.locations/v1 disk.locations/v1alpha1"},
		{"disks have no identifiers", changed("ListDiskIDs", func(_, m protoreflect.Message) {
			for _, v := range m.Get(fieldOf(m.Descriptor(), "disks")).Map().Range {
				proto.Reset(v.Message().Interface())
			}
		}), "disk.ids/v1beta1 drivers.gce-pd/v1"},
		{"the disk with identifiers is one", changed("ListDiskIDs", func(_, m protoreflect.Message) {
			ids := m.Mutable(fieldOf(m.Descriptor(), "disks")).Map()
			for key := range ids.Range {
				if key.String() != "0" {
					ids.Clear(key)
				}
			}
		}), "disk.ids-of-all-locations/v1 disk.ids-of-offline/v1"},
		{"the old field error is filled", changed("Mkdir", func(_, m protoreflect.Message) {
			if f := m.Descriptor().Fields().ByName("error"); f != nil {
				m.Set(f, protoreflect.ValueOfString("none"))
			}
		}), "filesystem.mkdir/v1beta1"},
		{"passwords are told", on("NewSmbGlobalMapping",
			func(request proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
				response, err := answer()
				if err != nil {
					err = status.Error(status.Code(err), err.Error()+text(request.ProtoReflect(), "password"))
				}
				return response, err
			}), "smb.password-not-told/v1"},
		{"Rmdir follows links", followsLinks(), "filesystem.rmdir-link/v1 filesystem.rmdir-tree-with-link/v1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, id := range strings.Fields(test.failed) {
				name, version, _ := strings.Cut(id, "/")
				i := slices.IndexFunc(Checks(), func(c Check) bool { return c.Name == name })
				if i < 0 || !slices.Contains(Checks()[i].Versions(), version) {
					t.Errorf("there is no %s", id)
					continue
				}
				b := newBroken(t)
				c := Checks()[i]
				if outcome, why := b.try(t, c, version, passThrough); outcome != Passed {
					t.Errorf("%s without the fault: %s: %s", id, outcome, why)
				}
				if outcome, why := b.try(t, c, version, test.fault); outcome != Failed {
					t.Errorf("%s: %s: %s", id, outcome, why)
				}
			}
		})
	}
}

func passThrough(_, _, _ string, _ proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
	return answer()
}

// shrinking is a fault of volumes that get smaller with each look.
func shrinking() fault {
	var looks atomic.Int64
	return changed("GetVolumeStats", func(_, m protoreflect.Message) {
		f := fieldOf(m.Descriptor(), "total")
		m.Set(f, protoreflect.ValueOfInt64(m.Get(f).Int()-looks.Add(1)))
	})
}

// followsLinks is a fault of Rmdir, which says success for links and what is below them:
// what they led to is gone then.
func followsLinks() fault {
	var mu sync.Mutex
	gone := make(map[string]bool)
	links := make(map[string]string) // to their targets
	return func(_, _, method string, request proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
		mu.Lock()
		defer mu.Unlock()
		m := request.ProtoReflect()
		response, err := answer()
		switch {
		case err != nil:
		case method == "CreateSymlink":
			links[text(m, "target")] = text(m, "source")
		case method == "Rmdir":
			for link, target := range links {
				if strings.HasPrefix(link, text(m, "path")) {
					gone[target+`\kept`] = true
				}
			}
		case method == "PathExists" && gone[text(m, "path")]:
			set(response.ProtoReflect(), "exists", false)
		}
		return response, err
	}
}

// While a volume may be mounted below it, nothing is deleted.
func TestNothingIsDeletedBelowMountPoints(t *testing.T) {
	b := newBroken(t)
	b.o.Run, b.o.Disks = regexp.MustCompile("^(volume.mount|filesystem.mkdir)/v1$"), b.o.Disks[:1]
	mounted, deleted := false, false
	f := fault(func(_, _, method string, _ proto.Message, answer func() (proto.Message, error)) (proto.Message, error) {
		mounted = mounted || method == "MountVolume"
		deleted = deleted || mounted && method == "Rmdir"
		if method == "UnmountVolume" {
			return nil, status.Error(codes.Internal, "broken")
		}
		return answer()
	})
	b.fault.Store(&f)
	_, err := Run(t.Context(), b.o)
	if !mounted || deleted || err == nil || !strings.Contains(err.Error(), "left mounted") {
		t.Errorf("mounted %t, deleted %t, error %v", mounted, deleted, err)
	}
}

// A version that isn't served fails, and the other checks of it aren't applicable.
func TestMissingEndpoint(t *testing.T) {
	n, o := expendable(t)
	o.Dial = func(ctx context.Context, group, version string) (net.Conn, error) {
		if group == "disk" && version == "v1beta2" {
			return nil, fs.ErrNotExist
		}
		return n.Dial(ctx, group, version)
	}
	o.Groups, o.Versions = []string{"disk"}, []string{"v1beta2"}
	results, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		want := NotApplicable
		if r.Check == "disk.served" {
			want = Failed
		}
		if r.Outcome != want {
			t.Errorf("%s: %s: %s", r.ID(), r.Outcome, r.Why)
		}
	}
}

// An endpoint that takes only some connections fails.
func TestConnectionsRunOut(t *testing.T) {
	n, o := expendable(t)
	left := atomic.Int64{}
	left.Store(10)
	o.Dial = func(ctx context.Context, group, version string) (net.Conn, error) {
		if group == "disk" && left.Add(-1) < 0 {
			return nil, errors.New("no more connections")
		}
		return n.Dial(ctx, group, version)
	}
	o.Disks, o.Groups = nil, []string{"disk"}
	results, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if strings.HasPrefix(r.Check, "disk.idle") && r.Outcome != Failed {
			t.Errorf("%s: %s: %s", r.ID(), r.Outcome, r.Why)
		}
	}
}

// The published daemon's failures of promises that are better than its own, and its
// missing codes, are no failures.
func TestPublishedDaemon(t *testing.T) {
	b := newBroken(t)
	b.o.Published = true
	f := errorsAs(func(st *status.Status) error { return status.Error(codes.Unknown, st.Message()) })
	b.fault.Store(&f)
	results, err := Run(t.Context(), b.o)
	if err != nil {
		t.Fatal(err)
	}
	details, different := 0, 0
	for _, r := range results {
		if strings.HasSuffix(r.Check, ".error-details") {
			details++
			if r.Outcome == KnownDifference {
				different++
			}
		}
		if r.Outcome == Failed {
			t.Errorf("%s: %s", r.ID(), r.Why)
		}
	}
	if different == 0 || different != details {
		t.Errorf("%d of %d checks of details are known differences, want all", different, details)
	}
}
