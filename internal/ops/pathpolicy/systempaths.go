// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"regexp"
	"slices"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/winname"
)

// directoriesOfWindows hold Windows and the programs that are installed on it. A node has them on C:, which New protects too.
//
// Source: CSIDL_WINDOWS, CSIDL_PROGRAM_FILES and CSIDL_PROGRAM_FILESX86,
// https://learn.microsoft.com/windows/win32/shell/csidl
var directoriesOfWindows = []string{`C:\Windows`, `C:\Program Files`, `C:\Program Files (x86)`}

// ofKubelet are the names in its directory that kubelet and what installs it use themselves, beside pods, plugins and the files that
// end with _state.
//
// Source: kubernetes 1.24 and 1.37, pkg/kubelet: DefaultKubelet…DirName, image_manager, seccomp; DevicePluginPath of k8s.io/kubelet;
// cmd/kubelet: pki; kubeadm: config.yaml, kubeadm-flags.env; etc: PrepareNode.ps1 of sig-windows-tools.
var ofKubelet = []string{"bootstrap-kubeconfig", "checkpoints", "config.yaml", "config.yaml.d", "device-plugins", "etc", "image_manager",
	"kubeadm-flags.env", "kubeconfig", "pki", "plugin-containers", "plugins_registry", "pod-resources", "pods-api", "seccomp"}

var shortName = regexp.MustCompile(`^[^.]{1,6}~[0-9]{1,6}(\.[^.]{1,3})?$`)

// mayBeShort reports whether a name may be the second, short name that NTFS gives a file: PROGRA~1, KUBERN~1.IO.
//
// Source: https://learn.microsoft.com/windows/win32/fileio/naming-a-file#short-vs-long-names
func mayBeShort(name string) bool { return strings.Contains(name, "~") && shortName.MatchString(name) }

// systemPaths returns the files and directories of Windows and of the daemon, by Options.OwnFiles. No path of an operation leads to
// a file that split refuses, such as one on another server.
func systemPaths(ownFiles []string) (system []location) {
	for _, path := range slices.Concat(directoriesOfWindows, ownFiles) {
		if l, err := split(path, ""); err == nil {
			system = append(system, l)
		}
	}
	return system
}

// checkSystem returns csiproxy.ErrInvalidArgument for a path in a system path, by its text: no operation touches what belongs to
// Windows, to the daemon or to kubelet itself, even in an allowed directory. Where a name could be the short one of a system path
// or of a directory above, as in C:\PROGRA~1, short names are refused.
func (p *Policy) checkSystem(l location) error {
	if system := p.systemPathOf(l); system != "" {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "csi-proxy touches nothing in %s", quote.Text(system))
	}
	for i, name := range l.names {
		if mayBeShort(name) && p.holdsSystem(location{l.drive, l.names[:i]}) {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%q may be the short (8.3) name of another directory; write its long name", name)
		}
	}
	return nil
}

// systemPathOf returns the system path in which a path lies, by its text; "" if it lies in none.
func (p *Policy) systemPathOf(l location) string {
	if i := slices.IndexFunc(p.system, l.inside); i >= 0 {
		return p.system[i].String()
	}
	kubelet := p.allowed[0]
	if n := len(kubelet.names); len(l.names) > n && l.inside(kubelet) && isOfKubelet(l.names[n]) {
		return kubelet.below(l.names[n]).String()
	}
	return ""
}

// holdsSystem reports whether a directory holds a system path.
func (p *Policy) holdsSystem(dir location) bool {
	return slices.ContainsFunc(append(slices.Clip(p.system), p.allowed[0]), func(system location) bool { return system.inside(dir) })
}

// isOfKubelet reports whether a name in kubelet's directory belongs to kubelet itself.
func isOfKubelet(name string) bool {
	return slices.ContainsFunc(ofKubelet, func(own string) bool { return winname.Equal(own, name) }) ||
		strings.HasSuffix(winname.Lower(name), "_state")
}

// SystemPathsIn returns the system paths in a working directory, by their texts: of kubelet's own, its directory.
func (p *Policy) SystemPathsIn(workingDir string) (held []string) {
	dir, err := split(workingDir, "")
	if err != nil {
		return nil // New has refused the directory
	}
	for _, system := range append(slices.Clip(p.system), p.allowed[0]) {
		if system.inside(dir) {
			held = append(held, system.String())
		}
	}
	return held
}
