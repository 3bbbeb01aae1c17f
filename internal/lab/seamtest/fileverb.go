// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winid"
)

// rights, sharing, dispositions and options are the words of an open. The seam has these
// and no others.
var (
	rights = map[string]win.Access{
		"r": win.FileListDirectory, "w": win.FileAddFile, "a": win.FileAddSubdirectory, "x": win.FileTraverse,
		"ra": win.FileReadAttributes,
		"wa": win.FileWriteAttributes, "del": win.Delete, "gr": win.GenericRead, "gw": win.GenericWrite,
		"rc": win.ReadControl, "dac": win.WriteDAC,
	}
	sharings     = map[string]win.Share{"+r": win.ShareRead, "+w": win.ShareWrite, "+d": win.ShareDelete, "+none": 0}
	dispositions = map[string]win.Disposition{"create": win.FileCreate, "openif": win.FileOpenIf}
	openOptions  = map[string]win.CreateOptions{
		"dir": win.FileDirectoryFile, "nondir": win.FileNonDirectoryFile, "link": openLink, "backup": win.FileOpenForBackup,
		"onclose": win.FileDeleteOnClose, "nofollow": win.FileOpenReparsePoint,
	}
)

// openWords reads the words of an open. Without rights it is for reading attributes,
// without sharing it shares all.
func openWords(t *testing.T, words []string) win.OpenOptions {
	t.Helper()
	o := win.OpenOptions{Disposition: win.FileOpen}
	shared := false
	for _, word := range words {
		right, isRight := rights[word]
		share, isShare := sharings[word]
		disposition, isDisposition := dispositions[word]
		option, isOption := openOptions[word]
		switch {
		case isRight:
			o.Access |= right
		case isShare:
			o.Share, shared = o.Share|share, true
		case isDisposition:
			o.Disposition = disposition
		case isOption:
			o.Options |= option
		case word == "private":
			o.Private = true
		default:
			t.Fatalf("an open has no word %q", word)
		}
	}
	if o.Access == 0 {
		o.Access = win.FileReadAttributes
	}
	if !shared {
		o.Share = shareAll
	}
	return o
}

func runMake(t *testing.T, r *oracleRun, s OracleStep) error {
	for _, name := range s.Args {
		r.f.make(t, r.path(t, name))
	}
	return nil
}

func reparsePoint(t *testing.T, r *oracleRun, kind, target string) win.ReparsePoint {
	t.Helper()
	switch kind {
	case "symlink":
		return win.NewSymlink(r.path(t, target))
	case "junction":
		return win.NewJunction(r.path(t, target))
	}
	t.Fatalf("there is no kind of link %q", kind)
	return win.ReparsePoint{}
}

func runLink(t *testing.T, r *oracleRun, s OracleStep) error {
	o := creating(win.FileCreate, win.FileDirectoryFile|openLink)
	o.Access |= win.FileWriteAttributes
	h, err := r.f.System.OpenFile(t.Context(), r.path(t, s.Args[0]), o)
	if err != nil {
		return err
	}
	defer closing(t, h)
	_, err = h.Control(t.Context(), win.FsctlSetReparsePoint, reparsePoint(t, r, s.Args[1], s.Args[2]).Encode(), nil)
	return err
}

func runReadOnly(t *testing.T, r *oracleRun, s OracleStep) error {
	path := r.path(t, s.Args[0])
	r.f.SetReadOnly(t, path, true)
	t.Cleanup(func() { r.f.SetReadOnly(t, path, false) })
	return nil
}

func runWrite(t *testing.T, r *oracleRun, s OracleStep) error {
	r.f.WriteFile(t, r.path(t, s.Args[0]), s.Args[1])
	return nil
}

// runBegins reads so many bytes from the beginning of an open file, and compares them.
func runBegins(t *testing.T, r *oracleRun, s OracleStep) error {
	p := make([]byte, number(t, s.Args[1]))
	n, err := r.file(t, s.Args[0]).Read(t.Context(), p)
	if err == nil && string(p[:n]) != s.Args[2] {
		t.Errorf("%s: it begins with %q", s, p[:n])
	}
	return err
}

func runClose(t *testing.T, r *oracleRun, s OracleStep) error {
	h, ok := r.handles[s.Args[0]].(interface{ Close() error })
	if !ok {
		t.Fatalf("there is no handle %q", s.Args[0])
	}
	return h.Close()
}

