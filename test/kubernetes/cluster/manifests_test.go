// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
)

// TestAllBasesAreTested keeps the list of bases complete.
func TestAllBasesAreTested(t *testing.T) {
	var found []string
	err := filepath.WalkDir(manifests.KustomizeDir(t), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "kustomization.yaml" {
			return err
		}
		base, err := filepath.Rel(manifests.KustomizeDir(t), filepath.Dir(path))
		if err != nil {
			return err
		}
		// The shared parts are in those that use them.
		if filepath.Base(base) != "base" {
			found = append(found, base)
		}
		return nil
	})
	must(t, err)
	slices.Sort(found)
	if diff := cmp.Diff(slices.Sorted(slices.Values(manifests.Bases)), found); diff != "" {
		t.Errorf("the directories with a kustomization.yaml (+) aren't those that are tested (-):\n%s", diff)
	}
}

func TestManifestsDecodeStrictly(t *testing.T) {
	for name, rendered := range manifests.Everything(t) {
		if len(manifests.Decode(t, rendered)) == 0 {
			t.Errorf("%s: no objects", name)
		}
	}
}

// TestDecodeIsStrict shows that TestManifestsDecodeStrictly can fail.
func TestDecodeIsStrict(t *testing.T) {
	mistyped := []byte("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\nautomountServiceAcountToken: false\n")
	if _, err := manifests.TryDecode(t, mistyped); err == nil {
		t.Error("an unknown field was decoded")
	}
}

// TestPods checks each pod for what all of them promise.
func TestPods(t *testing.T) {
	for name, rendered := range manifests.Everything(t) {
		t.Run(name, func(t *testing.T) {
			objects := manifests.Decode(t, rendered)
			accounts := make(map[string]*core.ServiceAccount)
			for _, account := range manifests.All[*core.ServiceAccount](objects) {
				accounts[account.Namespace+"/"+account.Name] = account
				if account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken {
					t.Errorf("ServiceAccount %s: its token is mounted", account.Name)
				}
			}
			for _, template := range manifests.Templates(objects) {
				pod := &template.Spec
				if accounts[template.Namespace+"/"+pod.ServiceAccountName] == nil && !strings.Contains(name, "existing account") {
					t.Errorf("%s: no ServiceAccount %s", template.Name, pod.ServiceAccountName)
				}
				for _, c := range manifests.Containers(pod) {
					checkContainer(t, template.Name+" "+c.Name, pod, c)
				}
			}
			withRole := make(map[string]bool)
			for _, binding := range manifests.All[*rbac.ClusterRoleBinding](objects) {
				for _, subject := range binding.Subjects {
					withRole[subject.Namespace+"/"+subject.Name] = true
				}
			}
			for _, set := range manifests.All[*apps.DaemonSet](objects) {
				pod := &set.Spec.Template.Spec
				checkDaemonSet(t, set, pod, withRole[set.Namespace+"/"+pod.ServiceAccountName])
			}
		})
	}
}

func checkDaemonSet(t *testing.T, set *apps.DaemonSet, pod *core.PodSpec, withRole bool) {
	t.Helper()
	// A token for the Kubernetes API is mounted where the account may do something with it.
	if mounts := pod.AutomountServiceAccountToken; mounts == nil || *mounts != withRole {
		t.Errorf("%s: automountServiceAccountToken isn't %t, and its account has a role: %[2]t", set.Name, withRole)
	}
	if pod.OS == nil || pod.OS.Name != core.Windows || pod.NodeSelector[core.LabelOSStable] != "windows" {
		t.Errorf("%s: not only for Windows nodes", set.Name)
	}
	// Two daemons, or two drivers, on a node get in each other's way.
	if surge := set.Spec.UpdateStrategy.RollingUpdate.MaxSurge; surge == nil || *surge != intstr.FromInt32(0) {
		t.Errorf("%s: maxSurge is %v", set.Name, surge)
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if set.Spec.Template.Labels[key] != value {
			t.Errorf("%s: selects %s=%s, which its pods don't have", set.Name, key, value)
		}
	}
	if pod.SecurityContext.WindowsOptions.RunAsUserName == nil {
		t.Errorf("%s: the account isn't said", set.Name)
	}
	// Windows' container runtime refuses to mount a pipe into a HostProcess container; other
	// mounts of the node put a filter between the program and the node's paths.
	if manifests.IsHostProcess(pod) {
		if !pod.HostNetwork {
			t.Errorf("%s: a HostProcess pod needs hostNetwork", set.Name)
		}
		for _, v := range pod.Volumes {
			if v.Secret == nil && v.ConfigMap == nil {
				t.Errorf("%s: a HostProcess pod has the volume %s", set.Name, v.Name)
			}
		}
	}
}

