// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// The alert rules and the dashboard as a mixin, for those who make their monitoring with
// Jsonnet. Install the whole repository, since the files are the chart's:
//   jb install github.com/csi-proxy/csi-proxy@main
//   local csiProxy = import 'github.com/csi-proxy/csi-proxy/deploy/monitoring/mixin.libsonnet';
{
  _config+:: {
    // Which targets are csi-proxy's.
    csiProxySelector: 'job=~".*csi-proxy.*"',
  },
  prometheusAlerts+:: std.parseYaml(std.strReplace(
    importstr '../charts/csi-proxy/files/rules.yml', 'job=~".*csi-proxy.*"', $._config.csiProxySelector
  )),
  grafanaDashboards+:: { 'csi-proxy.json': import '../charts/csi-proxy/files/dashboard.json' },
}
