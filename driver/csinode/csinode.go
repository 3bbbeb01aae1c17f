// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package csinode is the Node and Identity service of a CSI driver for Windows, complete: a
// driver says where the data of a volume are, and has the rest.
//
// [Server] stages a volume (makes it usable at one path of the node), publishes it (shows it to
// a pod at another path), grows it, tells its usage and health, and undoes both, by CSI Proxy's
// storage API: over the pipe, in process, or on a simulated node. Each call may be repeated,
// also after a crash in the middle of the first, and then does what is left to do.
//
// The driver gives [Options.Source], and its Controller if it has one. See the example.
package csinode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"reflect"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

// Storage is what the service calls of CSI Proxy: the field Storage of client.Client, of
// node.Node, or of a simulated node's Client or Operations.
type Storage interface {
	StageVolume(ctx context.Context, r csiproxy.StageVolumeRequest) (csiproxy.StagedVolume, error)
	UnstageVolume(ctx context.Context, r csiproxy.UnstageVolumeRequest) (csiproxy.UnstagedVolume, error)
	StageShare(ctx context.Context, r csiproxy.StageShareRequest) error
	UnstageShare(ctx context.Context, r csiproxy.UnstageShareRequest) (csiproxy.UnstagedShare, error)
	PublishVolume(ctx context.Context, stagingPath, targetPath string) error
	UnpublishVolume(ctx context.Context, targetPath string) error
	ExpandVolume(ctx context.Context, r csiproxy.ExpandVolumeRequest) (csiproxy.ExpandedVolume, error)
	GetVolume(ctx context.Context, path string) (csiproxy.Volume, error)
	ListVolumes(ctx context.Context) (csiproxy.VolumeList, error)
	ListDisks(ctx context.Context, s csiproxy.Selector) ([]csiproxy.Disk, error)
}

// Source says where the data of a volume are: on a disk or on a share. It is kept in the
// volume's record, without the secrets in Login and Credentials.
type Source struct {
	// Disk means the disk. Login, Partition and Format are those of csiproxy.StageVolumeRequest.
	Disk      csiproxy.Selector
	Login     csiproxy.ISCSILogin `json:"-"`
	Partition uint32
	Format    csiproxy.FormatOptions `json:"-"`
	// Share is \\server\share, or a directory of it, in the place of a disk.
	Share       string
	Credentials csiproxy.SMBCredentials `json:"-"`
	// Privacy is that of csiproxy.StageShareRequest: StorageClasses name it with ParamPrivacy.
	Privacy csiproxy.SharePrivacy `json:",omitzero"`
	// ReadOnly stages a disk so that nothing can be written to it, and refuses a share that the user may write. A share
	// with an access mode for readers only is read-only in any case.
	ReadOnly bool
}

// isShare reports whether the data are on a share.
func (s Source) isShare() bool { return s.Share != "" }

// Options configure a service. Name, NodeID, Storage, Source and StateDir must be set.
type Options struct {
	// Name is the driver's name, such as disk.example.com, and Version its version.
	Name, Version string
	// NodeID is the storage's name for this node.
	NodeID string
	// MaxVolumes is how many volumes the node can have; 0 if there is no limit.
	MaxVolumes int64
	// Topology is where the node is, for NodeGetInfo. Default: the driver has no topology.
	Topology map[string]string
	// Storage is CSI Proxy on this node.
	Storage Storage
	// Source says where the data of a volume are that is to be staged. The request has the
	// volume's id, its attributes, what the Controller said when it was attached, and secrets.
	// An error with a gRPC code keeps it; others have that of their class in package csiproxy.
	//
	// It is asked again when a volume is published whose record was lost. Then the request is made
	// of NodePublishVolume's, and has no secrets; the answer is only compared with what is mounted.
	Source func(ctx context.Context, r *csi.NodeStageVolumeRequest) (Source, error)
	// StateDir is a directory of the driver's own for its records of staged volumes. It is made
	// if it is missing, and must survive a restart of the driver. One process has it at a time:
	// see New.
	StateDir string
	// Wait is how long NodeStageVolume waits for a disk to arrive, and NodeExpandVolume for one
	// to grow. Default: csiproxy.DefaultWait.
	Wait time.Duration
	// Controller is the driver's Controller service, to serve in the same process.
	// GetPluginCapabilities then names the service. Default: none.
	Controller csi.ControllerServer
	// NoExpansion is for volumes that can't grow: the service doesn't offer NodeExpandVolume. A
	// Controller without ControllerExpandVolume has the same effect.
	NoExpansion bool
	// PodIsGone reports whether a pod is gone. NodeUnstageVolume then removes the pod's links, which
	// kubelet forgets to unpublish after it has lost its directory. Default: the links stay, and the
	// error of NodeUnstageVolume and an event name the link, the pod and the command that removes
	// the link.
	PodIsGone PodIsGone
	// Events gets what kubelet makes no event of. Default: it is only logged.
	Events Events
	// Logger logs each call, without secrets. Default: they aren't logged.
	Logger *slog.Logger
}