func checkContainer(t *testing.T, name string, pod *core.PodSpec, c core.Container) {
	t.Helper()
	volumes := make(map[string]core.Volume)
	for _, v := range pod.Volumes {
		volumes[v.Name] = v
	}
	for _, mount := range c.VolumeMounts {
		v, ok := volumes[mount.Name]
		if !ok {
			t.Fatalf("%s: there is no volume %s", name, mount.Name)
		}
		if v.Secret != nil {
			if !mount.ReadOnly || mount.MountPath != "/etc/csi-proxy" { // where the daemon's flag says
				t.Errorf("%s: the Secret is mounted at %s", name, mount.MountPath)
			}
			continue
		}
		if v.ConfigMap != nil && (!mount.ReadOnly || mount.MountPath != `C:\csi-proxy-drivers`) {
			t.Errorf("%s: the ConfigMap is mounted at %s", name, mount.MountPath)
		}
		if v.HostPath == nil {
			continue
		}
		if isPipe(v.HostPath.Path) != isPipe(mount.MountPath) || isPipe(mount.MountPath) &&
			strings.Replace(v.HostPath.Path, "csi-proxy-example.csi-proxy.dev-", "csi-proxy-", 1) != mount.MountPath {
			t.Errorf("%s: %s is mounted at %s", name, v.HostPath.Path, mount.MountPath)
		}
		if isPipe(v.HostPath.Path) && *v.HostPath.Type != core.HostPathUnset {
			t.Errorf("%s: the pipe %s has the type %s", name, v.HostPath.Path, *v.HostPath.Type)
		}
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("%s: no limit of memory or no request of processor time", name)
	}
	// Who reads the pod sees why the daemon ended, such as for a wrong flag.
	if p, _ := manifests.Program(c); strings.HasPrefix(p, "csi-proxy") &&
		c.TerminationMessagePolicy != core.TerminationMessageFallbackToLogsOnError {
		t.Errorf("%s: the policy for its last words is %q", name, c.TerminationMessagePolicy)
	}
	if !strings.Contains(c.Image, ":") || strings.HasSuffix(c.Image, ":latest") {
		t.Errorf("%s: the image %s has no version", name, c.Image)
	}
	if !manifests.IsHostProcess(pod) {
		return
	}
	// The runtime starts a HostProcess container by cmd /c, to which these mean something.
	hook, _ := manifests.PreStop(c)
	for _, arg := range slices.Concat(c.Command, c.Args, hook.Command) {
		if strings.ContainsAny(strings.ReplaceAll(arg, "%CONTAINER_SANDBOX_MOUNT_POINT%", ""), `&|<>^%"`) {
			t.Errorf("%s: cmd.exe would change %s", name, arg)
		}
	}
}

