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

	"github.com/google/go-cmp/cmp"

	"github.com/csi-proxy/csi-proxy/internal/nodeops"
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
	"UnmountVolume":        {`"volume unmounted" volume=<id> path=` + staging},
	"ResizeVolume": {
		`"partition grown" volume=<id> disk=1 partition=2 bytesBefore=10719592448 bytes=21457010688`,
		`"file system grown" volume=<id> disk=1 fileSystem=NTFS bytesBefore=10719591936 bytes=21457010688`,
	},
	"Mkdir":               {`"directory made" path=` + target},
	"Rmdir":               {`"files and directories removed" path=` + target + ` entries=5 unmounted=0`},
	"CreateSymlink":       {`"link made" path=` + target + ` target=` + staging},
	"NewSMBGlobalMapping": {`"mapping made" remotePath=\\server\data requirePrivacy=true`, `"link made" path=C:\var\lib\kubelet\plugins\smb\pv target=\\server\data\`},
	"NewSMBGlobalMapping with a changed password": {
		`"a mapping doesn't work and is made again" remotePath=\\server\data err="the user name or password is incorrect (Windows error 1326)"`,
		`"mapping removed" remotePath=\\server\data`,
		`"mapping made" remotePath=\\server\data requirePrivacy=true`,
	},
	"RemoveSMBGlobalMapping": {`"mapping removed" remotePath=\\server\data`},
	"AddTargetPortal":        {`"service started" service=MSiSCSI`, `"portal added" portal=10.0.0.1:3260`},
	"ConnectTarget":          {`"target connected" target=iqn.2026-01.com.example:vol-1 portal=10.0.0.1:3260`},
	"DisconnectTarget":       {`"target disconnected" target=iqn.2026-01.com.example:vol-1 portal=10.0.0.1:3260`},
	"RemoveTargetPortal":     {`"portal removed" portal=10.0.0.1:3260`},
	"SetMutualCHAPSecret":    {`"service started" service=MSiSCSI`, `"mutual CHAP secret set"`},
	"StartService":           {`"service started" service=needs-example`},
	"StopService":            {`"service stopped" service=needs-example`, `"service stopped" service=example`},
}

// repeats are scenarios whose second run changes something: they remove what the first one
// has made, or nobody can know what was set before.
var repeats = []string{"CreateSymlink", "NewSMBGlobalMapping", "SetMutualCHAPSecret"}

var chosen = regexp.MustCompile(`\\\\\?\\Volume\{[^}]*\}\\|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}`)

func TestChangesAreLoggedOnce(t *testing.T) {
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
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
			if err := s.run(context.Background(), r, n); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(changes[s.name], logged()); diff != "" {
				t.Errorf("the first run (-want +got):\n%s", diff)
			}
			if err := s.again(s.run(context.Background(), r, n)); err != nil {
				t.Fatal(err)
			}
			if again := logged(); len(again) > 0 && !slices.Contains(repeats, s.name) {
				t.Errorf("a second run, which has nothing to do, logs %q", again)
			}
		})
	}
}
