// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
)

// call is a call of CSI that went through the wire.
type call struct {
	node     string        // that it is about
	method   string        // such as NodeStageVolume
	request  proto.Message // as the driver got it, without secrets
	response proto.Message // empty if it failed
	patience time.Duration // how long the caller would have waited; 0 if forever
	began    time.Time
	took     time.Duration // 0 while it is under way
	code     codes.Code
	message  string // of the error
}

// field returns a text of a request, such as volume_id; "" if it has none of that name.
func field(request proto.Message, name protoreflect.Name) string {
	m := request.ProtoReflect()
	if f := m.Descriptor().Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
		return m.Get(f).String()
	}
	return ""
}

func (c call) field(name protoreflect.Name) string { return field(c.request, name) }
func (c call) volume() string                      { return c.field("volume_id") }

// wire is what is between a node's kubelet and the driver. It registers the driver with kubelet, gives
// its paths the form that they have on Windows, and keeps a list of all calls.
type wire struct {
	*record
	name    string       // of the node
	driver  string       // where the driver serves, as gRPC calls it
	address string       // where the lab serves, the same
	socket  string       // where it serves the sidecars, too, which are Linux programs
	root    string       // kubelet's directory
	windows bool         // whether kubelet is the Windows program
	node    func() *node // which is current
}

// record is what the wires of all nodes have together.
type record struct {
	cloud        *cloud
	instead      atomic.Bool                                           // whether the cloud is in the place of the driver's Controller
	fault        atomic.Pointer[func(c call, pass func() error) error] // nil: every call is passed on
	beforeDetach atomic.Pointer[func(volume, node string)]             // nil: nobody is told
	nodeNames    sync.Map                                              // by the ids that drivers say that nodes have

	mu    sync.Mutex
	calls []call
}

// serve serves CSI for a driver with a name until stop is called, and registers it.
func (w *wire) serve(name string) (stop func(), err error) {
	server := grpc.NewServer(grpc.UnaryInterceptor(w.pass))
	csi.RegisterIdentityServer(server, w.cloud)
	csi.RegisterControllerServer(server, w.cloud)
	csi.RegisterNodeServer(server, csi.UnimplementedNodeServer{}) // all its calls are passed on
	registrar := grpc.NewServer()
	socket, directory := filepath.Join(w.root, "lab.sock"), filepath.Join(w.root, "plugins_registry")
	endpoint := socket
	if w.windows {
		endpoint = `C:` + windowsRoot + `\lab.sock`
	}
	registration.RegisterRegistrationServer(registrar, &registrationServer{name: name, endpoint: endpoint})
	stop = func() { registrar.Stop(); server.Stop() }
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return stop, err
	}
	if w.address, err = w.listen(socket, server); err != nil {
		return stop, err
	}
	ofSidecars, err := net.Listen("unix", w.socket)
	if err != nil {
		return stop, err
	}
	go func() { _ = server.Serve(ofSidecars) }()
	_, err = w.listen(filepath.Join(directory, "lab-reg.sock"), registrar)
	return stop, err
}

// listen has a server serve at a socket that kubelet calls, until it is stopped. Wine has no sockets:
// it is a file with the address of a TCP port there.
func (w *wire) listen(socket string, s *grpc.Server) (address string, err error) {
	network, at := "unix", socket
	if w.windows {
		network, at = "tcp", "127.0.0.1:0"
	}
	l, err := net.Listen(network, at)
	if err != nil {
		return "", err
	}
	go func() { _ = s.Serve(l) }()
	if !w.windows {
		return "unix://" + socket, nil
	}
	address = l.Addr().String()
	return address, os.WriteFile(socket, []byte(address), 0o600)
}

// registrationServer tells kubelet where the driver is.
type registrationServer struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (r *registrationServer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrationServer) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !s.PluginRegistered {
		fmt.Fprintf(os.Stderr, "kubelet-lab: kubelet doesn't register the driver: %s\n", s.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// pass passes a call on to the driver, or to the cloud in its place.
func (w *wire) pass(ctx context.Context, request any, info *grpc.UnaryServerInfo, toCloud grpc.UnaryHandler) (any, error) {
	in := request.(proto.Message)
	name, _ := strings.CutSuffix(string(in.ProtoReflect().Descriptor().FullName()), "Request")
	response, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(name + "Response"))
	if err != nil {
		return nil, err
	}
	out, target := response.New().Interface(), field(in, "target_path")
	w.asOnWindows(in)
	if err := w.mirror(ctx, in); err != nil {
		return nil, err
	}
	number := w.begin(ctx, info.FullMethod, in)
	err = w.send(number, func() error {
		if !w.instead.Load() || !ofController(info.FullMethod) {
			return invoke(ctx, w.driver, info.FullMethod, in, out)
		}
		w.cloud.mu.Lock()
		defer w.cloud.mu.Unlock()
		answer, err := toCloud(ctx, in)
		if err == nil {
			proto.Merge(out, answer.(proto.Message))
		}
		return err
	})
	if err == nil && !w.windows && strings.HasPrefix(target, w.root) { // a scenario's own call has Windows' path
		err = show(in, target)
	}
	w.end(number, out, err)
	if r, ok := out.(*csi.NodeGetInfoResponse); ok && err == nil {
		w.nodeNames.Store(r.NodeId, w.name)
	}
	return out, err
}

// ofController reports whether a call is for a driver's Controller.
func ofController(method string) bool {
	return strings.HasPrefix(method, "/"+csi.Controller_ServiceDesc.ServiceName+"/") ||
		method == csi.Identity_GetPluginCapabilities_FullMethodName
}

// nodeOf returns the name of the node that has an id.
func (w *record) nodeOf(id string) string {
	if name, ok := w.nodeNames.Load(id); ok {
		return name.(string)
	}
	return id
}

// send makes a call, which a fault may change.
func (w *wire) send(number int, pass func() error) error {
	if fault := w.fault.Load(); fault != nil && *fault != nil {
		return (*fault)(w.list()[number], pass)
	}
	return pass()
}

// invoke makes a call on a connection of its own, as kubelet does.
func invoke(ctx context.Context, address, method string, in, out proto.Message) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Invoke(ctx, method, in, out)
}

