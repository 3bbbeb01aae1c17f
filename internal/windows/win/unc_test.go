// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package win_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

func TestParse(t *testing.T) {
	for path, want := range map[string]struct{ path, root string }{
		`\\server\share`:                       {`\\server\share`, `\\server\share`},
		`\\Server.Example.COM\Share`:           {`\\server.example.com\Share`, `\\server.example.com\share`},
		`//10.0.0.1/share/`:                    {`\\10.0.0.1\share`, `\\10.0.0.1\share`},
		`\\server/share\\Sub//dir\\`:           {`\\server\share\Sub\dir`, `\\server\share`},
		`\\fe80--1s4.ipv6-literal.net\share`:   {`\\fe80--1s4.ipv6-literal.net\share`, `\\fe80--1s4.ipv6-literal.net\share`},
		`\\MY_SERVER\C$\pvc 1`:                 {`\\my_server\C$\pvc 1`, `\\my_server\c$`},
		`\\server\Überlauf\a..b`:               {`\\server\Überlauf\a..b`, `\\server\überlauf`},
		`\\server\` + strings.Repeat("s", 80):  {`\\server\` + strings.Repeat("s", 80), `\\server\` + strings.Repeat("s", 80)},
		"\\\\server\\\u212aS\u0130":            {"\\\\server\\\u212aS\u0130", "\\\\server\\\u212as\u0130"},
		`\\server\share\x\.hidden\`:            {`\\server\share\x\.hidden`, `\\server\share`},
		`\\acct.file.core.windows.net\vol-1\d`: {`\\acct.file.core.windows.net\vol-1\d`, `\\acct.file.core.windows.net\vol-1`},
	} {
		p, err := win.ParseUNC(path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if p.String() != want.path || p.Root() != want.root {
			t.Errorf("%s is %s on %s, want %s on %s", path, p, p.Root(), want.path, want.root)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, path := range []string{
		"", `\`, `\\`, `\\\`, `\\server`, `\\server\`, `\server\share`, `server\share`, `C:\share`, `\\\server\share`,
		`\\?\UNC\server\share`, `\\.\pipe\x`, `\??\UNC\server\share`, `\\server@SSL\share`, `\\server@8080\share`,
		`\\ser ver\share`, `\\[fe80::1]\share`, `\\fe80::1\share`, `\\.server\share`, `\\server.\share`, `\\a..b\share`,
		"\\\\server\u212a\\share", `\\sérver\share`,
		`\\server\share\..\other`, `\\server\..\x`, `\\server\share\.`, `\\server\share\a:b`, `\\server\sh*`, `\\server\sh?re`,
		`\\server\sh"are`, `\\server\share|x`, `\\server\<share>`, "\\\\server\\sha\x00re", "\\\\server\\share\\\n", "\\\\server\\share\x7f",
		`\\server\IPC$`, `//server/pipe/lsass`, `\\server\Mailslot\x`,
		`\\server\share.`, `\\server\share \x`, "\\\\server\\\xff",
		`\\server\` + strings.Repeat("s", 81), `\\server\share\` + strings.Repeat("d", 256), `\\server\share` + strings.Repeat(`\d`, 130),
		`\\` + strings.Repeat("s", 256) + `\x`,
	} {
		if p, err := win.ParseUNC(path); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("%q is taken as %q with the error %v", path, p, err)
		}
	}
}

func TestSameUNC(t *testing.T) {
	parse := func(s string) win.UNCPath {
		p, err := win.ParseUNC(s)
		simtest.Must(t, err)
		return p
	}
	p := parse(`\\server\share\Sub`)
	for path, want := range map[string]bool{
		`\\SERVER\Share\sub\`:         true,
		`\\server\share`:              false,
		`\\server\share\su`:           false,
		`\\server2\share\Sub`:         false,
		`\\server\share2\Sub`:         false,
		"\\\\server\\\u017fhare\\Sub": false,
		"\\\\server\\share\\\u017fub": false,
	} {
		if p.Equal(parse(path)) != want {
			t.Errorf("%s equals %s: %v", p, path, !want)
		}
	}
	for path, want := range map[string]bool{
		`\\server\share`: false, `\\SERVER\share\sub`: true, `\\server\share\Sub\dir`: true, `\\server\share\Sub2`: false,
		`\\server\share2\Sub`: false,
	} {
		if parse(path).IsBelow(p) != want {
			t.Errorf("%s is below %s: %v", path, p, !want)
		}
	}
	for path, want := range map[string]bool{`\\s\C$`: true, `\\s\z$\dir`: true, `\\s\Admin$`: true, `\\s\c`: false, `\\s\data$`: false,
		`\\s\1$`: false} {
		if parse(path).IsAdministrative() != want {
			t.Errorf("%s is administrative: %v", path, !want)
		}
	}
	mappings := []win.SMBMapping{{RemotePath: `\\other\share`}, {RemotePath: `\\Server\SHARE`}, {RemotePath: ``}}
	if !p.MappedBy(mappings) || p.MappedBy(mappings[:1]) || p.MappedBy(nil) {
		t.Error("the mapping of its share isn't told from others")
	}
}

func FuzzParseUNC(f *testing.F) {
	for _, s := range []string{`\\server\share`, `//s/x/y/`, `\\?\C:\x`, `\\s\..\x`, "\\\\s\\\u212a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := win.ParseUNC(s)
		if err != nil {
			if !errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Fatalf("%q: %v", s, err)
			}
			return
		}
		again, err := win.ParseUNC(p.String())
		if err != nil || again.String() != p.String() || !again.Equal(p) {
			t.Fatalf("%q gives %q, which gives %q, %v", s, p, again, err)
		}
		if text := p.String(); !utf8.ValidString(text) || strings.ContainsAny(text, "/?*\"<>|:\x00") || strings.Contains(text, `\..\`) {
			t.Fatalf("%q is accepted as %q", s, text)
		}
		if root, err := win.ParseUNC(p.Root()); err != nil || root.Server() != p.Server() ||
			!strings.EqualFold(root.String(), p.Root()) {
			t.Fatalf("the root of %q, %q, isn't a share: %v", s, p.Root(), err)
		}
	})
}
