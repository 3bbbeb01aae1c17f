// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"

	"google.golang.org/grpc/codes"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

var smbChecks = []Check{
	{
		Name: "smb.map", Group: "smb", Methods: []string{"NewSmbGlobalMapping", "RemoveSmbGlobalMapping"},
		Promise: "NewSmbGlobalMapping maps the share and makes local_path a link to remote_path; RemoveSmbGlobalMapping, " +
			"after the link was removed, removes the mapping, which is not found then.",
		run: func(t *trial) {
			t.unmapLater()
			local := t.dir() + `\share`
			t.do("NewSmbGlobalMapping", t.mapping(local))
			t.want(t.exists(local) && t.do("IsSymlink", fields{"path": local}).is("isLink"),
				"%s is no link that leads somewhere", local)
			t.do("Rmdir", fields{"path": local})
			t.do("RemoveSmbGlobalMapping", fields{"remote": t.Share})
			t.refused(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote": t.Share})
		},
	},
	{
		Name: "smb.map-twice", Group: "smb", Methods: []string{"NewSmbGlobalMapping"},
		Promise: "A share that is mapped keeps its mapping; it can get further links.",
		run: func(t *trial) {
			t.unmapLater()
			dir := t.dir()
			request := t.mapping("")
			for _, local := range []string{"", `\one`, `\two`} {
				if local != "" {
					request = t.mapping(dir + local)
				}
				t.do("NewSmbGlobalMapping", request)
			}
			for _, local := range []string{`\one`, `\two`} {
				t.want(t.do("IsSymlink", fields{"path": dir + local}).is("isLink"), "%s is no link that leads somewhere", dir+local)
			}
		},
	},
	{
		Name: "smb.same-link", Group: "smb", Methods: []string{"NewSmbGlobalMapping"}, Better: true,
		Promise: "NewSmbGlobalMapping with a link that is there already, to the same share, is a success.",
		run: func(t *trial) {
			t.unmapLater()
			request := t.mapping(t.dir() + `\share`)
			for range 2 {
				t.do("NewSmbGlobalMapping", request)
			}
			t.want(t.exists(request["local"].(string)), "the link is gone")
		},
	},
	{
		Name: "smb.slashes", Group: "smb", Methods: []string{"NewSmbGlobalMapping", "RemoveSmbGlobalMapping"},
		Promise: "A remote path with slashes, in any case, is the same share.",
		run: func(t *trial) {
			t.unmapLater()
			local := t.dir() + `\share`
			t.do("NewSmbGlobalMapping", t.mapping(local).With("remote", strings.ReplaceAll(strings.ToUpper(t.Share), `\`, "/")))
			t.do("Rmdir", fields{"path": local})
			t.do("RemoveSmbGlobalMapping", fields{"remote": strings.ReplaceAll(t.Share, `\`, "/")})
			t.refused(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote": t.Share})
		},
	},
	{
		Name: "smb.wrong-password", Group: "smb", Methods: []string{"NewSmbGlobalMapping"},
		Promise: "A share isn't mapped with a wrong password, and no link is made; the right one maps it right after.",
		run: func(t *trial) {
			t.unmapLater()
			local := t.dir() + `\share`
			request := t.mapping(local)
			t.refused(codes.Unauthenticated, "NewSmbGlobalMapping", request.With("password", csiproxy.NewSecret("not the password")))
			t.want(!t.exists(local), "there is a link after the password was refused")
			t.refused(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote": t.Share})
			t.do("NewSmbGlobalMapping", request)
			t.want(t.exists(local), "there is no link after the right password")
		},
	},
	{
		Name: "smb.remove-unknown", Group: "smb", Methods: []string{"RemoveSmbGlobalMapping"},
		Promise: "The mapping of a share that isn't mapped is not found.",
		run:     func(t *trial) { t.refused(codes.NotFound, "RemoveSmbGlobalMapping", fields{"remote": unknownShare}) },
	},
	{
		Name: "smb.bad-remote-path", Group: "smb", Methods: []string{"NewSmbGlobalMapping", "RemoveSmbGlobalMapping"},
		Promise: `A remote path that isn't \\server\share or below is refused.`,
		run: func(t *trial) {
			for _, remote := range []string{"", "x", `\\csi-proxy-conformance.invalid`, `\\csi-proxy-conformance.invalid\`} {
				t.refused(codes.InvalidArgument, "NewSmbGlobalMapping",
					fields{"remote": remote, "username": "user", "password": "conformance"})
				t.refused(codes.InvalidArgument, "RemoveSmbGlobalMapping", fields{"remote": remote})
			}
		},
	},
	{
		Name: "smb.password-not-told", Group: "smb", Methods: []string{"NewSmbGlobalMapping"},
		Promise: "The password of a request is in no error.",
		run: func(t *trial) {
			const password = "csi-proxy-conformance-password"
			for _, request := range []fields{
				{"remote": "x", "username": "user"},
				{"remote": `\\csi-proxy-conformance.invalid`, "username": "user"},
				{"remote": unknownShare, "local": "relative", "username": "user"},
			} {
				err := t.refused(codes.InvalidArgument, "NewSmbGlobalMapping", request.With("password", csiproxy.NewSecret(password)))
				t.want(!strings.Contains(err.Error(), password), "the password is in the error")
			}
		},
	},
}

// mapping is the request that maps the caller's share.
func (t *trial) mapping(local string) fields {
	if t.Share == "" {
		t.notApplicable("it needs an SMB share: name one with --share")
	}
	f := fields{"remote": t.Share, "username": t.ShareUsername, "password": t.SharePassword}
	if local == "" {
		return f
	}
	return f.With("local", local)
}

// unmapLater has the clean-up remove the mapping of the share if there is one. It comes before the
// trial's directory is made, so that the links to the share are removed first: they keep a mapping.
func (t *trial) unmapLater() {
	if t.Share == "" {
		return
	}
	t.later(func() { t.call("RemoveSmbGlobalMapping", fields{"remote": t.Share}) })
}
