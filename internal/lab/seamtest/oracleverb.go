// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package seamtest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
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
		"plain":    {method: "Files.AttributesWithoutLinks", args: 1, more: true, needs: []need{aDirectory}, run: runAttr},
		"is":       {method: "File.Info", args: 2, needs: []need{aDirectory}, run: runIs},
		"list":     {method: "File.ReadDir", args: 1, needs: []need{aDirectory}, run: runList},
		"write":    {args: 2, needs: []need{aDirectory, aWriter}, run: runWrite},
		"begins":   {method: "File.Read", args: 3, needs: []need{aDirectory}, run: runBegins},
		"listed":   {method: "File.ReadDir", args: 2, more: true, needs: []need{aDirectory}, run: runListed},
		"unlisted": {method: "File.ReadDir", args: 2, needs: []need{aDirectory}, run: runListed},
		"delete":   {method: "File.Delete", args: 1, needs: []need{aDirectory}, run: runDelete},
		"getrp":    {method: "File.Control", args: 1, more: true, needs: []need{aDirectory}, run: runGetReparse},
		"setrp":    {method: "File.Control", args: 2, more: true, needs: []need{aDirectory}, run: runSetReparse},
		"delrp":    {method: "File.Control", args: 2, needs: []need{aDirectory}, run: runDeleteReparse},
		"final":    {method: "File.FinalPath", args: 1, more: true, needs: []need{aDirectory}, run: runFinal},
		"volume":   {method: "File.Volume", args: 2, needs: []need{aDirectory}, run: runVolume},
		"deny":     {method: "File.DenyCreation", args: 1, needs: []need{aDirectory}, run: runDeny},
		"allow":    {method: "File.DenyCreation", args: 1, needs: []need{aDirectory}, run: runDeny},
		"denied":   {method: "File.CreationDenied", args: 1, needs: []need{aDirectory}, run: runDenied},
		"allowed":  {method: "File.CreationDenied", args: 1, needs: []need{aDirectory}, run: runDenied},
		"grant":    {method: "File.AddAccess", args: 1, needs: []need{aDirectory}, run: runGrant},
		"granted":  {method: "File.AccessList", args: 1, more: true, needs: []need{aDirectory}, run: runGranted},
		"private":  {method: "File.Private", args: 1, needs: []need{aDirectory}, run: runPrivate},
		"lock":     {method: "File.LockByte", args: 2, needs: []need{aDirectory}, run: runLock},
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
	which   func(*testing.T, []winerr.Errno) winerr.Errno // Config.Which
	handles map[string]any                                // win.File or win.Device
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
		errno = []winerr.Errno{r.which(t, errno)}
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

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	must(t, err)
	return n
}
