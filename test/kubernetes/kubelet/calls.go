// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
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
	patience time.Duration // how long the caller would have waited; 0 if for ever
	began    time.Time
	took     time.Duration // 0 while it is under way
	code     codes.Code
	message  string // of the error
}

// field returns a text of the request, such as volume_id; "" if it has none of that name.
func (c call) field(name protoreflect.Name) string {
	m := c.request.ProtoReflect()
	if f := m.Descriptor().Fields().ByName(name); f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
		return m.Get(f).String()
	}
	return ""
}

func (c call) volume() string { return c.field("volume_id") }

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
	mu         sync.Mutex
	calls      []call
	nodeNames  map[string]string                     // by the ids that drivers say that nodes have
	controller controller                            // in the place of the driver's; nil: the driver has one
	fault      func(c call, pass func() error) error // nil: every call is passed on
	// beforeDetach is told which volume is going to be detached from which node; nil: nobody is.
	beforeDetach func(volume, node string)
}

// controller is a CSI Controller.
type controller interface {
	call(ctx context.Context, request, response proto.Message) error
	// serialNumber returns that of a volume's disk.
	serialNumber(volume string) string
}

// serve serves CSI for a driver with a name until stop is called, and registers it.
func (w *wire) serve(name string) (stop func(), err error) {
	server := grpc.NewServer(grpc.UnknownServiceHandler(w.pass))
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

// pass passes a call on to the driver.
func (w *wire) pass(_ any, stream grpc.ServerStream) error {
	full, _ := grpc.MethodFromServerStream(stream)
	in, out, err := messages(full)
	if err != nil {
		return err
	}
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	target := targetOf(in)
	w.asOnWindows(in)
	if err := w.mirror(stream.Context(), in); err != nil {
		return err
	}
	number := w.begin(stream.Context(), full, in)
	err = w.send(number, func() error {
		if c := w.instead(); c != nil && ofController(full) {
			return c.call(stream.Context(), in, out)
		}
		return invoke(stream.Context(), w.driver, full, in, out)
	})
	if err == nil && !w.windows && strings.HasPrefix(target, w.root) { // a scenario's own call has Windows' path
		err = show(in, target)
	}
	w.end(number, out, err)
	if err != nil {
		return err
	}
	if r, ok := out.(*csi.NodeGetInfoResponse); ok {
		w.nodeIs(r.NodeId)
	}
	return stream.SendMsg(out)
}

// nodeIs notes the id that the driver says that the node has.
func (w *wire) nodeIs(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodeNames == nil {
		w.nodeNames = map[string]string{}
	}
	w.nodeNames[id] = w.name
}

// nodeOf returns the name of the node that has an id.
func (w *record) nodeOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.nodeNames[id], id)
}

// instead returns what is in the place of the driver's Controller; nil if nothing is.
func (w *record) instead() controller {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.controller
}

// send makes a call, which a fault may change.
func (w *wire) send(number int, pass func() error) error {
	w.mu.Lock()
	c, fault := w.calls[number], w.fault
	w.mu.Unlock()
	if fault == nil {
		return pass()
	}
	return fault(c, pass)
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

// messages returns an empty request and response of a method of CSI.
func messages(full string) (in, out proto.Message, err error) {
	name := strings.ReplaceAll(strings.TrimPrefix(full, "/"), "/", ".")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
	m, ok := found.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		return nil, nil, status.Errorf(codes.Unimplemented, "%s is no call of CSI", full)
	}
	request, err := protoregistry.GlobalTypes.FindMessageByName(m.Input().FullName())
	if err != nil {
		return nil, nil, err
	}
	response, err := protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
	if err != nil {
		return nil, nil, err
	}
	return request.New().Interface(), response.New().Interface(), nil
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
		f := m.ProtoReflect().Descriptor().Fields().ByName(name)
		if f == nil {
			continue
		}
		if below, ok := strings.CutPrefix(m.ProtoReflect().Get(f).String(), w.root); ok {
			p := windowsRoot + strings.ReplaceAll(below, "/", `\`)
			if strings.HasPrefix(below, "/pods/") {
				p = podsDrive + p
			}
			m.ProtoReflect().Set(f, protoreflect.ValueOfString(p))
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

// targetOf returns the target path of a request.
func targetOf(in proto.Message) string {
	r, ok := in.(interface{ GetTargetPath() string })
	if !ok {
		return ""
	}
	return r.GetTargetPath()
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
	w.mu.Lock()
	told := w.beforeDetach
	w.mu.Unlock()
	if told != nil && c.method == detach {
		told(c.volume(), c.node)
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
func (w *record) watch(f func(volume, node string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beforeDetach = f
}

// control has a controller do what is the driver's otherwise; nil ends that.
func (w *record) control(c controller) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.controller = c
}

// interpose has f pass the calls on; nil ends that.
func (w *record) interpose(f func(c call, pass func() error) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// driverName asks the driver for its name.
func (w *wire) driverName(ctx context.Context) (string, error) {
	response := &csi.GetPluginInfoResponse{}
	if err := invoke(ctx, w.driver, csi.Identity_GetPluginInfo_FullMethodName, &csi.GetPluginInfoRequest{}, response); err != nil {
		return "", err
	}
	if response.Name == "" {
		return "", errors.New("the driver has no name")
	}
	return response.Name, nil
}
