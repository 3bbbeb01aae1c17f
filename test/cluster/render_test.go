// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"path"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	kustomizeDir = "../../deploy/kustomize/"
	chartDir     = "../../deploy/charts/csi-proxy"
)

// bases are the directories below kustomizeDir that people apply.
var bases = []string{
	"hostprocess",
	"example-driver/classic",
	"example-driver/hostprocess",
}

// kustomized returns the manifests of a base, as "kubectl kustomize" prints them.
func kustomized(t testing.TB, base string) []byte {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), kustomizeDir+base)
	if err != nil {
		t.Fatalf("kustomize %s: %v", base, err)
	}
	manifests, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// helmed returns the manifests of the chart with values, in YAML, for a release named
// csi-proxy in a namespace of that name, as "helm template" prints them.
func helmed(t testing.TB, values string) ([]byte, error) {
	t.Helper()
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	options := common.ReleaseOptions{Name: "csi-proxy", Namespace: "csi-proxy", IsInstall: true}
	merged, err := util.ToRenderValues(loadChart(t), given, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Engine{Strict: true}.Render(loadChart(t), merged)
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

func mustHelm(t testing.TB, values string) []byte {
	t.Helper()
	manifests, err := helmed(t, values)
	if err != nil {
		t.Fatalf("the chart with %s: %v", values, err)
	}
	return manifests
}

func loadChart(t testing.TB) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// decode decodes manifests into the types of Kubernetes. A field that a type doesn't have,
// or that is there twice, is an error.
func decode(t testing.TB, manifests []byte) []runtime.Object {
	t.Helper()
	objects, err := tryDecode(t, manifests)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func tryDecode(t testing.TB, manifests []byte) ([]runtime.Object, error) {
	t.Helper()
	types := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoring.AddToScheme} {
		if err := add(types); err != nil {
			t.Fatal(err)
		}
	}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, types, types, json.SerializerOptions{Yaml: true, Strict: true})
	var objects []runtime.Object
	for _, document := range documents(t, manifests) {
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("%w in:\n%s", err, document)
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// documents splits YAML into its documents, without empty ones.
func documents(t testing.TB, manifests []byte) [][]byte {
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

// all returns the objects of a type.
func all[T runtime.Object](objects []runtime.Object) []T {
	var found []T
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

// containers returns the containers of a pod, those for its start first.
func containers(pod *core.PodSpec) []core.Container {
	return slices.Concat(pod.InitContainers, pod.Containers)
}

// isHostProcess reports whether the containers of a pod are HostProcess containers.
func isHostProcess(pod *core.PodSpec) bool {
	s := pod.SecurityContext
	return s != nil && s.WindowsOptions != nil && s.WindowsOptions.HostProcess != nil && *s.WindowsOptions.HostProcess
}

// container returns the container of that name of a DaemonSet.
func container(t testing.TB, set *apps.DaemonSet, name string) core.Container {
	t.Helper()
	for _, c := range containers(&set.Spec.Template.Spec) {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("DaemonSet %s has no container %s", set.Name, name)
	return core.Container{}
}

// program returns the name of the program of ours that a container runs, and its
// arguments as the program gets them; none if it isn't ours.
func program(c core.Container) (name string, args []string) {
	if len(c.Command) == 0 {
		return "", nil
	}
	_, file, _ := strings.Cut(c.Command[0], `\`)
	name = strings.TrimSuffix(file, ".exe")
	if !slices.Contains([]string{"csi-proxy", "csi-proxyctl", "csi-driver"}, name) {
		return "", nil
	}
	for _, arg := range slices.Concat(c.Command[1:], c.Args) {
		args = append(args, strings.NewReplacer("$(NODE_NAME)", "node-1", "%CONTAINER_SANDBOX_MOUNT_POINT%", `C:\hpc`).Replace(arg))
	}
	return name, args
}
