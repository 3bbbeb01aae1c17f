// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/win"
	"github.com/csi-proxy/csi-proxy/secret"
)

// verb is a kind of step.
type verb struct {
	method string // of the seam; "" if it only prepares
	args   int
	more   bool // more arguments may follow
	needs  []need
	run    func(t *testing.T, r *oracleRun, s OracleStep) error
}

var verbs map[string]verb

func init() { // the functions below look verbs up
	verbs = map[string]verb{
		// Preparation.
		"mk":       {args: 1, more: true, needs: []need{aDirectory}, run: runMake},
		"link":     {args: 3, needs: []need{aDirectory}, run: runLink},
		"readonly": {args: 1, needs: []need{aReadOnly}, run: runReadOnly},
		"close":    {args: 1, run: runClose},
		"protect":  {args: 1, needs: []need{aDisk}, run: runProtect},
		"detach":   {needs: []need{aDisk}, run: runDetach},
		// Files.
		"open":     {method: "Files.OpenFile", args: 1, more: true, needs: []need{aDirectory}, run: runOpen},
		"at":       {method: "File.OpenAt", args: 2, more: true, needs: []need{aDirectory}, run: runAt},
		"attr":     {method: "Files.FileAttributes", args: 1, more: true, needs: []need{aDirectory}, run: runAttr},
		"is":       {method: "File.Info", args: 2, needs: []need{aDirectory}, run: runIs},
		"list":     {method: "File.ReadDir", args: 1, needs: []need{aDirectory}, run: runList},
		"listed":   {method: "File.ReadDir", args: 2, more: true, needs: []need{aDirectory}, run: runListed},
		"unlisted": {method: "File.ReadDir", args: 2, needs: []need{aDirectory}, run: runListed},
		"delete":   {method: "File.Delete", args: 1, needs: []need{aDirectory}, run: runDelete},
		"rename":   {method: "File.Rename", args: 3, needs: []need{aDirectory}, run: runRename},
		"getrp":    {method: "File.Control", args: 1, more: true, needs: []need{aDirectory}, run: runGetReparse},
		"setrp":    {method: "File.Control", args: 2, more: true, needs: []need{aDirectory}, run: runSetReparse},
		"delrp":    {method: "File.Control", args: 2, needs: []need{aDirectory}, run: runDeleteReparse},
		"final":    {method: "File.FinalPath", args: 1, more: true, needs: []need{aDirectory}, run: runFinal},
		"volume":   {method: "File.Volume", args: 2, needs: []need{aDirectory}, run: runVolume},
		"deny":     {method: "File.DenyCreation", args: 1, needs: []need{aDirectory}, run: runDeny},
		"allow":    {method: "File.DenyCreation", args: 1, needs: []need{aDirectory}, run: runDeny},
		"denied":   {method: "File.CreationDenied", args: 1, needs: []need{aDirectory}, run: runDenied},
		"allowed":  {method: "File.CreationDenied", args: 1, needs: []need{aDirectory}, run: runDenied},
		// Devices.
		"dev":   {method: "Devices.OpenDevice", args: 1, more: true, run: runDevice},
		"ctl":   {method: "Device.Control", args: 2, more: true, run: runControl},
		"read":  {method: "Device.ReadAt", args: 3, more: true, run: runRead},
		"flush": {method: "Device.Flush", args: 1, run: runFlush},
		// Volumes.
		"mount":   {method: "Volumes.SetVolumeMountPoint", args: 2, run: runMount},
		"unmount": {method: "Volumes.DeleteVolumeMountPoint", args: 1, run: runUnmount},
		"volname": {method: "Volumes.VolumeNameForMountPoint", args: 1, more: true, run: runVolumeName},
		"paths":   {method: "Volumes.VolumePathNames", args: 1, more: true, run: runPaths},
		"nopath":  {method: "Volumes.VolumePathNames", args: 2, run: runPaths},
		"volinfo": {method: "Volumes.VolumeInformation", args: 1, more: true, run: runVolumeInformation},
		"free":    {method: "Volumes.DiskFreeSpace", args: 1, run: runFree},
		"format":  {method: "Volumes.FormatVolume", args: 2, more: true, run: runFormat},
		"repair":  {method: "Volumes.RepairVolume", args: 2, run: runRepair},
		// Shares.
		"map":   {method: "SMBMappings.CreateSMBGlobalMapping", args: 1, run: runMap},
		"unmap": {method: "SMBMappings.RemoveSMBGlobalMapping", args: 1, run: runUnmap},
		// Services.
		"service":    {method: "Services.QueryService", args: 1, more: true, run: runService},
		"start":      {method: "Services.StartService", args: 1, run: runStart},
		"stop":       {method: "Services.StopService", args: 1, run: runStop},
		"dependents": {method: "Services.ActiveDependentServices", args: 1, more: true, run: runDependents},
		// The registry.
		"regnum": {method: "Registry.RegistryNumber", args: 1, more: true, run: runNumber},
		"regstr": {method: "Registry.RegistryStrings", args: 1, more: true, run: runStrings},
	}
}

