// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/csi-proxy/csi-proxy/api"
	storagev1alpha1 "github.com/csi-proxy/csi-proxy/api/storage/v1alpha1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// selectorArgs give all that a disk is selected by.
const selectorArgs = " --disk 1 --serial s --identifier i --adapter 1 --port 1 --lun 1 --azure-lun 1 --vendor v" +
	" --product p --namespace 1 --portal 10.0.0.1:1 --iqn iqn.2026-01.a:b --iscsi-lun 1"

// storageCommands are a command line for each method of the storage group, with all flags.
// FILE is a file with a secret.
var storageCommands = map[protoreflect.Name]string{
	"ListDisks": "storage disks" + selectorArgs,
	"StageVolume": `storage stage C:\s --partition 1 --read-only --file-system ReFS --allocation-unit 4096 --label l` +
		" --no-short-names --integrity-streams --writer Users --grow --wait 1s" +
		" --chap-username u --chap-secret-file FILE --mutual-chap --mutual-chap-secret-file FILE" + selectorArgs,
	"UnstageVolume":   `storage unstage C:\s --force` + selectorArgs,
	"PublishVolume":   `storage publish C:\s C:\t`,
	"UnpublishVolume": `storage unpublish C:\t`,
	"ExpandVolume":    `storage expand C:\s --disk-size 1 --wait 1s`,
	"GetVolume":       `storage volume C:\s`,
	"ListVolumes":     "storage volumes",
	"StageShare":      `storage stage-share \\s\d C:\s --username u --password-file FILE --privacy required --read-only`,
	"UnstageShare":    `storage unstage-share C:\s --remote-path \\s\d`,
	"CleanUp":         "storage clean-up --remove",
	"CheckVolume":     `storage check C:\s --spot-fix`,
	"WatchDisks":      "disk watch" + selectorArgs,
}

// notShown are the fields that no table for people has; -o json has them. What tells one disk
// or volume from another, and what is wrong with it, is in the tables.
var notShown = []string{
	"Disk.vendor", "Disk.product", "Disk.location", "Disk.disk_id", "ISCSILUN.iqn", "Identifier.kind",
	"SCSIAddress.port", "SCSIAddress.adapter", "SCSIAddress.target",
	"Partition.number", "Partition.offset_bytes", "Partition.size_bytes", "Partition.volume_id", "Partition.label",
	"Volume.disk_id", "Volume.allocation_unit_bytes", "Leftover.volume",
}

// hiding are fields that hide others in a table, as an error hides what it makes doubtful. A
// field must make a difference without one of these sets at least.
var hiding = [][]protoreflect.Name{
	{},
	{"error", "online", "system_reason", "share"},
	{"error", "partitions", "nvme_namespace", "iscsi"},
	{"nvme_namespace"},
	{"removed", "leftover_reason", "volume", "fixed"},
	{"removed", "leftover_reason", "error"},
}

// Each field of the storage group's messages is given by a flag of its command, and makes a
// difference for what the command prints, in both formats. So a new field that the command
// leaves out fails here.
func TestStorageFields(t *testing.T) {
	d := newFieldsDaemon(t)
	methods := storagev1alpha1.File_csiproxy_storage_v1alpha1_storage_proto.Services().Get(0).Methods()
	shown := map[string]bool{}
	for i := range methods.Len() {
		method := methods.Get(i)
		t.Run(string(method.Name()), func(t *testing.T) {
			d.method = method
			d.answer = dynamicpb.NewMessage(method.Output())
			d.run(t, formatText)
			wiretest.EachUnset(d.request, func(f protoreflect.FieldDescriptor) {
				t.Errorf("csi-proxyctl %s doesn't give %s", storageCommands[method.Name()], f.FullName())
			})

			for name, printed := range d.printed(t, formatJSON, hiding[:1], nil) {
				if !printed {
					t.Errorf("csi-proxyctl -o json %s doesn't print %s", storageCommands[method.Name()], name)
				}
			}
			for name, printed := range d.printed(t, formatText, hiding, shown) {
				shown[name] = printed
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		if shown[name] == slices.Contains(notShown, name) {
			t.Errorf("whether a table has %s: %v; either one must have it, or notShown", name, shown[name])
		}
	}
}

// printed reports for each field of the answer, but those that are known, whether it makes a
// difference for what the command prints.
func (d *fieldsDaemon) printed(t *testing.T, out format, hiding [][]protoreflect.Name,
	known map[string]bool) map[string]bool {
	matters := maps.Clone(known)
	if matters == nil {
		matters = map[string]bool{}
	}
	for _, hides := range hiding {
		wiretest.Fill(d.answer)
		clearNamed(d.answer.ProtoReflect(), hides)
		whole := d.run(t, out)
		wiretest.EachField(d.answer, func(f protoreflect.FieldDescriptor) {
			name := string(f.Parent().Name()) + "." + string(f.Name())
			if !matters[name] {
				matters[name] = d.run(t, out) != whole
			}
		})
		proto.Reset(d.answer)
	}
	return matters
}

// clearNamed clears the fields with these names in m and in the messages in it.
func clearNamed(m protoreflect.Message, names []protoreflect.Name) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case slices.Contains(names, f.Name()):
			m.Clear(f)
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				clearNamed(v.List().Get(i).Message(), names)
			}
		case f.Message() != nil:
			clearNamed(v.Message(), names)
		}
		return true
	})
}

// fieldsDaemon serves the storage group: it keeps the request, and gives one answer.
type fieldsDaemon struct {
	dir, secret string
	method      protoreflect.MethodDescriptor
	request     *dynamicpb.Message
	answer      *dynamicpb.Message
}

func newFieldsDaemon(t *testing.T) *fieldsDaemon {
	dir, err := pipe.MkdirTemp("ctl") // that of the test is too deep for sockets
	simtest.Must(t, err)
	d := &fieldsDaemon{dir: dir, secret: filepath.Join(dir, "secret")}
	simtest.Must(t, os.WriteFile(d.secret, []byte("secret of a user"), 0o600))
	claim, err := pipe.Claim(dir)
	simtest.Must(t, err)
	listener, err := claim.Listen(t.Context(), api.EndpointName("storage", "v1alpha1"))
	simtest.Must(t, err)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		d.request = dynamicpb.NewMessage(d.method.Input())
		if err := stream.RecvMsg(d.request); err != nil {
			return err
		}
		if err := stream.SendMsg(d.answer); err != nil || !d.method.IsStreamingServer() {
			return err
		}
		return status.Error(codes.Unavailable, "the daemon stops")
	}))
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		simtest.Must(t, errors.Join(<-ended, claim.Close(), os.RemoveAll(dir)))
	})
	return d
}

// run runs the method's command, and returns what it prints.
func (d *fieldsDaemon) run(t *testing.T, out format) string {
	t.Helper()
	line := strings.ReplaceAll(storageCommands[d.method.Name()], "FILE", d.secret)
	args := append([]string{"--endpoint-dir", d.dir, "-o", string(out)}, strings.Fields(line)...)
	var stdout, stderr strings.Builder
	code := run(t.Context(), args, nil, &stdout, &stderr)
	if want := map[bool]int{true: 6}[d.method.IsStreamingServer()]; code != want {
		t.Fatalf("csi-proxyctl %s: exit code %d: %s", line, code, stderr.String())
	}
	// Warnings are for people: programs get everything on standard output.
	if out == formatText {
		return stdout.String() + stderr.String()
	}
	return stdout.String()
}
