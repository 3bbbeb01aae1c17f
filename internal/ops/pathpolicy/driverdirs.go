// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package pathpolicy

import (
	"maps"
	"slices"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// CheckDriverName returns csiproxy.ErrInvalidArgument, with the reason, for a name by which kubelet would have no directory for one
// driver alone.
func CheckDriverName(driver string) error {
	if win.SameName(driver, "kubernetes.io") || win.SameName(driver, "pv") {
		// plugins\kubernetes.io holds where kubelet stages the volumes of all drivers: before 1.24 in plugins\kubernetes.io\csi\pv.
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, `a driver can't be named %s: plugins\kubernetes.io and plugins\kubernetes.io\csi\pv `+
			"hold the volumes of all drivers", quote.Text(driver))
	}
	return checkName(driver)
}

// CheckDirectory returns csiproxy.ErrInvalidArgument, with the reason, for what can't be a further directory of a driver: it must
// lie below an allowed directory, by a name that Windows takes for this directory only, and hold nothing that kubelet, the pods or
// other drivers have.
func (p *Policy) CheckDirectory(driver, dir string) error {
	_, err := p.checkDirectory(driver, dir)
	return err
}

func (p *Policy) checkDirectory(driver, dir string) (location, error) {
	refuse := func(format string, args ...any) (location, error) {
		return location{}, csiproxy.Errorf(csiproxy.ErrInvalidArgument, format, args...)
	}
	l, err := split(dir, "")
	if err != nil {
		return l, err
	}
	if i := slices.IndexFunc(l.names, mayBeShort); i >= 0 {
		return refuse("%q may be the short (8.3) name of another directory; write its long name", l.names[i])
	}
	if err := p.system.check(l); err != nil {
		return l, err
	}
	if !slices.ContainsFunc(p.roots, l.inside) {
		return refuse("the path is not inside of %s", p.directories())
	}
	kubelet := p.allowed[0]
	if kubelet.inside(l) {
		return refuse("it holds kubelet's directory %s, in which all drivers and pods have theirs", quote.Text(kubelet.String()))
	}
	if p.system.holds(l) {
		return refuse("it holds files of Windows or of csi-proxy itself")
	}
	if driver != "" && slices.ContainsFunc(p.roots, l.equal) {
		// Links at an allowed directory are followed as the administrator's.
		return refuse("it is a working directory itself, which the driver could make a link to what others have; " +
			"give -working-dir the directory above")
	}
	if l.inside(kubelet) && !slices.ContainsFunc(p.namedDirectories(driver), l.inside) {
		if reason := reasonOfKubelet(l.names[len(kubelet.names):]); reason != "" {
			return refuse("%s", reason)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(p.drivers)) {
		for _, theirs := range p.drivers[other] {
			if other != driver && (l.inside(theirs) || theirs.inside(l)) {
				return refuse("driver %q has the directory %s", other, quote.Text(theirs.String()))
			}
		}
	}
	return l, nil
}

// reasonOfKubelet returns why a driver can't have a directory in kubelet's, given the names below that; "" if it can.
func reasonOfKubelet(names []string) string {
	first := names[0]
	if win.SameName(first, "pods") {
		return "the directories of the pods belong to no driver"
	}
	if win.SameName(first, "plugins") && len(names) == 1 {
		return "plugins holds the directories of all drivers"
	}
	if win.SameName(first, "plugins") && win.SameName(names[1], "kubernetes.io") {
		return `plugins\kubernetes.io holds the volumes of all drivers`
	}
	if win.SameName(first, "plugins") {
		// Whether or not that driver is in the file: a node may have it at any time.
		return "it belongs to a driver named " + quote.Text(names[1]) + `; a driver has plugins\NAME by its own name only`
	}
	return ""
}
