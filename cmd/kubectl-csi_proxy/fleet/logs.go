// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	core "k8s.io/api/core/v1"

	"github.com/csi-proxy/csi-proxy/cmd/kubectl-csi_proxy/table"
)

// Logs are the ends of the daemons' logs.
type Logs struct{ Answers[NodeLog] }

// NodeLog is the end of a daemon's log.
type NodeLog struct {
	Asked
	Lines []string `json:"lines"`
}

// Logs returns the last lines of the daemons' logs: a container's from the API server, a
// service's from its log file on the node.
func (a *Asker) Logs(ctx context.Context, lines int) (Logs, error) {
	answers, err := ask(ctx, a, func(ctx context.Context, _ *core.Node, pod *core.Pod) (last []string, err error) {
		var text []byte
		switch modeOf(pod) {
		case Container, Removal:
			text, err = a.podLog(ctx, pod, pod.Spec.Containers[0].Name, int64(lines))
		case Service:
			text, err = a.serviceLog(ctx, pod)
		}
		if len(text) > 0 {
			last = strings.Split(strings.TrimRight(string(text), "\r\n"), "\n")
		}
		return last[max(0, len(last)-lines):], err
	}, func(n Asked, last []string) NodeLog { return NodeLog{n, list(last)} })
	return Logs{answers}, err
}

// serviceLog returns the end of the service's log file, which the node's support bundle has.
func (a *Asker) serviceLog(ctx context.Context, pod *core.Pod) (_ []byte, err error) {
	var bundle bytes.Buffer
	if err := a.bundle(ctx, pod, &bundle); err != nil {
		return nil, err
	}
	files, err := zip.NewReader(bytes.NewReader(bundle.Bytes()), int64(bundle.Len()))
	if err != nil {
		return nil, fmt.Errorf("support bundle: %w", err)
	}
	for _, f := range files.File {
		if strings.HasPrefix(f.Name, "log/") && strings.HasSuffix(f.Name, ".log") {
			content, err := f.Open()
			if err != nil {
				return nil, err
			}
			text, err := io.ReadAll(io.LimitReader(content, mostLog))
			return text, errors.Join(err, content.Close())
		}
	}
	return nil, errors.New("the service writes no log file, or it can't be read: look into the node's support bundle")
}

// Print writes the lines for people, each after the name of its node if there are several.
func (l Logs) Print(w io.Writer) error {
	var lines []string
	for _, n := range l.Nodes {
		prefix := ""
		if len(l.Nodes) > 1 {
			prefix = n.Node + ": "
		}
		for _, line := range n.Lines {
			lines = append(lines, prefix+strings.TrimRight(line, "\r"))
		}
	}
	return errors.Join(table.Lines(w, lines...), printFailed(w, len(lines) > 0, l.Asked()))
}
