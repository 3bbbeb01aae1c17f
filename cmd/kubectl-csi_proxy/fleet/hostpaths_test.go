// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func mounting(name string, paths ...string) *core.Pod {
	var volumes []core.Volume
	for _, path := range paths {
		volumes = append(volumes, core.Volume{VolumeSource: core.VolumeSource{HostPath: &core.HostPathVolumeSource{Path: path}}})
	}
	return app(name, "win-1", append(volumes, core.Volume{Name: "empty"})...)
}

// A pod that mounts more than one driver's own voids the boundary, on nodes where a driver has its own endpoints.
func TestHostPaths(t *testing.T) {
	own := []string{`\\.\pipe\csi-proxy-red.example.com-disk-v1`, `\\.\pipe\csi-proxy-RED.example.com-volume-v1beta3`,
		`C:\var\lib\kubelet\plugins\red.example.com\`, `C:\var\lib\kubelet\plugins_registry`, `\var\log`, `D:\`, `\\.\pipe\containerd`}
	red := mounting("red", own...)
	for path, isTooMuch := range map[string]bool{
		`C:\var\lib\kubelet`: true, `C:\var\lib\kubelet\`: true, `\var\lib\kubelet`: true, `/VAR/lib/kubelet/`: true, `C:\`: true, `/`: true,
		`C:\var\lib`: true, `C:\var\lib\kubelet\pods`: true, `C:\var\lib\kubelet\plugins`: true, `C:\var\lib\kubelet\pki`: true,
		`C:\var\lib\kubelet\plugins\kubernetes.io`: true, `C:\var\lib\kubelet\plugins\kubernetes.io\csi\red.example.com`: true,
		`C:\var\lib\kubelet\plugins\blue.example.com`: true, `\\.\pipe\csi-proxy-blue.example.com-disk-v1`: true,
		`\\.\pipe\csi-proxy-disk-v1`: true, `\\.\pipe\csi-proxy-administrators-disk-v1`: true, `\\.\pipe\csi-proxy-admin`: true,
		`C:\var\lib\kubelet2`: false, `C:\logs`: false, `\\.\pipe\other`: false,
	} {
		pod := mounting("pod", append(own, path)...)
		problems := checkOf(t, Check{}, node("win-1"), daemonPod("win-1", "metrics"), csiNode("win-1", "red.example.com"), red, pod).Nodes[0].Problems
		if isTooMuch != (len(problems) == 1) || isTooMuch && (!strings.Contains(problems[0], "default/pod "+hostPath(path)) ||
			strings.Contains(problems[0], "default/red")) {
			t.Errorf("%s: %q", path, problems)
		}
	}
	objects := []runtime.Object{node("win-1"), daemonPod("win-1", "metrics"), csiNode("win-1", "red.example.com"), mounting("ebs", `C:\var\lib\kubelet`, `\\.\pipe\csi-proxy-disk-v1`)}
	if problems := checkOf(t, Check{}, objects...).Nodes[0].Problems; len(problems) > 0 {
		t.Errorf("without endpoints of a driver's own: %q", problems)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		objects = append(objects, mounting(name, `C:\var`))
	}
	if problems := checkOf(t, Check{}, append(objects, red)...).Nodes[0].Problems; len(problems) != 1 || !strings.Contains(problems[0], "default/e c:\\var and others") {
		t.Errorf("many pods: %q", problems)
	}
}
