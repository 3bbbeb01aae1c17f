// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	filesystemv1beta1 "github.com/csi-proxy/csi-proxy/api/filesystem/v1beta1"
	"github.com/csi-proxy/csi-proxy/internal/lab/wiretest"
)

// call calls an operation, or gets the first of what it streams.
func call(ctx context.Context, c *Client, o wiretest.Operation) (any, error) {
	group := reflect.ValueOf(c).Elem().FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, o.Group) })
	method := group.MethodByName(o.Name)
	args := []reflect.Value{reflect.ValueOf(ctx)}
	for i, arg := range o.Args {
		args = append(args, reflect.ValueOf(arg).Convert(method.Type().In(i+1)))
	}
	results := method.Call(args)
	if stream, ok := results[0].Interface().(iter.Seq2[csiproxy.DiskChanges, error]); ok {
		for changes, err := range stream {
			return changes, err
		}
		return nil, errors.New("nothing came")
	}
	err, _ := results[len(results)-1].Interface().(error)
	if len(results) == 1 {
		return nil, err
	}
	return results[0].Interface(), err
}

// In each version, each operation sends what the version's descriptors say and
// understands the response, or says that the version doesn't have it.
func TestWire(t *testing.T) {
	for _, group := range api.Groups() {
		for _, version := range api.Versions(group) {
			t.Run(group+" "+version, func(t *testing.T) {
				var want wiretest.Exchange
				d := newDaemon(t, func(method, request string) (string, error) {
					if method != want.Method || request != want.Request {
						t.Errorf("sent %s %s, want %s %s", method, request, want.Method, want.Request)
					}
					return want.Response, nil
				})
				d.serve(group + " " + version)
				c := d.newClient(t)
				for _, o := range wiretest.Operations {
					if o.Group != group {
						continue
					}
					var ok bool
					if want, ok = o.On(version); !ok {
						got, err := call(t.Context(), c, o)
						wantVersionError(t, err, VersionError{group, version, o.Name})
						wantZero(t, got)
						continue
					}
					got, err := call(t.Context(), c, o)
					if err != nil {
						t.Errorf("%s: %v", o.Name, err)
					}
					if diff := cmp.Diff(o.Result, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", o.Name, diff)
					}
				}
			})
		}
	}
}

// wantZero checks the result that comes with an error.
func wantZero(t *testing.T, result any) {
	t.Helper()
	if result != nil && !reflect.ValueOf(result).IsZero() {
		t.Errorf("returns %v with the error", result)
	}
}

func wantVersionError(t *testing.T, err error, want VersionError) {
	t.Helper()
	wantKind(t, err, csiproxy.ErrUnimplemented)
	if got := new(VersionError); !errors.As(err, &got) || *got != want {
		t.Errorf("error %v, want one with %+v", err, want)
	}
}

// A response that makes no sense is an error, not a wrong disk.
func TestMalformedResponses(t *testing.T) {
	for _, test := range []struct {
		endpoint, respond string
		call              func(context.Context, *Client) (any, error)
	}{
		{"disk v1beta2", `{"diskLocations": {"4294967296": {}}}`, callOf(t, "ListDiskLocations")},
		{"disk v1beta2", `{"diskIDs": {"": {}}}`, callOf(t, "ListDiskIDs")},
		{"disk v1alpha1", `{"diskNumber": "-1"}`, callOf(t, "FindDiskByPage83")},
		{"volume v1beta2", `{"diskNumber": "-1"}`, callOf(t, "GetDiskNumberFromVolumeID")},
		{"volume v1beta2", `{"diskNumber": "4294967296"}`, callOf(t, "GetDiskNumberFromVolumeID")},
		{"filesystem v1beta1", `{"error": "it went wrong", "exists": true}`, callOf(t, "PathExists")},
		{"smb v1beta1", `{"error": "it went wrong"}`, callOf(t, "NewSMBGlobalMapping")},
		{"smb v1alpha1", `{"error": "it went wrong"}`, callOf(t, "RemoveSMBGlobalMapping")},
		{"iscsi v1alpha2", `{"targetPortals": [{"targetPort": 1}, {"targetPort": 65536}]}`, callOf(t, "ListTargetPortals")},
		{"iscsi v1alpha1", `{"diskIDs": ["1", "4294967296"]}`, callOf(t, "GetTargetDisks")},
	} {
		t.Run(test.endpoint+" "+test.respond, func(t *testing.T) {
			d := newDaemon(t, func(string, string) (string, error) { return test.respond, nil })
			d.serve(test.endpoint)
			got, err := test.call(t.Context(), d.newClient(t))
			wantKind(t, err, csiproxy.ErrInternal)
			if err != nil && errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Errorf("error %v blames the caller", err)
			}
			wantZero(t, got)
		})
	}
}

