// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/lab/drivers"
)

// driverNode makes the calls of drivers for a trial.
type driverNode struct{ *trial }

func (n driverNode) Call(_ context.Context, method string, request drivers.Fields) ([]byte, error) {
	f := fields{}
	for name, value := range request {
		if v, ok := value.(string); ok && name == "password" {
			value = csiproxy.NewSecret(v)
		} else if ok && slices.Contains(withDrive, method) && strings.HasPrefix(v, `\`) {
			value = "C:" + v
		}
		f[name] = value
	}
	if method == "ConnectTarget" {
		f = n.loginRequest() // with the CHAP secrets
	}
	a, err := n.call(method, f)
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(a.Interface())
}

// withDrive are the methods for which drivers add a drive to a path of kubelet's that has none.
var withDrive = []string{"PathExists", "Mkdir", "Rmdir", "CreateSymlink"}

// container is that of the SMB driver. What it sees by itself, a trial sees through the daemon.
type container struct{ *trial }

func (c container) Sees(path string) error {
	if !c.exists(path) {
		return errors.New("the path doesn't exist")
	}
	return nil
}

func (c container) MakeDirectory(path string) error {
	c.do("Mkdir", fields{"path": path})
	return nil
}

func (c container) ReadLink(path string) (string, error) {
	if a, err := c.call("IsSymlink", fields{"path": path}); err != nil || !a.is("isLink") {
		return "", errors.New("the path isn't a link")
	}
	return c.Share, nil
}