// Where kubelet's directory is on Windows. Kubelet gives the paths of what it shares among pods
// without a drive, and those of pods with one in lower case.
const (
	windowsRoot = `\var\lib\kubelet`
	podsDrive   = "c:"
)

// asOnWindows gives the paths in a request the form that they have on Windows. The Windows program
// has it by itself.
func (w *wire) asOnWindows(m proto.Message) {
	for _, name := range []protoreflect.Name{"staging_target_path", "target_path", "volume_path"} {
		if below, ok := strings.CutPrefix(field(m, name), w.root); ok {
			p := windowsRoot + strings.ReplaceAll(below, "/", `\`)
			if strings.HasPrefix(below, "/pods/") {
				p = podsDrive + p
			}
			m.ProtoReflect().Set(m.ProtoReflect().Descriptor().Fields().ByName(name), protoreflect.ValueOfString(p))
		}
	}
}

// mirror makes the directories on the simulated node that kubelet has made before a call: the staging
// path, and the directory of the target path, with its file there. Without CSI Proxy the call goes on without them; it
// fails then, and comes again.
func (w *wire) mirror(ctx context.Context, in proto.Message) error {
	var directory string
	switch r := in.(type) {
	case *csi.NodeStageVolumeRequest:
		directory = r.StagingTargetPath
	case *csi.NodePublishVolumeRequest:
		directory = r.TargetPath[:max(0, strings.LastIndex(r.TargetPath, `\`))]
	}
	if directory == "" {
		return nil
	}
	if directory[0] == '\\' {
		directory = podsDrive + directory
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // more than a machine takes that is busy with 110 pods
	defer cancel()
	at := &simv1.Path{Path: directory}
	_, err := sim[simv1.ReadLinkResponse](ctx, w.node(), "ReadLink", at)
	if err == nil { // what was staged before Windows restarted, such as a share: kubelet leaves it
		return nil
	}
	_, err = sim[simv1.Empty](ctx, w.node(), "MakeDirectory", at)
	if _, publishes := in.(*csi.NodePublishVolumeRequest); publishes && err == nil {
		err = w.mirrorData(ctx, directory)
	}
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		return nil
	}
	return err
}

// mirrorData writes what kubelet has of a volume in a directory on the simulated node. A scenario's own
// call has none.
func (w *wire) mirrorData(ctx context.Context, directory string) error {
	_, below, _ := strings.Cut(directory, windowsRoot)
	data, err := os.ReadFile(filepath.Join(w.root, strings.ReplaceAll(below, `\`, "/"), volumeData))
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		_, err = sim[simv1.Empty](ctx, w.node(), "WriteFile", &simv1.WriteFileRequest{Path: directory + `\` + volumeData, Data: data})
	}
	return err
}

// show has kubelet on Linux find a directory where a volume is published, for the owner that a pod
// wants its files to have, and for its subdirectories.
func show(in proto.Message, target string) error {
	switch in.(type) {
	case *csi.NodePublishVolumeRequest:
		return os.MkdirAll(target, 0o750)
	case *csi.NodeUnpublishVolumeRequest:
		return os.RemoveAll(target)
	}
	return nil
}

// begin adds a call to the list, and returns its number.
func (w *wire) begin(ctx context.Context, full string, in proto.Message) int {
	c := call{node: w.name, method: path.Base(full), request: proto.Clone(in), began: time.Now()}
	if node := c.field("node_id"); node != "" {
		c.node = w.nodeOf(node)
	}
	if deadline, ok := ctx.Deadline(); ok {
		c.patience = time.Until(deadline)
	}
	if f := in.ProtoReflect().Descriptor().Fields().ByName("secrets"); f != nil {
		c.request.ProtoReflect().Clear(f)
	}
	if told := w.beforeDetach.Load(); told != nil && *told != nil && c.method == detach {
		(*told)(c.volume(), c.node)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
	return len(w.calls) - 1
}

func (w *record) end(number int, response proto.Message, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &w.calls[number]
	c.response = response
	c.took, c.code, c.message = max(1, time.Since(c.began)), status.Code(err), status.Convert(err).Message()
}

// list returns the calls so far.
func (w *record) list() []call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// watch has f be told which volume is going to be detached from which node; nil ends that.
func (w *record) watch(f func(volume, node string)) { w.beforeDetach.Store(&f) }

// interpose has f pass the calls on; nil ends that.
func (w *record) interpose(f func(c call, pass func() error) error) { w.fault.Store(&f) }
