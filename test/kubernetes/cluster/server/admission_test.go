// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/test/kubernetes/cluster/manifests"
	"github.com/csi-proxy/csi-proxy/test/kubernetes/kubelet/controlplane"
)

// What an account's pod mounts of the node, and whether the chart's admission policy lets it in.
type mountCase struct {
	namespace, account string
	paths              []string
	change             func(*core.PodSpec)
	refused            string // a part of the reason; empty if it is let in
}

const (
	ofEBS   = `\\.\pipe\csi-proxy-ebs.csi.aws.com-`
	kubelet = `C:\var\lib\kubelet`
)

// mounting returns a pod spec for Windows nodes, whose driver's container mounts the pipes, and whose registrar the rest.
func mounting(account string, paths []string) core.PodSpec {
	registrar := core.Container{Name: "registrar", Image: "registrar"}
	driver := core.Container{Name: "driver", Image: "driver"}
	spec := core.PodSpec{ServiceAccountName: account, NodeSelector: map[string]string{"kubernetes.io/os": "windows"}}
	for i, path := range paths {
		name := "v" + string(rune('a'+i))
		spec.Volumes = append(spec.Volumes, hostPath(name, path))
		mount := core.VolumeMount{Name: name, MountPath: `C:\` + name}
		if strings.HasPrefix(strings.ToLower(path), `\\.\pipe\`) {
			driver.VolumeMounts = append(driver.VolumeMounts, mount)
		} else {
			registrar.VolumeMounts = append(registrar.VolumeMounts, mount)
		}
	}
	spec.Containers = []core.Container{driver, registrar}
	return spec
}

// The policy lets each account's pods mount exactly what the chart's values allow, and nobody else what would void the boundary.
func TestAdmissionPolicy(t *testing.T) {
	apply := newApplier(t)
	for _, namespace := range []string{"csi-proxy", "trident", "monitoring", "apps"} {
		apply.really(t, []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: `+namespace+`, labels: {pod-security.kubernetes.io/enforce: privileged}}}`))
	}
	for namespace, accounts := range map[string][]string{"kube-system": {"ebs-csi-node-sa", "csi-smb-node-sa"}, "trident": {"trident-node-windows"},
		"monitoring": {"agent"}, "apps": {"default", "ebs-csi-node-sa-2"}} {
		for _, account := range accounts {
			apply.really(t, []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: `+account+`, namespace: `+namespace+`}}`))
		}
	}
	for _, document := range manifests.Documents(t, manifests.MustHelm(t, manifests.AdmissionPolicy)) {
		switch object := read(t, document); object.GetKind() {
		case "ConfigMap", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
			apply.really(t, document)
			if object.GetKind() != "ConfigMap" {
				t.Cleanup(func() { must(t, apply.remove(t, document)) }) // it would refuse the pods of other tests
			}
		}
	}
	create := func(c mountCase) error {
		spec := mounting(c.account, c.paths)
		if c.change != nil {
			c.change(&spec)
		}
		pod := &core.Pod{ObjectMeta: meta.ObjectMeta{Namespace: c.namespace, GenerateName: "pod-"}, Spec: spec}
		_, err := cluster.CoreV1().Pods(c.namespace).Create(t.Context(), pod, meta.CreateOptions{DryRun: []string{meta.DryRunAll}})
		return err
	}
	whole := mountCase{namespace: "apps", account: "default", paths: []string{kubelet}}
	must(t, controlplane.Await(t.Context(), "the policy counts", cluster.Ended, func() (bool, error) {
		return apierrors.IsForbidden(create(whole)), nil
	}))
	policy, err := cluster.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), "csi-proxy-host-paths", meta.GetOptions{})
	must(t, err)
	if checking := policy.Status.TypeChecking; checking != nil && len(checking.ExpressionWarnings) > 0 {
		t.Errorf("the server's type checker warns: %+v", checking.ExpressionWarnings)
	}

	ebs := []string{ofEBS + "disk-v1", ofEBS + "volume-v1", ofEBS + "filesystem-v1", kubelet + `\plugins\ebs.csi.aws.com`, kubelet + `\plugins_registry\`}
	onLinux := func(spec *core.PodSpec) { spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"} }
	var cases []mountCase
	add := func(refused, namespace, account string, paths ...string) {
		cases = append(cases, mountCase{namespace: namespace, account: account, paths: paths, refused: refused})
	}
	add("", "kube-system", "ebs-csi-node-sa", ebs...)
	add("", "kube-system", "ebs-csi-node-sa", `\var\lib\kubelet\plugins\EBS.csi.aws.com\`, `/var/lib/kubelet/plugins_registry`, strings.ToUpper(ofEBS)+"DISK-V1")
	add("", "kube-system", "ebs-csi-node-sa")
	add("", "trident", "trident-node-windows", `C:\var\lib\trident\tracking`, kubelet+`\plugins\csi.trident.netapp.io\`)
	add("", "monitoring", "agent", `\var\lib\kubelet\pods`)
	for _, path := range []string{kubelet, kubelet + `\`, `\var\lib\kubelet`, kubelet + `\pods`, kubelet + `\plugins`, `C:\`, `C:\logs`, `\\.\pipe\other`,
		kubelet + `\plugins\smb.csi.k8s.io`, `\\.\pipe\csi-proxy-smb.csi.k8s.io-smb-v1`, ofEBS + "smb-v1", ofEBS + "disk-v1beta1", `\\.\pipe\csi-proxy-disk-v1`,
		`\\.\pipe\csi-proxy-administrators-disk-v1`, kubelet + `\plugins\ebs.csi.aws.com\..`} {
		add("may not mount", "kube-system", "ebs-csi-node-sa", append(ebs, path)...)
	}
	add("may not mount", "apps", "ebs-csi-node-sa-2", kubelet+`\plugins\ebs.csi.aws.com`)
	add("may not mount", "kube-system", "csi-smb-node-sa", ebs[0])
	add("may not mount", "monitoring", "agent", kubelet)
	for _, path := range []string{kubelet, strings.ToUpper(kubelet) + `\`, `/var/lib/kubelet`, `/`, `\`, `C:\`, `C:\var`, `/var/lib/`, kubelet + `\pods`, kubelet + `\plugins\x`,
		`C:\var\lib\KUBELE~1`, `C:\var\lib\kubelet.`, `C:\var\lib\kubelet \x`, `C:\x\..\var\lib\kubelet`, `C:\var\.\lib`, `C:\\var\lib\kubelet`, `\\?\C:\var\lib\kubelet`,
		`\\.\C:\var\lib\kubelet`, `\\localhost\C$\var\lib\kubelet`, `\\.\pipe\csi-proxy-disk-v1`, `\\.\pipe\CSI-Proxy-x-disk-v1`, `//./pipe/csi-proxy-disk-v1`, ebs[0], `C:\x:stream`, `var\lib\kubelet`} {
		add("may not mount", "apps", "default", path)
	}
	for _, path := range []string{`C:\logs`, `D:\`, `/var/log`, `C:\var\lib\kubelet2`, `C:\Program Files\x`, `\\.\pipe\containerd-containerd`, `C:\.docker\x`} {
		add("", "apps", "default", path)
	}
	cases = append(cases,
		mountCase{"apps", "default", []string{"/var/lib/kubelet"}, onLinux, ""},
		mountCase{"apps", "default", []string{"/var/lib/kubelet"}, func(spec *core.PodSpec) { spec.NodeSelector, spec.OS = nil, &core.PodOS{Name: core.Linux} }, ""},
		mountCase{"apps", "default", []string{"/var/lib/kubelet"}, func(spec *core.PodSpec) { spec.NodeSelector, spec.Affinity = nil, affinityTo("linux") }, ""},
		mountCase{"apps", "default", []string{"/var/lib/kubelet"}, func(spec *core.PodSpec) { spec.NodeSelector, spec.Affinity = nil, affinityTo("linux", "windows") }, "may not mount"},
		mountCase{"apps", "default", []string{"/var/lib/kubelet"}, func(spec *core.PodSpec) { spec.NodeSelector = nil }, "may not mount"},
		mountCase{"apps", "default", []string{`C:\var\lib\kubelet`}, func(spec *core.PodSpec) { spec.NodeSelector, spec.NodeName = nil, "win-1" }, "may not mount"},
		mountCase{"kube-system", "ebs-csi-node-sa", ebs, func(spec *core.PodSpec) {
			yes := true
			spec.HostNetwork = true
			spec.SecurityContext = &core.PodSecurityContext{WindowsOptions: &core.WindowsSecurityContextOptions{HostProcess: &yes}}
		}, "would be SYSTEM"},
		mountCase{"kube-system", "ebs-csi-node-sa", ebs, func(spec *core.PodSpec) {
			spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, core.VolumeMount{Name: "ve", MountPath: `C:\registration`})
		}, "may not mount plugins_registry"},
	)
	for _, c := range cases {
		err := create(c)
		if c.refused == "" && err != nil || c.refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s %s %q: %v, want %q", c.namespace, c.account, c.paths, err, c.refused)
		}
	}
	// The message says what the account may mount.
	if err := create(mountCase{namespace: "kube-system", account: "ebs-csi-node-sa", paths: []string{kubelet}}); err == nil ||
		!strings.Contains(err.Error(), `kube-system.ebs-csi-node-sa may not mount c:\var\lib\kubelet; it may mount c:\var\lib\kubelet\plugins\ebs.csi.aws.com, `) {
		t.Errorf("the reason is %v", err)
	}
}

// affinityTo is to nodes with one of the systems.
func affinityTo(systems ...string) *core.Affinity {
	return &core.Affinity{NodeAffinity: &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{
		NodeSelectorTerms: []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
			{Key: "kubernetes.io/os", Operator: core.NodeSelectorOpIn, Values: systems}}}}}}}
}
