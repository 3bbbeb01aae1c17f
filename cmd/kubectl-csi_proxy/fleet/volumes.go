// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/cluster"
	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
)

// Volumes are what is mounted on nodes. Its JSON is the output of "kubectl csi-proxy volumes
// -o json".
type Volumes struct{ Answers[NodeVolumes] }

// NodeVolumes are what is mounted on a node.
type NodeVolumes struct {
	Asked
	Mounts []Mount `json:"mounts"`
	// IncompleteReason says what couldn't be read; empty if the list is complete.
	IncompleteReason string `json:"incompleteReason,omitempty"`
}

// Mount is something that is mounted on a node, and whose it is.
type Mount struct {
	// Mount is what "csi-proxyctl storage volumes -o json" says of it.
	Mount json.RawMessage `json:"mount"`
	Owner
	// Problem says what is wrong with it; empty if nothing is.
	Problem string `json:"problem,omitempty"`
}

// Owner is whose volume is mounted, as far as kubelet's paths show it.
type Owner struct {
	// Pod and Claim are namespace/name.
	Pod              string `json:"pod,omitempty"`
	Claim            string `json:"claim,omitempty"`
	PersistentVolume string `json:"persistentVolume,omitempty"`
}

// mounted is what the plugin reads of a mount.
type mounted struct {
	Kind, Path, Target string
	LeftoverReason     string `json:"leftover_reason"`
	ForgottenPod       string `json:"forgotten_pod"`
	Volume             struct {
		VolumeID   string `json:"volume_id"`
		Share      string
		SizeBytes  *int64 `json:"size_bytes"`
		FreeBytes  *int64 `json:"free_bytes"`
		Conditions []struct {
			Reason, Message string
			Inaccessible    bool
		}
	}
}

// Volumes asks the nodes for what is mounted on them, and the API server whose it is.
func (a *Asker) Volumes(ctx context.Context) (Volumes, error) {
	owners, err := a.readOwners(ctx)
	if err != nil {
		return Volumes{}, err
	}
	answers, err := ask(ctx, a, func(ctx context.Context, n *core.Node, pod *core.Pod) (found NodeVolumes, err error) {
		pods, err := cluster.PodsOn(ctx, a.Client, []*core.Node{n})
		if err != nil {
			return found, err
		}
		var answer struct {
			Mounts           []json.RawMessage
			IncompleteReason string `json:"incomplete_reason"`
		}
		if err := a.askJSON(ctx, pod, &answer, "storage", "volumes"); err != nil {
			return found, err
		}
		found.IncompleteReason = answer.IncompleteReason
		for _, raw := range answer.Mounts {
			m, err := owners.mount(raw, pods[n.Name])
			if err != nil {
				return found, err
			}
			found.Mounts = append(found.Mounts, m)
		}
		return found, nil
	}, func(n Asked, found NodeVolumes) NodeVolumes {
		return NodeVolumes{n, list(found.Mounts), found.IncompleteReason}
	})
	return Volumes{answers}, err
}

// owners are the claims of PersistentVolumes.
type owners struct {
	volumes map[string]*core.PersistentVolume // by name
	staged  map[string]*core.PersistentVolume // by driver/SHA-256 of the handle, as kubelet names their staging paths
}

func (a *Asker) readOwners(ctx context.Context) (*owners, error) {
	o := &owners{make(map[string]*core.PersistentVolume), make(map[string]*core.PersistentVolume)}
	err := cluster.Each(ctx, "PersistentVolumes", a.Client.CoreV1().PersistentVolumes().List, meta.ListOptions{},
		func(pv *core.PersistentVolume) {
			o.volumes[pv.Name] = pv
			if csi := pv.Spec.CSI; csi != nil {
				handle := sha256.Sum256([]byte(csi.VolumeHandle))
				o.staged[csi.Driver+"/"+hex.EncodeToString(handle[:])] = pv
			}
		})
	return o, err
}

