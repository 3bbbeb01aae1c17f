// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/windows"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

func TestNewUseInfo(t *testing.T) {
	const path = `\\server\share`
	// The texts of a useInfo3; that of none is "none".
	type texts struct{ Local, Remote, Username, Domain, Password string }
	text := func(p *uint16) string {
		if p == nil {
			return "none"
		}
		return windows.UTF16PtrToString(p)
	}
	for name, tt := range map[string]struct {
		o     win.SMBMappingOptions
		want  texts
		flags uint32
	}{
		"a user": {win.SMBMappingOptions{Username: "user", Password: secret.New("päss💾")},
			texts{"none", path, "user", "none", "päss💾"}, 0},
		"a user of a domain": {win.SMBMappingOptions{Username: `D\user`, Password: secret.New("p")},
			texts{"none", path, "user", "D", "p"}, 0},
		"a principal": {win.SMBMappingOptions{Username: "u@d.example", Password: secret.New("p")},
			texts{"none", path, "u@d.example", "none", "p"}, 0},
		"an empty password": {win.SMBMappingOptions{Username: "user"},
			texts{"none", path, "user", "none", ""}, 0},
		"nobody": {win.SMBMappingOptions{Password: secret.New("p"), RequirePrivacy: true},
			texts{"none", path, "none", "none", "none"}, 0x10},
	} {
		info, password, err := newUseInfo(path, tt.o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := texts{text(info.local), text(info.remote), text(info.username), text(info.domain), text(info.password)}
		if diff := cmp.Diff(tt.want, got); diff != "" || info.flags != tt.flags || info.kind != useWildcard {
			t.Errorf("%s: kind %#x, flags %#x (-want +got):\n%s", name, info.kind, info.flags, diff)
		}
		clear(password)
		if info.password != nil && text(info.password) != "" {
			t.Errorf("%s: it is another password that is cleared", name)
		}
	}
}

func TestMappingsOf(t *testing.T) {
	got := mappingsOf([]useInfo2{
		{remote: windows.StringToUTF16Ptr(`\\server\share`), kind: 7, username: windows.StringToUTF16Ptr("u")},
		{local: windows.StringToUTF16Ptr("G:"), remote: windows.StringToUTF16Ptr(`\\server\other`), status: 3},
	})
	want := []win.SMBMapping{
		{RemotePath: `\\server\share`, Status: win.SMBMappingOK},
		{RemotePath: `\\server\other`, Status: win.SMBMappingNetworkError},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mappings (-want +got):\n%s", diff)
	}
}

func TestNetUseErrors(t *testing.T) {
	const path = `\\server\share`
	create := func(path, user, password string) error {
		return netUse{}.create(t.Context(), path, win.SMBMappingOptions{Username: user, Password: secret.New(password)})
	}
	for name, tt := range map[string]struct {
		err  error
		want win.Errno
	}{
		"a path with a NUL":             {create(path+"\x00", "u", "p"), win.ErrorInvalidName},
		"a user with a NUL":             {create(path, "u\x00", "p"), win.ErrorInvalidName},
		"a domain with a NUL":           {create(path, "d\x00\\u", "p"), win.ErrorInvalidName},
		"a password with a NUL":         {create(path, "u", "hidden\x00"), win.ErrorInvalidPassword},
		"the removal of one with a NUL": {netUse{}.remove(t.Context(), path+"\x00"), win.ErrorInvalidName},
	} {
		wantErrno(t, name, tt.err, tt.want)
		if strings.Contains(fmt.Sprintf("%+v", tt.err), "hidden") {
			t.Errorf("%s: the error has the password", name)
		}
	}
	if underWine() { // whose functions do nothing, and whose list says so
		_, err := netUse{}.mappings(t.Context())
		wantErrno(t, "the list", err, win.ErrorNotSupported)
	}
}