// oracleRun is one fact that runs.
type oracleRun struct {
	f       *Fixture
	which   func(*testing.T, []win.Errno) win.Errno // Config.Which
	handles map[string]any                          // win.File or win.Device
	disk    *Disk
	volumes map[string]string // by V: (formatted) and R: (raw)
	offered map[string]string // services by the words for them
}

// offered are the words for what a system has for the test.
var offered = map[string]need{
	"@plain": services, "@disabled": services, "@top": services, "@middle": services, "@base": services,
	"@strings": aValue, "@number": aNumber,
}

// onVolume reports whether an argument needs a disk of the test's own.
func onVolume(arg string) bool {
	return arg == "disk" || strings.HasPrefix(arg, "V:") || strings.HasPrefix(arg, "R:")
}

func (r *oracleRun) step(t *testing.T, s OracleStep) {
	t.Helper()
	err := verbs[s.Verb].run(t, r, s)
	errno := s.Errnos()
	if len(errno) > 1 && r.which != nil {
		errno = []win.Errno{r.which(t, errno)}
	}
	if len(errno) > 0 {
		wantErrno(t, s.String(), err, errno...)
	} else if err != nil {
		t.Errorf("%s: %v", s, err)
	}
}

// volume returns the name of the test's volume: V: has NTFS, R: has no file system.
func (r *oracleRun) volume(t *testing.T, letter string) string {
	t.Helper()
	if name, ok := r.volumes[letter]; ok {
		return name
	}
	d := r.drive(t)
	name := r.f.partition(t, d.Number)
	if letter == "V:" {
		must(t, r.f.format(t, name, win.FormatOptions{FileSystem: "NTFS"}))
	}
	r.volumes = map[string]string{letter: name}
	return name
}

func (r *oracleRun) drive(t *testing.T) *Disk {
	t.Helper()
	if r.disk == nil {
		d := r.f.NewDisk(t)
		r.disk = &d
	}
	return r.disk
}

