// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package mappings

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/csi-proxy/csi-proxy/smb"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/operation"
	"github.com/csi-proxy/csi-proxy/internal/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/quote"
	"github.com/csi-proxy/csi-proxy/internal/unc"
	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/storage"
)

// StageShare implements [storage.Operations].
//
// A mapping is removed with the last staged path that leads to its share. What is staged is
// counted by the links in the allowed directories, so the count is right after a crash, too.
// A call that makes a link and one that counts exclude each other, across processes.
//
// A call that fails after it has made the mapping removes it again: see [Mappings.endClaim].
func (m *Mappings) StageShare(ctx context.Context, r storage.StageShareRequest) error {
	return operation.Do(ctx, m.options.Runner, "StageShare", quote.Text(r.RemotePath), func(ctx context.Context) (err error) {
		remote, err := unc.Parse(r.RemotePath)
		if err != nil {
			return err
		}
		if err := r.Credentials.Validate(); err != nil {
			return err
		}
		local, err := m.paths.Parse(r.StagingPath, pathpolicy.MaxPath)
		if err == nil && !local.IsCounted() {
			err = csiproxy.Errorf(csiproxy.ErrInvalidArgument, "it is more than %d directories below an allowed one, where staged paths aren't counted", pathpolicy.MaxLinkDepth)
		}
		if err != nil {
			return atLocal(r.StagingPath, err)
		}
		m.claims.begin(remote)
		defer func() { m.endClaim(ctx, remote, err) }()
		for range maxAttempts {
			if err := m.checkUser(ctx, remote, r.Credentials); err != nil {
				return err
			}
			made, err := m.ensure(ctx, wanted{remote, r.Credentials, r.StagingPath})
			if made {
				m.claims.made(remote)
			}
			if err != nil {
				return err
			}
			if err := m.checkDirectory(ctx, remote); err != nil {
				return err
			}
			mapped, err := m.linkWhileMapped(ctx, local, remote)
			if err != nil {
				return atLocal(r.StagingPath, err)
			}
			if mapped {
				return nil
			}
		}
		return csiproxy.Errorf(csiproxy.ErrUnavailable, "the mapping was removed by others on every attempt; try again later")
	})
}

// checkUser refuses credentials that are known to be others than those of a mapping that
// works. A mapping that an earlier process has made is known by its user only, as far as
// Windows tells.
func (m *Mappings) checkUser(ctx context.Context, remote unc.Path, c smb.Credentials) error {
	mappings, err := m.options.Shares.Mappings(ctx)
	if err != nil || !remote.MappedBy(mappings) {
		return err
	}
	if err := m.options.Shares.Probe(ctx, remote.Share()); err != nil {
		return nil // ensure says what becomes of a mapping that doesn't work
	}
	known, sameUser, sameCredentials := m.logOns.Compare(remote, c)
	if !known {
		sameUser, err = m.maybeSameUser(ctx, remote, c)
		if err != nil {
			return err
		}
		sameCredentials = sameUser
	}
	switch {
	case !sameUser:
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the share is mapped for another user than the one given, and all pods of the node share a mapping: use the same user, or unstage the share everywhere first")
	case !sameCredentials:
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition,
			"the share is mapped with another password than the one given, which works: if the password was changed, unstage the share everywhere first")
	}
	return nil
}

