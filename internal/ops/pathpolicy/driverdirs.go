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

// CheckDriverName checks the name of a driver. The error is csiproxy.ErrInvalidArgument, with the
// reason, if kubelet shares the directory of the name among several drivers, or has none for it.
func CheckDriverName(driver string) error {
	if win.SameName(driver, "kubernetes.io") || win.SameName(driver, "pv") {
		// plugins\kubernetes.io holds the staged volumes of all drivers: before 1.24 in
		// plugins\kubernetes.io\csi\pv.
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, `a driver can't be named %s: plugins\kubernetes.io and plugins\kubernetes.io\csi\pv `+
			"hold the volumes of all drivers", quote.Text(driver))
	}
	return checkName(driver)
}

// CheckDirectory checks a further directory of a driver. The directory must lie below an allowed
// directory, have a name that means only this directory to Windows, and hold nothing of kubelet,
// the pods or other drivers. Otherwise the error is csiproxy.ErrInvalidArgument, with the reason.
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
		// The administrator owns links at an allowed directory, and the walk follows them.
		return refuse("it is a working directory itself, which the driver could make a link to what others have; " +
			"give -working-dir the directory above")
	}
	if l.inside(kubelet) && !slices.ContainsFunc(p.namedDirectories(driver), l.inside) {
		if reason := reasonOfKubelet(l.placeIn(kubelet)); reason != "" {
			return refuse("%s", reason)
		}
	}
	for _, other := range slices.Sorted(maps.Keys(p.drivers)) {
		if other == driver {
			continue
		}
		for _, theirs := range p.drivers[other] {
			if l.inside(theirs) || theirs.inside(l) {
				return refuse("driver %q has the directory %s", other, quote.Text(theirs.String()))
			}
		}
	}
	return l, nil
}

// reasonOfKubelet returns why a driver must not own a place in kubelet's directory; "" if a driver
// may own the place.
func reasonOfKubelet(place kubeletPlace) string {
	if place.inPods() {
		return "the directories of the pods belong to no driver"
	}
	switch place.kind {
	case placePlugins:
		return "plugins holds the directories of all drivers"
	case placeShared, placeStaging:
		return `plugins\kubernetes.io holds the volumes of all drivers`
	case placePlugin:
		// The named driver may be missing from the file: a node may get the driver at any time.
		return "it belongs to a driver named " + quote.Text(place.names[1]) + `; a driver has plugins\NAME by its own name only`
	}
	return ""
}
