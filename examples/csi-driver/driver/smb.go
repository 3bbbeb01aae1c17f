// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/secret"
	"github.com/csi-proxy/csi-proxy/smb"
)

// smbShare stages SMB shares, or directories on them. The staging path is a link to the
// share, which is mapped for the whole node.
//
// All volumes on a share use the same mapping, so unstaging the last one removes it. The
// lock of the share keeps another volume from being staged meanwhile.
type smbShare struct {
	proxy   Proxy
	records records
	shares  *locks
}

func (b smbShare) stage(ctx context.Context, rec *record, secrets map[string]string) error {
	unlock, err := b.shares.wait(ctx, rec.Source.shareRoot())
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.proxy.Filesystem.Mkdir(ctx, parent(rec.StagingPath)); err != nil {
		return err
	}
	credentials := smb.Credentials{Username: secrets[secretUsername], Password: secret.New(secrets[secretPassword])}
	err = insteadOfDirectory(ctx, b.proxy.Filesystem, rec.StagingPath, func() error {
		return b.proxy.SMB.NewSMBGlobalMapping(ctx, rec.Source.Share, rec.StagingPath, credentials)
	})
	if err != nil {
		return err
	}
	// The mapping is one of the share as a whole.
	answers, err := b.proxy.Filesystem.IsSymlink(ctx, rec.StagingPath)
	if err == nil && !answers {
		return status.Errorf(codes.NotFound, "%s doesn't exist", rec.Source.Share)
	}
	return err
}

func (b smbShare) unstage(ctx context.Context, rec *record) error {
	unlock, err := b.shares.wait(ctx, rec.Source.shareRoot())
	if err != nil {
		return err
	}
	defer unlock()
	if err := removeLink(ctx, b.proxy.Filesystem, rec.StagingPath); err != nil {
		return err
	}
	inUse, err := b.usedByOthers(rec)
	if err != nil || inUse {
		return err
	}
	err = b.proxy.SMB.RemoveSMBGlobalMapping(ctx, rec.Source.Share)
	if errors.Is(err, csiproxy.ErrNotFound) {
		return nil
	}
	return err
}

// usedByOthers reports whether another volume of the same share is staged or is being
// staged: staging writes the record first. The caller has the share's lock.
func (b smbShare) usedByOthers(rec *record) (bool, error) {
	all, err := b.records.all()
	if err != nil {
		return false, err
	}
	for _, other := range all {
		if other.VolumeID != rec.VolumeID && other.Source.Type == typeSMB && other.Source.shareRoot() == rec.Source.shareRoot() {
			return true, nil
		}
	}
	return false, nil
}

// health checks the server too: the target of the link exists only if the share answers.
func (b smbShare) health(ctx context.Context, rec *record) ([]*csi.VolumeHealth_VolumeHealthEntry, error) {
	answers, err := b.proxy.Filesystem.IsSymlink(ctx, rec.StagingPath)
	switch {
	case errors.Is(err, csiproxy.ErrNotFound):
		return inaccessible("NotMounted", "there is no link at the staging path"), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return inaccessible("ShareUnreachable", err.Error()), nil
	case !answers:
		return inaccessible("ShareUnreachable", rec.Source.Share+" doesn't exist, or its server doesn't answer"), nil
	}
	return nil, nil
}
