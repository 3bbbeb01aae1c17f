// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/smbserver"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
	"github.com/csi-proxy/csi-proxy/internal/windows/winerr"
)

const (
	sharePath  = simtest.Kubelet + `\plugins\kubernetes.io\csi\smb\share-1\globalmount`
	share2Path = simtest.Kubelet + `\plugins\kubernetes.io\csi\smb\share-2\globalmount`
)

// newStagingShares returns a node and a server with the shares data and other.
func newStagingShares(t *testing.T) (*winsim.System, *nodeops.Node) {
	t.Helper()
	sim, n := newStagingNode(t)
	addShares(t, sim)
	return sim, n
}

func addShares(t *testing.T, sim *winsim.System) {
	t.Helper()
	for _, name := range []string{"data", "other"} {
		simtest.Must(t, sim.SMB().AddShare(smbserver.Share{Server: "filer", Name: name, SizeBytes: 5 << 40}))
	}
	simtest.Must(t, sim.SMB().SetUser("filer", `EXAMPLE\app`, csiproxy.NewSecret("password")))
}

func stagingShareRequest(remote, path string) csiproxy.StageShareRequest {
	return csiproxy.StageShareRequest{
		RemotePath: remote, StagingPath: path,
		Credentials: csiproxy.SMBCredentials{Username: `EXAMPLE\app`, Password: csiproxy.NewSecret("password")},
	}
}

// mappings returns the shares that are mapped.
func mappings(t *testing.T, sim *winsim.System) string {
	t.Helper()
	all, err := sim.SMBGlobalMappings(t.Context())
	simtest.Must(t, err)
	var names []string
	for _, m := range all {
		names = append(names, strings.ToLower(m.RemotePath))
	}
	return strings.Join(names, " ")
}

// A user name with a control character is refused by all that maps a share, before any call to Windows. The
// error names the character, and nothing else of the name, whatever the password is.
func TestUserNamesWithControlCharacters(t *testing.T) {
	sim, n := newStagingShares(t)
	controls := []byte{0x7f}
	for c := byte(0); c < 0x20; c++ {
		controls = append(controls, c)
	}
	before := sim.Calls()
	for _, c := range controls {
		for _, name := range []string{"CORP" + string(c) + "jane", string(c) + "CORPjane", "CORPjane" + string(c)} {
			for _, password := range []string{"", "password"} {
				r := stagingShareRequest(`\\filer\data`, sharePath)
				r.Credentials = csiproxy.SMBCredentials{Username: name, Password: csiproxy.NewSecret(password)}
				for what, err := range map[string]error{
					"NewSMBGlobalMapping": n.SMB.NewSMBGlobalMapping(t.Context(), r.RemotePath, r.StagingPath, r.Credentials),
					"StageShare":          n.Storage.StageShare(t.Context(), r),
				} {
					what := fmt.Sprintf("%s for %q", what, name)
					simtest.WantErrorOf(t, what, err, csiproxy.ErrInvalidArgument, "user name",
						fmt.Sprintf("control character U+%04X", c))
					if err != nil && (strings.Contains(err.Error(), "CORP") || strings.Contains(err.Error(), "jane")) {
						t.Errorf("%s: the error repeats the name: %v", what, err)
					}
				}
			}
		}
	}
	simtest.Want(t, "calls to Windows", sim.Calls(), before)
}

