// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeops_test

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// changes are the lines that each scenario logs when it is run first: one for each change,
// with its object. <id> stands for what Windows or chance chooses. When it is run again,
// there is nothing left to change, and nothing is logged.
var changes = map[string][]string{
	"PartitionDisk": {
		`"disk brought online" disk=1 wasOffline=true wasReadOnly=false`,
		`"partition table made" disk=1 style=GPT diskID=<id>`,
		`"disk partitioned" disk=1 partitionID=<id> bytes=10719592448`,
	},
	"SetDiskState online":  {`"disk brought online" disk=1 wasOffline=true wasReadOnly=false`},
	"SetDiskState offline": {`"disk taken offline" disk=1`},
	"FormatVolume":         {`"volume formatted" volume=<id> disk=1 fileSystem=NTFS took=<time>`},
	"MountVolume":          {`"volume mounted" volume=<id> path=` + staging},
	"MountVolume of a node whose paths have obstacles": {`"volume mounted" volume=<id> path=` + staging},
	"UnmountVolume": {`"volume unmounted" volume=<id> path=` + staging},
	"ResizeVolume": {
		`"partition table moved to the end of its disk" disk=1 bytes=21474836480`,
		`"partition grown" volume=<id> disk=1 partition=2 bytesBefore=10719592448 bytes=21457010688`,
		`"file system grown" volume=<id> disk=1 fileSystem=NTFS bytesBefore=10719591936 bytes=21457010688`,
	},
	"Mkdir":               {`"directory made" path=` + target},
	"Rmdir":               {`"files and directories removed" path=` + target + ` entries=5 unmounted=0`},
	"CreateSymlink":       {`"link made" path=` + target + ` target=` + staging},
	"NewSMBGlobalMapping": {`"mapping made" remotePath=\\server\data requirePrivacy=true`, `"link made" path=C:\var\lib\kubelet\plugins\smb\pv target=\\server\data\`},
	"NewSMBGlobalMapping with a changed password": {
		`"a server has refused a log-on; the same credentials are held back for a while" server=server remotePath=\\server\data for="" heldBackFor=15s err="the user name or password is incorrect (Windows error 1326)"`,
		`"a mapping doesn't work and is made again" remotePath=\\server\data err="the user name or password is incorrect (Windows error 1326)"`,
		`"mapping removed" remotePath=\\server\data`,
		`"a server has refused a log-on; the same credentials are held back for a while" server=server remotePath=\\server\logs for="" heldBackFor=15s err="the user name or password is incorrect (Windows error 1326)"`,
		`"a mapping doesn't work and makes way for another one" remotePath=\\server\logs other=\\server\data`,
		`"mapping removed" remotePath=\\server\logs`,
		`"mapping made" remotePath=\\server\data requirePrivacy=true`,
	},
	"RemoveSMBGlobalMapping": {`"mapping removed" remotePath=\\server\data`},
	"AddTargetPortal":        {`"service started" service=MSiSCSI`, `"portal added" portal=10.0.0.1:3260`},
	"ConnectTarget":          {`"target connected" target=iqn.2026-01.com.example:vol-1 portal=10.0.0.1:3260`},
	"DisconnectTarget": {
		`"persistent login removed" target=iqn.2026-01.com.example:vol-1 portal=10.0.0.1:3260`,
		`"target disconnected" target=iqn.2026-01.com.example:vol-1 portal=10.0.0.1:3260`,
	},
	"RemoveTargetPortal":  {`"portal removed" portal=10.0.0.1:3260`},
	"SetMutualCHAPSecret": {`"service started" service=MSiSCSI`, `"mutual CHAP secret set"`},
	"StartService":        {`"service started" service=needs-example`},
	"StopService":         {`"service stopped" service=needs-example`, `"service stopped" service=example`},

	"StageVolume of a raw disk": {
		`"disk brought online" disk=1 wasOffline=true wasReadOnly=false`,
		`"partition table made" disk=1 style=GPT diskID=<id>`,
		`"disk partitioned" disk=1 partitionID=<id> bytes=10719592448`,
		`"volume formatted" volume=<id> disk=1 fileSystem=NTFS took=<time>`,
		`"volume mounted" volume=<id> path=` + staging,
	},
	"StageVolume of a disk with data, that has grown": {
		`"disk brought online" disk=1 wasOffline=true wasReadOnly=false`,
		`"volume mounted" volume=<id> path=` + staging,
		`"partition grown" volume=<id> disk=1 partition=2 bytesBefore=10719592448 bytes=21457010688`,
		`"file system grown" volume=<id> disk=1 fileSystem=NTFS bytesBefore=10719591936 bytes=21457010688`,
	},
	"StageVolume read-only": {
		`"disk made read-only" disk=1`,
		`"disk brought online" disk=1 wasOffline=true wasReadOnly=false`,
		`"volume mounted" volume=<id> path=` + staging,
	},
	"StageVolume of a copy": {
		`"disk brought online" disk=2 wasOffline=true wasReadOnly=false`,
		`"volume mounted" volume=<id> path=` + copied,
	},
	"StageVolume of a target": {
		`"service started" service=MSiSCSI`, `"portal added" portal=10.0.0.1:3260`,
		`"target connected" target=iqn.2026-01.com.example:vol-1 portal=10.0.0.1:3260`,
		`"partition table made" disk=1 style=GPT diskID=<id>`,
		`"disk partitioned" disk=1 partitionID=<id> bytes=1055916032`,
		`"volume formatted" volume=<id> disk=1 fileSystem=NTFS took=<time>`,
		`"volume mounted" volume=<id> path=` + staging,
	},
	"StageVolume of a target with mutual CHAP": {
		`"service started" service=MSiSCSI`, `"portal added" portal=10.0.0.1:3260`, `"mutual CHAP secret set"`,
		`"target connected" target=` + mutualIQN + ` portal=10.0.0.1:3260`,
		`"partition table made" disk=1 style=GPT diskID=<id>`,
		`"disk partitioned" disk=1 partitionID=<id> bytes=1055916032`,
		`"volume formatted" volume=<id> disk=1 fileSystem=NTFS took=<time>`,
		`"volume mounted" volume=<id> path=` + staging,
	},
	"UnstageVolume": {
		`"volume unmounted" volume=<id> path=` + staging, `"directory removed" path=` + staging,
		`"disk taken offline" disk=1`,
	},
	"UnstageVolume beside another volume": {
		`"volume unmounted" volume=<id> path=` + staging, `"directory removed" path=` + staging,
		`"disk taken offline" disk=1`,
	},
	"UnstageVolume where the lock is in the way": {
		`"volume unmounted" volume=<id> path=` + staging, `"directory removed" path=` + staging,
		`"disk taken offline" disk=1`,
	},
	"UnstageVolume read-only": {
		`"volume unmounted" volume=<id> path=` + staging, `"directory removed" path=` + staging,
		`"disk taken offline" disk=1`, `"disk made writable, since it is staged no more" disk=1`,
	},
	"UnstageVolume of a read-only disk that isn't staged": {`"disk made writable, since it is staged no more" disk=1`},
	"UnstageVolume of a target": {
		`"volume unmounted" volume=<id> path=` + staging, `"directory removed" path=` + staging,
		`"disk taken offline" disk=1`,
		`"target disconnected" target=iqn.2026-01.com.example:vol-1 portal=10.0.0.1:3260`,
	},
	"PublishVolume":   {`"link made" path=` + target + ` target=` + staging},
	"UnpublishVolume": {`"link removed" path=` + target + ` to=` + staging},
	"ExpandVolume": {
		`"partition grown" volume=<id> disk=1 partition=2 bytesBefore=10719592448 bytes=21457010688`,
		`"file system grown" volume=<id> disk=1 fileSystem=NTFS bytesBefore=10719591936 bytes=21457010688`,
	},
	"CleanUp":                      {`"link removed" path=` + simtest.Kubelet + `\pods\dangling to=` + simtest.Kubelet + `\none`},
	"CheckVolume":                  {`"volume repaired" volume=<id>`},
	"StageShare":                   {`"mapping made" remotePath=\\server\data requirePrivacy=true`, `"link made" path=` + share + ` target=\\server\data\`},
	"StageShare of a mapped share": {`"link made" path=` + share + ` target=\\server\data\`},
	"StageShare that is refused": {
		`"mapping made" remotePath=\\server\data requirePrivacy=true`, `"mapping removed" remotePath=\\server\data`,
	},
	"UnstageShare of one whose staging has died": {`"mapping removed" remotePath=\\server\data`},
	"UnstageShare of one of two":                 {`"link removed" path=` + share + ` to=\\server\data\`},
	"UnstageShare of the last":                   {`"mapping removed" remotePath=\\server\data`, `"link removed" path=` + share + ` to=\\server\data\`},
	"UnstageVolume of a share":                   {`"mapping removed" remotePath=\\server\data`, `"link removed" path=` + share + ` to=\\server\data\`},
}

// repeats are scenarios whose second run changes something: they remove what the first one
// has made, or nobody can know what was set before.
var repeats = []string{"CreateSymlink", "NewSMBGlobalMapping", "SetMutualCHAPSecret", "StageShare that is refused"}

var chosen = regexp.MustCompile(`\\\\\?\\Volume\{[^}]*\}\\|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`)

func TestChangesAreLoggedOnce(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // one of them waits for who uses a volume
				r := newRig(t)
				s.prepare(r)
				var log bytes.Buffer
				n, err := nodeops.New(r.sim, nodeops.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				r.must(err)
				logged := func() (lines []string) {
					for line := range strings.Lines(log.String()) {
						line = line[strings.Index(line, "msg=")+len("msg="):]
						line = chosen.ReplaceAllString(strings.TrimSpace(line), "<id>")
						lines = append(lines, regexp.MustCompile(`took=\S+`).ReplaceAllString(line, "took=<time>"))
					}
					log.Reset()
					return lines
				}
				simtest.Must(t, s.run(context.Background(), r, n))
				simtest.Want(t, "the first run; if it is right, add the lines to changes", logged(), changes[s.name])
				simtest.Must(t, s.again(s.run(context.Background(), r, n)))
				if again := logged(); len(again) > 0 && !slices.Contains(repeats, s.name) {
					t.Errorf("a second run, which has nothing to do, logs %q", again)
				}
			})
		})
	}
}

// changing are the calls to Windows that make the changes, by what the lines say.
var changing = map[string]string{
	"disk brought online":           win.IoctlDiskSetDiskAttributes.String(),
	"disk taken offline":            win.IoctlDiskSetDiskAttributes.String(),
	"disk made read-only":           win.IoctlDiskSetDiskAttributes.String(),
	"partition table made":          win.IoctlDiskCreateDisk.String(),
	"disk partitioned":              win.IoctlDiskSetDriveLayoutEx.String(),
	"volume formatted":              win.CallFormatVolume,
	"volume repaired":               win.CallRepairVolume,
	"volume mounted":                win.CallSetVolumeMountPoint,
	"volume unmounted":              win.CallDeleteVolumeMountPoint,
	"partition grown":               win.IoctlDiskGrowPartition.String(),
	"file system grown":             win.FsctlExtendVolume.String(),
	"directory made":                win.CallOpenAt,
	"files and directories removed": win.CallDeleteFile,
	"directory removed":             win.CallDeleteFile,
	"link made":                     win.FsctlSetReparsePoint.String(),
	"link removed":                  win.CallDeleteFile,
	"mapping made":                  win.CallCreateSMBGlobalMapping,
	"mapping removed":               win.CallRemoveSMBGlobalMapping,
	"service started":               win.CallStartService,
	"service stopped":               win.CallStopService,
	"portal added":                  win.CallAddISCSIPortal,
	"portal removed":                win.CallRemoveISCSIPortal,
	"target connected":              win.CallLoginISCSITarget,
	"target disconnected":           win.CallLogoutISCSITarget,
	"persistent login removed":      win.CallRemoveISCSIPersistent,
	"mutual CHAP secret set":        win.CallSetISCSICHAPSecret,

	"disk made writable, since it is staged no more": win.IoctlDiskSetDiskAttributes.String(),
	"partition table moved to the end of its disk":   win.IoctlDiskSetDriveLayoutEx.String(),
}

// undone are the changes of operations that have failed before.
var undone = changes["StageShare that is refused"][1:]

// What Windows refuses is no change.
func TestRefusedChangesAreNotLogged(t *testing.T) {
	for _, s := range scenarios {
		for _, line := range changes[s.name] {
			text, _, _ := strings.Cut(strings.TrimPrefix(line, `"`), `"`)
			if strings.HasPrefix(text, "a mapping doesn't work") || strings.HasPrefix(text, "a server has refused") {
				continue // it is no change
			}
			t.Run(s.name+"/"+text, func(t *testing.T) {
				call, ok := changing[text]
				if !ok {
					t.Fatalf("which call makes the change %q?", text)
				}
				r := newRig(t)
				s.prepare(r)
				var log bytes.Buffer
				n, err := nodeops.New(r.sim, nodeops.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				r.must(err)
				r.must(r.sim.Fail(winsim.Match{Call: call}, win.ErrorIODevice))
				if err := s.run(context.Background(), r, n); err == nil && !slices.Contains(undone, line) {
					t.Error("the operation succeeds without the change")
				}
				if strings.Contains(log.String(), text) {
					t.Errorf("a change that Windows has refused is logged: %s", &log)
				}
			})
		}
	}
}