func isPipe(path string) bool { return strings.HasPrefix(path, `\\.\pipe\`) }

// TestEndOfDaemon compares the times of a stop. The runtime leaves the programs of a HostProcess
// container 5 seconds, of which the daemon takes one more than its grace period; so it is drained
// before. Kubernetes counts the drain and these seconds.
func TestEndOfDaemon(t *testing.T) {
	daemons := 0
	for name, rendered := range manifests.Everything(t) {
		for _, set := range manifests.All[*apps.DaemonSet](manifests.Decode(t, rendered)) {
			pod := &set.Spec.Template.Spec
			for _, c := range pod.Containers {
				p, args := manifests.Program(c)
				if p != "csi-proxy" {
					continue
				}
				daemons++
				grace := seconds(t, args, "-grace-period=%ds")
				if grace > 3 {
					t.Errorf("%s: the container ends after 5 s, the daemon's grace period is %d s", name, grace)
				}
				hook, ok := manifests.PreStop(c)
				if p, args := manifests.Program(hook); !ok || p != "csi-proxyctl" || args[0] != "drain" {
					t.Fatalf("%s: before it stops, it runs %v", name, hook.Command)
				}
				needed := seconds(t, hook.Command, "--wait=%ds") + grace + 5
				if got := *pod.TerminationGracePeriodSeconds; got < needed {
					t.Errorf("%s: Kubernetes kills the pod after %d s, and its end may take %d s", name, got, needed)
				}
			}
		}
	}
	if daemons == 0 {
		t.Error("there is no daemon")
	}
}

// seconds returns the number in the argument that has a format.
func seconds(t *testing.T, args []string, format string) (n int64) {
	t.Helper()
	for _, arg := range args {
		if found, err := fmt.Sscanf(arg, format, &n); found == 1 && err == nil {
			return n
		}
	}
	t.Fatalf("no %s in %q", format, args)
	return 0
}

var update = flag.Bool("update", false, "write testdata/command-lines.json anew")

// commandLine is a command line of ours in a manifest, as the program gets it.
type commandLine struct {
	Program string   `json:"program"`
	Args    []string `json:"args"`
	In      string   `json:"in"` // the first of the manifests that have it, by name
	// Drivers is the file of -drivers.
	Drivers any `json:"drivers,omitempty"`
}

// TestCommandLines writes down each command line of ours in the manifests. The tests of the
// programs parse them with their own flags, so that a flag that changes can't be forgotten
// here.
func TestCommandLines(t *testing.T) {
	const file = "testdata/command-lines.json"
	found := make(map[string]*commandLine)
	everything := manifests.Everything(t)
	for _, name := range slices.Sorted(maps.Keys(everything)) {
		objects := manifests.Decode(t, everything[name])
		for _, template := range manifests.Templates(objects) {
			containers := manifests.Containers(&template.Spec)
			for _, c := range containers {
				containers = append(containers, manifests.Execs(c)...)
			}
			for _, c := range containers {
				p, args := manifests.Program(c)
				drivers := driversFile(t, objects, &template.Spec, c, args)
				key := fmt.Sprint(p, args, drivers)
				if p != "" && found[key] == nil {
					found[key] = &commandLine{Program: p, Args: args, In: name, Drivers: drivers}
				}
			}
		}
	}
	var lines []*commandLine
	for _, key := range slices.Sorted(maps.Keys(found)) {
		lines = append(lines, found[key])
	}
	if *update {
		content, err := json.MarshalIndent(lines, "", "\t")
		must(t, err)
		must(t, os.WriteFile(file, append(content, '\n'), 0o644))
	}
	content, err := os.ReadFile(file)
	must(t, err)
	var written []*commandLine
	must(t, json.Unmarshal(content, &written))
	if diff := cmp.Diff(written, lines); diff != "" {
		t.Errorf("%s (-) isn't what the manifests have (+); run go -C test/kubernetes/cluster test -run TestCommandLines -update:\n%s",
			file, diff)
	}
}

// driversFile returns the file that a container's -drivers names, or csi-proxyctl's --drivers. It must be in a
// ConfigMap that is mounted.
func driversFile(t *testing.T, objects []runtime.Object, pod *core.PodSpec, c core.Container, args []string) (file any) {
	t.Helper()
	for _, arg := range args {
		path, ok := strings.CutPrefix(strings.TrimPrefix(arg, "--"), "drivers=")
		if !ok {
			path, ok = strings.CutPrefix(arg, "-drivers=")
		}
		if !ok {
			continue
		}
		for _, config := range manifests.All[*core.ConfigMap](objects) {
			for _, v := range pod.Volumes {
				for _, mount := range c.VolumeMounts {
					name, below := strings.CutPrefix(path, `C:\hpc`+strings.TrimPrefix(mount.MountPath, "C:")+`\`)
					if below && mount.Name == v.Name && v.ConfigMap != nil && v.ConfigMap.Name == config.Name {
						must(t, json.Unmarshal([]byte(config.Data[name]), &file))
						return file
					}
				}
			}
		}
		t.Fatalf("%s: no mounted ConfigMap has the file", arg)
	}
	return nil
}

// TestExampleDriverOwn: where the example driver is among the drivers, it uses its own pipes, in whatever way its
// container can; else, the shared ones.
func TestExampleDriverOwn(t *testing.T) {
	const own = `\\.\pipe\csi-proxy-example.csi-proxy.dev-storage-v1alpha1`
	for values, want := range map[string]bool{
		"drivers: [{name: example.csi-proxy.dev}]":                  true,
		"{drivers: [{name: a.example.com}], sharedEndpoints: true}": false,
		"{}": false,
		"drivers: [{name: a.example.com}, {name: example.csi-proxy.dev}]":   true,
		"{mode: container, drivers: [{name: example.csi-proxy.dev}]}":       true,
		"{sharedEndpoints: true, drivers: [{name: example.csi-proxy.dev}]}": true,
	} {
		for _, mode := range []string{"classic", "hostProcess"} {
			rendered := manifests.MustHelm(t, merge(t, values, parse(t,
				"exampleDriver: {enabled: true, image: 'csi-example-driver:a', mode: "+mode+"}")))
			for _, set := range manifests.All[*apps.DaemonSet](manifests.Decode(t, rendered)) {
				if set.Name != "csi-proxy-example-driver" {
					continue
				}
				mounted := slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(v core.Volume) bool {
					return v.HostPath != nil && v.HostPath.Path == own
				})
				given := slices.Contains(set.Spec.Template.Spec.Containers[0].Args, "-own-endpoints")
				if mounted != (want && mode == "classic") || given != (want && mode == "hostProcess") {
					t.Errorf("%s, %s: its own pipe is mounted: %v, its flag is given: %v", values, mode, mounted, given)
				}
			}
		}
	}
}

// TestDriversRoll: another file of drivers makes the DaemonSet exchange its pods, since the daemon reads it when it
// starts; a release without one isn't touched by that.
func TestDriversRoll(t *testing.T) {
	annotations := func(values string) map[string]string {
		return manifests.All[*apps.DaemonSet](manifests.Decode(t, manifests.MustHelm(t, values)))[0].Spec.Template.Annotations
	}
	for _, mode := range []string{"service", "container"} {
		none := annotations("mode: " + mode)
		one := annotations("{mode: " + mode + ", drivers: [{name: a.example.com}]}")
		other := annotations("{mode: " + mode + ", drivers: [{name: a.example.com, maxCalls: 7}]}")
		if len(none) != 1 || len(one) != 2 || reflect.DeepEqual(one, other) {
			t.Errorf("%s: the annotations are %v without drivers, %v with one, and %v when it has changed", mode, none, one, other)
		}
	}
}

func TestChartLint(t *testing.T) {
	for name, values := range manifests.Cases {
		given := parse(t, values)
		for _, message := range lint.RunAll(manifests.ChartDir(t), given, "csi-proxy").Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, message)
			}
		}
	}
}

// TestEveryValueMatters sets each value of values.yaml to another one and looks whether
// that changes anything.
func TestEveryValueMatters(t *testing.T) {
	defaults := manifests.LoadChart(t).Values
	tested := make(map[string]bool)
	for _, change := range changes {
		tested[change.value] = true
		before := manifests.MustHelm(t, change.with)
		after := manifests.MustHelm(t, merge(t, change.with, nest(change.value, change.to)))
		if reflect.DeepEqual(before, after) {
			t.Errorf("%s: %v changes nothing", change.value, change.to)
		}
	}
	for _, value := range leaves("", defaults) {
		if !tested[value] {
			t.Errorf("%s: no change in the table", value)
		}
		delete(tested, value)
	}
	for value := range tested {
		t.Errorf("%s isn't in values.yaml", value)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for _, values := range []string{
		"mode: daemon",
		"Mode: service",
		"service: {name: 'csi proxy'}",
		"service: {restore: 1}",
		"image: {repository: ''}",
		"image: {pullPolicy: Sometimes}",
		"imagePullSecrets: [secret]",
		`kubeletPath: var\lib\kubelet`,
		`kubeletPath: 'C:\var\lib\kubelet\'`,
		`kubeletPath: C:/var/lib/kubelet`,
		`workingDirs: ['D:\a & del D:\b']`,
		`workingDirs: D:\a`,
		"protectedVolumes: ['']",
		"requirePrivacy: 'no'",
		"{mode: container, drivers: [{disks: [{bus: NVMe}]}]}",
		"{mode: container, drivers: [{name: a, disk: [{bus: NVMe}]}]}",
		"{mode: container, drivers: [{name: a, disks: [{}]}]}",
		"{mode: container, drivers: [{name: a, disks: [{model: b}]}]}",
		"{mode: container, drivers: [{name: a, groups: [disks]}]}",
		"{mode: container, drivers: {a: {}}}",
		"sharedEndpoints: 1",
		"goMemoryLimit: 400Mi",
		"gracePeriodSeconds: 25s",
		"gracePeriodSeconds: -1",
		"logLevel: debug",
		"extraArgs: [require-privacy]",
		"metrics: {port: 0}",
		"metrics: {port: 65536}",
		"metrics: {bindAddress: localhost}",
		"metrics: {podMonitor: {interval: often}}",
		"metrics: {podMonitor: {labels: {a: 1}}}",
		"metrics: {podMonitor: {enabled: true}}", // of what is served on the node only
		"metrics: {healthPort: 29811}",           // of an earlier version
		"serviceAccount: {name: 1}",
		"resourceQuota: {pods: 0}",
		"maxUnavailable: 0",
		"maxUnavailable: 0%",
		"maxUnavailable: some",
		"tolerations: {operator: Exists}",
		"tolerations: [{operater: Exists}]",
		"tolerations: [{operator: Exist}]",
		"affinity: {node: {}}",
		"resources: {limit: {memory: 1Gi}}",
		"service: {resources: {memory: 1Gi}}",
		"kubectlPlugin: {viewers: {subjects: [{kind: Role, name: a}]}}",
		"podLabels: {a: [b]}",
		"exampleDriver: {mode: container}",
		"exampleDriver: {pipes: {disks: v1}}",
		"exampleDriver: {pipes: {disk: 1}}",
		"unknown: true",
		"exampleDriver: {unknown: true}",
	} {
		if _, err := manifests.Helmed(t, values); err == nil {
			t.Errorf("the chart takes %s", values)
		}
	}
}

