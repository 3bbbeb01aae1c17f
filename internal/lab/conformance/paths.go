// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
)

// pathField is a field with a path of the node.
type pathField struct {
	group, method, word string
	rest                fields
	// touches tells that the call would make something outside of the run's directory, if
	// it was taken with a path from there.
	touches bool
}

var pathFields = []pathField{
	{"filesystem", "PathExists", "path", nil, false},
	{"filesystem", "IsSymlink", "path", nil, false},
	{"filesystem", "Rmdir", "path", nil, false}, // what nobody has, and without force
	{"filesystem", "RmdirContents", "path", nil, false},
	{"filesystem", "Mkdir", "path", nil, true},
	{"filesystem", "CreateSymlink", "source", fields{"target": "own"}, false},
	{"filesystem", "CreateSymlink", "target", fields{"source": "own"}, true},
	{"volume", "MountVolume", "path", fields{"volume": unknownVolume}, false},
	{"volume", "UnmountVolume", "path", fields{"volume": unknownVolume}, false},
	{"volume", "GetVolumeIDFromTargetPath", "path", nil, false},
	{"volume", "GetClosestVolumeIDFromTargetPath", "path", nil, false},
	{"smb", "NewSmbGlobalMapping", "local", fields{"remote": unknownShare, "username": "user", "password": "conformance"},
		false},
}

// Paths below the kubelet directory that no call may take. OWN is the directory of the
// trial, and NAME is a name that nothing has.
var malformedPaths = []string{
	// elements that are ways up
	`OWN\..\NAME`, `OWN\NAME\..\x`,
	// other namespaces and streams
	`\\?\OWN\NAME`, `\\.\OWN\NAME`, `OWN\NAME:stream`, `OWN\NAME::$DATA`,
	// characters that Windows doesn't have in names
	`OWN\a"b`, `OWN\a|b`, `OWN\a?b`, `OWN\a*b`,
}

// Of these, the published daemon takes some.
var strictPaths = []string{
	`OWN\.\NAME`, `OWN\a<b`, `OWN\a>b`, "OWN\\a\tb", "OWN\\a\x01b", `\??\OWN\NAME`,
	`OWN\CON`, `OWN\nul.txt`, `OWN\COM1`, `OWN\LPT9`, "OWN\\COM\u00b9", `OWN\CONIN$`,
	`OWN\NAME.`, `OWN\NAME `, `OWN\...`,
}

// Paths that lead elsewhere.
var outsidePaths = []string{
	`NAME`, `.\NAME`, `..\NAME`, `C:NAME`, `C:\NAME`, `C:\NAME\x`, `D:\NAME`, `\\csi-proxy-conformance.invalid\share\NAME`, `OWN\..\..\..\..\..\NAME`,
}

// Of these, the published daemon takes some: they begin as the kubelet directory does.
var strictOutsidePaths = []string{`KUBELET-NAME`, `KUBELETNAME\x`, `\NAME`}

// slashPaths are those that the volume group takes.
var slashPaths = []string{`OWN/NAME`, `OWN\NAME/target`}

var pathChecks = slices.Concat(
	pathChecksOf("filesystem", false, slashPaths, "Rmdir", "Mkdir"),
	pathChecksOf("volume", true, nil, "MountVolume"),
	pathChecksOf("smb", true, slashPaths, "NewSmbGlobalMapping"),
	[]Check{
		{
			Name: "filesystem.paths-odd", Group: "filesystem", Methods: []string{"Mkdir", "PathExists"}, Better: true,
			Promise: "Names that look odd and are legal are accepted, such as a..b.",
			run: func(t *trial) {
				dir := t.dir()
				for _, name := range []string{"a..b", "..a", " a", "COM", "COM10", "nulls", "a;b&c", "'$(x)'", "%TEMP%",
					"\u017c\u00f3\u0142\u0107", "\U0001F4BE"} {
					t.do("Mkdir", fields{"path": dir + `\` + name})
					t.want(t.exists(dir+`\`+name), "%q doesn't exist after Mkdir", name)
				}
			},
		},
		{
			Name: "filesystem.paths-long", Group: "filesystem", Methods: []string{"PathExists"},
			Promise: "The filesystem group refuses paths of more than 260 characters.",
			run: func(t *trial) {
				path := t.dir() + strings.Repeat(`\`+strings.Repeat("x", 60), 4)
				t.refused(codes.InvalidArgument, "PathExists", fields{"path": path})
			},
		},
		{
			Name: "filesystem.paths-without-drive", Group: "filesystem", Methods: []string{"IsSymlink"},
			Promise: "IsSymlink takes a path without a drive on the kubelet directory's drive: drivers hand over kubelet's " +
				"paths as they are.",
			run: func(t *trial) {
				target, link := t.linked()
				t.want(t.do("IsSymlink", fields{"path": withoutDrive(link)}).is("isLink"), "%s is no link", withoutDrive(link))
				t.want(!t.do("IsSymlink", fields{"path": withoutDrive(target)}).is("isLink"), "%s is a link", withoutDrive(target))
			},
		},
		{
			Name: "filesystem.all-paths-without-drive", Group: "filesystem", Methods: []string{"Mkdir", "PathExists", "Rmdir"},
			Better:  true,
			Promise: "All calls take a path without a drive on the kubelet directory's drive.",
			run: func(t *trial) {
				path := t.dir() + `\a`
				t.do("Mkdir", fields{"path": withoutDrive(path)})
				t.want(t.exists(path) && t.exists(withoutDrive(path)), "%s doesn't exist after Mkdir", path)
				t.do("Rmdir", fields{"path": withoutDrive(path)})
				t.want(!t.exists(path), "%s exists after Rmdir", path)
			},
		},
	},
)

// pathChecksOf are the checks of refused paths for a group. better tells that the
// published daemon checks no path of that group, and methods are those for which it is
// tried.
func pathChecksOf(group string, better bool, further []string, methods ...string) []Check {
	check := func(name string, better bool, promise string, paths ...string) Check {
		return Check{
			Name: group + "." + name, Group: group, Methods: methods, Better: better, Promise: promise,
			run: func(t *trial) { t.refusedPaths(paths) },
		}
	}
	return []Check{
		check("paths-malformed", better, "Paths that aren't plain absolute Windows paths are refused, in each call.",
			slices.Concat(malformedPaths, further)...),
		check("paths-strict", true, "So are names of devices, names ending in a dot or blank, control characters and "+
			"elements that are a dot.",
			strictPaths...),
		check("paths-outside", better, "Paths outside of the kubelet directory are refused, in each call.", outsidePaths...),
		check("paths-beside", true, "A directory whose name only begins as the kubelet directory's is outside.",
			strictOutsidePaths...),
	}
}

// refusedPaths calls all methods of the version that take a path.
func (t *trial) refusedPaths(paths []string) {
	own := t.dir()
	names := strings.NewReplacer("OWN", own, "KUBELET", t.KubeletPath, "NAME", t.own[strings.LastIndex(t.own, `\`)+1:]+"-none")
	for _, f := range pathFields {
		if f.group != t.Group || !t.hasField(f.method, f.word) {
			continue
		}
		for _, path := range paths {
			inside := strings.Contains(path, "OWN") && !strings.Contains(path, `..\..`)
			if f.touches && !inside && !t.CrashChecks {
				continue
			}
			request := fields{f.word: names.Replace(path)}
			for word, value := range f.rest {
				if value == "own" {
					value = t.path()
				}
				request[word] = value
			}
			t.refused(codes.InvalidArgument, f.method, request)
		}
	}
}