// Kubelet's paths: a volume of a pod, and the staging path of a volume, which had the name of
// the PersistentVolume in older versions.
var (
	podPath        = regexp.MustCompile(`(?i)\\pods\\([0-9a-z-]+)\\volumes\\kubernetes\.io~csi\\([^\\]+)\\mount$`)
	stagingPath    = regexp.MustCompile(`(?i)\\plugins\\kubernetes\.io\\csi\\([^\\]+)\\([0-9a-f]{64})\\globalmount$`)
	oldStagingPath = regexp.MustCompile(`(?i)\\plugins\\kubernetes\.io\\csi\\pv\\([^\\]+)\\globalmount$`)
)

// mount says whose a mount is, given the pods on its node.
func (o *owners) mount(raw json.RawMessage, pods []core.Pod) (Mount, error) {
	var m mounted
	if err := json.Unmarshal(raw, &m); err != nil {
		return Mount{}, fmt.Errorf("a mount isn't what this version of the plugin knows: %w", err)
	}
	got := Mount{Mount: raw}
	var problems []string
	if m.LeftoverReason != "" {
		problems = append(problems, "nobody needs it: "+m.LeftoverReason)
	}
	for _, c := range m.Volume.Conditions {
		text := c.Message
		if c.Inaccessible {
			text += " (it can't be used)"
		}
		problems = append(problems, text)
	}
	var pv *core.PersistentVolume
	if found := podPath.FindStringSubmatch(m.Path); found != nil {
		pv = o.volumes[found[2]]
		for _, pod := range pods {
			if strings.EqualFold(string(pod.UID), found[1]) {
				got.Pod = pod.Namespace + "/" + pod.Name
			}
		}
		switch unpublish := "run on it csi-proxyctl storage unpublish " + m.Path; {
		case got.Pod == "":
			problems = append(problems, "the API server has no pod with the UID "+found[1]+
				" on the node: if kubelet there hasn't either, "+unpublish)
		case m.ForgottenPod != "":
			problems = append(problems, "kubelet has lost track of the volume of this pod, whose UID is "+found[1]+
				": when the pod is gone from the node, "+unpublish)
		}
	} else if found := stagingPath.FindStringSubmatch(m.Path); found != nil {
		pv = o.staged[found[1]+"/"+strings.ToLower(found[2])]
	} else if found := oldStagingPath.FindStringSubmatch(m.Path); found != nil {
		pv = o.volumes[found[1]]
	}
	if pv != nil {
		got.PersistentVolume = pv.Name
		if claim := pv.Spec.ClaimRef; claim != nil {
			got.Claim = claim.Namespace + "/" + claim.Name
		}
	}
	got.Problem = strings.Join(problems, "; ")
	return got, nil
}

// Print writes what is mounted for people.
func (v Volumes) Print(w io.Writer) error {
	rows := table.New(w, "NODE", "KIND", "POD", "CLAIM", "PERSISTENT VOLUME", "SIZE", "FREE", "PATH", "PROBLEM")
	var incomplete []string
	for _, n := range v.Nodes {
		if n.IncompleteReason != "" {
			incomplete = append(incomplete, fmt.Sprintf(
				"%s: the list may be incomplete, since this couldn't be read: %s", n.Node, n.IncompleteReason))
		}
		for _, owned := range n.Mounts {
			var m mounted
			if err := json.Unmarshal(owned.Mount, &m); err != nil {
				return err
			}
			rows.Row(n.Node, m.Kind, owned.Pod, owned.Claim, owned.PersistentVolume, size(m.Volume.SizeBytes),
				size(m.Volume.FreeBytes), cmp.Or(m.Path, m.Target), owned.Problem)
		}
	}
	if rows.Empty() && Failed(v.Asked()) == 0 && len(incomplete) == 0 {
		return table.Line(w, "Nothing is mounted on the nodes.")
	}
	return errors.Join(rows.Flush(), printFailed(w, !rows.Empty(), v.Asked()), table.Lines(w, incomplete...))
}
