// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package daemon_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/serve/daemon"
	"github.com/csi-proxy/csi-proxy/internal/serve/rpc"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/iscsitarget"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

const kubelet = `C:\var\lib\kubelet`

// target is a node with something of everything on it, for bad requests.
type target struct {
	t      testing.TB
	sys    *winsim.System
	volume string              // formatted and mounted
	raw    csiproxy.DiskNumber // number of a raw disk

	driver string // whose endpoints are called; "" for the published ones
	server *daemon.Daemon
	stop   func() error // stops the daemon; may be called twice
	dial   func(ctx context.Context, endpoint string) (net.Conn, error)

	mu    sync.Mutex // guards conns: some tests call at the same time
	conns map[string]*grpc.ClientConn
}

// newTarget serves the node in memory.
func newTarget(t testing.TB) *target {
	t.Helper()
	listeners := map[string]*bufconn.Listener{}
	return serveTarget(t, func(name string) (net.Listener, error) {
		listeners[name] = bufconn.Listen(64 << 10)
		return listeners[name], nil
	}, func(ctx context.Context, name string) (net.Conn, error) { return listeners[name].DialContext(ctx) })
}

func serveTarget(t testing.TB, listen func(name string) (net.Listener, error),
	dial func(context.Context, string) (net.Conn, error)) *target {
	t.Helper()
	g := &target{t: t, sys: simtest.Open(t, winsim.Delays{}), dial: dial, conns: map[string]*grpc.ClientConn{}}
	g.volume, _ = simtest.Volume(t, g.sys)
	g.raw = simtest.Attach(t, g.sys, winsim.DiskSpec{SizeBytes: 64 << 20})
	simtest.Mount(t, g.sys, kubelet+`\pods\volume`, g.volume)
	simtest.Must(t, g.sys.WriteFile(kubelet+`\pods\volume\data`, []byte("precious")))
	simtest.Must(t, g.sys.MkdirAll(kubelet+`\pods\directory`))
	simtest.Must(t, g.sys.WriteFile(kubelet+`\pods\file`, []byte("precious")))
	simtest.Must(t, g.sys.Symlink(kubelet+`\pods\link`, kubelet+`\pods\directory`, true))
	simtest.Must(t, g.sys.MkdirAll(`C:\Windows\System32`))
	simtest.Must(t, g.sys.MkdirAll(`C:\Windows\csi-proxy-mappings`)) // which a mapping that fails would make, too
	simtest.Must(t, g.sys.SMB().AddShare(smbserver.Share{Server: "server", Name: "share"}))
	simtest.Must(t, g.sys.SMB().SetUser("server", "user", csiproxy.NewSecret("password")))
	simtest.Must(t, g.sys.CreateSMBGlobalMapping(t.Context(), `\\server\share`,
		win.SMBMappingOptions{Username: "user", Password: csiproxy.NewSecret("password")}))
	// With a staged path the mapping is no leftover, which CleanUp would remove.
	simtest.Must(t, g.sys.Symlink(kubelet+`\pods\share`, `\\server\share`, true))
	simtest.Must(t, g.sys.ISCSI().AddTarget(iscsitarget.Target{
		IQN: "iqn.2026-01.example:target", Portals: []win.ISCSIPortal{{Address: "10.0.0.1", Port: 3260}},
	}, winsim.DiskSpec{SizeBytes: 64 << 20}))

	simtest.Must(t, g.sys.StartService(t.Context(), "MSiSCSI")) // which any iSCSI operation does
	g.sys.Settle()

	operations, err := nodeops.New(g.sys, nodeops.Options{})
	simtest.Must(t, err)
	simtest.Must(t, operations.Volume.ResizeVolume(t.Context(), csiproxy.VolumeID(g.volume), 0)) // so that nothing is left to grow
	g.serve(daemon.Config{Operations: rpc.Operations(operations.Operations), Listen: listen})
	return g
}

// serve serves operations until the test's end.
func (g *target) serve(c daemon.Config) {
	g.t.Helper()
	c.Log, c.GracePeriod = slog.New(slog.DiscardHandler), 10*time.Second
	s, err := daemon.New(c)
	simtest.Must(g.t, err)
	g.server = s
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	g.stop = sync.OnceValue(func() error {
		stop()
		return <-served
	})
	g.t.Cleanup(func() {
		for _, conn := range g.conns {
			conn.Close()
		}
		simtest.Must(g.t, g.stop())
	})
}

// conn returns the connection to an endpoint.
func (g *target) conn(group, version string) *grpc.ClientConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	name := api.DriverEndpointName(g.driver, group, version)
	if g.conns[name] == nil {
		conn, err := grpc.NewClient("passthrough:///"+name, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.dial(ctx, name) }))
		simtest.Must(g.t, err)
		g.conns[name] = conn
	}
	return g.conns[name]
}

