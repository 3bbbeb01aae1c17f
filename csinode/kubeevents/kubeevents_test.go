// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeevents_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-proxy/csi-proxy/csinode/kubeevents"
)

func TestWarn(t *testing.T) {
	client := fake.NewClientset()
	events := kubeevents.New(client, "node-1", "disk.example.com")
	if err := events.Warn(t.Context(), "VolumeUnstageRefused", "in use by "+strings.Repeat("ä", 2000)); err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	e := list.Items[0]
	if e.Type != "Warning" || e.Reason != "VolumeUnstageRefused" || len(e.Message) > 1024 ||
		!utf8.ValidString(e.Message) || !strings.HasPrefix(e.Message, "in use by ") {
		t.Errorf("%+v", e)
	}
	if o := e.InvolvedObject; o.Kind != "Node" || o.Name != "node-1" || o.UID != "node-1" ||
		e.Source.Component != "disk.example.com" {
		t.Errorf("%+v", e)
	}
}
