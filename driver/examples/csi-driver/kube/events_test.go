// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-proxy/csi-proxy/driver/examples/csi-driver/kube"
)

func TestWarn(t *testing.T) {
	client := fake.NewClientset()
	events := kube.NewEvents(client, "node-1", "disk.example.com")
	if err := events.Warn(t.Context(), "VolumeUnstageRefused", "in use by "+strings.Repeat("ä", 2000)); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	e := list.Items[0]
	if e.Type != "Warning" || e.Reason != "VolumeUnstageRefused" || len(e.Message) > 1024 ||
		!utf8.ValidString(e.Message) || !strings.HasPrefix(e.Message, "in use by ") || !strings.HasSuffix(e.Message, "ä…") {
		t.Errorf("%+v", e)
	}
	if o := e.InvolvedObject; o.Kind != "Node" || o.Name != "node-1" || o.UID != "node-1" ||
		e.Source.Component != "disk.example.com" {
		t.Errorf("%+v", e)
	}
}

// An event of a volume is on its claim, and not on that of another driver's volume with its id.
func TestWarnClaim(t *testing.T) {
	volume := func(driver, id, claim string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: driver + id}, Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: id}},
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "apps", Name: claim, UID: "uid"},
		}}
	}
	client := fake.NewClientset(volume("disk.example.com", "vol-1", "data"), volume("disk.example.com", "vol-2", "b"),
		volume("other.example.com", "vol-1", "c"), &corev1.PersistentVolume{})
	events := kube.NewEvents(client, "node-1", "disk.example.com")
	if err := events.WarnClaim(t.Context(), "vol-1", "VolumeUnstageRefused", "in use"); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	if e := list.Items[0]; e.Namespace != "apps" || e.InvolvedObject.Name != "data" || e.Message != "in use" {
		t.Errorf("%+v", e)
	}
}
