// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"errors"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/sim/winsim/simtest"
)

// A driver can't be given what kubelet, the pods or another driver have, by whatever name.
func TestCheckDirectory(t *testing.T) {
	red := Driver{Name: "red.example.com", Dirs: []string{kubelet + `\red`, `C:\work\red`, `D:\shared\red`}}
	options := Options{KubeletPath: kubelet, WorkingDirs: []string{`C:\work`, `D:\`}, Drivers: []Driver{red},
		OwnFiles: []string{`C:\work\tools\csi-proxy.exe`, `D:\tools\csi-proxy.log`}}
	node, err := New(options)
	simtest.Must(t, err)
	for dir, want := range map[string]string{ // "" if it can be blue's
		kubelet + `\blue`:                           "",
		kubelet + `\Blue\below\`:                    "",
		kubelet + `\a~b`:                            "",
		kubelet + `\plugins\BLUE`:                   "",
		kubelet + `\plugins\blue\below`:             "",
		kubelet + `\plugins\kubernetes.io\csi\blue`: "",
		`C:\work\blue`:                              "",
		`C:\work\plugins`:                           "",
		`C:\work\tools\blue`:                        "",
		`D:\blue`:                                   "",
		``:                                          "the path is empty",
		`blue`:                                      "not an absolute Windows path",
		`\var\lib\kubelet\blue`:                     "not an absolute Windows path",
		`\\?\C:\var\lib\kubelet\blue`:               `begins with \\?\`,
		`\\.\C:\var\lib\kubelet\blue`:               `begins with \\?\`,
		`\\localhost\C$\var\lib\kubelet\blue`:       `begins with \\`,
		`C:/var/lib/kubelet/blue`:                   "a slash (/)",
		kubelet + `\blue.`:                          "ends in a dot or blank",
		kubelet + `\blue \x`:                        "ends in a dot or blank",
		kubelet + `\.`:                              `"." is not allowed`,
		kubelet + `\..\..`:                          `".." is not allowed`,
		kubelet + `\blue\nul.txt`:                   "name of a device",
		kubelet + `\blue:stream`:                    "a colon",
		kubelet + `\REDCSI~1.COM`:                   `"REDCSI~1.COM" may be the short (8.3) name`,
		kubelet + `\plugins\red~12`:                 `"red~12" may be the short (8.3) name`,
		`C:\var\lib\KUBELE~1\blue`:                  `"KUBELE~1" may be the short (8.3) name`,
		`E:\blue`:                                   "the path is not inside of",
		kubelet + `-other\blue`:                     "the path is not inside of",
		kubelet:                                     "it holds kubelet's directory",
		strings.ToUpper(kubelet) + `\`:              "it holds kubelet's directory",
		kubelet + `\pods`:                           "the directories of the pods",
		kubelet + `\Pods\uid\volumes`:               "the directories of the pods",
		kubelet + `\plugins`:                        "plugins holds the directories of all drivers",
		kubelet + `\Plugins`:                        "plugins holds the directories of all drivers",
		kubelet + `\plugins\kubernetes.io`:          `plugins\kubernetes.io holds the volumes of all drivers`,
		kubelet + `\plugins\kubernetes.io\CSI`:      `plugins\kubernetes.io holds the volumes of all drivers`,
		kubelet + `\plugins\kubernetes.io\csi\pv`:   `plugins\kubernetes.io holds the volumes of all drivers`,
		kubelet + `\plugins\kubernetes.io\csi\red.example.com\x`: `plugins\kubernetes.io holds the volumes of all drivers`,
		kubelet + `\plugins\green`:                               `it belongs to a driver named green; a driver has plugins\NAME by its own name only`,
		kubelet + `\plugins\red.example.com\x`:                   "it belongs to a driver named red.example.com",
		kubelet + `\plugins_registry`:                            `csi-proxy touches nothing in C:\var\lib\kubelet\plugins_registry`,
		kubelet + `\Plugins_Registry\x`:                          "csi-proxy touches nothing in",
		kubelet + `\device-plugins`:                              "csi-proxy touches nothing in",
		kubelet + `\pki`:                                         "csi-proxy touches nothing in",
		kubelet + `\pod-resources`:                               "csi-proxy touches nothing in",
		kubelet + `\config.yaml`:                                 "csi-proxy touches nothing in",
		kubelet + `\CPU_manager_state`:                           "csi-proxy touches nothing in",
		kubelet + `\red`:                                         `driver "red.example.com" has the directory C:\var\lib\kubelet\red`,
		kubelet + `\RED\below`:                                   `driver "red.example.com" has the directory`,
		`C:\work\Tools`:                                          "it holds files of Windows or of csi-proxy itself",
		`C:\work\tools\csi-proxy.exe`:                            "csi-proxy touches nothing in",
		`D:\`:                                                    "it holds files of Windows or of csi-proxy itself",
		`D:\shared`:                                              `driver "red.example.com" has the directory D:\shared\red`,
		`C:\work\Red`:                                            `driver "red.example.com" has the directory C:\work\red`,
	} {
		err := node.CheckDirectory("blue", dir)
		if want == "" && err != nil || want != "" && (!errors.Is(err, csiproxy.ErrInvalidArgument) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
		options.Drivers = []Driver{red, {Name: "blue", Dirs: []string{dir}}}
		if _, withErr := New(options); (withErr != nil) != (err != nil) {
			t.Errorf("%s: %v, but of the driver's: %v", dir, err, withErr)
		}
	}
	for _, dir := range []string{`C:\mnt\disks`, `c:\MNT\disks\`} {
		if err := mustPolicy(t, kubelet, `C:\mnt\disks`).CheckDirectory("blue", dir); err == nil ||
			!strings.Contains(err.Error(), "it is a working directory itself") {
			t.Errorf("%s, which is a working directory: %v", dir, err)
		}
	}
	above := mustPolicy(t, kubelet, `C:\var`)
	for _, dir := range []string{`C:\var`, `C:\var\lib`} {
		if err := above.CheckDirectory("blue", dir); err == nil || !strings.Contains(err.Error(), "it holds kubelet's directory") {
			t.Errorf("%s above kubelet's directory: %v", dir, err)
		}
	}
	if err := above.CheckDirectory("blue", `C:\var\log`); err != nil {
		t.Errorf("beside kubelet's directory: %v", err)
	}
}

func TestCheckDriverName(t *testing.T) {
	for name, want := range map[string]string{
		"ebs.csi.aws.com": "", "pv2": "", "kubernetes.io": "can't be named", "Kubernetes.IO": "can't be named", "PV": "can't be named",
		`kubernetes.io\csi`: "not allowed", "red.": "ends in a dot", "nul": "name of a device", "": "not allowed", "..": "not allowed",
	} {
		err := CheckDriverName(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, err := New(Options{Drivers: []Driver{{Name: "kubernetes.io"}}}); err == nil {
		t.Error("a driver is named kubernetes.io")
	}
}

// A volume may be emptied right in the directory that an administrator names, and not inside of such a volume, where a pod can
// make mount points.
func TestMayReformatAt(t *testing.T) {
	node, err := New(Options{WorkingDirs: []string{`C:\mnt`}, ReformatDirs: []string{`C:\mnt\disks`}, Drivers: []Driver{
		{Name: "local", Dirs: []string{`C:\mnt\local`}, Reformat: true}, {Name: "other", Dirs: []string{`C:\mnt\other`}}}})
	if err != nil {
		t.Fatal(err)
	}
	policies := map[string]*Policy{"": node, "local": node.Within(DriverPaths{Driver: "local"}), "other": node.Within(DriverPaths{Driver: "other"})}
	for path, allowed := range map[string]string{ // the one that may
		`C:\mnt\disks\ssd0`:                          "",
		`c:\MNT\Disks\ssd0\`:                         "",
		`C:\mnt\disks\ssd0\planted`:                  "none",
		`C:\mnt\disks`:                               "none",
		`C:\mnt\disks2\ssd0`:                         "none",
		`D:\mnt\disks\ssd0`:                          "none",
		`C:\mnt\local\ssd0`:                          "local",
		`C:\mnt\local\ssd0\planted`:                  "none",
		`C:\mnt\other\ssd0`:                          "none",
		DefaultKubeletPath + `\plugins\local\staged`: "none",
	} {
		for driver, policy := range policies {
			if got := policy.MayReformatAt(path); got != (driver == allowed) {
				t.Errorf("driver %q, %s: %v", driver, path, got)
			}
		}
	}
}
