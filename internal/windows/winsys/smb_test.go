// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsys

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

// mapping is an object as the provider has it.
func mapping(path, remotePath string, status win.SMBMappingStatus) properties {
	return properties{"__PATH": path, "LocalPath": "", "RemotePath": remotePath, "RequirePrivacy": nil, "Status": uint32(status)}
}

func TestListSMBMappings(t *testing.T) {
	p := &provider{objects: []properties{
		mapping("1", `\\server\share`, win.SMBMappingOK),
		mapping("2", `\\SERVER\Other`, win.SMBMappingDisconnected),
		{"__PATH": "3", "LocalPath": "Z:", "RemotePath": `\\server\share\dir`, "RequirePrivacy": true, "Status": uint32(0)},
		{"__PATH": "4", "LocalPath": "", "RemotePath": `\\server\third`, "RequirePrivacy": true, "Status": nil},
	}}
	want := []win.SMBMapping{
		{RemotePath: `\\server\share`, Status: win.SMBMappingOK},
		{RemotePath: `\\SERVER\Other`, Status: win.SMBMappingDisconnected},
		{LocalPath: "Z:", RemotePath: `\\server\share\dir`, RequirePrivacy: true},
		{RemotePath: `\\server\third`, RequirePrivacy: true, Status: win.SMBMappingUnknown},
	}
	got, err := listSMBMappings(t.Context(), p)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v; mappings (-want +got):\n%s", err, diff)
	}

	for _, missing := range []string{"LocalPath", "RemotePath", "RequirePrivacy", "Status"} {
		p.objects = []properties{mapping("1", `\\server\share`, win.SMBMappingOK), mapping("2", `\\server\other`, win.SMBMappingOK)}
		delete(p.objects[1], missing)
		if got, err := listSMBMappings(t.Context(), p); err != winerr.ErrorNotFound || got != nil {
			t.Errorf("an object without %s: %v, %v", missing, got, err)
		}
	}
}

func TestCreateSMBMapping(t *testing.T) {
	const path = `\\server\share`
	for name, tt := range map[string]struct {
		o          win.SMBMappingOptions
		privacy    bool
		credential string // as the provider gets it; empty for none
	}{
		"a user":           {win.SMBMappingOptions{Username: "user", Password: csiproxy.NewSecret("p")}, false, "user:p"},
		"a user of domain": {win.SMBMappingOptions{Username: `D\user`, Password: csiproxy.NewSecret("p")}, false, `D\\user:p`},
		"a principal": {win.SMBMappingOptions{Username: "u@d.example", Password: csiproxy.NewSecret("p")}, false,
			"u@d.example:p"},
		"a colon in a user": {win.SMBMappingOptions{Username: `D\u:r`, Password: csiproxy.NewSecret("p")}, false, `D\\u\:r:p`},
		"odd passwords": {win.SMBMappingOptions{Username: "user", Password: csiproxy.NewSecret(`a\b:c\\"'é💾`)},
			false, `user:a\b:c\\"'é💾`},
		"an empty password": {win.SMBMappingOptions{Username: "user"}, false, "user:"},
		"privacy":           {win.SMBMappingOptions{Username: "u", RequirePrivacy: true}, true, "u:"},
		"nobody":            {win.SMBMappingOptions{Password: csiproxy.NewSecret("p")}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := new(provider)
			must(t, createSMBMapping(p, path, tt.o))
			want := []string{fmt.Sprintf("%s %[1]s.Create map[RemotePath:%s RequirePrivacy:%t]", smbClass, path, tt.privacy)}
			if diff := cmp.Diff(want, p.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if got := strings.Join(p.seen, "|"); got != tt.credential {
				t.Errorf("credential %q; want %q", got, tt.credential)
			}
			for _, s := range p.secrets {
				if want := 2*len(tt.o.Username) + 1 + len(tt.o.Password.Reveal()); cap(s) != want {
					t.Errorf("the credential has outgrown its buffer of %d characters", want)
				}
				if all := s[:cap(s)]; strings.Trim(string(utf16.Decode(all)), "\x00") != "" {
					t.Error("the credential isn't erased")
				}
			}
		})
	}
}

func TestCreateSMBMappingRefuses(t *testing.T) {
	for name, o := range map[string]win.SMBMappingOptions{
		"a NUL in a user":         {Username: "u\x00:other", Password: csiproxy.NewSecret("hidden")},
		"a NUL in a password":     {Username: "u", Password: csiproxy.NewSecret("hidden\x00")},
		"a user that isn't text":  {Username: "u\xff", Password: csiproxy.NewSecret("hidden")},
		"a password that isn't":   {Username: "u", Password: csiproxy.NewSecret("hidden\xff")},
		"half of a pair, in UTF8": {Username: "u", Password: csiproxy.NewSecret("hidden\xed\xa0\x80")},
	} {
		p := new(provider)
		err := createSMBMapping(p, `\\server\share`, o)
		if !errors.Is(err, winerr.ErrorInvalidParameter) || p.calls != nil {
			t.Errorf("%s: error %v, calls %q", name, err, p.calls)
		}
		if strings.Contains(fmt.Sprintf("%+v %#v", err, err), "hidden") {
			t.Errorf("%s: the error has the password", name)
		}
	}
}