// A mapping goes with the last staged path, also if the process has restarted meanwhile.
func TestLifeOfAShare(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	for range 2 {
		simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`//filer/data`, sharePath)))
	}
	simtest.Must(t, sim.WriteFile(sharePath+file, []byte("precious")))
	simtest.Must(t, sim.MkdirAll(sharePath+`\directory`))
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\FILER\Data\directory`, share2Path)))
	for range 2 {
		simtest.Must(t, n.Storage.PublishVolume(ctx, sharePath, targetPath))
	}
	if data, err := sim.ReadFile(targetPath + file); string(data) != "precious" || err != nil {
		t.Errorf("the pod reads %q, %v", data, err)
	}
	simtest.Must(t, n.Storage.UnpublishVolume(ctx, targetPath))

	n, err := nodeops.New(sim, nodeops.Options{}) // a new process
	simtest.Must(t, err)
	done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
	if err != nil || done != (csiproxy.UnstagedShare{Unlinked: true}) || mappings(t, sim) != `\\filer\data` {
		t.Errorf("the first: %+v, %v, mapped are %s", done, err, mappings(t, sim))
	}
	done, err = n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
	if err != nil || done != (csiproxy.UnstagedShare{}) {
		t.Errorf("the first again: %+v, %v", done, err)
	}
	done, err = n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: share2Path})
	if err != nil || done != (csiproxy.UnstagedShare{Unlinked: true, Unmapped: true}) || mappings(t, sim) != "" {
		t.Errorf("the last: %+v, %v, mapped are %s", done, err, mappings(t, sim))
	}

	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	simtest.Must(t, sim.RemoveSMBGlobalMapping(ctx, `\\filer\data`)) // by an administrator
	simtest.WantErrorOf(t, "not mapped", n.Storage.PublishVolume(ctx, sharePath, targetPath),
		csiproxy.ErrFailedPrecondition, "not mapped; it must be staged again")
}

// A link to another share that takes the place of the staged one at any call stays.
func TestUnstageShareLeavesAnotherLink(t *testing.T) {
	replaced, unstaged := false, 0
	atEachCallOfStaging(t, func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		replaced = false
		addShares(t, sim)
		simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, sharePath)))
	}, func(t *testing.T, sim *winsim.System, n *nodeops.Node, _ winsim.Call) {
		if sim.Remove(sharePath) == nil { // or it is open, or gone
			simtest.Must(t, sim.Symlink(sharePath, `\\filer\other\`, true))
			replaced = true
		}
	}, func(t *testing.T, sim *winsim.System, n *nodeops.Node) {
		_, err := n.Storage.UnstageShare(t.Context(), csiproxy.UnstageShareRequest{StagingPath: sharePath, RemotePath: `\\filer\data`})
		if !replaced {
			return
		}
		unstaged++
		if there, lookErr := n.Storage.GetVolume(t.Context(), sharePath); lookErr != nil || there.Share != `\\filer\other` {
			t.Errorf("there is %+v, %v; UnstageShare gave %v", there, lookErr, err)
		}
	})
	if unstaged == 0 {
		t.Error("the link was never replaced, so this shows nothing")
	}
}

// Who knows only the staging path unstages a share by UnstageVolume, too.
func TestUnstageVolumeOfAShare(t *testing.T) {
	sim, n := newStagingShares(t)
	for _, path := range []string{sharePath, share2Path} {
		simtest.Must(t, n.Storage.StageShare(t.Context(), stagingShareRequest(`\\filer\data`, path)))
	}
	simtest.Want(t, "the first", unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: sharePath}),
		csiproxy.UnstagedVolume{Unmounted: true})
	simtest.Want(t, "the first again", unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: sharePath}),
		csiproxy.UnstagedVolume{})
	if done := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: share2Path}); done !=
		(csiproxy.UnstagedVolume{Unmounted: true, Unmapped: true}) || mappings(t, sim) != "" {
		t.Errorf("the last: %+v, mapped are %s", done, mappings(t, sim))
	}
}

func TestStageShareRefuses(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.WantErrorOf(t, "no such share", n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\none`, sharePath)), csiproxy.ErrNotFound)
	simtest.WantErrorOf(t, "no such directory", n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data\none`, sharePath)), csiproxy.ErrNotFound, "no such directory")
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))

	other := stagingShareRequest(`\\filer\data`, share2Path)
	other.Credentials.Username = `EXAMPLE\other`
	simtest.WantErrorOf(t, "another user", n.Storage.StageShare(ctx, other),
		csiproxy.ErrFailedPrecondition, "another user")
	other = stagingShareRequest(`\\filer\data`, share2Path)
	other.Credentials.Password = csiproxy.NewSecret("guess")
	err := n.Storage.StageShare(ctx, other)
	simtest.WantErrorOf(t, "another password", err, csiproxy.ErrFailedPrecondition, "another password")
	if err != nil && strings.Contains(err.Error(), "guess") {
		t.Errorf("the error %v has the password", err)
	}
	// A process that hasn't made the mapping knows its user from Windows.
	later, err := nodeops.New(sim, nodeops.Options{})
	simtest.Must(t, err)
	other = stagingShareRequest(`\\filer\data`, share2Path)
	other.Credentials.Username = `EXAMPLE\other`
	simtest.WantErrorOf(t, "another user, later", later.Storage.StageShare(ctx, other), csiproxy.ErrFailedPrecondition,
		"another user")
	simtest.Must(t, later.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, share2Path)))

	simtest.WantErrorOf(t, "a user without a password", n.Storage.StageShare(ctx, csiproxy.StageShareRequest{RemotePath: `\\filer\data`, StagingPath: sharePath,
		Credentials: csiproxy.SMBCredentials{Username: "me"}}), csiproxy.ErrInvalidArgument)
	simtest.WantErrorOf(t, "no share", n.Storage.StageShare(ctx, stagingShareRequest(`C:\`, sharePath)), csiproxy.ErrInvalidArgument)

	directory := simtest.Kubelet + `\plugins\directory`
	simtest.Must(t, sim.MkdirAll(directory))
	simtest.Must(t, sim.WriteFile(directory+file, []byte("precious")))
	simtest.WantErrorOf(t, "a directory", n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, directory)), csiproxy.ErrAlreadyExists)
	_, err = n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: directory})
	simtest.WantErrorOf(t, "unstage a directory", err, csiproxy.ErrFailedPrecondition, "directory with entries")
	simtest.Want(t, "a directory unstaged by UnstageVolume",
		unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: directory}), csiproxy.UnstagedVolume{})
	simtest.WantErrorOf(t, "another share there", n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\other`, sharePath)), csiproxy.ErrAlreadyExists)
	simtest.Want(t, "mapped after all that was refused", mappings(t, sim), `\\filer\data`)
	if data, err := sim.ReadFile(directory + file); string(data) != "precious" || err != nil {
		t.Errorf("the file is %q, %v", data, err)
	}
}