// TestRefusals: what pods could only fail with is refused, in a sentence that says what to write.
func TestRefusals(t *testing.T) {
	for values, want := range map[string]string{
		// As helm reads --set kubeletPath=C:\var\lib\kubelet, and YAML "C:\var" in double quotes.
		"kubeletPath: 'C:varlibkubelet'": `kubeletPath is "C:varlibkubelet": it must be a path on a Windows drive such as C:\var\lib\kubelet, ` +
			`without a backslash at its end and without any of / * ? " < > | & ^ and the percent sign. ` +
			`With --set, double each backslash: --set 'kubeletPath=C:\\var\\lib\\kubelet'`,
		"{mode: container, goMemoryLimit: 512MiB}":                           "goMemoryLimit is 512MiB, and resources.limits.memory 512Mi: it must be lower",
		"nodeSelector: {kubernetes.io/os: linux}":                            "nodeSelector: the chart sets kubernetes.io/os, to windows",
		"extraArgs: [-max-cals=100]":                                         `extraArgs: "-max-cals=100" isn't a flag of the daemon on a node; docs/flags.md lists them`,
		"{mode: container, drivers: [{name: a_b}]}":                          `drivers is "a_b": it must be the name of a CSIDriver`,
		"{mode: container, drivers: [{name: a}, {name: A}]}":                 "drivers: one of the drivers is there twice",
		"{mode: container, drivers: [{name: a}], extraArgs: ['-drivers=C']}": "extraArgs: -drivers is given by drivers",
		"{drivers: [{name: a}], extraArgs: ['--drivers=C']}":                 "extraArgs: -drivers is given by drivers",
		"{mode: container, drivers: [{name: a}], exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}}": "exampleDriver " +
			"has no endpoints: the published ones are off while drivers names some, and it isn't among them",
		"exampleDriver: {enabled: true}":           "exampleDriver.image is empty: nobody has published an image of the example driver",
		"image: {repository: https://ghcr.io/a/b}": `"https://ghcr.io/a/b:v0.1.0" isn't the name of an image`,
	} {
		if _, err := manifests.Helmed(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nisn't: %s", values, err, want)
		}
	}
	for _, values := range []string{
		`kubeletPath: "C:\var"`,
		`workingDirs: ["C:\\a\tb"]`,
		`workingDirs: ['C:\a', 'D:\b%PATH%']`,
		`service: {directory: bin}`,
		"protectedVolumes: [D]",
		`protectedVolumes: ['D:\data']`,
		"metrics: {bindAddress: localhost}",
		"metrics: {bindAddress: 127.0.0}",
		"metrics: {bindAddress: 127.0.0.256}",
		"metrics: {bindAddress: '127.0.0.1:14810'}",
		"metrics: {podMonitor: {interval: often}}",
		"metrics: {podMonitor: {interval: 0s}}",
		"service: {name: csi proxy}",
		"maxUnavailable: 0",
		"image: {repository: ''}",
		"exampleDriver: {enabled: true, image: ''}",
		"exampleDriver: {enabled: true, image: 'csi-example-driver:classic', pipes: {disk: '1'}}",
		"maxUnavailable: 0%",
		"{mode: container, goMemoryLimit: 400Mi}",
		"{mode: container, resources: {limits: {memory: 400000k}}}",
		"podLabels: {app.kubernetes.io/name: a}",
		"kubectlPlugin: {viewers: {subjects: [{kind: ServiceAccount, name: a}]}}",
		"extraArgs: [require-privacy]",
		`extraArgs: ['-log_dir=C:\a & b']`,
		`extraArgs: ['--kubelet-path=D:\kubelet']`,
		"extraArgs: [-metrics-bind-address=:1]",
		"extraArgs: [-refuse-clones=yes]",
		"extraArgs: [-refuse-clones, --]",
		"extraArgs: [-version]",
		"extraArgs: [--max-calls]",
		"image: {repository: 'ghcr.io/csi-proxy/csi-proxy:v1'}",
		"image: {repository: ghcr.io/CSI-Proxy/csi-proxy}",
		"image: {tag: 'v1 '}",
		"image: {digest: 'sha256:abc'}",
		"exampleDriver: {enabled: true, image: 'csi-example-driver:classic', registrarImage: a}",
		"exampleDriver: {enabled: true, image: 'csi-example-driver:classic', mode: hostProcess, livenessPort: 14810}",
		"service: {restore: true}",
		"{mode: container, service: {name: csiproxy}}",
		`{mode: container, service: {directory: 'D:\csi-proxy'}}`,
		"{mode: container, service: {resources: {limits: {memory: 1Gi}}}}",
		"exampleDriver: {enabled: true}",
	} {
		if _, err := manifests.Helmed(t, values); err == nil {
			t.Errorf("the chart takes %s", values)
		}
	}
	for _, values := range []string{
		"extraArgs: [--max-calls=100, -refuse-clones, -require-privacy=true, '-vmodule=a=1']",
		"image: {repository: 'localhost:5000/a/b_c', tag: latest-1}",
		"image: {repository: csi-proxy}",
		"exampleDriver: {enabled: true, image: 'csi-example-driver:classic', registrarImage: 'a/b@sha256:" + strings.Repeat("0a", 32) + "'}",
		`kubeletPath: 'D:\Program Files (x86)\kubelet'`,
		`protectedVolumes: ['D:', 'e:\', '\\?\Volume{01234567-89ab-cdef-0123-456789abcdef}\']`,
		"metrics: {bindAddress: 'fe80::1'}",
		"metrics: {bindAddress: '::'}",
		"metrics: {bindAddress: 0.0.0.0}",
		"{mode: container, goMemoryLimit: 900MiB, resources: {limits: {memory: 1Gi}}}",
		"goMemoryLimit: 600MiB",
		`extraArgs: ['-drivers=C:\csi\drivers.json']`,
		"{mode: removeService, drivers: [{name: a}]}",
		"{mode: container, goMemoryLimit: '', resources: {}}",
	} {
		if _, err := manifests.Helmed(t, values); err != nil {
			t.Errorf("%s: %v", values, err)
		}
	}
}

