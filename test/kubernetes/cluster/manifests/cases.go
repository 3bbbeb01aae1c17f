// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import "strings"

// Cases are the values, in YAML, for which the chart is tested.
var Cases = map[string]string{
	"defaults": "",
	"pinned": "image: {repository: registry.example.com/csi-proxy, tag: v1.2.3, digest: " +
		"'sha256:" + strings.Repeat("0a", 32) + "', pullPolicy: Always}",
	"open": "metrics: {bindAddress: '', port: 19810}",
	"ipv6": "metrics: {bindAddress: '::1'}",
	"podmonitor": "metrics: {bindAddress: '', podMonitor: {enabled: true, interval: 1m, " +
		"labels: {release: prometheus}}}",
	"monitoring": `{metrics: {bindAddress: 10.0.0.7, prometheusRule: {enabled: true}, dashboard: {enabled: true},
		podMonitor: {enabled: true, endpoint: {scrapeTimeout: 9s}}}}`,
	"all flags": `{kubeletPath: 'D:\kubelet', workingDirs: ['C:\k\csi', 'C:\my data\csi'], protectedVolumes: ['D:'],
		requirePrivacy: false, gracePeriodSeconds: 60, logLevel: 4, extraArgs: [-max-calls=100, -refuse-clones]}`,
	"container, all flags": `{mode: container, kubeletPath: 'D:\kubelet', workingDirs: ['C:\k\csi', 'C:\my data\csi'], protectedVolumes: ['D:'],
		requirePrivacy: false, gracePeriodSeconds: 60, logLevel: 4, extraArgs: [-max-calls=100, -refuse-clones]}`,
	"container, other port": `{mode: container, metrics: {bindAddress: '::1', port: 19810}}`,
	"container, limited":    "{mode: container, resources: {requests: {cpu: 20m}, limits: {memory: 1Gi}}}",
	"container, drivers": `{mode: container, drivers: [
		{name: ebs.csi.aws.com, disks: [{bus: NVMe, product: 'Amazon Elastic B*'}]},
		{name: all.csi.example.com, groups: [disk, iscsi, smb, storage, system], smbServers: [files.example.com], iscsiPortals: ['192.0.2.1:3260'],
			disks: [{vendor: a&b, serialNumber: '1*', adapter: 4294967295, iscsiTarget: 'iqn.2026-01.com.example:*'}],
			directories: ['C:\var\lib\kubelet\other'], services: [agent], maxCalls: 100}]}`,
	"container, drivers and all": "{mode: container, sharedEndpoints: true, drivers: [{name: smb.csi.k8s.io, smbServers: [.example.com]}]}",
	"drivers":                    "{drivers: [{name: smb.csi.k8s.io, smbServers: [.example.com]}]}",
	"existing account":           "serviceAccount: {create: false, name: windows}",
	"placement": `{nodeSelector: {pool: storage}, tolerations: [{key: os, value: windows, effect: NoSchedule}], maxUnavailable: 10%,
		affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}},
		imagePullSecrets: [{name: secret}], priorityClassName: system-cluster-critical, podLabels: {team: storage}, podAnnotations: {a: b},
		resources: {requests: {cpu: 20m}, limits: {memory: 1Gi}}}`,
	"container": "mode: container",
	"with all of the service": `{gracePeriodSeconds: 60, metrics: {bindAddress: 127.0.0.1}, workingDirs: ['C:\my data\csi'],
		service: {name: csiproxy, directory: 'D:\csi-proxy'}}`,
	"service to remove":             "mode: removeService",
	"service to remove and restore": "{mode: removeService, service: {name: csiproxy, restore: true}}",
	"quota":                         "resourceQuota: {enabled: true}",
	"admission policy":              AdmissionPolicy,
	"viewers": "kubectlPlugin: {viewers: {enabled: true, subjects: [{kind: Group, name: admins, " +
		"apiGroup: rbac.authorization.k8s.io}]}}",
	"example driver":              "exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}",
	"example driver, other pipes": "exampleDriver: {enabled: true, image: 'csi-example-driver:classic', pipes: {storage: v1alpha2, volume: v1}}",
	"example driver, own": `{drivers: [{name: example.csi-proxy.dev, smbServers: [.example.com], iscsiPortals: ['192.0.2.1']}],
		exampleDriver: {enabled: true, image: 'csi-example-driver:classic'}}`,
	"example driver, own, hostProcess": `{drivers: [{name: example.csi-proxy.dev, smbServers: [.example.com], iscsiPortals: ['192.0.2.1']}],
		exampleDriver: {enabled: true, image: 'csi-example-driver:classic', mode: hostProcess}}`,
	"example driver, hostProcess": `{kubeletPath: 'D:\kubelet', exampleDriver: {enabled: true, image: 'csi-example-driver:classic', mode: hostProcess, livenessPort: 19811, registrarPort: 19812}}`,
}

// AdmissionPolicy has the drivers of docs/drivers.md that classic containers run, with what each needs.
const AdmissionPolicy = `admissionPolicy: {enabled: true, validationActions: [Deny], accounts: [
	{driver: ebs.csi.aws.com, namespace: kube-system, serviceAccount: ebs-csi-node-sa, pipes: [disk-v1, volume-v1, filesystem-v1]},
	{driver: smb.csi.k8s.io, namespace: kube-system, serviceAccount: csi-smb-node-sa, pipes: [filesystem-v1, smb-v1]},
	{driver: csi.trident.netapp.io, namespace: trident, serviceAccount: trident-node-windows, pipes: [filesystem-v1, volume-v1, smb-v1],
		hostPaths: ['C:\var\lib\trident\tracking']},
	{namespace: monitoring, serviceAccount: agent, hostPaths: [/var/lib/kubelet/pods/]}]}`