func runOpen(t *testing.T, r *oracleRun, s OracleStep) error {
	h, err := r.f.System.OpenFile(t.Context(), r.path(t, s.Args[0]), openWords(t, s.Args[1:]))
	return r.keep(t, s, h, err)
}

func runAt(t *testing.T, r *oracleRun, s OracleStep) error {
	h, err := r.file(t, s.Args[0]).OpenAt(t.Context(), s.Args[1], openWords(t, s.Args[2:]))
	return r.keep(t, s, h, err)
}

// runAttr asks for the attributes, with "plain" without links on the way, and compares what they say, as runIs does, if a second argument
// says so.
func runAttr(t *testing.T, r *oracleRun, s OracleStep) error {
	ask := r.f.System.FileAttributes
	if s.Verb == "plain" {
		ask = r.f.System.AttributesWithoutLinks
	}
	attributes, err := ask(t.Context(), r.path(t, s.Args[0]))
	if err == nil && len(s.Args) > 1 {
		wantKind(t, s, win.FileInfo{Attributes: attributes}, s.Args[1])
	}
	return err
}

// wantKind compares what a file is: file or dir, then -symlink, -junction or -other, or -link if there
// is no tag to tell these apart, and then -read-only.
func wantKind(t *testing.T, s OracleStep, info win.FileInfo, want string) {
	t.Helper()
	is := "file"
	if info.IsDir() {
		is = "dir"
	}
	switch {
	case !info.IsReparsePoint() && info.ReparseTag != 0:
		is = fmt.Sprintf("%+v", info)
	case info.ReparseTag == win.TagSymlink:
		is += "-symlink"
	case info.ReparseTag == win.TagMountPoint:
		is += "-junction"
	case info.ReparseTag != 0:
		is += "-other"
	case info.IsReparsePoint():
		is += "-link"
	}
	if info.Attributes&win.AttributeReadOnly != 0 {
		is += "-read-only"
	}
	if is != want {
		t.Errorf("%s: it is a %s", s, is)
	}
}

func runIs(t *testing.T, r *oracleRun, s OracleStep) error {
	info, err := r.file(t, s.Args[0]).Info(t.Context())
	if err == nil {
		wantKind(t, s, info, s.Args[1])
	}
	return err
}

func runList(t *testing.T, r *oracleRun, s OracleStep) error {
	_, err := r.file(t, s.Args[0]).ReadDir(t.Context(), true)
	return err
}

// runListed looks for a name, and compares what it is if a third argument says so.
func runListed(t *testing.T, r *oracleRun, s OracleStep) error {
	entries := list(t, r.file(t, s.Args[0]), true)
	i := slices.IndexFunc(entries, func(e win.DirEntry) bool { return e.Name == s.Args[1] })
	if listed := i >= 0; listed != (s.Verb == "listed") {
		t.Errorf("%s: it is listed: %t", s, listed)
	} else if listed && len(s.Args) > 2 {
		wantKind(t, s, entries[i].FileInfo, s.Args[2])
	}
	return nil
}

func runDelete(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.file(t, s.Args[0]).Delete(t.Context())
}

// runGetReparse gets a reparse point, in a buffer of as many bytes as a second argument says. With two
// more, a kind and a target, it compares them.
func runGetReparse(t *testing.T, r *oracleRun, s OracleStep) error {
	room := win.MaximumReparseDataSize
	if len(s.Args) == 2 {
		room = number(t, s.Args[1])
	}
	out := make([]byte, room)
	n, err := r.file(t, s.Args[0]).Control(t.Context(), win.FsctlGetReparsePoint, nil, out)
	if err == nil && len(s.Args) > 2 {
		want := reparsePoint(t, r, s.Args[1], s.Args[2])
		if got, err := win.DecodeReparsePoint(out[:n]); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", s, got, err, want)
		}
	}
	return err
}

// Reparse tags that no driver has. Bit 28 says that a directory may have entries, bit 31
// that the tag is Microsoft's.
var strangeTags = map[string]uint32{"tag-0": 0, "tag-1": 1, "microsoft": 0x8000F00D, "other-microsoft": 0x8000F00E,
	"no-guid": 0x0000F00D}