func callOf(t *testing.T, name string) func(context.Context, *Client) (any, error) {
	for _, o := range wiretest.Operations {
		if o.Name == name {
			return func(ctx context.Context, c *Client) (any, error) { return call(ctx, c, o) }
		}
	}
	t.Fatalf("no operation %s", name)
	return nil
}

func TestFindDiskByPage83(t *testing.T) {
	d := newDaemon(t, func(string, string) (string, error) {
		return `{"diskIDs": {"0": {}, "2": {"page83": "6000c29f0"}}}`, nil
	})
	d.serve("disk v1")
	c := d.newClient(t).Disk
	for page83, want := range map[string]error{
		"":         csiproxy.ErrInvalidArgument, // many disks have an empty one
		"6000c29f": csiproxy.ErrNotFound,
	} {
		_, err := c.FindDiskByPage83(t.Context(), page83)
		wantKind(t, err, want)
	}
}

func TestDataVolumeOfDisk(t *testing.T) {
	for respond, want := range map[string]error{
		`{}`:                        csiproxy.ErrNotFound,
		`{"volumeIds": ["A", "B"]}`: csiproxy.ErrFailedPrecondition,
	} {
		d := newDaemon(t, func(string, string) (string, error) { return respond, nil })
		d.serve("volume v1")
		_, err := callOf(t, "DataVolumeOfDisk")(t.Context(), d.newClient(t))
		wantKind(t, err, want)
	}
}

// A daemon must not take what the client doesn't know for a login without CHAP.
func TestConnectTargetChecksAuthentication(t *testing.T) {
	d := newDaemon(t, func(method, _ string) (string, error) {
		t.Errorf("%s was sent", method)
		return `{}`, nil
	})
	d.serve("iscsi v1alpha2")
	c := d.newClient(t).ISCSI
	for _, unknown := range []csiproxy.ISCSIAuthType{-1, 3, 1 << 32} {
		err := c.ConnectTarget(t.Context(), wiretest.Portal, "iqn.2026-01.a:b", csiproxy.ISCSIAuthentication{Type: unknown})
		wantKind(t, err, csiproxy.ErrInvalidArgument)
	}
}

// The daemon would take the id for a disk number, and grow what wasn't meant.
func TestResizeVolumeChecksID(t *testing.T) {
	d := newDaemon(t, func(method, _ string) (string, error) {
		t.Errorf("%s was sent", method)
		return `{}`, nil
	})
	d.serve("volume v1")
	c := d.newClient(t).Volume
	wantKind(t, c.ResizeVolume(t.Context(), "3", 0), csiproxy.ErrInvalidArgument)
}

func TestPathContext(t *testing.T) {
	const pod, plugin = filesystemv1beta1.PathContext_POD, filesystemv1beta1.PathContext_PLUGIN
	for path, want := range map[string]filesystemv1beta1.PathContext{
		`C:\var\lib\kubelet\pods\uid\volumes\x\mount`:              pod,
		`\var\lib\kubelet\PODS\uid`:                                pod,
		`C:\var\lib\kubelet\plugins\kubernetes.io\csi\pods\x`:      plugin,
		`C:\var\lib\kubelet\plugins\kubernetes.io\csi\globalmount`: plugin,
		`C:\var\lib\kubelet\pods\uid\volumes\plugins\x`:            pod,
		`C:\var\lib\kubelet\podsx`:                                 plugin,
		``:                                                         plugin,
	} {
		if got := pathContext(path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
}
