// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/unc"
)

// link makes the entry a link to remote. Drivers read the link back to learn which
// share it was, and Go's os.Stat follows a link to the root of a share only if there
// is a backslash at its end.
func (m *Mappings) link(ctx context.Context, e pathpolicy.Entry, remote unc.Path) error {
	made, err := e.MakeSymlink(ctx, remote.String()+`\`, false, func(l pathpolicy.Link) bool {
		if l.Kind != pathpolicy.LinkToShare {
			return false
		}
		to, err := unc.Parse(l.Target())
		return err == nil && to.Equal(remote)
	})
	if made {
		m.options.Logger.Info("link made", "path", e.Path(), "target", remote.String()+`\`)
	}
	return err
}

// atLocal says that err is about the local path.
func atLocal(path string, err error) error {
	if err == nil {
		return nil
	}
	return &csiproxy.Error{Object: "local path " + quote.Text(path), Err: err}
}