// TestMetricsAreLocal: by default only the node reads metrics, and in each case the probes go through
// the daemon's pipe, so that they hold if another process has the port.
func TestMetricsAreLocal(t *testing.T) {
	for name, rendered := range manifests.Everything(t) {
		for _, set := range manifests.All[*apps.DaemonSet](manifests.Decode(t, rendered)) {
			c := set.Spec.Template.Spec.Containers[0]
			_, args := manifests.Program(c)
			if c.Name != "csi-proxy" || c.ReadinessProbe == nil {
				continue
			}
			// A daemon that waits for pipes that another one has is alive, and isn't restarted.
			status := []string{`%CONTAINER_SANDBOX_MOUNT_POINT%\csi-proxyctl.exe`, "status"}
			ready, alive := append(slices.Clone(status), "--ready"), append(slices.Clone(status), "--alive")
			for _, probe := range []struct {
				*core.Probe
				command []string
			}{{c.StartupProbe, alive}, {c.ReadinessProbe, ready}, {c.LivenessProbe, alive}} {
				if probe.Exec == nil || !slices.Equal(probe.Exec.Command, probe.command) || probe.TimeoutSeconds < 5 {
					t.Errorf("%s: a probe isn't %q, with 5 seconds or more: %v", name, probe.command, probe)
				}
			}
			local := slices.ContainsFunc(args, func(arg string) bool {
				return strings.HasPrefix(arg, "-metrics-bind-address=127.0.0.1:") ||
					strings.HasPrefix(arg, "-metrics-bind-address=[::1]:")
			})
			if local != (c.Ports[0].Name == "local-metrics") {
				t.Errorf("%s: the port %s, with %q", name, c.Ports[0].Name, args)
			}
			if !local && !strings.Contains(manifests.Cases[strings.TrimPrefix(name, "chart ")], "bindAddress") {
				t.Errorf("%s: metrics are open to everybody", name)
			}
		}
	}
}

