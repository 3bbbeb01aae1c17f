// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/csi-proxy/csi-proxy"

// Who may import what. A package is named by its path in the module, or in
// full if it isn't ours; "x/..." is everything below x and x itself.
var importRules = []struct {
	imported string
	only     []string // packages that may import it; none of ours if empty
	reason   string
}{
	{
		module + "/internal/sim/winsim",
		[]string{"internal/sim/winsim/...", "internal/sim/simcontrol", "simnode", "cmd/csi-proxy"},
		"above the seam nothing may know which system is below",
	},
	{
		module + "/internal/windows/winsys", []string{"internal/windows/winsys/...", "node", "cmd/csi-proxy"},
		"above the seam nothing may know which system is below",
	},
	{
		module + "/internal/windows/win", []string{"internal/...", "node", "simnode/...", "cmd/...", "test/..."},
		"the public types don't depend on the seam",
	},
	{
		"golang.org/x/sys/windows", []string{"internal/windows/winsys/...", "internal/windows/winread", "internal/serve/pipe", "internal/host/winservice",
			"internal/text/terminal", "internal/lab/virtdisk", "internal/lab/wintest"},
		"system calls belong below the seam, where portable code runs the same on the simulated node",
	},
	{
		"github.com/Microsoft/go-winio", []string{"internal/serve/pipe"},
		"named pipes have one owner, who sets their security descriptor",
	},
	{
		"os/exec", []string{"internal/host/deployment", "internal/lab/wintest", "internal/sim/winsim/simtest", "test/wine/published/node"},
		"the product runs no other program, no shell and no PowerShell; only what puts a daemon in place runs that " +
			"daemon once, to see whether it works, and tests run themselves once more",
	},
	{
		"google.golang.org/grpc", []string{"api/...", "client", "cmd/...", "internal/serve/daemon", "internal/serve/rpc", "internal/serve/wire",
			"internal/serve/server/...", "internal/sim/simcontrol", "internal/lab/bench/bare", "simnode", "test/wine/published/powershell"},
		"the operations on the node are a library that drivers use without gRPC",
	},
	{
		"google.golang.org/grpc/codes",
		[]string{"api/...", "client", "cmd/...", "internal/serve/rpc", "internal/serve/wire", "internal/serve/server/...",
			"test/wine/published/powershell"},
		"errors have classes of their own, and one package says which code a class has",
	},
	{
		"github.com/prometheus/client_golang/prometheus",
		[]string{"internal/host/nodemetrics", "internal/serve/server/...", "cmd/csi-proxy"},
		"a library reports to its caller, who chooses how to count",
	},
	{
		"k8s.io/klog/v2", []string{"cmd/csi-proxy", "internal/serve/server/..."},
		"a library logs where its caller says",
	},
	{
		module + "/internal/serve/server", []string{"internal/serve/server/...", "internal/serve/daemon", "cmd/csi-proxy", "simnode"},
		"only what serves needs the server",
	},
	{
		module + "/internal/serve/rpc", []string{"internal/serve/daemon", "cmd/csi-proxy", "simnode"},
		"only what serves needs the handlers; both ends of a call share internal/serve/wire",
	},
	{
		module + "/internal/ops/nodeops", []string{"node", "cmd/csi-proxy", "simnode"},
		"the API and its clients know what the operations are, not how they are done",
	},
	{
		module + "/internal/host/deployment", []string{"cmd/csi-proxyctl"},
		"the daemon doesn't install or upgrade itself, so it runs no program",
	},
}