// state describes all of the node that an operation could change.
func (g *target) state() []string {
	g.t.Helper()
	var all []string
	add := func(format string, a ...any) { all = append(all, fmt.Sprintf(format, a...)) }
	for _, d := range g.sys.Disks() {
		add("disk %d %v %v size %d seen %d", d.Number, d.State, d.Attributes, d.Size, d.Seen)
		if d.Number == win.NoNumber {
			continue
		}
		for _, offset := range []int64{0, 16 << 20, d.Size - 1<<20} { // its tables, and the beginning of a first volume
			image := make([]byte, 1<<20)
			simtest.Must(g.t, g.sys.ReadImage(d.Number, image, offset))
			add("disk %d at %d: %x", d.Number, offset, sha256.Sum256(image))
		}
		add("volumes of disk %d: %q", d.Number, g.sys.VolumesOfDisk(d.Number))
	}
	for _, m := range g.sys.MountPoints() {
		add("mount point %s of %s", m.Path, m.Volume)
	}
	all = append(all, g.tree(`C:\`)...)
	ctx := g.t.Context()
	mappings, err := g.sys.SMBGlobalMappings(ctx)
	add("mappings %+v %v", mappings, err)
	portals, err := g.sys.ISCSISendTargetPortals(ctx)
	add("portals %+v %v", portals, err)
	targets, err := g.sys.ISCSITargets(ctx)
	add("targets %q %v", targets, err)
	sessions, err := g.sys.ISCSISessions(ctx)
	add("sessions %+v %v", sessions, err)
	logins, err := g.sys.ISCSIPersistentLogins(ctx)
	add("logins %+v %v", logins, err)
	for _, service := range g.sys.Services().List() {
		add("service %+v", service)
	}
	return all
}

func (g *target) tree(path string) (all []string) {
	entries, err := g.sys.ReadDir(path)
	simtest.Must(g.t, err)
	for _, e := range entries {
		below := strings.TrimSuffix(path, `\`) + `\` + e.Name
		link, _ := g.sys.ReadLink(below)   // "" for what is no link
		data, err := g.sys.ReadFile(below) // of a file
		all = append(all, fmt.Sprintf("%s %v link %q data %q", below, e.Attributes, link, data))
		if link == "" && err != nil {
			all = append(all, g.tree(below)...)
		}
	}
	return all
}

// rawBytes sends bytes as they are.
type rawBytes struct{}

func (rawBytes) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawBytes) Unmarshal(data []byte, v any) error { *v.(*[]byte) = data; return nil }
func (rawBytes) Name() string                       { return "proto" }

// send makes a call with a bad request, and checks its answer.
func (g *target) send(m method, name string, request []byte) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	_, err := g.call(ctx, m, request)
	st := status.Convert(err)
	switch st.Code() {
	case codes.Internal:
		if proto.Unmarshal(request, dynamicpb.NewMessage(m.Input())) != nil &&
			strings.HasPrefix(st.Message(), "grpc: ") {
			break // gRPC's answer to bytes that are no such message
		}
		fallthrough
	case codes.Unknown, codes.DeadlineExceeded:
		g.t.Errorf("%s: %s: %v", m.path(), name, err)
	}
	if st.Code() == codes.OK {
		return
	}
	// An error names the method that its caller called, also where an operation of another name
	// answers it.
	operation := ""
	for _, detail := range st.Details() {
		operation += detail.(*errdetails.ErrorInfo).Metadata["operation"]
	}
	others := []string{"ParseNumber", "FindDiskByPage83", "DataVolumeOfDisk", "CreateSymlink", "IsSymlink"}
	inner := slices.ContainsFunc(others,
		func(other string) bool { return other != string(m.Name()) && strings.Contains(st.Message(), other) })
	if grpcs := strings.HasPrefix(st.Message(), "grpc: "); !grpcs && // of a request that is too large
		(operation != string(m.Name()) || !strings.HasPrefix(st.Message(), operation) || inner) {
		g.t.Errorf("%s: %s: the error is of %q: %.300q", m.path(), name, operation, st.Message())
	}
	if size := proto.Size(st.Proto()); size > 8<<10 || !utf8.ValidString(st.Message()) {
		g.t.Errorf("%s: %s: the error has %d bytes: %.300q", m.path(), name, size, st.Message())
	}
}

// call makes a call. Of a stream, which may go on forever, it takes the first response.
func (g *target) call(ctx context.Context, m method, request []byte) (response []byte, _ error) {
	conn := g.conn(m.group, m.version)
	if !m.IsStreamingServer() {
		err := conn.Invoke(ctx, m.path(), request, &response, grpc.ForceCodec(rawBytes{}))
		return response, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, m.path(), grpc.ForceCodec(rawBytes{}))
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil && err != io.EOF {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	err = stream.RecvMsg(&response)
	return response, err
}

// method is a method of a published version.
type method struct {
	group, version string
	protoreflect.MethodDescriptor
}

func (m method) path() string {
	return "/" + api.ServiceName(m.group, m.version) + "/" + string(m.Name())
}

func allMethods() (all []method) {
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			service, _ := api.Service(group, version)
			for i := range service.Methods().Len() {
				all = append(all, method{group, version, service.Methods().Get(i)})
			}
		}
	}
	return all
}

// fieldOf returns an encoded field.
func fieldOf(number protoreflect.FieldNumber, value any) []byte {
	switch v := value.(type) {
	case string:
		return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), v)
	case []byte:
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), v)
	case uint64:
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
	}
	panic(fmt.Sprintf("%T", value))
}

// badStrings are wrong wherever the API has a text, or stand for nothing on the node.
var badStrings = []string{
	"", " ", "\x00", kubelet + "\x00", kubelet + `\a` + "\x00" + `b`, "\n", "\x1b[31m", "\u202e", "\xff", kubelet + "\\\xc3\x28",
	"-1", "4294967296", "99999999999999999999", "1e3", "0x0", "٣",
	"..", `C:`, `C:\`, `C:\Windows`, `c:/windows`, kubelet + `\..\..\..\Windows`, kubelet + `-evil\x`, `\Windows`, "relative", `\\`,
	`\\?\` + kubelet + `\x`, `\\.\PhysicalDrive0`, `\\server\IPC$`, `\\localhost\C$`, kubelet + `\CON`, kubelet + `\a:b`, kubelet + `\a*`, kubelet + `\a. `,
	`\\?\Volume{00000000-0000-0000-0000-000000000000}\`, `\\?\Volume{`, "iqn.", "%s%n", "'; Remove-Item C:\\ -Recurse; '", "$(calc)",
	strings.Repeat("9", 100<<10), strings.Repeat(`\`, 2000), kubelet + strings.Repeat(`\a`, 20000), kubelet + `\` + strings.Repeat("a", 300),
}

var badNumbers = []uint64{
	// -1 too
	77, 255, 65536, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64,
}

// good returns the encoded fields of a message, but one, with nothing wrong in them,
// about things that are there, or are not and may be asked to go.
func (g *target) good(m protoreflect.MessageDescriptor, but protoreflect.FieldNumber) (all []byte) {
	values := map[protoreflect.Name]any{
		"volume_id": g.volume, "path": kubelet + `\pods\none`, "target_path": kubelet + `\pods\none`, "mount": kubelet + `\pods\none`,
		"source_path": kubelet + `\pods\directory`, "remote_path": `\\server\share`,
		"username": "user", "password": "password", "target_portal": fieldOf(1, "10.0.0.1"),
		"iqn":  "iqn.2026-01.example:none",
		"name": "none", "disk_name": "none", "diskID": "77", "disk_id": "77", "disk_number": uint64(77),
		// The disk that Windows runs from is found at once, and refused.
		"vendor": "none", "disk": fieldOf(1, uint64(0)), "wait_milliseconds": uint64(math.MaxUint64),
		"staging_path": kubelet + `\pods\none`,
	}
	if m.Name() == "MkdirRequest" {
		values["path"] = kubelet + `\pods\directory`
	}
	if m.Name() == "StageShareRequest" {
		// The share is mapped by somebody else, so that a bad password can't be told.
		values["staging_path"] = kubelet + `\pods\file`
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if value, ok := values[f.Name()]; ok && f.Number() != but {
			all = append(all, fieldOf(f.Number(), value)...)
		}
	}
	return all
}

// badRequest is a request that is wrong, and in what.
type badRequest struct {
	name string
	data []byte
}

// badRequests makes them up from the types of a message's fields.
func (g *target) badRequests(m protoreflect.MessageDescriptor) (all []badRequest) {
	add := func(name string, parts ...[]byte) { all = append(all, badRequest{name, slices.Concat(parts...)}) }
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		name, rest := string(f.Name()), g.good(m, f.Number())
		switch f.Kind() {
		case protoreflect.StringKind:
			for _, s := range badStrings {
				add(fmt.Sprintf("%s %.60q", name, s), rest, fieldOf(f.Number(), s))
			}
		case protoreflect.MessageKind:
			add("no "+name, rest)
			for _, inner := range g.badRequests(f.Message()) {
				add(name+" with "+inner.name, rest, fieldOf(f.Number(), inner.data))
			}
		default:
			for _, n := range badNumbers {
				if f.Kind() == protoreflect.BoolKind && n == badNumbers[0] {
					n = 2
				}
				add(fmt.Sprintf("%s %d", name, n), rest, fieldOf(f.Number(), n))
			}
		}
		add(name+" of another wire type", rest,
			protowire.AppendFixed64(protowire.AppendTag(nil, f.Number(), protowire.Fixed64Type), math.MaxUint64))
		add(name+" as a group", rest, protowire.AppendGroup(protowire.AppendTag(nil, f.Number(), protowire.StartGroupType),
			f.Number(), nil))
		add(name+" without its value", rest, protowire.AppendTag(nil, f.Number(), protowire.VarintType))
		add(name+" with half of its value", rest, fieldOf(f.Number(), "value")[:4])
	}
	broken := map[string]string{
		"field number 0": "\x02\x00", "unknown wire type": "\x0e", "end of no group": "\x0c", "group without end": "\x0b",
		"groups without end": strings.Repeat("\x0b", 11000), "varint without end": strings.Repeat("\xff", 11),
		"a zero":                 "\x00",
		"length beyond the end":  "\x0a\xff\xff\xff\xff\x07a",
		"negative length":        "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"field number too large": "\xf8\xff\xff\xff\xff\x01\x01", "JSON": `{"path": "C:\\"}`, "text": "path: 1", "a frame within": "\x00\x00\x00\x00\x02\x0a\x00",
	}
	for name, data := range broken {
		add(name, []byte(data))
	}
	for number := range protoreflect.FieldNumber(8) { // as a newer version may have them
		add(fmt.Sprintf("unknown field %d", 100+number), fieldOf(100+number, strings.Repeat("x", 1000)))
		add(fmt.Sprintf("unknown number %d", 200+number), fieldOf(200+number, uint64(math.MaxUint64)))
	}
	add("too large", fieldOf(100, strings.Repeat("x", 200<<10)))
	add("much that is unknown", fieldOf(100, strings.Repeat("x", 16<<10)))
	return all
}

// Whatever is wrong with a request, the answer is a code that says so, in a few words,
// and the node is as it was.
func TestBadRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or the operations' waits would take their time
		g := newTarget(t)
		before := g.state()
		total := 0
		for version, methods := range byVersion(allMethods()) {
			for _, m := range methods {
				bad := g.badRequests(m.Input())
				if len(bad) < 30 {
					t.Errorf("%s: %d bad requests, want 30", m.path(), len(bad))
				}
				for _, b := range bad {
					g.send(m, b.name, b.data)
				}
				total += len(bad)
			}
			if diff := cmp.Diff(before, g.state()); diff != "" {
				t.Fatalf("%s: bad requests changed the node (-before +after):\n%.4000s", version, diff)
			}
		}
		t.Logf("%d bad requests to %d methods", total, len(allMethods()))
	})
}

// byVersion returns methods by group and version.
func byVersion(methods []method) map[string][]method {
	all := make(map[string][]method)
	for _, m := range methods {
		all[m.group+" "+m.version] = append(all[m.group+" "+m.version], m)
	}
	return all
}

// TestSoakBadRequests sends requests that are put together at random, for as long as
// SOAK says. Some of them are good by chance, so they go to a node of their own, of which
// only the answers count.
func TestSoakBadRequests(t *testing.T) {
	duration, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Skip("test/resilience --soak 2m runs it")
	}
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("SOAK_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("SOAK_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kept, used := newTarget(t), newTarget(t)
	before := kept.state()
	methods := allMethods()
	for begun, i := time.Now(), 0; time.Since(begun) < duration; i++ {
		m := methods[random.IntN(len(methods))]
		bad := kept.badRequests(m.Input())
		var request []byte
		for range 1 + random.IntN(3) {
			request = append(request, bad[random.IntN(len(bad))].data...)
		}
		for range random.IntN(4) {
			if len(request) > 0 {
				request[random.IntN(len(request))] = byte(random.Uint32())
			}
		}
		name := fmt.Sprintf("request %d", i)
		used.send(m, name, request)
		if proto.Unmarshal(request, dynamicpb.NewMessage(m.Input())) != nil {
			kept.send(m, name, request)
		}
		if i%1000 == 0 {
			if diff := cmp.Diff(before, kept.state()); diff != "" {
				t.Fatalf("%s: bad requests changed the node (-before +after):\n%.4000s", m.path(), diff)
			}
		}
	}
}