// TestFirstVolumes: each file of deploy/first-volume is whole: a Windows pod uses a claim, and
// the claim a class or a volume of the file.
func TestFirstVolumes(t *testing.T) {
	dir := filepath.Join(manifests.KustomizeDir(t), "../first-volume")
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) < 6 {
		t.Fatalf("%q, %v", files, err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	must(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		must(t, err)
		objects := manifests.Decode(t, content)
		pod := checkVolume(t, file, objects)
		if pod.OS == nil || pod.OS.Name != core.Windows || pod.NodeSelector[core.LabelOSStable] != "windows" {
			t.Errorf("%s: the pod isn't for Windows nodes", file)
		}
		if !strings.Contains(string(readme), "("+filepath.Base(file)+")") {
			t.Errorf("README.md doesn't have %s", file)
		}
	}
}

// checkVolume checks that a pod uses a claim, and the claim a class or a volume, and returns the pod.
func checkVolume(t *testing.T, file string, objects []runtime.Object) core.PodSpec {
	t.Helper()
	pods, claims := manifests.All[*core.Pod](objects), manifests.All[*core.PersistentVolumeClaim](objects)
	classes, volumes := manifests.All[*storage.StorageClass](objects), manifests.All[*core.PersistentVolume](objects)
	if len(objects) != 3 || len(pods) != 1 || len(claims) != 1 || len(classes)+len(volumes) != 1 {
		t.Fatalf("%s: %d objects, which aren't a pod, a claim, and a class or a volume", file, len(objects))
	}
	pod, claim := pods[0].Spec, claims[0]
	if pod.Volumes[0].PersistentVolumeClaim.ClaimName != claim.Name ||
		pod.Containers[0].VolumeMounts[0].Name != pod.Volumes[0].Name {
		t.Errorf("%s: the pod doesn't use the claim", file)
	}
	if len(classes) == 1 && *claim.Spec.StorageClassName != classes[0].Name || len(volumes) == 1 &&
		claim.Spec.VolumeName != volumes[0].Name {
		t.Errorf("%s: the claim uses neither the class nor the volume", file)
	}
	return pod
}

// TestSimulated: what is for a disk's life without Windows fits together. "make test-kubelet" tries
// volume.yaml, and what rbac.yaml allows the sidecars.
func TestSimulated(t *testing.T) {
	const base = "example-driver/simulated"
	content, err := os.ReadFile(filepath.Join(manifests.KustomizeDir(t), base, "volume.yaml"))
	must(t, err)
	volume, driver := manifests.Decode(t, content), manifests.Decode(t, manifests.Kustomized(t, base))
	pod := checkVolume(t, "volume.yaml", volume)
	described := manifests.All[*storage.CSIDriver](driver)[0]
	class := manifests.All[*storage.StorageClass](volume)[0]
	if !*described.Spec.AttachRequired || class.Provisioner != described.Name {
		t.Errorf("%s attaches: %t; the class is of %s", described.Name, *described.Spec.AttachRequired, class.Provisioner)
	}
	template := manifests.Templates(driver)[0]
	near := pod.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	selector, err := metav1.LabelSelectorAsSelector(near.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(template.Labels)) || near.Namespaces[0] != template.Namespace {
		t.Errorf("the pod isn't put beside the driver: %v, %v", near, err)
	}
	binding := manifests.All[*rbac.ClusterRoleBinding](driver)[0]
	role := manifests.All[*rbac.ClusterRole](driver)[0]
	if binding.RoleRef.Name != role.Name || binding.Subjects[0].Name != template.Spec.ServiceAccountName ||
		binding.Subjects[0].Namespace != template.Namespace {
		t.Errorf("%v: not what the driver's account needs", binding)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