// goList returns the lines of go list.
func goList(t *testing.T, goos string, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v", goos, err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// imports are for each package its path, and those of what it imports.
const imports = `{{.ImportPath}} {{join .Imports " "}}`

func TestImports(t *testing.T) {
	for _, goos := range []string{"linux", "windows"} {
		for _, line := range goList(t, goos, "-f", imports, "./...") {
			names := strings.Fields(line)
			importer := strings.TrimPrefix(strings.TrimPrefix(names[0], module), "/")
			for _, rule := range importRules {
				if slices.Contains(names[1:], rule.imported) && !matchesAny(importer, rule.only) {
					t.Errorf("%s: %s imports %s: %s", goos, importer, rule.imported, rule.reason)
				}
			}
			if importer == "internal/windows/win" {
				types := []string{module, module + "/internal/windows/winerr", module + "/internal/windows/winid"}
				for _, imported := range names[1:] {
					if strings.HasPrefix(imported, module) && !slices.Contains(types, imported) {
						t.Errorf("%s imports %s: below the seam are only types", importer, imported)
					}
				}
			}
		}
	}
}

// rooms are the folders of internal, each with the rooms that its packages may import. A call goes from
// serve to ops to windows, and comes into each once.
var rooms = map[string][]string{
	"text":    nil,
	"windows": {"text"},
	"ops":     {"windows", "text"},
	"serve":   {"ops", "text"},
	"host":    {"serve", "ops", "windows", "text"},
	"sim":     {"serve", "windows", "text"},
	"lab":     {"host", "serve", "ops", "windows", "sim", "text"},
}

// room returns the room of a package, "" if it isn't in internal.
func room(pkg string) string {
	below, ok := strings.CutPrefix(pkg, module+"/internal/")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(below, "/")
	return name
}

// The arrows between the rooms go down.
func TestRooms(t *testing.T) {
	seen := map[string]int{}
	for _, goos := range []string{"linux", "windows"} {
		for _, line := range goList(t, goos, "-f", imports, "./internal/...") {
			names := strings.Fields(line)
			from := room(names[0])
			below, ok := rooms[from]
			if !ok {
				t.Errorf("%s is in no room", names[0])
			}
			seen[from]++
			for _, imported := range names[1:] {
				if to := room(imported); to != "" && to != from && !slices.Contains(below, to) {
					t.Errorf("%s: %s imports %s: %s is above %s", goos, names[0], imported, to, from)
				}
			}
		}
	}
	for name := range rooms {
		if seen[name] < 2 {
			t.Errorf("%d packages in internal/%s", seen[name], name)
		}
	}
}

// simulated are the programs that know a simulated node, each with the reason. Released for
// Windows, they have none.
var simulated = map[string]string{
	"cmd/csi-proxy": "where there is no Windows, the daemon runs on a simulated node; on Windows it does with the " +
		"tag simulated",
	"cmd/csi-proxyctl": "its sim commands control that node",
}

// simulator are the packages of the simulated node.
var simulator = []string{"internal/sim/...", "api/sim/...", "simnode"}

// The released programs for Windows carry nothing of the simulated node. Those with the
// build tag do.
func TestReleasedPrograms(t *testing.T) {
	for program := range simulated {
		for tags, want := range map[string]bool{"": false, "simulated": true} {
			deps := goList(t, "windows", "-deps", "-tags="+tags, "./"+program)
			got := slices.ContainsFunc(deps, func(pkg string) bool {
				return pkg == "go.etcd.io/bbolt" || matchesAny(strings.TrimPrefix(pkg, module+"/"), simulator)
			})
			if got != want {
				t.Errorf("with the tags %q, %s.exe has something of the simulated node: %t, want %t", tags, program, got, want)
			}
		}
	}
}

// csi-proxyctl asks the daemon, and does nothing on the node itself but read.
func TestCtlIsAClient(t *testing.T) {
	no := []string{"node", "internal/ops/...", "internal/windows/winsys/...", "internal/lab/...", "internal/sim/..."}
	for _, pkg := range goList(t, "windows", "-deps", "./cmd/csi-proxyctl") {
		if matchesAny(strings.TrimPrefix(pkg, module+"/"), no) {
			t.Errorf("csi-proxyctl.exe has %s", pkg)
		}
	}
}

// Neither the daemon nor the library can run a program: no shell, and no PowerShell, into
// which a request could smuggle a command.
func TestNoProgramIsRun(t *testing.T) {
	for _, pkg := range []string{"./cmd/csi-proxy", "./node"} {
		if deps := goList(t, "windows", "-deps", pkg); len(deps) < 50 || slices.Contains(deps, "os/exec") {
			t.Errorf("%s has os/exec among its %d dependencies", pkg, len(deps))
		}
	}
}

func matchesAny(pkg string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		base, below := strings.CutSuffix(pattern, "/...")
		return pkg == base || below && strings.HasPrefix(pkg, base+"/")
	})
}