// maybeSameUser reports whether the user of a mapping may be the one given: Windows doesn't
// always tell.
func (m *Mappings) maybeSameUser(ctx context.Context, remote unc.Path, c smb.Credentials) (bool, error) {
	connections, err := m.sys.SMBConnections(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		m.options.Logger.Debug("Windows doesn't tell who uses a share", "remotePath", remote.Root(), "err", err)
		return true, nil
	}
	told := false
	for _, conn := range connections {
		at, err := unc.Parse(`\\` + conn.Server + `\` + conn.Share)
		if err != nil || at.Root() != remote.Root() {
			continue
		}
		if told = true; strings.EqualFold(account(conn.Credential), account(c.Username)) {
			return true, nil
		}
	}
	return !told, nil
}

// account returns a user's name without the domain, which has several spellings.
func account(user string) string {
	if at := strings.LastIndex(user, `\`); at >= 0 {
		return user[at+1:]
	}
	name, _, _ := strings.Cut(user, "@")
	return name
}

// checkDirectory returns csiproxy.ErrNotFound if the directory that remote is isn't there.
func (m *Mappings) checkDirectory(ctx context.Context, remote unc.Path) error {
	err := m.options.Shares.Probe(ctx, remote)
	if errors.Is(err, win.ErrorFileNotFound) || errors.Is(err, win.ErrorPathNotFound) {
		return &csiproxy.Error{Kind: csiproxy.ErrNotFound, Detail: "the share has no such directory", Err: err}
	}
	if _, answered := errors.AsType[win.Errno](err); answered {
		return keptError(err, "the path on it can't be used")
	}
	return err
}

// linkWhileMapped makes the staging path a link to remote, and reports whether the share
// was mapped then: an unstage that is under way may have removed the mapping meanwhile.
func (m *Mappings) linkWhileMapped(ctx context.Context, local pathpolicy.Path, remote unc.Path) (mapped bool, _ error) {
	ctx, share, err := m.options.Owner.Share(ctx, remote)
	if err != nil {
		return false, err
	}
	defer share.Release()
	mappings, err := m.sys.SMBGlobalMappings(ctx)
	if err != nil || !remote.MappedBy(mappings) {
		return false, err
	}
	link := func(e pathpolicy.Entry) error { return m.link(ctx, e, remote) }
	err = m.paths.ReachMaking(ctx, m.sys, local, link)
	if csiproxy.KindOf(err) != csiproxy.ErrAlreadyExists {
		return true, err
	}
	removed := false // what a call that died half-way has left
	removeErr := m.paths.Reach(ctx, m.sys, local, func(e pathpolicy.Entry) (err error) {
		removed, err = m.removeEmpty(ctx, e)
		return err
	})
	if !removed {
		if removeErr != nil && !pathpolicy.Missing(removeErr) && !errors.Is(removeErr, win.ErrorDirNotEmpty) {
			err = removeErr
		}
		return true, err
	}
	return true, m.paths.ReachMaking(ctx, m.sys, local, link)
}

// UnstageShare implements [storage.Operations].
func (m *Mappings) UnstageShare(ctx context.Context, r storage.UnstageShareRequest) (storage.UnstagedShare, error) {
	return operation.Get(ctx, m.options.Runner, "UnstageShare", "at "+quote.Text(r.StagingPath), func(ctx context.Context) (done storage.UnstagedShare, _ error) {
		local, err := m.paths.Parse(r.StagingPath, pathpolicy.MaxPath)
		if err != nil {
			return done, err
		}
		if r.RemotePath != "" {
			remote, err := unc.Parse(r.RemotePath)
			if err != nil {
				return done, err
			}
			return m.unstage(ctx, local, remote)
		}
		remote, staged, err := m.stagedAt(ctx, local, refuseOther)
		if err != nil || !staged {
			return done, err
		}
		return m.unstage(ctx, local, remote)
	})
}

// StagedAt returns the directory of a share that a path is a link to, and whether it is one.
func (m *Mappings) StagedAt(ctx context.Context, path string) (remote unc.Path, staged bool, _ error) {
	local, err := m.paths.Parse(path, pathpolicy.MaxPath)
	if err != nil {
		return unc.Path{}, false, err
	}
	return m.stagedAt(ctx, local, acceptOther)
}

// Unstage removes the link at a path if it leads to remote, and the mapping of that share
// unless another staged path leads to it.
func (m *Mappings) Unstage(ctx context.Context, path string, remote unc.Path) (done storage.UnstagedShare, _ error) {
	local, err := m.paths.Parse(path, pathpolicy.MaxPath)
	if err != nil {
		return done, err
	}
	return m.unstage(ctx, local, remote)
}

func (m *Mappings) unstage(ctx context.Context, local pathpolicy.Path, remote unc.Path) (done storage.UnstagedShare, _ error) {
	ctx, release, err := m.rights(ctx, remote)
	if err != nil {
		return done, err
	}
	defer release()
	is, staged, err := m.stagedAt(ctx, local, acceptOther)
	if err != nil {
		return done, err
	}
	staged = staged && is.Equal(remote)
	except := pathpolicy.Path{}
	if staged {
		except = local
	}
	// First the mapping: if the link went first, nobody would know later that the mapping was
	// to go.
	unmapped, lacking, err := m.removeUnused(ctx, remote, except)
	switch {
	case err != nil:
		return done, err
	case csiproxy.KindOf(lacking) == csiproxy.ErrResourceExhausted: // for good
		m.options.Logger.Warn("a mapping stays, since staged paths can't be counted", "remotePath", remote.Root(), "err", lacking)
	case lacking != nil:
		return done, &csiproxy.Error{Kind: csiproxy.ErrUnavailable, Detail: "the staged paths of the share can't be counted; try again later", Err: lacking}
	}
	done.Unmapped = unmapped
	if staged {
		done.Unlinked, err = m.unlink(ctx, local, remote)
	}
	return done, err
}

// RemoveUnused removes the mapping of a share if no staged path leads to it, and reports
// whether it has.
func (m *Mappings) RemoveUnused(ctx context.Context, remote unc.Path) (removed bool, _ error) {
	ctx, release, err := m.rights(ctx, remote)
	if err != nil {
		return false, err
	}
	defer release()
	removed, lacking, err := m.removeUnused(ctx, remote, pathpolicy.Path{})
	if err == nil {
		err = lacking
	}
	return removed, err
}

// removeUnused removes the mapping of a share unless a staged path other than except leads to
// it, and reports whether it has. lacking says why the staged paths can't be counted; the
// mapping stays then. The caller excludes all others.
func (m *Mappings) removeUnused(ctx context.Context, remote unc.Path, except pathpolicy.Path) (removed bool, lacking, _ error) {
	paths, lacking, err := m.stagedPaths(ctx, remote, except)
	if err != nil || len(paths) > 0 {
		return false, nil, err
	}
	if lacking != nil {
		return false, lacking, nil
	}
	err = m.remove(ctx, remote)
	if errors.Is(err, win.ErrorNotConnected) {
		return false, nil, nil
	}
	return err == nil, nil, err
}

// stagedAt returns the directory of a share that a path is a link to, and whether it is one.
// If something else is there, the error is that of other.
func (m *Mappings) stagedAt(ctx context.Context, local pathpolicy.Path, other somethingElse) (remote unc.Path, staged bool, _ error) {
	err := m.paths.Reach(ctx, m.sys, local, func(e pathpolicy.Entry) error {
		file, err := e.Open(ctx, pathpolicy.Look)
		if err != nil {
			return err
		}
		link, err := file.Link(ctx)
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if errors.Is(err, win.ErrorNotAReparsePoint) {
			return other(ctx, e, nil)
		}
		if err != nil {
			return err
		}
		if remote, staged = shareOf(link); !staged {
			return other(ctx, e, &link)
		}
		return nil
	})
	if pathpolicy.Missing(err) {
		return unc.Path{}, false, nil
	}
	return remote, staged, err
}

// somethingElse says whether it is an error that a staging path is no link to a share, but
// another link or, if link is nil, a file or directory.
type somethingElse func(ctx context.Context, e pathpolicy.Entry, link *pathpolicy.Link) error

// acceptOther takes it for no error.
func acceptOther(context.Context, pathpolicy.Entry, *pathpolicy.Link) error { return nil }

// refuseOther refuses it with csiproxy.ErrFailedPrecondition, unless it is an empty directory.
func refuseOther(ctx context.Context, e pathpolicy.Entry, link *pathpolicy.Link) error {
	refuse := func(format string, args ...any) error {
		return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "no share is staged there: "+format, args...)
	}
	switch {
	case link == nil:
	case link.IsMountPoint():
		return refuse("volume %s is mounted there, and UnstageVolume unmounts it", link.Volume)
	default:
		return refuse("it leads to %s, and is no symbolic link to a share", quote.Text(link.Target()))
	}
	dir, err := e.Open(ctx, pathpolicy.Directory(win.FileOpen))
	if errors.Is(err, win.ErrorDirectory) {
		return refuse("it is a file")
	}
	if err != nil {
		return err
	}
	entries, err := dir.ReadDir(ctx, true)
	if errors.Is(err, win.ErrorNoMoreFiles) {
		err = nil
	}
	if err == nil && len(entries) > 0 {
		err = refuse("it is a directory with entries")
	}
	return err
}

// shareOf returns the directory of a share that a link leads to, and whether it is one as
// StageShare makes it.
func shareOf(link pathpolicy.Link) (unc.Path, bool) {
	if link.Kind != pathpolicy.LinkToShare || link.Tag != win.TagSymlink {
		return unc.Path{}, false
	}
	remote, err := unc.Parse(link.Target())
	return remote, err == nil
}

// removeEmpty removes an empty directory, and reports whether it has.
func (m *Mappings) removeEmpty(ctx context.Context, e pathpolicy.Entry) (removed bool, _ error) {
	removed, err := e.RemoveEmptyDirectory(ctx)
	if removed {
		m.options.Logger.Info("directory removed", "path", e.Path())
	}
	return removed, err
}

// unlink removes the link to remote at a staging path, and reports whether there was one.
func (m *Mappings) unlink(ctx context.Context, local pathpolicy.Path, remote unc.Path) (removed bool, _ error) {
	err := m.paths.Reach(ctx, m.sys, local, func(e pathpolicy.Entry) error {
		file, err := e.Open(ctx, win.OpenOptions{Access: win.Delete, Disposition: win.FileOpen})
		if err != nil {
			return err
		}
		link, err := file.Link(ctx)
		if to, ok := shareOf(link); err == nil && (!ok || !to.Equal(remote)) {
			err = csiproxy.Errorf(csiproxy.ErrUnavailable, "the staging path was changed by somebody else meanwhile; try again")
		}
		if err == nil {
			err = file.Delete(ctx)
		}
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
		if err == nil {
			removed = true
			m.options.Logger.Info("link removed", "path", e.Path(), "to", link.Target())
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) && pathpolicy.Missing(err) {
		err = nil
	}
	return removed, err
}

// rights gives the rights to the mappings of the server of remote, and to its share.
func (m *Mappings) rights(ctx context.Context, remote unc.Path) (_ context.Context, release func(), _ error) {
	ctx, server, err := m.options.Owner.Server(ctx, remote)
	if err != nil {
		return ctx, nil, err
	}
	ctx, share, err := m.options.Owner.Share(ctx, remote)
	if err != nil {
		server.Release()
		return ctx, nil, err
	}
	return ctx, func() {
		share.Release()
		server.Release()
	}, nil
}

// stagedPaths returns the links in the allowed directories that lead to the share of remote,
// but for one at the path except. lacking says why some may be missing.
func (m *Mappings) stagedPaths(ctx context.Context, remote unc.Path, except pathpolicy.Path) (paths []string, lacking, _ error) {
	links, lacking, err := m.paths.Links(ctx, m.sys)
	if err != nil {
		return nil, nil, err
	}
	for _, l := range links {
		if to, ok := shareOf(l.Link); ok && to.Root() == remote.Root() && !l.Path.Equal(except) {
			paths = append(paths, l.Path.String())
		}
	}
	return paths, lacking, nil
}

// checkShared refuses to remove a mapping that more than one staged path leads to.
func (m *Mappings) checkShared(ctx context.Context, remote unc.Path) error {
	if !m.options.ProtectShared {
		return nil
	}
	paths, _, err := m.stagedPaths(ctx, remote, pathpolicy.Path{})
	if err != nil || len(paths) < 2 {
		return err
	}
	const most = 5
	shown := paths[:min(len(paths), most)]
	return csiproxy.Errorf(csiproxy.ErrFailedPrecondition, "%d staged paths lead to the share, and -protect-shared-mappings keeps it mapped for them: %s",
		len(paths), quote.Text(fmt.Sprint(strings.Join(shown, ", "))))
}