// Who names what was staged unstages nothing else.
func TestUnstageWhatIsNamed(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: otherPath})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: stagingPath})
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	simtest.Must(t, sim.MkdirAll(sharePath+`\a`))
	directory := simtest.Kubelet + `\plugins`

	check := func(what, path, remote string, want csiproxy.UnstagedShare) {
		t.Helper()
		got, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: path, RemotePath: remote})
		if got != want || err != nil {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	nothing := csiproxy.UnstagedShare{}
	check("another share", sharePath, `\\filer\other`, nothing)
	check("another directory of the share", sharePath, `\\filer\data\a`, nothing)
	check("a share, where a volume is", stagingPath, `\\filer\data`, nothing)
	check("a share, where a directory is", directory, `\\filer\data`, nothing)
	check("a share, where nothing is", share2Path, `\\filer\data`, nothing)
	// The disk is retired, since it isn't staged there, but nothing at the path is touched.
	simtest.Must(t, n.Volume.UnmountVolume(ctx, volumeOf(t, n, number), otherPath))
	if got := unstageVolume(t, n, csiproxy.UnstageVolumeRequest{StagingPath: sharePath,
		Disk: serial("vol-1")}); got != (csiproxy.UnstagedVolume{DiskOffline: true}) {
		t.Errorf("a disk, where a share is: %+v", got)
	}
	simtest.Must(t, sim.WriteFile(stagingPath+file, nil))
	simtest.Must(t, sim.WriteFile(sharePath+file, nil))

	for what, r := range map[string]csiproxy.UnstageShareRequest{
		"no share":                         {StagingPath: sharePath, RemotePath: `C:\data`},
		"a path outside, with a share":     {StagingPath: `C:\Windows\x`, RemotePath: `\\filer\data`},
		"a path outside, without its name": {StagingPath: `C:\Windows\x`},
	} {
		_, err := n.Storage.UnstageShare(ctx, r)
		simtest.WantErrorOf(t, what, err, csiproxy.ErrInvalidArgument)
	}

	// A StageShare that died before it made the link is made good by a call that names the
	// share, but not while somebody else has it staged.
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\other`, share2Path)))
	simtest.Must(t, sim.Remove(share2Path))
	check("a share that isn't named", share2Path, "", nothing)
	check("a share that has died half-way", share2Path, `\\filer\other`, csiproxy.UnstagedShare{Unmapped: true})

	check("the share", sharePath, `\\FILER\data\`, csiproxy.UnstagedShare{Unlinked: true, Unmapped: true})
}

// Without the name of a share, UnstageShare says what else is at the path, and leaves it.
func TestUnstageShareOfSomethingElse(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	const plugins = simtest.Kubelet + `\plugins`
	simtest.Must(t, sim.WriteFile(plugins+`\file`, nil))
	simtest.Must(t, sim.MkdirAll(plugins+`\full\directory`))
	simtest.Must(t, sim.MkdirAll(plugins+`\empty`))
	simtest.Must(t, sim.Symlink(plugins+`\link`, plugins+`\full`, true))
	for path, is := range map[string]string{
		stagingPath:       "volume " + string(staged.VolumeID) + " is mounted there",
		plugins + `\file`: "it is a file",
		plugins + `\full`: "it is a directory with entries",
		plugins + `\link`: "it leads to " + plugins + `\full`,
	} {
		done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: path})
		simtest.WantErrorOf(t, path, err, csiproxy.ErrFailedPrecondition, "no share is staged there", is)
		if done != (csiproxy.UnstagedShare{}) {
			t.Errorf("%s: %+v", path, done)
		}
	}
	for _, path := range []string{plugins + `\empty`, plugins + `\none`} {
		if done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: path}); done !=
			(csiproxy.UnstagedShare{}) || err != nil {
			t.Errorf("%s: %+v, %v", path, done, err)
		}
	}
	_, err := n.Storage.UnstageVolume(ctx, csiproxy.UnstageVolumeRequest{StagingPath: plugins + `\link`})
	simtest.WantErrorOf(t, "a link of somebody else, by UnstageVolume", err, csiproxy.ErrFailedPrecondition)
	// All is still there.
	simtest.Must(t, sim.WriteFile(stagingPath+file, nil))
	for _, path := range []string{`\file`, `\link\directory`, `\empty`} {
		there, err := n.Filesystem.PathExists(ctx, plugins+path)
		if err != nil || !there {
			t.Errorf("%s: there: %v, %v", path, there, err)
		}
	}
}

func volumeOf(t *testing.T, n *nodeops.Node, number csiproxy.DiskNumber) csiproxy.VolumeID {
	t.Helper()
	id, err := n.Volume.DataVolumeOfDisk(t.Context(), number)
	simtest.Must(t, err)
	return id
}

// Links that pods make in their own data don't count, and what can't be counted keeps
// the mapping.
func TestWhatCountsAsStaged(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	data := simtest.Kubelet + `\pods\uid\volumes\kubernetes.io~empty-dir\cache`
	simtest.Must(t, sim.MkdirAll(data))
	simtest.Must(t, sim.Symlink(data+`\link`, `\\filer\data\`, true))
	simtest.Must(t, sim.Fail(winsim.Match{Call: "NtCreateFile", Object: `pods\uid`, Count: 1}, winerr.ErrorAccessDenied))
	_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
	simtest.WantErrorOf(t, "not counted", err, csiproxy.ErrUnavailable, "can't be counted", `pods\uid`)
	done, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
	if err != nil || !done.Unmapped {
		t.Errorf("counted: %+v, %v", done, err)
	}
}

func TestGetVolume(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	number := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	staged := stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath,
		Format: csiproxy.FormatOptions{Label: "data"}})
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))

	for _, path := range []string{stagingPath, targetPath} {
		v, err := n.Storage.GetVolume(ctx, path)
		if err != nil || v.VolumeID != staged.VolumeID || *v.Disk != number || v.SerialNumber != "vol-1" || v.DiskID == "" ||
			v.FileSystem != "NTFS" || v.Label != "data" || v.SizeBytes < 9<<30 || v.UsedBytes+v.FreeBytes != v.SizeBytes ||
			v.AllocationUnitBytes != 4096 || v.ReadOnly || v.Abnormal() {
			t.Errorf("%s: %+v, %v", path, v, err)
		}
	}
	v, err := n.Storage.GetVolume(ctx, sharePath)
	if err != nil || v.Share != `\\filer\data` || v.SizeBytes != 5<<40 || v.Abnormal() {
		t.Errorf("the share: %+v, %v", v, err)
	}
	const windows = simtest.Kubelet + `\windows`
	simtest.Mount(t, sim, windows, sim.VolumesOfDisk(0)[0])
	_, err = n.Storage.GetVolume(ctx, windows)
	simtest.WantErrorOf(t, windows, err, csiproxy.ErrPermissionDenied)
	for _, path := range []string{simtest.Kubelet, simtest.Kubelet + `\none`} {
		_, err = n.Storage.GetVolume(ctx, path)
		simtest.WantErrorOf(t, path, err, csiproxy.ErrNotFound)
	}
	for _, path := range []string{`\\?\C:\Windows`, `\\filer`, `\\.\pipe\csi`} {
		_, err = n.Storage.GetVolume(ctx, path)
		simtest.WantErrorOf(t, path, err, csiproxy.ErrInvalidArgument)
	}
}

// A driver that knows only the share asks whether it can be used. A server of which no share is
// mapped isn't asked, since Windows would log on to it.
func TestGetVolumeByShare(t *testing.T) {
	sim, n := newStagingShares(t)
	ctx := t.Context()
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	for _, path := range []string{`\\filer\data`, `\\FILER\Data\`, `//filer/data/directory`} {
		v, err := n.Storage.GetVolume(ctx, path)
		if err != nil || v.Share != `\\filer\data` || v.SizeBytes != 5<<40 || v.Abnormal() {
			t.Errorf("%s: %+v, %v", path, v, err)
		}
	}
	simtest.Must(t, sim.Fail(winsim.Match{Call: win.CallFileAttributes, Object: `\\filer`}, winerr.ErrorLogonFailure))
	for path, want := range map[string]csiproxy.Reason{
		`\\filer\data`: csiproxy.ReasonShareRefused, `\\filer\other`: csiproxy.ReasonShareNotMapped, `\\stranger\data`: csiproxy.ReasonShareNotMapped,
	} {
		v, err := n.Storage.GetVolume(ctx, path)
		if err != nil || len(v.Conditions) != 1 || v.Conditions[0].Reason != want || !v.Conditions[0].Inaccessible {
			t.Errorf("%s: %+v, %v, want %s", path, v, err, want)
		}
	}
	sim.OnCall(func(c winsim.Call) {
		if strings.HasPrefix(strings.ToLower(c.Object), `\\stranger`) {
			t.Errorf("the server was asked: %v", c)
		}
	})
	if _, err := n.Storage.GetVolume(ctx, `\\stranger\data`); err != nil {
		t.Error(err)
	}
}

