// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring tests deploy/monitoring with a real Prometheus, which must be
// installed: make test-cluster.
package monitoring

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	csiproxy "github.com/csi-proxy/csi-proxy"
	simv1 "github.com/csi-proxy/csi-proxy/api/sim/v1"
	"github.com/csi-proxy/csi-proxy/client"
)

const (
	deploy = "../../../../deploy/monitoring"
	// files are the rules and the dashboard, which the chart has.
	files = "../../../../deploy/charts/csi-proxy/files"
	// patience is for what Prometheus does when it has time.
	patience = time.Minute
	pause    = 200 * time.Millisecond
)

// promtool runs Debian's promtool.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = deploy
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRules(t *testing.T) {
	promtool(t, "check", "rules", "../charts/csi-proxy/files/rules.yml")
	promtool(t, "test", "rules", "rules_test.yml")

	var rules struct {
		Groups []struct{ Rules []struct{ Alert string } }
	}
	var tests struct {
		Tests []struct {
			Checks []struct {
				Alert string        `yaml:"alertname"`
				Fires []interface{} `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	for name, into := range map[string]any{filepath.Join(files, "rules.yml"): &rules,
		filepath.Join(deploy, "rules_test.yml"): &tests} {
		text, err := os.ReadFile(name)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		must(t, err)
	}
	fires, silent := make(map[string]bool), make(map[string]bool)
	for _, test := range tests.Tests {
		for _, check := range test.Checks {
			fires[check.Alert] = fires[check.Alert] || len(check.Fires) > 0
			silent[check.Alert] = silent[check.Alert] || len(check.Fires) == 0
		}
	}
	count := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			count++
			if !fires[rule.Alert] || !silent[rule.Alert] {
				t.Errorf("%s: tested to fire: %v, and not to fire: %v", rule.Alert, fires[rule.Alert], silent[rule.Alert])
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d rules were found", count)
	}
}

// start starts a program that is killed at the test's end, and returns what follows text in
// the first line of its stderr that has it.
func start(t *testing.T, text string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	must(t, err)
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var seen []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		seen = append(seen, lines.Text())
		if _, after, found := strings.Cut(lines.Text(), text); found {
			go io.Copy(io.Discard, stderr)
			return after
		}
	}
	t.Fatalf("%s doesn't say %q:\n%s", program, text, strings.Join(seen, "\n"))
	return ""
}

// node is a daemon on a simulated node.
type node struct {
	*client.Client
	sim     grpc.ClientConnInterface
	metrics string // the address
}

func startNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	address := start(t, `"serving metrics" address=`, "../../../../bin/csi-proxy", "-node=simulated", "-endpoint-dir", dir, "-metrics-bind-address=127.0.0.1:0")
	n := &node{Client: client.New(client.WithEndpointDir(dir)), metrics: strings.Trim(address, `"`)}
	t.Cleanup(func() { n.Close() })
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, simv1.EndpointName+".sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	n.sim = conn
	await(t, "the daemon is ready", func() error {
		resp, err := http.Get("http://" + n.metrics + "/readyz")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return err
	})
	return n
}

// stage stages a volume, maps a share, and returns the disk's number.
func (n *node) stage(ctx context.Context, i int) (csiproxy.DiskNumber, error) {
	attached, err := simv1.Call[simv1.DiskNumber](ctx, n.sim, "AttachDisk", &simv1.DiskHardware{SizeBytes: 1 << 30})
	if err != nil {
		return 0, err
	}
	number := csiproxy.DiskNumber(attached.GetDiskNumber())
	if err := n.Disk.PartitionDisk(ctx, number); err != nil {
		return 0, err
	}
	ids, err := n.Volume.ListVolumesOnDisk(ctx, number, 0)
	if err != nil {
		return 0, err
	}
	if err := n.Volume.FormatVolume(ctx, ids[0]); err != nil {
		return 0, err
	}
	share := fmt.Sprintf("share-%d", i)
	user := csiproxy.SMBCredentials{Username: "user", Password: csiproxy.NewSecret("password")}
	if _, err := simv1.Call[simv1.Empty](ctx, n.sim, "AddSmbShare",
		&simv1.SmbShare{Server: "files", Name: share}); err != nil {
		return 0, err
	}
	if _, err := simv1.Call[simv1.Empty](ctx, n.sim, "SetSmbUser",
		&simv1.SmbUser{Server: "files", User: user.Username, Password: user.Password.Reveal()}); err != nil {
		return 0, err
	}
	staged := fmt.Sprintf(`C:\var\lib\kubelet\plugins\kubernetes.io\csi\example\%d\globalmount`, i)
	return number, errors.Join(
		n.Volume.MountVolume(ctx, ids[0], staged),
		n.Storage.PublishVolume(ctx, staged, fmt.Sprintf(`C:\var\lib\kubelet\pods\uid\volumes\kubernetes.io~csi\pv-%d\mount`, i)),
		n.SMB.NewSMBGlobalMapping(ctx, `\\files\`+share, "", user))
}

// await waits until f succeeds.
func await(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("after %v, not: %s: %v", patience, what, err)
}

// prometheus is a Prometheus that scrapes a node every second.
type prometheus struct{ address string }

func startPrometheus(t *testing.T, n *node) *prometheus {
	t.Helper()
	rules, err := filepath.Abs(filepath.Join(files, "rules.yml"))
	must(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n"+
		"scrape_configs:\n  - job_name: csi-proxy\n    static_configs: [{targets: [%q]}]\n", rules, n.metrics)
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0") // Prometheus doesn't tell a port that it has chosen
	must(t, err)
	p := &prometheus{l.Addr().String()}
	l.Close()
	start(t, "Server is ready", "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	return p
}

// get asks Prometheus' API and decodes the data of its answer.
func (p *prometheus) get(path string, query url.Values, data any) error {
	resp, err := http.Get("http://" + p.address + path + "?" + query.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// query returns how many series a query has now.
func (p *prometheus) query(expr string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := p.get("/api/v1/query", url.Values{"query": {expr}}, &data)
	return len(data.Result), err
}

type panel struct {
	Title, Type, Description string
	Targets                  []struct{ Expr, LegendFormat string }
	FieldConfig              struct {
		Defaults struct {
			Thresholds struct {
				Mode  string
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
	}
}

// colour returns the one that Grafana gives to a value of the panel.
func (p panel) colour(value float64) (colour string) {
	for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			colour = step.Color
		}
	}
	return colour
}

func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(files, "dashboard.json"))
	must(t, err)
	var dashboard struct{ Panels []panel }
	must(t, json.Unmarshal(text, &dashboard))
	return dashboard.Panels
}

var variables = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$job", ".*csi-proxy.*")

// TestThresholds: a number is coloured as its panel says. Without thresholds Grafana shows it green, and
// red from 80: so 300 nodes that are well.
func TestThresholds(t *testing.T) {
	numbers := 0
	for _, p := range panels(t) {
		if p.Type != "stat" && p.Type != "gauge" {
			continue
		}
		numbers++
		thresholds := p.FieldConfig.Defaults.Thresholds
		if thresholds.Mode != "absolute" || len(thresholds.Steps) < 2 {
			t.Errorf("%s: its thresholds are %+v", p.Title, thresholds)
		}
		for _, step := range thresholds.Steps {
			if !strings.Contains(p.Description, step.Color) {
				t.Errorf("%s: the description doesn't say what %s is", p.Title, step.Color)
			}
		}
	}
	first := panels(t)[1]
	if numbers == 0 || first.Targets[0].LegendFormat != "share" || first.colour(1) != "green" || first.colour(299.0/300) != "red" ||
		first.colour(0) != "red" {
		t.Errorf("%d panels with a number; the first is %+v", numbers, first)
	}
	// What it shows of two nodes, of which one stops answering after a minute.
	file := filepath.Join(t.TempDir(), "nodes.yml")
	checks := ""
	for i, want := range []string{"0.5", "1", "2"} {
		for at, value := range map[string]string{"0m": []string{"1", "2", "2"}[i], "1m": want} {
			checks += fmt.Sprintf("      - {expr: %q, eval_time: %s, exp_samples: [{value: %s}]}\n",
				variables.Replace(first.Targets[i].Expr), at, value)
		}
	}
	must(t, os.WriteFile(file, []byte(`tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="csi-proxy",instance="win-1"}', values: "1 1"}
      - {series: 'up{job="csi-proxy",instance="win-2"}', values: "1 0"}
    promql_expr_test:
`+checks), 0o600))
	promtool(t, "test", "rules", file)
}

func TestDashboardAndAlert(t *testing.T) {
	n := startNode(t)
	p := startPrometheus(t, n)
	ctx := t.Context()
	var number csiproxy.DiskNumber
	for i := range 4 {
		var err error
		if number, err = n.stage(ctx, i); err != nil {
			t.Fatal(err)
		}
	}
	scraped := func(expr string) func() error {
		return func() error {
			count, err := p.query(expr)
			if err == nil && count == 0 {
				err = fmt.Errorf("no data for %s", expr)
			}
			return err
		}
	}
	await(t, "the metrics are scraped", scraped(`csi_proxy_windows_errors_total{error="ERROR_IO_DEVICE"} == 0`))

	// The disk has an I/O error, once, and then hangs.
	object := fmt.Sprintf("PhysicalDrive%d", number)
	rule := func(r *simv1.Rule) {
		t.Helper()
		if _, err := simv1.Call[simv1.Empty](ctx, n.sim, "AddRule", r); err != nil {
			t.Fatal(err)
		}
	}
	rule(&simv1.Rule{Call: "IOCTL_DISK_GET_DRIVE_GEOMETRY_EX", Object: object, Count: 1,
		Effect: &simv1.Rule_WindowsError{WindowsError: 1117}})
	if _, err := n.Disk.GetDiskStats(ctx, number); err == nil {
		t.Error("the disk has no I/O error")
	}
	rule(&simv1.Rule{Call: "IOCTL_DISK_GET_DRIVE_GEOMETRY_EX", Object: object, Count: 1, Uncancellable: true,
		Effect: &simv1.Rule_DelayNs{DelayNs: int64(time.Hour)}})
	go n.Disk.GetDiskStats(ctx, number)
	defer simv1.Call[simv1.Empty](context.Background(), n.sim, "ClearRules", &simv1.Empty{})

	await(t, "CSIProxyDiskErrors fires", func() error {
		var data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
		if err := p.get("/api/v1/alerts", nil, &data); err != nil {
			return err
		}
		for _, alert := range data.Alerts {
			if alert.Labels["alertname"] == "CSIProxyDiskErrors" && alert.Labels["error"] == "ERROR_IO_DEVICE" &&
				alert.State == "firing" {
				return nil
			}
		}
		return fmt.Errorf("the alerts are %+v", data.Alerts)
	})
	await(t, "the call that hangs is shown", scraped(`csi_proxy_windows_hanging_call_start_time_seconds{call="IOCTL_DISK_GET_DRIVE_GEOMETRY_EX"}`))
	await(t, "the staged volumes are seen", scraped(`csi_proxy_staged_volumes == 4`))

	queries := 0
	for _, panel := range panels(t) {
		for _, target := range panel.Targets {
			queries++
			expr := variables.Replace(target.Expr)
			if left := regexp.MustCompile(`\$\w+`).FindString(expr); left != "" {
				t.Errorf("%s: the query has the variable %s, which this test doesn't know", panel.Title, left)
			}
			await(t, "the panel "+panel.Title+" has data", scraped(expr))
		}
	}
	if queries < 20 {
		t.Errorf("only %d queries were found in the dashboard", queries)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
