// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const kubelet = `C:\var\lib\kubelet`

func mustPolicy(t testing.TB, dirs ...string) *Policy {
	t.Helper()
	p, err := New(Options{KubeletPath: dirs[0], WorkingDirs: dirs[1:]})
	simtest.Must(t, err)
	return p
}

func TestParse(t *testing.T) {
	long := strings.Repeat("a", 255)
	for _, c := range []struct {
		path string
		want string // "" for InvalidArgument
	}{
		{kubelet, kubelet},
		{kubelet + `\`, kubelet},
		{kubelet + `\pods\x\mount`, kubelet + `\pods\x\mount`},
		{kubelet + `\pods\\x\\`, kubelet + `\pods\x`},
		{`C:\\var\lib\\kubelet\x`, kubelet + `\x`},
		{`c:\VAR\Lib\KUBELET\X y`, kubelet + `\X y`},
		{`\var\lib\kubelet\pods`, kubelet + `\pods`},
		{`D:\work\x`, `D:\work\x`},
		{kubelet + `\a..b`, kubelet + `\a..b`},
		{kubelet + `\.hidden`, kubelet + `\.hidden`},
		{kubelet + `\...x`, kubelet + `\...x`},
		{kubelet + `\kubernetes.io~csi\Käse`, kubelet + `\kubernetes.io~csi\Käse`},
		{kubelet + `\COM\COM10\LPT0\CONSOLE\NULL`, kubelet + `\COM\COM10\LPT0\CONSOLE\NULL`},
		{kubelet + `\` + long, kubelet + `\` + long},

		// Outside of the allowed directories.
		{`C:\var\lib\kubelet-evil\x`, ""},
		{`C:\var\lib`, ""},
		{`C:\`, ""},
		{`D:\var\lib\kubelet\x`, ""},
		{`\Windows`, ""},
		{"C:\\var\\lib\\\u212Aubelet\\x", ""}, // the Kelvin sign is no k to NTFS
		{"C:\\var\\l\u0131b\\kubelet\\x", ""}, // nor the dotless i an i

		// Not absolute, or not a drive's.
		{"", ""},
		{`x`, ""},
		{`C:`, ""},
		{`C:x`, ""},
		{`C:var\lib\kubelet\x`, ""},
		{`1:\var\lib\kubelet`, ""},
		{`\\server\share`, ""},
		{`\\var\lib\kubelet\x`, ""},
		{`//server/share`, ""},
		{`\\?\C:\var\lib\kubelet\x`, ""},
		{`\\.\C:\var\lib\kubelet\x`, ""},
		{`\??\C:\var\lib\kubelet\x`, ""},
		{`\\?\Volume{00000000-0000-0000-0000-000000000000}\`, ""},

		// Elements and characters.
		{kubelet + `\.`, ""},
		{kubelet + `\..`, ""},
		{kubelet + `\x\..\y`, ""},
		{kubelet + `\x/y`, ""},
		{kubelet + `/x`, ""},
		{kubelet + `\x:stream`, ""},
		{kubelet + `:stream`, ""},
		{kubelet + `\x.`, ""},
		{kubelet + `\x \y`, ""},
		{kubelet + `\x"y`, ""},
		{kubelet + `\x<y`, ""},
		{kubelet + `\x>y`, ""},
		{kubelet + `\x|y`, ""},
		{kubelet + `\x?y`, ""},
		{kubelet + `\x*y`, ""},
		{kubelet + "\\x\x00y", ""},
		{kubelet + "\\x\ny", ""},
		{kubelet + "\\x\u0085y", ""},
		{kubelet + "\\x\xffy", ""},
		{kubelet + `\` + long + "a", ""},

		// Devices.
		{kubelet + `\CON`, ""},
		{kubelet + `\nul\x`, ""},
		{kubelet + `\Aux.txt`, ""},
		{kubelet + `\NUL .txt`, ""},
		{kubelet + `\COM1`, ""},
		{kubelet + `\lpt9.log`, ""},
		{kubelet + `\COM¹`, ""},
		{kubelet + `\LPT³.x`, ""},
		{kubelet + `\CONIN$`, ""},
		{kubelet + `\conout$`, ""},
	} {
		p := mustPolicy(t, kubelet, `d:\work\`)
		got, err := p.Parse(c.path, MaxLongPath)
		switch {
		case c.want == "" && !errors.Is(err, csiproxy.ErrInvalidArgument):
			t.Errorf("Parse(%q) = %q, %v, want an invalid argument", c.path, got, err)
		case c.want != "" && (err != nil || got.String() != c.want):
			t.Errorf("Parse(%q) = %q, %v, want %q", c.path, got, err, c.want)
		}
	}
}

// A colon is right behind the drive letter, so the error doesn't say only that it isn't allowed.
func TestParseSaysWhereAColonMayBe(t *testing.T) {
	_, err := mustPolicy(t, kubelet).Parse(kubelet+`\a:b`, MaxPath)
	if err == nil || !strings.Contains(err.Error(), "behind the drive letter only") {
		t.Error(err)
	}
}

func TestParseLength(t *testing.T) {
	p := mustPolicy(t, kubelet)
	path := func(units int) string { return kubelet + `\` + strings.Repeat(`\`, units-len(kubelet)-4) + "a𐐀" }
	if _, err := p.Parse(path(MaxPath), MaxPath); err != nil {
		t.Errorf("%d units: %v", MaxPath, err)
	}
	if _, err := p.Parse(path(MaxPath+1), MaxPath); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Errorf("%d units: %v", MaxPath+1, err)
	}
	if _, err := p.Parse(path(MaxPath+1), MaxLongPath); err != nil {
		t.Errorf("%d units of a long path: %v", MaxPath+1, err)
	}
	most := kubelet + strings.Repeat(`\\a`, maxDirectories-3) // var, lib and kubelet are three
	if _, err := p.Parse(most, MaxLongPath); err != nil {
		t.Errorf("%d elements: %v", maxDirectories, err)
	}
	if _, err := p.Parse(most+`\a`, MaxLongPath); !errors.Is(err, csiproxy.ErrInvalidArgument) {
		t.Errorf("%d elements: %v", maxDirectories+1, err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, dir := range []string{"", `\var\lib\kubelet`, `var`, `\\server\share`, `C:\a\..`, `C:/var/lib/kubelet`, `[:\a`} {
		if _, err := New(Options{KubeletPath: kubelet, WorkingDirs: []string{dir}}); !errors.Is(err, csiproxy.ErrInvalidArgument) {
			t.Errorf("New with %q: %v", dir, err)
		}
	}
}

// What lies in another allowed directory is reached from the outer one.
func TestNestedDirectories(t *testing.T) {
	for _, p := range []*Policy{
		mustPolicy(t, `C:\csi\kubelet`, `C:\csi`),
		mustPolicy(t, `C:\csi`, `C:\csi\kubelet`, `C:\CSI`),
	} {
		if len(p.roots) != 1 || p.roots[0].String() != `C:\csi` {
			t.Errorf("roots %v", p.roots)
		}
		path, err := p.Parse(`C:\csi\kubelet`, MaxPath)
		if err != nil || !p.holdsAllowed(path) {
			t.Errorf("%v %v isn't known as an allowed directory", path, err)
		}
		path, err = p.Parse(`C:\csi\other`, MaxPath)
		if err != nil || p.holdsAllowed(path) {
			t.Errorf("%v %v is taken for an allowed directory", path, err)
		}
	}
	p := mustPolicy(t, `C:\`)
	path, err := p.Parse(`C:\x`, MaxPath)
	if err != nil || path.String() != `C:\x` || p.holdsAllowed(path) {
		t.Errorf("below a drive: %v, %v", path, err)
	}
}

func TestPathEqual(t *testing.T) {
	p := mustPolicy(t, kubelet, `Z:\work`, `a:\work`)
	parse := func(s string) Path {
		path, err := p.Parse(s, MaxPath)
		simtest.Must(t, err)
		return path
	}
	a := parse(kubelet + `\a\ä`)
	inVolume := Path{volume: `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`, names: []string{"a"}}
	for _, c := range []struct {
		a, b Path
		want bool
	}{
		{a, parse(`\VAR\lib\\kubelet\A\Ä\`), true},
		{a, parse(kubelet + `\a`), false},
		{a, parse(kubelet + `\a\ä\b`), false},
		{a, parse(kubelet + `\a\b`), false},
		{inVolume, Path{volume: strings.ToUpper(inVolume.volume), names: []string{"A"}}, true},
		{inVolume, parse(kubelet + `\a`), false},
		{parse(kubelet + `\a`), inVolume, false},
		{inVolume, Path{volume: strings.Replace(inVolume.volume, "0", "1", 1), names: []string{"a"}}, false},
		{parse(kubelet + `\a`), parse(`z:\work\a`), false},
	} {
		simtest.Want(t, fmt.Sprintf("%v equals %v", c.a, c.b), c.a.Equal(c.b), c.want)
	}
	simtest.Want(t, "path in a volume", inVolume.String(), `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\a`)
}

func TestIsOfKubelet(t *testing.T) {
	p := mustPolicy(t, kubelet, `D:\work`)
	for path, want := range map[string]bool{
		kubelet + `\plugins\x`: true, kubelet + `\PODS\x\mount`: true, kubelet + `\pods`: false, kubelet: false,
		kubelet + `\other\x`: false, kubelet + `\other\pods\x`: false, `D:\work\pods\x`: false,
		`D:\work\lib\kubelet\pods\x`: false,
	} {
		parsed, err := p.Parse(path, MaxPath)
		simtest.Must(t, err)
		simtest.Want(t, path+" is kubelet's", p.IsOfKubelet(parsed), want)
	}
}

func TestPathsOfCSIVolumes(t *testing.T) {
	const (
		staged    = kubelet + `\plugins\kubernetes.io\csi\d.example\hash`
		published = kubelet + `\pods\uid\volumes\kubernetes.io~csi\pv-1`
	)
	p := mustPolicy(t, kubelet, `D:\work`)
	for path, want := range map[string][2]string{
		staged + `\globalmount`: {"d.example"}, staged + `\GlobalMount`: {"d.example"}, staged + `\globalmount\a\b`: {"d.example"},
		kubelet + `\plugins\kubernetes.io\other\d\h\globalmount`: {}, staged: {}, staged + `\other`: {}, staged + `\a\globalmount`: {},
		kubelet + `\plugins\d.example\csi\d\h\globalmount`: {}, `D:\work\plugins\kubernetes.io\csi\d\h\globalmount`: {},
		published + `\mount`: {"", "uid pv-1"}, published: {}, published + `\mount\a`: {},
	} {
		parsed, err := p.Parse(path, MaxPath)
		simtest.Must(t, err)
		staging, driver := p.StagingPathOf(parsed)
		pod, volume := p.PublishedAt(parsed)
		simtest.Want(t, path, [2]string{driver, strings.TrimSpace(pod + " " + volume)}, want)
		if driver != "" {
			simtest.Want(t, path, strings.ToLower(staging), strings.ToLower(staged+`\globalmount`))
		}
	}
	pod, volume := p.PublishedAt(Path{})
	_, driver := p.StagingPathOf(Path{})
	simtest.Want(t, "of no path", pod+volume+driver, "")
}

// A search for links that ends early says why: the first reason counts, and what has gone
// meanwhile is none.
func TestLinkSearchSaysWhatIsMissing(t *testing.T) {
	s := &linkSearch{policy: Default(), remainingEntries: 1}
	s.note(nil)
	s.note(missingError{winerr.ErrorFileNotFound})
	if !s.mayGoOn() || s.incomplete != nil {
		t.Errorf("the last entry isn't taken: %v", s.incomplete)
	}
	if s.mayGoOn() || !errors.Is(s.incomplete, csiproxy.ErrResourceExhausted) {
		t.Errorf("one entry more may be looked at: %v", s.incomplete)
	}
	if s.note(winerr.ErrorAccessDenied); !errors.Is(s.incomplete, csiproxy.ErrResourceExhausted) {
		t.Errorf("a later reason takes the place of the first: %v", s.incomplete)
	}
}

// good is what every accepted path looks like, said another way.
var good = regexp.MustCompile(`^C:\\var\\lib\\kubelet(\\[^\x00-\x1f\x7f-\x9f/\\:*?"<>|]*[^\x00-\x1f\x7f-\x9f/\\:*?"<>|. ])*$`)

func FuzzParse(f *testing.F) {
	for _, s := range []string{kubelet, `c:\var\\LIB\kubelet\a..b\`, `\var\lib\kubelet\x`, kubelet + `\..\x`, `\\?\` + kubelet} {
		f.Add(s)
	}
	p := mustPolicy(f, kubelet)
	f.Fuzz(func(t *testing.T, s string) {
		path, err := p.Parse(s, MaxPath)
		if err != nil {
			if !errors.Is(err, csiproxy.ErrInvalidArgument) {
				t.Fatalf("Parse(%q): %v", s, err)
			}
			return
		}
		if !good.MatchString(path.String()) {
			t.Fatalf("Parse(%q) = %q", s, path)
		}
		again, err := p.Parse(path.String(), MaxPath+len(kubelet))
		if err != nil || !again.Equal(path) || again.String() != path.String() {
			t.Fatalf("Parse(%q) = %q, and again %q, %v", s, path, again, err)
		}
	})
}

// A link below the kubelet directory leads inside or nowhere, whatever it says.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{`..\x`, `\var\lib\kubelet\x`, `..\..\..\..\Windows`, `.`, `C:\var\lib\kubelet\x`, `\\server\share`} {
		f.Add(s, true)
		f.Add(s, false)
	}
	p := mustPolicy(f, kubelet)
	dir, err := p.Parse(kubelet+`\a\b`, MaxPath)
	simtest.Must(f, err)
	const volume = `\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\`
	f.Fuzz(func(t *testing.T, target string, relative bool) {
		r := win.ReparsePoint{Tag: win.TagSymlink, SubstituteName: target, Relative: relative}
		if path, ok := p.target(dir, r); ok && !good.MatchString(path.String()) {
			t.Fatalf("a link to %q leads to %q", target, path)
		}
		in := Path{volume: volume, names: []string{"a", "b"}}
		if path, ok := p.target(in, r); ok && relative && (path.volume != volume || !good.MatchString(kubelet+strings.TrimSuffix(`\`+strings.Join(path.names, `\`), `\`))) {
			t.Fatalf("a link in a volume to %q leads to %q", target, path)
		}
	})
}

func TestPrintable(t *testing.T) {
	for path, want := range map[string]string{
		`C:\Käse \x`:                   `C:\Käse \x`,
		"C:\\a\nb":                     `"C:\\a\nb"`,
		"C:\\a\xff":                    `"C:\\a\xff"`,
		strings.Repeat("x", 1<<20):     strings.Repeat("x", 520) + "…",
		"x" + strings.Repeat("ä", 500): "x" + strings.Repeat("ä", 259) + "…",
	} {
		if got := quote.Text(path); got != want {
			t.Errorf("quote.Text(%.20q…) = %s, want %s", path, got, want)
		}
	}
}
