// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"context"
	"fmt"
	"maps"
	"unicode/utf16"

	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
	"github.com/csi-proxy/csi-proxy/internal/windows/winsys/wmi"
)

// provider plays a provider of WMI and notes what it is asked.
type provider struct {
	objects []properties
	late    []properties // come to objects when the cache is updated
	queries []string
	calls   []string
	result  uint32           // of each method
	output  uint32           // the out parameter Output
	failing map[string]error // by query or method
	secrets []wmi.Secret     // as they came, not copied
	seen    []string         // the secrets as text, at the time of the call
}

// properties are those of an object.
type properties map[string]any

func (p properties) Get(name string) (any, error) {
	v, ok := p[name]
	if !ok {
		return nil, winerr.ErrorNotFound
	}
	return v, nil
}

func (p properties) String(name string) (string, error) { return as[string](p, name) }
func (p properties) Uint32(name string) (uint32, error) { return as[uint32](p, name) }
func (p properties) Uint64(name string) (uint64, error) { return as[uint64](p, name) }

func as[T any](p properties, name string) (T, error) {
	v, ok := p[name].(T)
	if !ok {
		return v, winerr.ErrorNotFound
	}
	return v, nil
}

func (p *provider) find(ctx context.Context, query string, f func(object) error) error {
	p.queries = append(p.queries, query)
	if err := p.failing[query]; err != nil {
		return err
	}
	for _, o := range p.objects {
		if err := f(o); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (p *provider) call(class, path, method string, in map[string]any, f func(out object) error) error {
	in = maps.Clone(in)
	if s, ok := in["Credential"].(wmi.Secret); ok {
		p.secrets = append(p.secrets, s)
		p.seen = append(p.seen, string(utf16.Decode(s)))
		delete(in, "Credential")
	}
	p.calls = append(p.calls, fmt.Sprintf("%s %s.%s %v", path, class, method, in))
	if method == "UpdateHostStorageCache" {
		p.objects, p.late = append(p.objects, p.late...), nil
	}
	if err := p.failing[method]; err != nil {
		return err
	}
	return f(properties{"ReturnValue": p.result, "Output": p.output})
}
