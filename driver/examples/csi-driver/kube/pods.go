// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Pods asks the API server and kubelet which pods a node has.
//
// Kubelet is asked directly, and not through the API server's node proxy: that needs the right to get
// nodes/proxy, which also lets its holder run commands in each container of each node. Directly, the
// right to get nodes/pods is enough since Kubernetes 1.33 (feature KubeletFineGrainedAuthz). An older
// kubelet refuses, and then no pod is gone.
type Pods struct {
	api     kubernetes.Interface
	kubelet *http.Client
	address string
	node    string
}

// answerTimeout is how long Gone waits for all answers.
const answerTimeout = 10 * time.Second

// NewPods returns the pods of a node. cluster is how the API server is reached, as
// rest.InClusterConfig returns it; kubelet gets its token. address is kubelet's, such as
// https://192.0.2.1:10250. Kubelet's certificate must be signed by an authority in the file
// kubeletCA, or by the cluster's if that is empty. A kubelet that signs its certificate itself has
// it in pki\kubelet.crt of its directory, with that authority. It names the host and no address, so
// that name is then expected, whatever the address is.
func NewPods(cluster *rest.Config, node, address, kubeletCA string) (*Pods, error) {
	if u, err := url.Parse(address); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("kubelet's address %q must have the form https://192.0.2.1:10250", address)
	}
	api, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(cluster)
	config.BearerToken, config.BearerTokenFile = cluster.BearerToken, cluster.BearerTokenFile
	config.ServerName = "" // the API server's
	if kubeletCA != "" {
		config.CAFile, config.CAData = kubeletCA, nil
		if config.ServerName, err = serverName(kubeletCA); err != nil {
			return nil, err
		}
	}
	kubelet, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	kubelet.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Pods{api, kubelet, address, node}, nil
}

// serverName returns the name in the certificate of a server that is the first in a file; "" if that is
// one of an authority.
//
// Source: https://github.com/kubernetes/kubernetes/blob/v1.36.1/cmd/kubelet/app/server.go (InitializeTLS)
func serverName(file string) (string, error) {
	certificates, err := cert.CertsFromFile(file)
	if err != nil {
		return "", err
	}
	if first := certificates[0]; !first.IsCA && len(first.DNSNames) > 0 {
		return first.DNSNames[0], nil
	}
	return "", nil
}

// Gone reports whether a pod is proven gone from the node: a csinode.PodIsGone. Three answers must
// lack it: that of the API server, kubelet's list of the pods that it is to run, and its list of
// those whose containers run. The last has a pod that was deleted by force and still ends. Whatever
// isn't an answer is an error, as is a list without any pod of the node: the driver itself is one.
func (p *Pods) Gone(ctx context.Context, uid string) (bool, error) {
	if uid == "" {
		return false, errors.New("no UID is given")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	wanted, err := p.askKubelet(ctx, "/pods")
	if err != nil {
		return false, err
	}
	running, err := p.askKubelet(ctx, "/runningpods/")
	if err != nil {
		return false, err
	}
	known, err := p.api.CoreV1().Pods(metav1.NamespaceAll).List(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", p.node).String()})
	if err != nil {
		return false, fmt.Errorf("the API server doesn't list the node's pods: %w", err)
	}
	for from, pods := range map[string][]corev1.Pod{"kubelet": wanted, "the API server": known.Items} {
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == p.node }) {
			return false, fmt.Errorf("%s has no pod on node %s at all, so it doesn't know yet, or is another node's", from, p.node)
		}
	}
	return !slices.ContainsFunc(slices.Concat(wanted, running, known.Items), func(pod corev1.Pod) bool { return is(pod, uid) }),
		nil
}

// is reports whether a pod has a UID. That of a static pod is the hash of its configuration, which
// the API server's copy has only as an annotation.
func is(pod corev1.Pod, uid string) bool {
	const configHash = "kubernetes.io/config.hash"
	return string(pod.UID) == uid || pod.Annotations[configHash] == uid ||
		pod.Annotations[corev1.MirrorPodAnnotationKey] == uid
}

func (p *Pods) askKubelet(ctx context.Context, path string) (_ []corev1.Pod, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("kubelet at %s doesn't list its pods: %w", p.address, err)
		}
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := p.kubelet.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s; the driver's account needs the right to get nodes/pods", path, response.Status)
	}
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	if list.Kind != "PodList" {
		return nil, fmt.Errorf("%s: the answer is no list of pods", path)
	}
	return list.Items, nil
}