// path returns the path that an argument means: below V:, R: or C:, or, after abs:, as it is;
// else below the test's directory, which is ".".
func (r *oracleRun) path(t *testing.T, name string) string {
	t.Helper()
	if rest, ok := strings.CutPrefix(name, "abs:"); ok {
		return rest
	}
	if onVolume(name) {
		return r.volume(t, name[:2]) + strings.TrimPrefix(name[2:], `\`)
	}
	if rest, ok := strings.CutPrefix(name, "C:"); ok {
		return r.f.systemVolume(t) + strings.TrimPrefix(rest, `\`)
	}
	if name == "." {
		return r.f.Directory
	}
	return r.f.Directory + `\` + name
}

func (r *oracleRun) file(t *testing.T, name string) win.File {
	t.Helper()
	if name == "." {
		return r.f.dir(t)
	}
	h, ok := r.handles[name].(win.File)
	if !ok {
		t.Fatalf("there is no file %q", name)
	}
	return h
}

func (r *oracleRun) device(t *testing.T, name string) win.Device {
	t.Helper()
	h, ok := r.handles[name].(win.Device)
	if !ok {
		t.Fatalf("there is no device %q", name)
	}
	return h
}

// keep keeps what a step has opened, or closes it.
func (r *oracleRun) keep(t *testing.T, s OracleStep, h interface{ Close() error }, err error) error {
	t.Helper()
	switch {
	case err != nil:
		return err
	case s.Handle == "":
		return h.Close()
	}
	r.handles[s.Handle] = h
	t.Cleanup(func() { _ = h.Close() }) // unless the test has done so
	return nil
}

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

func runDetach(t *testing.T, r *oracleRun, _ OracleStep) error {
	r.drive(t).Detach()
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

// runProtect makes the disk of a volume read-only before its file system is mounted.
func runProtect(t *testing.T, r *oracleRun, s OracleStep) error {
	volume := r.volume(t, s.Args[0])
	path := physicalDrive(r.drive(t).Number)
	both := win.DiskOffline | win.DiskReadOnly
	for _, set := range []win.SetDiskAttributes{{Attributes: both, Mask: both}, {Mask: win.DiskOffline}} {
		if _, err := r.f.control(t, path, win.IoctlDiskSetDiskAttributes, set.Encode(), 0); err != nil {
			return err
		}
	}
	r.f.await(t, "the volume has come again", func() bool {
		_, err := r.f.System.VolumeInformation(t.Context(), volume)
		return err == nil
	})
	return nil
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

// runAttr asks for the attributes, and compares what they say, as runIs does, if a second argument
// says so.
func runAttr(t *testing.T, r *oracleRun, s OracleStep) error {
	attributes, err := r.f.System.FileAttributes(t.Context(), r.path(t, s.Args[0]))
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

// runRename gives what the first argument has open the name in what the second has open.
func runRename(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.file(t, s.Args[0]).Rename(t.Context(), r.file(t, s.Args[1]), s.Args[2])
}

func runDelete(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.file(t, s.Args[0]).Delete(t.Context())
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
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

// runDevice opens "disk", the device of V:, R: or C:, the root directory C:\, or, after abs:, a path.
func runDevice(t *testing.T, r *oracleRun, s OracleStep) error {
	var path string
	switch arg := s.Args[0]; arg {
	case "disk":
		path = physicalDrive(r.drive(t).Number)
	case "V:", "R:", "C:":
		path = deviceOf(r.path(t, arg))
	default:
		path = r.path(t, arg)
	}
	var access win.Access
	for _, word := range s.Args[1:] {
		access |= rights[word]
	}
	d, err := r.f.System.OpenDevice(t.Context(), path, access)
	return r.keep(t, s, d, err)
}

// runControl sends a control code by its name. What follows is in=N or out=N, a number of
// zero bytes, or the name of an input.
func runControl(t *testing.T, r *oracleRun, s OracleStep) error {
	var code win.IoctlCode
	for _, c := range win.IoctlCodes() {
		if name, _ := c.Name(); name == s.Args[1] {
			code = c
		}
	}
	if code == 0 {
		t.Fatalf("there is no control code %s", s.Args[1])
	}
	var in, out []byte
	for _, arg := range s.Args[2:] {
		key, value, _ := strings.Cut(arg, "=")
		switch {
		case key == "in" && value == "property":
			in = win.EncodePropertyQuery(win.PropertyDevice)
		case key == "in" && value == "beyond": // a growth of the first partition by more than the disk has
			in = win.GrowPartition{PartitionNumber: 1, BytesToGrow: 1 << 50}.Encode()
		case key == "in" && value == "grow": // a growth of the first partition to twice its size
			in = win.GrowPartition{PartitionNumber: 1, BytesToGrow: partitionSize}.Encode()
		case key == "in" && value == "grown": // the sectors of the partition that has grown
			in = win.EncodeInt64(2 * partitionSize / 512)
		case key == "in" && value == "sectors": // of the whole partition
			in = win.EncodeInt64(partitionSize / 512)
		case key == "in" && value == "offline":
			in = win.SetDiskAttributes{Attributes: win.DiskOffline, Mask: win.DiskOffline}.Encode()
		case key == "in" && value == "readonly":
			in = win.SetDiskAttributes{Attributes: win.DiskReadOnly, Mask: win.DiskReadOnly}.Encode()
		case key == "in":
			in = make([]byte, number(t, value))
		case key == "out":
			out = make([]byte, number(t, value))
		default:
			t.Fatalf("a control code has no %q", arg)
		}
	}
	d := r.device(t, s.Args[0])
	if code == win.FsctlLockVolume && len(s.Want) == 0 {
		return r.f.lock(t, d)
	}
	_, err := d.Control(t.Context(), code, in, out)
	return err
}

// runRead reads at an offset, with how many bytes come if a fourth argument says so.
func runRead(t *testing.T, r *oracleRun, s OracleStep) error {
	n, err := r.device(t, s.Args[0]).ReadAt(t.Context(), make([]byte, number(t, s.Args[2])), int64(number(t, s.Args[1])))
	if err == nil && len(s.Args) > 3 && n != number(t, s.Args[3]) {
		t.Errorf("%s: %d bytes", s, n)
	}
	return err
}

func runFlush(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.device(t, s.Args[0]).Flush(t.Context())
}

func runMount(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.SetVolumeMountPoint(t.Context(), r.path(t, s.Args[0]), r.path(t, s.Args[1]))
}

func runUnmount(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.DeleteVolumeMountPoint(t.Context(), r.path(t, s.Args[0]))
}

// runVolumeName asks which volume is mounted, and compares it if a second argument says so.
func runVolumeName(t *testing.T, r *oracleRun, s OracleStep) error {
	name, err := r.f.System.VolumeNameForMountPoint(t.Context(), r.path(t, s.Args[0]))
	if err == nil && len(s.Args) > 1 && !strings.EqualFold(name, r.path(t, s.Args[1])) {
		t.Errorf("%s: it is %s", s, name)
	}
	return err
}

// runPaths asks where a volume is mounted, and looks for a path if a second argument says so.
func runPaths(t *testing.T, r *oracleRun, s OracleStep) error {
	paths, err := r.f.System.VolumePathNames(t.Context(), r.path(t, s.Args[0]))
	if err == nil && len(s.Args) > 1 {
		mounted := slices.ContainsFunc(paths, func(p string) bool { return strings.EqualFold(p, r.path(t, s.Args[1])) })
		if mounted != (s.Verb == "paths") {
			t.Errorf("%s: there are %q", s, paths)
		}
	}
	return err
}

// runVolumeInformation compares the file system, and its label, if more arguments say so.
func runVolumeInformation(t *testing.T, r *oracleRun, s OracleStep) error {
	info, err := r.f.System.VolumeInformation(t.Context(), r.path(t, s.Args[0]))
	want := s.Args[1:]
	if got := []string{info.FileSystem, info.Label}; err == nil && !slices.Equal(got[:len(want)], want) {
		t.Errorf("%s: it has %q", s, got)
	}
	return err
}

// runFormat formats a volume with a file system, and with label= and cluster=.
func runFormat(t *testing.T, r *oracleRun, s OracleStep) error {
	o := win.FormatOptions{FileSystem: s.Args[1]}
	for _, arg := range s.Args[2:] {
		switch key, value, _ := strings.Cut(arg, "="); key {
		case "label":
			o.Label = value
		case "cluster":
			o.ClusterSize = uint32(number(t, value))
		default:
			t.Fatalf("a format has no %q", arg)
		}
	}
	if slices.Contains(s.Errnos(), win.ErrorRetry) {
		return r.f.System.FormatVolume(t.Context(), r.path(t, s.Args[0]), o)
	}
	return r.f.format(t, r.path(t, s.Args[0]), o)
}

// runRepair scans or repairs a volume, which must have no errors.
func runRepair(t *testing.T, r *oracleRun, s OracleStep) error {
	mode, ok := map[string]win.RepairMode{"scan": win.RepairScan, "spotfix": win.RepairSpotFix}[s.Args[1]]
	if !ok {
		t.Fatalf("there is no repair %q", s.Args[1])
	}
	result, err := r.f.System.RepairVolume(t.Context(), r.path(t, s.Args[0]), mode)
	if err == nil && result != win.RepairNoErrors {
		t.Errorf("%s: result %d", s, result)
	}
	return err
}

func runFree(t *testing.T, r *oracleRun, s OracleStep) error {
	_, err := r.f.System.DiskFreeSpace(t.Context(), r.path(t, s.Args[0]))
	return err
}

// runMap maps a share, as somebody whom no server knows.
func runMap(t *testing.T, r *oracleRun, s OracleStep) error {
	o := win.SMBMappingOptions{Username: "csi-proxy-nobody", Password: secret.New("hidden")}
	return r.f.System.CreateSMBGlobalMapping(t.Context(), r.path(t, s.Args[0]), o)
}

func runUnmap(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.RemoveSMBGlobalMapping(t.Context(), r.path(t, s.Args[0]))
}

// service is the name of a service: one that the system has for the test, or any other.
func (r *oracleRun) service(t *testing.T, arg string) string {
	t.Helper()
	if offered[arg] != services {
		return arg
	}
	if r.offered == nil {
		s := r.f.NewServices(t)
		r.offered = map[string]string{"@plain": s.Plain, "@disabled": s.Disabled,
			"@top": s.Chain[0], "@middle": s.Chain[1], "@base": s.Chain[2]}
	}
	return r.offered[arg]
}

// runService asks for a service. With a second argument, it waits until the service is running, or has
// stopped without an error.
func runService(t *testing.T, r *oracleRun, s OracleStep) error {
	name := r.service(t, s.Args[0])
	got, err := r.f.System.QueryService(t.Context(), name)
	if err != nil || len(s.Args) == 1 {
		return err
	}
	want, ok := map[string]win.ServiceState{"running": win.ServiceRunning, "stopped": win.ServiceStopped}[s.Args[1]]
	if !ok {
		t.Fatalf("a service has no state %q", s.Args[1])
	}
	r.f.await(t, s.String(), func() bool {
		got, err = r.f.System.QueryService(t.Context(), name)
		must(t, err)
		return got.State == want
	})
	if got.ExitCode != 0 {
		t.Errorf("%s: exit code %v", s, got.ExitCode)
	}
	return nil
}

func runStart(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.StartService(t.Context(), r.service(t, s.Args[0]))
}

func runStop(t *testing.T, r *oracleRun, s OracleStep) error {
	return r.f.System.StopService(t.Context(), r.service(t, s.Args[0]))
}

// runDependents compares the services that need one, in their order.
func runDependents(t *testing.T, r *oracleRun, s OracleStep) error {
	names, err := r.f.System.ActiveDependentServices(t.Context(), r.service(t, s.Args[0]))
	var want []string
	for _, arg := range s.Args[1:] {
		want = append(want, r.service(t, arg))
	}
	if err == nil && !slices.EqualFunc(names, want, strings.EqualFold) {
		t.Errorf("%s: there are %q", s, names)
	}
	return err
}

// registryValue is a key with a value: what the system has for the test, or what the arguments name.
func registryValue(t *testing.T, r *oracleRun, args []string) (key, value string) {
	t.Helper()
	switch {
	case args[0] == "@strings":
		args = r.f.StringsValue[:]
	case args[0] == "@number":
		args = r.f.NumberValue[:]
	case len(args) != 2:
		t.Fatalf("%q is no key with a value", args)
	}
	return args[0], args[1]
}

// runNumber asks for a number that isn't 0, also by names in another case.
func runNumber(t *testing.T, r *oracleRun, s OracleStep) error {
	key, value := registryValue(t, r, s.Args)
	want, err := r.f.System.RegistryNumber(t.Context(), key, value)
	if err != nil {
		return err
	}
	got, err := r.f.System.RegistryNumber(t.Context(), strings.ToLower(key), strings.ToUpper(value))
	if err == nil && (want == 0 || got != want) {
		t.Errorf("%s: %d, and in another case %d", s, want, got)
	}
	return err
}

// runStrings asks for strings, of which there are some and none is empty, also by names in another case.
func runStrings(t *testing.T, r *oracleRun, s OracleStep) error {
	key, value := registryValue(t, r, s.Args)
	want, err := r.f.System.RegistryStrings(t.Context(), key, value)
	if err != nil {
		return err
	}
	got, err := r.f.System.RegistryStrings(t.Context(), strings.ToLower(key), strings.ToUpper(value))
	if err == nil && (len(want) == 0 || slices.Contains(want, "") || !slices.Equal(got, want)) {
		t.Errorf("%s: %q, and in another case %q", s, want, got)
	}
	return err
}
