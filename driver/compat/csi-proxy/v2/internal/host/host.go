// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host has the one node that the packages of this module work on. It is opened by the
// first call that needs it, so importing a package, or making a client, does nothing.
package host

import (
	"cmp"
	"context"
	"os"
	"strings"
	"sync"

	"github.com/csi-proxy/csi-proxy/node"
)

// The environment variables that configure the node, for drivers whose directories aren't
// below the kubelet directory. The published library took every path.
const (
	// KubeletPath is the kubelet directory. Default: node.DefaultKubeletPath.
	KubeletPath = "CSI_PROXY_KUBELET_PATH"
	// WorkingDirs are further directories in which paths are accepted, with semicolons
	// between them.
	WorkingDirs = "CSI_PROXY_WORKING_DIRS"
)

// Open opens the node. Package simulated changes it before a program's main begins.
var Open = node.Open

// Node returns the node, the same one for all packages. An error stays: the options are wrong,
// or this isn't Windows.
var Node = sync.OnceValues(func() (*node.Node, error) { return Open(optionsFrom(os.Getenv)) })

func optionsFrom(getenv func(string) string) node.Options {
	o := node.Options{KubeletPath: cmp.Or(getenv(KubeletPath), node.DefaultKubeletPath)}
	for dir := range strings.SplitSeq(getenv(WorkingDirs), ";") {
		if dir = strings.TrimSpace(dir); dir != "" {
			o.WorkingDirs = append(o.WorkingDirs, dir)
		}
	}
	return o
}

// API is what each HostAPI of this module is made of: the context of the call under way.
type API struct{ ctx context.Context }

// In returns the API with the context of a call.
func In(ctx context.Context) API { return API{ctx} }

// Context returns the context of the call under way. The published HostAPI has no context in
// its methods, so a call without one isn't bounded.
func (a API) Context() context.Context {
	if a.ctx == nil {
		return context.Background()
	}
	return a.ctx
}

// Get calls f with the node.
func Get[T any](a API, f func(context.Context, *node.Node) (T, error)) (T, error) {
	n, err := Node()
	if err != nil {
		var none T
		return none, err
	}
	return f(a.Context(), n)
}

// Do is Get for a call without a result.
func Do(a API, f func(context.Context, *node.Node) error) error {
	_, err := Get(a, func(ctx context.Context, n *node.Node) (struct{}, error) { return struct{}{}, f(ctx, n) })
	return err
}

// ShareWorks reports whether a share is mapped, and its server answers and takes the user of the
// mapping.
func ShareWorks(a API, remotePath string) (bool, error) {
	return Get(a, func(ctx context.Context, n *node.Node) (bool, error) {
		share, err := n.Storage.GetVolume(ctx, remotePath)
		return err == nil && !share.Abnormal(), err
	})
}

// WithContext returns a HostAPI whose calls end with ctx, if it is one of this module. One that
// a driver's test made stays as it is.
func WithContext[H any](ctx context.Context, api H) H {
	if ours, ok := any(api).(interface{ WithContext(context.Context) H }); ok {
		return ours.WithContext(ctx)
	}
	return api
}

// Strings returns values as the published types have them.
func Strings[T ~string](values []T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}
