// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests are what people apply for a driver, as far as the lab uses them.
type manifests struct {
	class *storagev1.StorageClass
	claim *corev1.PersistentVolumeClaim
	pod   *corev1.Pod
	// What the sidecars may do. Without these they may do everything.
	role    *rbacv1.ClusterRole
	binding *rbacv1.ClusterRoleBinding
}

// readManifests reads the files of a folder, except for what isn't Kubernetes'.
func readManifests(folder string) (*manifests, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	m := &manifests{}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for document, err := documents.Read(); err != io.EOF; document, err = documents.Read() {
			if err == nil {
				err = m.add(document)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	if m.class == nil || m.claim == nil || m.pod == nil {
		return nil, fmt.Errorf("%s must have a StorageClass, a PersistentVolumeClaim and a Pod", folder)
	}
	return m, nil
}

func (m *manifests) add(document []byte) error {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
	switch o := object.(type) {
	case *storagev1.StorageClass:
		m.class = o
	case *corev1.PersistentVolumeClaim:
		m.claim = o
	case *corev1.Pod:
		m.pod = o
	case *rbacv1.ClusterRole:
		m.role = o
	case *rbacv1.ClusterRoleBinding:
		m.binding = o
	}
	return err
}

// allow lets the account of the sidecars do what the manifests say, and returns its name; "" if they
// don't say.
func (m *manifests) allow(ctx context.Context, c *cluster) (account string, err error) {
	if m == nil || m.role == nil || m.binding == nil {
		return "", nil
	}
	if _, err := c.RbacV1().ClusterRoles().Create(ctx, m.role, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(ctx, m.binding, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	return "system:serviceaccount:" + m.binding.Subjects[0].Namespace + ":" + m.binding.Subjects[0].Name, nil
}

// ofManifests has two pods as in the manifests use their volume, one after the other.
func ofManifests(s *scenario) {
	m := s.options.manifests
	v, text := s.awaitMade(s.claim(m.class, m.claim)), s.text()
	p := s.makePod(s.node, m.pod, v)
	s.awaitRunning(p)
	s.write(p, "data", text)
	s.grow(v)
	s.endLast(p)
	p = s.makePod(s.node, m.pod, v)
	s.awaitRunning(p)
	s.endReader(p, text)
}

// claim makes a StorageClass and a claim.
func (s *scenario) claim(class *storagev1.StorageClass, claim *corev1.PersistentVolumeClaim) *volume {
	s.succeeds(s.cluster.StorageV1().StorageClasses().Create(s.ctx, class, metav1.CreateOptions{}))
	claim, err := s.cluster.CoreV1().PersistentVolumeClaims(s.name).Create(s.ctx, claim, metav1.CreateOptions{})
	s.must(err)
	v := &volume{
		claim: claim.Name, pv: "pvc-" + string(claim.UID), class: class.Name,
		size: claim.Spec.Resources.Requests.Storage().Value(),
	}
	s.volumes = append(s.volumes, v)
	return v
}

// awaitMade returns when the provisioner has made the volume of a claim.
func (s *scenario) awaitMade(v *volume) *volume {
	if v.id != "" {
		return v
	}
	s.awaitBound(v)
	v.id = s.persistentVolume(v).Spec.CSI.VolumeHandle
	return v
}
