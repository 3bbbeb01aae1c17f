// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package manifests renders all manifests that people can get from deploy, for tests.
package manifests

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// KustomizeDir is the directory of the bases.
func KustomizeDir(t testing.TB) string { return filepath.Join(root(t), "deploy/kustomize") }

// ChartDir is the directory of the chart.
func ChartDir(t testing.TB) string { return filepath.Join(root(t), "deploy/charts/csi-proxy") }

// root returns the directory of the repository.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "deploy/kustomize")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no directory above has deploy/kustomize")
		}
	}
}

// Bases are the directories below KustomizeDir that people apply.
var Bases = []string{
	"hostprocess",
	"service",
	"azure/hostprocess",
	"azure/service",
	"remove-service",
	"example-driver/classic",
	"example-driver/hostprocess",
	"example-driver/simulated",
	"kubectl-plugin",
	"metrics-reader",
	"openshift/ebs",
	"openshift/vsphere",
}

// Everything returns all manifests that people can get: each base, and the chart for each of
// Cases.
func Everything(t testing.TB) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for _, base := range Bases {
		all["kustomize "+base] = Kustomized(t, base)
	}
	for name, values := range Cases {
		all["chart "+name] = MustHelm(t, values)
	}
	return all
}

// Kustomized returns the manifests of a base, as "kubectl kustomize" prints them.
func Kustomized(t testing.TB, base string) []byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		filepath.Join(KustomizeDir(t), base))
	if err != nil {
		t.Fatalf("kustomize %s: %v", base, err)
	}
	manifests, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// Helmed returns the manifests of the chart with values, in YAML, for a release named
// csi-proxy in a namespace of that name, as "helm template" prints them.
func Helmed(t testing.TB, values string) ([]byte, error) {
	t.Helper()
	return HelmedFrom(t, ChartDir(t), values)
}

// HelmedFrom is Helmed for the chart in a directory.
func HelmedFrom(t testing.TB, dir, values string) ([]byte, error) {
	t.Helper()
	files, err := Render(dir, "csi-proxy", "csi-proxy", values)
	if err != nil {
		return nil, err
	}
	var manifests bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Ext(name) == ".yaml" {
			manifests.WriteString("\n---\n" + files[name])
		}
	}
	return manifests.Bytes(), nil
}

// Render returns what each template of the chart in a directory makes of values, in YAML, by the
// template's name.
func Render(dir, release, namespace, values string) (map[string]string, error) {
	source, err := loader.LoadDir(dir)
	if err != nil {
		return nil, err
	}
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return nil, fmt.Errorf("%s: %w", values, err)
	}
	options := common.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}
	merged, err := util.ToRenderValues(source, given, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(source, merged)
}

// MustHelm is Helmed for values that the chart takes.
func MustHelm(t testing.TB, values string) []byte {
	t.Helper()
	manifests, err := Helmed(t, values)
	if err != nil {
		t.Fatalf("the chart with %s: %v", values, err)
	}
	return manifests
}

// LoadChart returns the chart.
func LoadChart(t testing.TB) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(ChartDir(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Decode decodes manifests into the types of Kubernetes. A field that a type doesn't have,
// or that is there twice, is an error.
func Decode(t testing.TB, manifests []byte) []runtime.Object {
	t.Helper()
	objects, err := TryDecode(t, manifests)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TryDecode is Decode for manifests that may be wrong.
func TryDecode(t testing.TB, manifests []byte) ([]runtime.Object, error) {
	t.Helper()
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, types, types,
		json.SerializerOptions{Yaml: true, Strict: true})
	var objects []runtime.Object
	for _, document := range Documents(t, manifests) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Documents splits YAML into its documents, without empty ones.
func Documents(t testing.TB, manifests []byte) [][]byte {
	t.Helper()
	var all [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := reader.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if content != nil {
			all = append(all, document)
		}
	}
}

// All returns the objects of a type.
func All[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// Templates returns the pods that DaemonSets and Deployments make, with the names and namespaces of these.
func Templates(objects []runtime.Object) (all []core.PodTemplateSpec) {
	add := func(template core.PodTemplateSpec, of metav1.ObjectMeta) {
		template.Name, template.Namespace = of.Name, of.Namespace
		all = append(all, template)
	}
	for _, set := range All[*apps.DaemonSet](objects) {
		add(set.Spec.Template, set.ObjectMeta)
	}
	for _, deployment := range All[*apps.Deployment](objects) {
		add(deployment.Spec.Template, deployment.ObjectMeta)
	}
	return all
}

// Containers returns the containers of a pod, those for its start first.
func Containers(pod *core.PodSpec) []core.Container {
	return slices.Concat(pod.InitContainers, pod.Containers)
}

// IsHostProcess reports whether the containers of a pod are HostProcess containers.
func IsHostProcess(pod *core.PodSpec) bool {
	s := pod.SecurityContext
	return s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil && *s.WindowsOptions.HostProcess
}

// PreStop returns the hook of a container that runs before it stops, if it has one.
func PreStop(c core.Container) (hook core.Container, ok bool) {
	if c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return core.Container{}, false
	}
	return core.Container{Command: c.Lifecycle.PreStop.Exec.Command}, true
}

// Execs returns what is run in a container beside its own command: its hook and its probes.
func Execs(c core.Container) (execs []core.Container) {
	if hook, ok := PreStop(c); ok {
		execs = append(execs, hook)
	}
	for _, probe := range []*core.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		if probe != nil && probe.Exec != nil {
			execs = append(execs, core.Container{Command: probe.Exec.Command})
		}
	}
	return execs
}

// Program returns the name of the program of ours that a container runs, and its
// arguments as the program gets them; none if it isn't ours.
func Program(c core.Container) (name string, args []string) {
	if len(c.Command) == 0 {
		return "", nil
	}
	name = strings.TrimSuffix(c.Command[0][strings.LastIndexAny(c.Command[0], `\/`)+1:], ".exe")
	if !slices.Contains([]string{"csi-proxy", "csi-proxyctl", "csi-driver"}, name) {
		return "", nil
	}
	for _, arg := range slices.Concat(c.Command[1:], c.Args) {
		args = append(args, strings.NewReplacer("$(NODE_NAME)", "node-1", "%CONTAINER_SANDBOX_MOUNT_POINT%", `C:\hpc`).Replace(arg))
	}
	return name, args
}
