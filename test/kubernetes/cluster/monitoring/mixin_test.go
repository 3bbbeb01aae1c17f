// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-jsonnet"
	"go.yaml.in/yaml/v2"
)

// TestMixin uses the mixin as a Jsonnet program does: as it is, and for targets of another name.
func TestMixin(t *testing.T) {
	const standard = `job=~".*csi-proxy.*"`
	for config, selector := range map[string]string{"{}": standard, `{ csiProxySelector: 'job="windows"' }`: `job="windows"`} {
		vm := jsonnet.MakeVM()
		vm.Importer(&jsonnet.FileImporter{JPaths: []string{deploy}})
		text, err := vm.EvaluateAnonymousSnippet("user.jsonnet", `
			local mixin = (import 'mixin.libsonnet') + { _config+:: `+config+` };
			{ rules: std.manifestYamlDoc(mixin.prometheusAlerts), dashboards: mixin.grafanaDashboards }`)
		must(t, err)
		var made struct {
			Rules      string
			Dashboards map[string]any
		}
		must(t, json.Unmarshal([]byte(text), &made))
		var dashboard, rules, chartRules any
		read(t, "dashboard.json", json.Unmarshal, &dashboard)
		if !reflect.DeepEqual(made.Dashboards, map[string]any{"csi-proxy.json": dashboard}) {
			t.Error("the mixin has another dashboard than the chart")
		}
		read(t, "rules.yml", func(text []byte, into any) error {
			return yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), standard, selector)), into)
		}, &chartRules)
		must(t, yaml.Unmarshal([]byte(made.Rules), &rules))
		if !reflect.DeepEqual(rules, chartRules) || !strings.Contains(fmt.Sprint(rules), selector) {
			t.Errorf("with the selector %s the mixin has other rules than the chart", selector)
		}
	}
}

// read decodes one of the chart's files.
func read(t *testing.T, name string, decode func([]byte, any) error, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(files, name))
	if err == nil {
		err = decode(text, into)
	}
	must(t, err)
}