// Whatever a name says, the query is the same, and the object with that name is removed, by the path
// that the object gives.
func TestRemoveSMBMapping(t *testing.T) {
	const hostile = `\\server\share" OR RemotePath LIKE '%`
	objects := []properties{
		mapping(`\\N\root:M.LocalPath="",RemotePath="a"`, `\\server\share`, win.SMBMappingOK),
		mapping(`\\N\root:M.LocalPath="",RemotePath="b"`, `\\SERVER\Other`, win.SMBMappingNetworkError),
		mapping(`\\N\root:M.LocalPath="",RemotePath="c"`, `\\server\share2`, win.SMBMappingOK),
		mapping(`\\N\root:M.LocalPath="G:",RemotePath="b"`, `\\server\other`, win.SMBMappingOK),
		mapping(`\\N\root:M.LocalPath="",RemotePath="d"`, `\\server\share\dir`, win.SMBMappingOK),
	}
	objects[3]["LocalPath"] = "G:"
	for name, want := range map[string][]string{
		`\\server\share`:            {objects[0]["__PATH"].(string)},
		`\\Server\OTHER`:            {objects[1]["__PATH"].(string)},
		`g:`:                        {objects[3]["__PATH"].(string)},
		`\\server\share\DIR`:        {objects[4]["__PATH"].(string)},
		`\\server\shar`:             nil,
		`\\server\share' OR '1'='1`: nil,
		hostile:                     nil,
		`*`:                         nil,
		``:                          nil,
	} {
		p := &provider{objects: objects}
		err := removeSMBMapping(t.Context(), p, name)
		if wanted := error(winerr.ErrorNotConnected); want == nil && err != wanted || want != nil && err != nil {
			t.Errorf("%s: error %v", name, err)
		}
		if diff := cmp.Diff([]string{"SELECT * FROM MSFT_SmbGlobalMapping"}, p.queries); diff != "" {
			t.Errorf("%s: queries (-want +got):\n%s", name, diff)
		}
		var calls []string
		for _, path := range want {
			calls = append(calls, path+" MSFT_SmbGlobalMapping.Remove map[Force:true]")
		}
		if diff := cmp.Diff(calls, p.calls); diff != "" {
			t.Errorf("%s: calls (-want +got):\n%s", name, diff)
		}
	}
}

func TestRemoveSMBMappingWithoutPath(t *testing.T) {
	p := &provider{objects: []properties{mapping("", `\\server\share`, win.SMBMappingOK)}}
	if err := removeSMBMapping(t.Context(), p, `\\server\share`); !errors.Is(err, winerr.ErrorGenFailure) || p.calls != nil {
		t.Errorf("error %v, calls %q", err, p.calls)
	}
}

func TestSMBErrors(t *testing.T) {
	const path = `\\server\share`
	o := win.SMBMappingOptions{Username: "user", Password: csiproxy.NewSecret("hidden")}
	operations := map[string]func(p *provider) error{
		"Create": func(p *provider) error { return createSMBMapping(p, path, o) },
		"Remove": func(p *provider) error { return removeSMBMapping(t.Context(), p, path) },
		smbQuery: func(p *provider) error { _, err := listSMBMappings(t.Context(), p); return err },
	}
	for name, operation := range operations {
		p := &provider{objects: []properties{mapping("1", path, win.SMBMappingOK)},
			failing: map[string]error{name: winerr.ErrorBadNetPath}}
		if err := operation(p); err != winerr.ErrorBadNetPath {
			t.Errorf("%s: error %v; want that of the call", name, err)
		}
		for _, s := range p.secrets {
			if strings.Trim(string(utf16.Decode(s)), "\x00") != "" {
				t.Errorf("%s: the credential isn't erased after an error", name)
			}
		}
		if name == smbQuery {
			continue
		}
		for result, want := range map[uint32]winerr.Errno{
			1219: winerr.ErrorSessionCredentialConflict, 0x80070043: winerr.ErrorBadNetName, 0x80041003: winerr.ErrorAccessDenied,
		} {
			err := operation(&provider{objects: p.objects, result: result})
			if !errors.Is(err, want) {
				t.Errorf("%s with result %#x: error %v; want %v", name, result, err, want)
			}
			if strings.Contains(fmt.Sprintf("%+v", err), "hidden") {
				t.Errorf("%s: the error has the password", name)
			}
		}
	}
}

func TestListSMBConnections(t *testing.T) {
	p := &provider{objects: []properties{{
		"ServerName": "server", "ShareName": "share", "UserName": `NT AUTHORITY\SYSTEM`, "Credential": `DOMAIN\user`, "NumOpens": uint64(3),
	}}}
	got, err := listSMBConnections(t.Context(), p)
	want := []win.SMBConnection{{Server: "server", Share: "share", UserName: `NT AUTHORITY\SYSTEM`, Credential: `DOMAIN\user`, Opens: 3}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if !slices.Equal(p.queries, []string{"SELECT * FROM MSFT_SmbConnection"}) {
		t.Errorf("queries %q", p.queries)
	}
	p.objects[0]["NumOpens"] = nil
	if got, err := listSMBConnections(t.Context(), p); err != nil || len(got) != 1 || got[0].Opens != 0 {
		t.Errorf("with NULL for the open files: %v, %v", got, err)
	}
	p.objects[0]["NumOpens"] = "3"
	if got, err := listSMBConnections(t.Context(), p); err == nil || got != nil {
		t.Errorf("of a property of another type: %v, %v", got, err)
	}
}