// reparseBytes makes a REPARSE_DATA_BUFFER of the arguments of a step.
func reparseBytes(t *testing.T, r *oracleRun, args []string, data bool) []byte {
	t.Helper()
	if tag, ok := strangeTags[args[0]]; ok {
		b := binary.LittleEndian.AppendUint32(nil, tag)
		if !data {
			return append(b, 0, 0, 0, 0)
		}
		return append(b, 4, 0, 0, 0, 'd', 'a', 't', 'a')
	}
	if args[0] == "bytes" {
		return make([]byte, number(t, args[1]))
	}
	target := "."
	if len(args) > 1 {
		target = args[1]
	}
	b := reparsePoint(t, r, args[0], target).Encode()
	switch {
	case !data:
		return append(b[:4:4], 0, 0, 0, 0)
	case slices.Contains(args, "longer"):
		return append(b, 0, 0)
	}
	return b
}

func runSetReparse(t *testing.T, r *oracleRun, s OracleStep) error {
	_, err := r.file(t, s.Args[0]).Control(t.Context(), win.FsctlSetReparsePoint, reparseBytes(t, r, s.Args[1:], true),
		nil)
	return err
}

func runDeleteReparse(t *testing.T, r *oracleRun, s OracleStep) error {
	_, err := r.file(t, s.Args[0]).Control(t.Context(), win.FsctlDeleteReparsePoint, reparseBytes(t, r, s.Args[1:], false),
		nil)
	return err
}

// runFinal asks for the path of what is open, and compares it with that of a second handle if there is one.
func runFinal(t *testing.T, r *oracleRun, s OracleStep) error {
	path, err := r.file(t, s.Args[0]).FinalPath(t.Context())
	if err == nil && len(s.Args) > 1 {
		if want, err := r.file(t, s.Args[1]).FinalPath(t.Context()); err != nil || path != want {
			t.Errorf("%s: %s, and %s, %v", s, path, want, err)
		}
	}
	return err
}

// runVolume compares the volume that a file is on.
func runVolume(t *testing.T, r *oracleRun, s OracleStep) error {
	got, err := r.file(t, s.Args[0]).Volume(t.Context())
	if err == nil && !strings.EqualFold(got, r.path(t, s.Args[1])) {
		t.Errorf("%s: it is on %s", s, got)
	}
	return err
}

func runDeny(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.file(t, s.Args[0]).DenyCreation(t.Context(), s.Verb == "deny")
}

func runDenied(t *testing.T, r *oracleRun, s OracleStep) error {
	denied, err := r.file(t, s.Args[0]).CreationDenied(t.Context())
	if err == nil && denied != (s.Verb == "denied") {
		t.Errorf("%s: denied %t", s, denied)
	}
	return err
}

// granted is the entry that "grant" adds, as a directory below inherits it, and as a file does.
var granted = map[string]win.ACE{
	"itself":    {Flags: win.ObjectInherit | win.ContainerInherit, Rights: win.FileModify, SID: winid.SIDUsers},
	"directory": {Flags: win.ObjectInherit | win.ContainerInherit | win.InheritedACE, Rights: win.FileModify, SID: winid.SIDUsers},
	"file":      {Flags: win.InheritedACE, Rights: win.FileModify, SID: winid.SIDUsers},
}

func runGrant(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.file(t, s.Args[0]).AddAccess(t.Context(), []win.ACE{granted["itself"]})
}

// runGranted looks how often a list has an entry: once, or not at all if the second argument is "nothing".
func runGranted(t *testing.T, r *oracleRun, s OracleStep) error {
	list, err := r.file(t, s.Args[0]).AccessList(t.Context())
	if err != nil {
		return err
	}
	want, count := 1, 0
	if s.Args[1] == "nothing" {
		want = 0
	}
	for _, e := range list {
		if entry, ok := granted[s.Args[1]]; ok && e == entry || !ok && e.Rights == win.FileModify && e.SID == winid.SIDUsers {
			count++
		}
	}
	if count != want {
		t.Errorf("%s: %d such entries in %+v", s, count, list)
	}
	return nil
}

func runPrivate(t *testing.T, r *oracleRun, s OracleStep) error {
	private, err := r.file(t, s.Args[0]).Private(t.Context())
	if err == nil && !private {
		t.Errorf("%s: it isn't", s)
	}
	return err
}

// runLock locks the byte at the offset that the second argument is.
func runLock(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.file(t, s.Args[0]).LockByte(t.Context(), int64(number(t, s.Args[1])))
}