// Who has changed a mapping sees that, though another caller's look is under way meanwhile.
func TestGetVolumeSeesTheCallersOwnMapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, n := newStagingShares(t)
		ctx := t.Context()
		simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
		simtest.Must(t, sim.Delay(winsim.Match{Call: win.CallDiskFreeSpace}, 3*time.Second))
		first := make(chan csiproxy.Volume, 1)
		go func() {
			v, err := n.Storage.GetVolume(ctx, sharePath)
			simtest.WantError(t, err, nil)
			first <- v
		}()
		synctest.Wait()
		_, err := n.Storage.UnstageShare(ctx, csiproxy.UnstageShareRequest{StagingPath: sharePath})
		simtest.Must(t, err)
		v, err := n.Storage.GetVolume(ctx, `\\filer\data`)
		if err != nil || len(v.Conditions) != 1 || v.Conditions[0].Reason != csiproxy.ReasonShareNotMapped {
			t.Errorf("after the mapping was removed: %+v, %v", v, err)
		}
		simtest.Want(t, "what the first look saw", (<-first).Share, `\\filer\data`)
	})
}

// dangling is a link to nothing.
const dangling = simtest.Kubelet + `\pods\dangling`

// withLeftovers returns a node on which a volume is published and a share staged, and on which
// three things are left over: a mount of a disk that has left, a mapping without a link, and a
// link to nothing.
func withLeftovers(t *testing.T) (*winsim.System, *nodeops.Node) {
	t.Helper()
	sim, n := newStagingShares(t)
	ctx := t.Context()
	gone := simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-2"})
	simtest.Attach(t, sim, winsim.DiskSpec{Serial: "vol-1"})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-1"), StagingPath: stagingPath})
	stageVolume(t, n, csiproxy.StageVolumeRequest{Disk: serial("vol-2"), StagingPath: otherPath})
	simtest.Must(t, n.Storage.PublishVolume(ctx, stagingPath, targetPath))
	writeVolumeData(t, sim)
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\data`, sharePath)))
	simtest.Must(t, n.Storage.StageShare(ctx, stagingShareRequest(`\\filer\other`, share2Path)))
	simtest.Must(t, sim.Remove(share2Path))
	simtest.Must(t, sim.Symlink(dangling, simtest.Kubelet+`\none`, true))
	simtest.Must(t, sim.DetachDisk(gone))
	return sim, n
}

// writeVolumeData writes what kubelet has beside targetPath.
func writeVolumeData(t *testing.T, sim *winsim.System) {
	t.Helper()
	simtest.Must(t, sim.WriteFile(strings.TrimSuffix(targetPath, "mount")+"vol_data.json", []byte("{}")))
}

func TestListVolumes(t *testing.T) {
	_, n := withLeftovers(t)
	ctx := t.Context()

	list, err := n.Storage.ListVolumes(ctx)
	simtest.Must(t, err)
	if !list.Complete() {
		t.Error(list.IncompleteReason)
	}
	type row struct {
		kind     csiproxy.MountKind
		path     string
		abnormal bool
		leftover string
	}
	want := map[row]bool{
		{csiproxy.MountKindMountPoint, stagingPath, false, ""}:                                      true,
		{csiproxy.MountKindMountPoint, otherPath, true, "the disk of the volume has left the node"}: true,
		{csiproxy.MountKindLink, targetPath, false, ""}:                                             true,
		{csiproxy.MountKindLink, dangling, false, "it leads to nothing"}:                            true,
		{csiproxy.MountKindShare, sharePath, false, ""}:                                             true,
		{csiproxy.MountKindMapping, "", false, "no staged path leads to the share"}:                 true,
	}
	for _, m := range list.Mounts {
		r := row{m.Kind, m.Path, m.Volume.Abnormal(), m.LeftoverReason}
		if !want[r] {
			t.Errorf("listed is %+v", m)
		}
		delete(want, r)
	}
	if len(want) > 0 {
		t.Errorf("not listed are %+v", want)
	}
}

// The metrics tell how many accounts are refused, and how many log-ons that has saved.
func TestRefusedLogOns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, n := newStagingShares(t)
		wrong := stagingShareRequest(`\\filer\data`, sharePath)
		wrong.Credentials.Password = csiproxy.NewSecret("wrong")
		for saved := range uint64(2) {
			simtest.WantErrorOf(t, "a wrong password", n.Storage.StageShare(t.Context(), wrong), csiproxy.ErrUnauthenticated)
			if accounts, heldBack := n.RefusedLogOns(); accounts != 1 || heldBack != saved {
				t.Errorf("%d accounts, %d held back, want 1 and %d", accounts, heldBack, saved)
			}
		}
	})
}
