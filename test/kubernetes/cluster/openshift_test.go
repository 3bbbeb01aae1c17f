// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
)

// runWith runs a script of deploy/openshift with programs in place of those that it calls. They
// find each other's files in the directory $DIR. It returns what the script prints.
func runWith(t *testing.T, dir string, programs map[string]string, script string, args ...string) (string, error) {
	t.Helper()
	bin := filepath.Join(dir, "bin")
	must(t, os.MkdirAll(bin, 0o700))
	for name, text := range programs {
		must(t, os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/bash\n"+text), 0o700))
	}
	cmd := exec.Command("bash", append([]string{script}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DIR="+dir, "ARTIFACT_DIR="+dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// openShiftTest returns the commands of the test for ci-operator as a script, which sets what
// ci-operator would.
func openShiftTest(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(manifests.KustomizeDir(t), "../openshift/e2e.yaml"))
	must(t, err)
	var job struct {
		Steps struct {
			Test []struct {
				Env      []struct{ Name, Default string }
				Commands string
			}
		}
	}
	if err := yaml.Unmarshal(content, &job); err != nil || len(job.Steps.Test) != 1 {
		t.Fatalf("%+v, %v", job, err)
	}
	var script strings.Builder
	for _, v := range job.Steps.Test[0].Env {
		script.WriteString("export " + v.Name + "='" + v.Default + "'\n")
	}
	script.WriteString(job.Steps.Test[0].Commands)
	file := filepath.Join(dir, "commands.sh")
	must(t, os.WriteFile(file, []byte(script.String()), 0o600))
	return file
}

// fakeOC answers as a cluster with two Windows nodes, whose Jobs end at once.
const fakeOC = `
echo "$*" >>"$DIR/calls"
case "$1 $2" in
"get nodes") echo win-1 win-2 ;;
"get csinode") [ $3 = win-1 ] && echo "other.example.com $DRIVER" || cat "$DIR/win-2" ;;
"get job"*) cat "$DIR/status" ;;
apply*) { cat; echo ---; } >>"$DIR/applied.yaml" ;;
logs*) cat "$DIR/read" 2>/dev/null || sed -n 's/.*echo \(written at [0-9]*\).*/\1\r/p' "$DIR/applied.yaml" ;;
esac`

func TestOpenShiftJob(t *testing.T) {
	for _, test := range []struct {
		name, win2, status, read string
		want                     string // of the output
		ok                       bool
	}{
		{name: "works", win2: "csi.vsphere.vmware.com", status: "1/", want: "read what the first one wrote", ok: true},
		{name: "no driver", win2: "csi.vsphere.vmware.com.old", want: "csi.vsphere.vmware.com isn't registered on win-2"},
		{name: "pod fails", win2: "csi.vsphere.vmware.com", status: "/1", want: "the pod of the job writer failed"},
		{name: "never ends", win2: "csi.vsphere.vmware.com", status: "/", want: "the job writer isn't done"},
		{name: "other data", win2: "csi.vsphere.vmware.com", status: "1/", read: "old", want: `read "old" instead of "written at`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"win-2": test.win2, "status": test.status, "read": test.read} {
				if text == "" {
					continue
				}
				must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
			out, err := runWith(t, dir, map[string]string{"oc": fakeOC, "sleep": ""}, openShiftTest(t, dir))
			if (err == nil) != test.ok || !strings.Contains(out, test.want) {
				t.Errorf("%v, %s", err, out)
			}
			calls, err := os.ReadFile(filepath.Join(dir, "calls"))
			must(t, err)
			// It removes what it made, and nothing else.
			if made, removed := strings.Contains(string(calls), "create namespace csi-proxy-e2e"),
				strings.Contains(string(calls), "delete namespace csi-proxy-e2e"); made != removed {
				t.Errorf("the calls of oc:\n%s", calls)
			}
			if test.ok {
				checkJobs(t, filepath.Join(dir, "applied.yaml"))
			}
		})
	}
}

// checkJobs looks at what the commands have applied: a claim, and two Windows pods that use it.
func checkJobs(t *testing.T, file string) {
	t.Helper()
	applied, err := os.ReadFile(file)
	must(t, err)
	objects := manifests.Decode(t, applied)
	claims, jobs := manifests.All[*core.PersistentVolumeClaim](objects), manifests.All[*batch.Job](objects)
	if len(claims) != 1 || len(jobs) != 2 || *claims[0].Spec.StorageClassName != "ntfs" {
		t.Fatalf("it applied\n%s", applied)
	}
	for _, job := range jobs {
		pod := job.Spec.Template.Spec
		if pod.OS.Name != core.Windows || pod.NodeSelector[core.LabelOSStable] != "windows" ||
			pod.Volumes[0].PersistentVolumeClaim.ClaimName != claims[0].Name || pod.Containers[0].VolumeMounts[0].MountPath != `C:\data` {
			t.Errorf("the pod of %s doesn't use the claim on a Windows node", job.Name)
		}
	}
	if diff := cmp.Diff([]string{`type C:\data\file.txt`}, jobs[1].Spec.Template.Spec.Containers[0].Args); diff != "" {
		t.Errorf("what the second pod runs (- want, + got):\n%s", diff)
	}
}

// TestGather: what can't be had is listed, and keeps nobody from the rest.
func TestGather(t *testing.T) {
	dir := t.TempDir()
	out, err := runWith(t, dir, map[string]string{
		"kubectl-csi_proxy": `case $1 in --version) echo v1.2.3 ;; check) echo "{}"; exit 1 ;; esac`,
		"oc": `case "$*" in
"get nodes"*) echo node/win-1; echo node/win-2 ;;
"get configmaps"*) echo 'Error: no such namespace' >&2; exit 1 ;;
"adm inspect --dest-dir=inspect "*) shift 3; echo "$*" ;;
*"node-logs win-2"*) echo 'Error: win-2 is away' >&2; exit 1 ;;
*"node-logs win-1 --path=csi-proxy/csi-proxy.log"*) echo "log of $3" ;;
esac`,
	}, filepath.Join(manifests.KustomizeDir(t), "../openshift/gather"), filepath.Join(dir, "out"))
	if err != nil || out != "" {
		t.Errorf("%v, %s", err, out)
	}
	for name, want := range map[string]string{
		"version": "csi-proxy\nv1.2.3\n", "check.json": "{}\n", "inspect.log": "nodes csinodes csidrivers volumeattachments storageclasses persistentvolumes\n", "nodes/win-1-csi-proxy.log": "log of win-1\n",
		"nodes/win-1-csi-proxy.log.1": "log of win-1\n",
		"missing.txt": "windows-services.yaml: Error: no such namespace\nnodes/win-2-csi-proxy.log: Error: win-2 is away\n" +
			"nodes/win-2-csi-proxy.log.1: Error: win-2 is away\n",
	} {
		got, err := os.ReadFile(filepath.Join(dir, "out", name))
		if err != nil || string(got) != want {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}