// Server is the service on one node.
type Server struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer

	options Options
	store   *store
	release func() error
}

// New returns a service. It fails if an option is missing or the directory can't be made.
//
// If another process has the directory, as the one before in a rolling update, New waits a minute
// for that to end, and then fails. The directory is this process's until [Server.Close].
func New(o Options) (*Server, error) {
	missing := map[string]bool{
		"Name": o.Name == "", "NodeID": o.NodeID == "", "Storage": isNil(o.Storage), "Source": o.Source == nil,
		"StateDir": o.StateDir == "",
	}
	for option, is := range missing {
		if is {
			return nil, fmt.Errorf("csinode: Options.%s is missing", option)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Version = cmp.Or(o.Version, "unknown")
	store, err := openStore(o.StateDir, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("csinode: Options.StateDir: %w", err)
	}
	return &Server{options: o, store: store, release: sync.OnceValue(store.release)}, nil
}

// isNil also reports a nil pointer in the interface, such as the field of a client that isn't there yet.
func isNil(s Storage) bool {
	v := reflect.ValueOf(s)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Close lets another process have the directory of the records. No call may be under way, and none
// may follow. A process that ends needs no Close.
func (s *Server) Close() error { return s.release() }

// Serve serves Identity, Node and, if there is one, the Controller at l until ctx ends. Calls
// under way may then finish within ten seconds. Then the server is closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) (err error) {
	defer func() { err = errors.Join(err, s.Close()) }()
	const gracePeriod = 10 * time.Second
	server := grpc.NewServer(grpc.UnaryInterceptor(s.Intercept))
	s.Register(server)
	defer context.AfterFunc(ctx, func() {
		cut := time.AfterFunc(gracePeriod, server.Stop)
		defer cut.Stop()
		server.GracefulStop()
	})()
	if err := server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CSI: %w", err)
	}
	return nil
}

// Register adds Identity, Node and Options.Controller to the driver's own gRPC server, which should
// have [Server.Intercept] as an interceptor, and serve at [Listen].
func (s *Server) Register(server grpc.ServiceRegistrar) {
	csi.RegisterIdentityServer(server, s)
	csi.RegisterNodeServer(server, s)
	if s.options.Controller != nil {
		csi.RegisterControllerServer(server, s.options.Controller)
	}
}

// Intercept logs a call. It also gives an error of the Controller its gRPC code, by client.Code; the
// errors of the other services have theirs already, for status.Code. It never logs the request, which
// may have secrets.
func (s *Server) Intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler) (any, error) {
	start := time.Now()
	response, err := handler(ctx, request)
	err = withCode(err)
	log := s.options.Logger.With("call", path.Base(info.FullMethod), "took", time.Since(start).Round(time.Microsecond))
	if id, ok := request.(interface{ GetVolumeId() string }); ok {
		log = log.With("volume", id.GetVolumeId())
	}
	if err != nil {
		log.Error("the call failed", "code", status.Code(err), "err", status.Convert(err).Message())
		return nil, err
	}
	log.Info("done")
	return response, nil
}
