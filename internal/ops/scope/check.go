// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/internal/ops/opendisk"
	"github.com/csi-proxy/csi-proxy/internal/text/didyoumean"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// Field names in the file of drivers.
const (
	FieldName     = "name"
	FieldDisks    = "disks"
	FieldServers  = "smbServers"
	FieldPortals  = "iscsiPortals"
	FieldServices = "services"
)

// Place is an element of one of the drivers' fields.
type Place struct {
	Driver int // index
	Field  string
	Index  int // in the field; 0 for the name
}

// Problem is a mistake at a place.
type Problem struct {
	Place
	// Other is the place in conflict with this one, if any.
	Other *Place
	// IsWarning is true if the drivers can be served all the same.
	IsWarning bool
	Text      string
}

// maxProblems limits the problems found by Check: each pair of patterns can be a problem.
const maxProblems = 100

// checker collects problems.
type checker struct {
	drivers  []Driver
	problems []Problem
}

// Check returns the problems of a node's drivers, in the order of the drivers: mistakes in one
// driver, and conflicts between two drivers.
func Check(drivers []Driver) []Problem {
	c := checker{drivers: drivers}
	for i, driver := range drivers {
		for k, pattern := range driver.Disks {
			c.check(Place{i, FieldDisks, k}, pattern.validate())
		}
		for k, server := range driver.Servers {
			c.check(Place{i, FieldServers, k}, validateServer(server))
		}
		for k, portal := range driver.Portals {
			c.checkPortal(Place{i, FieldPortals, k}, portal)
		}
		for k, service := range driver.Services {
			c.check(Place{i, FieldServices, k}, checkService(service))
		}
	}
	c.checkNames()
	c.checkServers()
	c.checkPatterns()
	sort.SliceStable(c.problems, func(i, j int) bool { return c.problems[i].Driver < c.problems[j].Driver })
	return c.problems
}

// add adds a problem. Problems beyond maxProblems are dropped.
func (c *checker) add(problem Problem) {
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, problem)
	}
}

// check adds a non-nil error as a problem of a place.
func (c *checker) check(at Place, err error) {
	if err != nil {
		c.add(Problem{Place: at, Text: err.Error()})
	}
}

// checkPortal checks the address of a portal.
func (c *checker) checkPortal(at Place, portal csiproxy.ISCSIPortal) {
	parsed, err := win.ParsePortal(portal)
	if err == nil && !win.IsIP(parsed.Address) {
		c.check(at, checkHostName(parsed.Address))
		c.add(Problem{Place: at, IsWarning: true, Text: fmt.Sprintf("Windows lists the sessions of a disk by IP address, so no disk "+
			"belongs to the driver by the host name %s; name the IP addresses of the portal as well", quote.Text(parsed.Address))})
	}
	c.check(at, err)
}

// checkHostName returns csiproxy.ErrInvalidArgument for a host name that may be an alias: two drivers
// could share a portal under two names.
func checkHostName(host string) error {
	if strings.HasSuffix(host, ".") {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s can't be a portal: leave out the dot at the end", quote.Text(host))
	}
	if _, err := strconv.ParseUint(host[strings.LastIndexByte(host, '.')+1:], 0, 64); err == nil {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s can't be a portal: it ends with a number, so Windows may read it as an "+
			"IP address; write that as 192.0.2.1", quote.Text(host))
	}
	return nil
}

// checkNames adds duplicates: a name, server, portal or service of two drivers, or twice in one
// driver.
func (c *checker) checkNames() {
	owners := make(map[string]Place)
	for i, driver := range c.drivers {
		once := func(at Place, key, what string) {
			key = at.Field + " " + win.LowerName(key)
			other, taken := owners[key]
			if !taken {
				owners[key] = at
				return
			}
			c.add(Problem{Place: at, Other: &other, Text: fmt.Sprintf("duplicate %s: %s has it", what, c.owner(other.Driver, i))})
		}
		once(Place{i, FieldName, 0}, driver.Name, "driver name")
		for k, server := range driver.Servers {
			once(Place{i, FieldServers, k}, serverKey(server), "server "+quote.Text(server))
		}
		for k, portal := range driver.Portals {
			if parsed, err := win.ParsePortal(portal); err == nil {
				what := "portal " + csiproxy.ISCSIPortal(parsed).String()
				parsed = withoutZone(parsed)
				parsed.Address = ipv4Of(parsed.Address)
				once(Place{i, FieldPortals, k}, csiproxy.ISCSIPortal(parsed).String(), what)
			}
		}
		for k, service := range driver.Services {
			once(Place{i, FieldServices, k}, service, "service "+quote.Text(service))
		}
	}
}

// owner names the driver that has a duplicate, in a problem of the driver ofProblem.
func (c *checker) owner(driver, ofProblem int) string {
	if driver == ofProblem {
		return "the driver itself"
	}
	return fmt.Sprintf("driver %q", c.drivers[driver].Name)
}

// checkServers adds name suffixes that include a server of another driver, and names that may be short for one.
func (c *checker) checkServers() {
	for i, driver := range c.drivers {
		for k, server := range driver.Servers {
			wide := Driver{Servers: []string{server}}
			for j, other := range c.drivers {
				for l, name := range other.Servers {
					if i < j && (isShortFor(server, name) || isShortFor(name, server)) {
						c.add(Problem{Place: Place{i, FieldServers, k}, Other: &Place{j, FieldServers, l}, IsWarning: true, Text: fmt.Sprintf(
							"%s and %s of driver %q may be one server; write both names in full", quote.Text(server), quote.Text(name), other.Name)})
					}
					if i != j && !win.SameName(server, name) && validateServer(server) == nil && wide.hasServer(win.LowerName(name)) {
						c.add(Problem{Place: Place{i, FieldServers, k}, Other: &Place{j, FieldServers, l}, Text: fmt.Sprintf(
							"%s includes the server %s of driver %q", quote.Text(server), quote.Text(name), other.Name)})
					}
				}
			}
		}
	}
}

// isShortFor reports whether a server may be another one under a name without its domain.
func isShortFor(server, other string) bool {
	host, _, isLong := strings.Cut(win.LowerName(other), ".")
	return isLong && host != "" && host == win.LowerName(server)
}

// serverKey returns the text that all names of a server's IP address have in common, or the name.
func serverKey(server string) string {
	literal, isLiteral := strings.CutSuffix(win.LowerName(server), ipv6Literals)
	if !isLiteral {
		return server
	}
	return ipv4Of(strings.ReplaceAll(literal, "-", ":"))
}

// ipv4Of returns the IPv4 address that an IPv6 address stands for: translated by NAT64 with the prefix 64:ff9b::/96,
// IPv4-compatible, 6to4 or ISATAP. Any other text stays. Other prefixes of translators are unknown.
//
// Source: RFC 6052, section 2.1; RFC 4291, section 2.5.5.1; RFC 3056, section 2; RFC 5214, section 6.1
func ipv4Of(address string) string {
	ip, _ := netip.ParseAddr(address)
	bytes := ip.As16()
	prefix, last := string(bytes[:12]), bytes[12:]
	isNAT64 := prefix == "\x00\x64\xff\x9b\x00\x00\x00\x00\x00\x00\x00\x00"
	isCompatible := [12]byte(bytes[:]) == [12]byte{}
	isISATAP := bytes[8]&^2 == 0 && prefix[9:] == "\x00\x5e\xfe"
	switch {
	case !ip.Is6():
		return address
	case prefix[:2] == "\x20\x02": // 6to4
		last = bytes[2:]
	case !isNAT64 && !isCompatible && !isISATAP:
		return address
	}
	return netip.AddrFrom4([4]byte(last)).String()
}

// checkPatterns adds patterns of two drivers if a disk can match both: the disk would belong to
// neither.
func (c *checker) checkPatterns() {
	for i, driver := range c.drivers {
		for k, pattern := range driver.Disks {
			if pattern.validate() != nil {
				continue
			}
			at := Place{i, FieldDisks, k}
			for j, other := range c.drivers {
				if len(c.problems) >= maxProblems {
					return
				}
				if i != j && len(other.Portals) > 0 && (pattern.Bus != "" || restricts(pattern.Target)) {
					c.checkWithPortals(at, pattern, Place{j, FieldPortals, 0})
				}
				for l, earlier := range other.Disks {
					if j < i && earlier.validate() == nil {
						c.checkPair(at, pattern, Place{j, FieldDisks, l}, earlier)
					}
				}
			}
		}
	}
}

// checkPair adds a pattern with disks in common with an earlier pattern of another driver.
func (c *checker) checkPair(at Place, pattern DiskPattern, otherAt Place, other DiskPattern) {
	swallowed := func(wide Place, narrow Place, pattern DiskPattern) {
		c.add(Problem{Place: wide, Other: &narrow, Text: fmt.Sprintf("all disks that match the pattern %v of driver %q match this one "+
			"too, and would belong to neither driver; make this pattern narrower", pattern, c.drivers[narrow.Driver].Name)})
	}
	switch {
	case other.isWithin(pattern):
		swallowed(at, otherAt, other)
	case pattern.isWithin(other):
		swallowed(otherAt, at, pattern)
	case pattern.overlaps(other):
		c.add(Problem{Place: at, Other: &otherAt, IsWarning: true, Text: fmt.Sprintf("a disk can match this pattern and the pattern %v "+
			"of driver %q; such a disk would belong to neither driver", other, c.drivers[otherAt.Driver].Name)})
	}
}

// checkWithPortals adds a pattern that matches disks of another driver's portals. Disks of portals
// never match a pattern with neither a bus nor a target: see [asked.fits].
func (c *checker) checkWithPortals(at Place, pattern DiskPattern, portals Place) {
	switch allISCSI := (DiskPattern{Bus: csiproxy.BusISCSI}); {
	case allISCSI.isWithin(pattern):
		c.add(Problem{Place: at, Other: &portals, Text: fmt.Sprintf("all disks of the portals of driver %q match this pattern, and "+
			"would belong to neither driver; make this pattern narrower", c.drivers[portals.Driver].Name)})
	case allISCSI.overlaps(pattern):
		c.add(Problem{Place: at, Other: &portals, IsWarning: true, Text: fmt.Sprintf("a disk of the portals of driver %q can match this "+
			"pattern; such a disk would belong to neither driver, or to this one if its target redirects logins to an address in nobody's "+
			"%s; give the driver %[2]s instead of this pattern", c.drivers[portals.Driver].Name, FieldPortals)})
	}
}

// String returns the pattern as written in the file of drivers.
func (p DiskPattern) String() string {
	var fields []string
	for _, field := range []struct{ name, text string }{{"bus", string(p.Bus)}, {"vendor", p.Vendor}, {"product", p.Product},
		{"serialNumber", p.SerialNumber}, {"iscsiTarget", p.Target}} {
		if field.text != "" {
			fields = append(fields, fmt.Sprintf("%q: %q", field.name, field.text))
		}
	}
	if p.Adapter != nil {
		fields = append(fields, fmt.Sprintf("%q: %d", "adapter", *p.Adapter))
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// restricts reports whether a text of a pattern excludes any disk.
func restricts(text string) bool { return strings.Trim(text, " *") != "" }

// validate returns csiproxy.ErrInvalidArgument, with the reason, for a pattern that matches all
// disks, or none.
func (p DiskPattern) validate() error {
	texts := []string{p.Vendor, p.Product, p.SerialNumber, p.Target}
	if p.Bus == "" && p.Adapter == nil && !slices.ContainsFunc(texts, restricts) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the pattern is empty, and would match all disks")
	}
	isBus := func(name string) bool { return win.SameName(name, string(p.Bus)) }
	if names := opendisk.BusNames(); p.Bus != "" && !slices.ContainsFunc(names, isBus) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "unknown bus %s%s; the buses are %s", quote.Text(string(p.Bus)),
			didyoumean.Hint("", string(p.Bus), names), strings.Join(names, ", "))
	}
	for _, text := range texts {
		if strings.Contains(strings.TrimSuffix(strings.TrimSpace(text), "*"), "*") {
			return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s: a * may only be the last character", quote.Text(text))
		}
	}
	if restricts(p.Target) && p.Bus != "" && !win.SameName(string(p.Bus), string(csiproxy.BusISCSI)) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the pattern matches no disk: only a disk on the bus iSCSI has a target")
	}
	return nil
}

// overlaps reports whether some disk can match both patterns. The properties of a disk are
// independent of each other: two patterns share a disk if they share a value for each property.
func (p DiskPattern) overlaps(q DiskPattern) bool {
	a, b := p.properties(), q.properties()
	for i := range a {
		if !a[i].overlaps(b[i]) {
			return false
		}
	}
	return true
}

// isWithin reports whether every disk that matches p matches q too.
func (p DiskPattern) isWithin(q DiskPattern) bool {
	a, b := p.properties(), q.properties()
	for i := range a {
		if !a[i].isWithin(b[i]) {
			return false
		}
	}
	return true
}

// properties returns the allowed texts of each property of a disk, in a fixed order. Only a disk on
// the bus iSCSI has a target.
func (p DiskPattern) properties() [6]texts {
	bus, adapter := string(p.Bus), ""
	if restricts(p.Target) {
		bus = string(csiproxy.BusISCSI)
	}
	if p.Adapter != nil {
		adapter = fmt.Sprint(*p.Adapter)
	}
	return [...]texts{textsOf(bus), textsOf(adapter), inquiryTexts(p.Vendor, vendorRoom), inquiryTexts(p.Product, productRoom),
		textsOf(p.SerialNumber), textsOf(p.Target)}
}

// texts is a set of texts. An element stands for a single text, or for all texts with a common
// beginning.
type texts []textSet

type textSet struct {
	text        string
	isBeginning bool
}

// textsOf returns the texts accepted by fitsText.
func textsOf(pattern string) texts {
	pattern = win.LowerName(strings.TrimSpace(pattern))
	beginning, isBeginning := strings.CutSuffix(pattern, "*")
	return texts{{beginning, isBeginning || pattern == ""}}
}

// inquiryTexts returns the texts accepted by fitsInquiry.
func inquiryTexts(pattern string, room int) texts {
	pattern = strings.TrimSpace(pattern)
	set := textsOf(pattern)
	if len(pattern) > room {
		set = append(set, textsOf(pattern[:room])...)
	}
	return set
}

func (set texts) overlaps(other texts) bool {
	return slices.ContainsFunc(set, func(a textSet) bool { return slices.ContainsFunc(other, a.overlaps) })
}

// isWithin compares element by element. The result is exact: several elements together never cover
// all texts with a common beginning.
func (set texts) isWithin(other texts) bool {
	return !slices.ContainsFunc(set, func(a textSet) bool { return !slices.ContainsFunc(other, a.isWithin) })
}

func (a textSet) overlaps(b textSet) bool { return a.isWithin(b) || b.isWithin(a) }

func (a textSet) isWithin(b textSet) bool {
	return a == b || b.isBeginning && strings.HasPrefix(a.text, b.text)
}

// validateServer returns csiproxy.ErrInvalidArgument, with the reason, for an invalid name of an
// SMB server, or an invalid suffix of names.
func validateServer(server string) error {
	name := strings.TrimPrefix(server, ".")
	if name == "" {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the name of a server is empty")
	}
	if err := win.CheckServerName(name); err != nil {
		return &csiproxy.Error{Detail: quote.Text(server) + " can't be a server: name one, as files.example.com, or the end of " +
			"several names, as .example.com", Err: err}
	}
	return checkServerAddress(server)
}

// ipv6Literals ends the names of servers that stand for IPv6 addresses.
const ipv6Literals = ".ipv6-literal.net"

// checkServerAddress returns csiproxy.ErrInvalidArgument for a server that Windows may read as an
// IP address, unless the address is in its shortest form: two drivers could share a server under
// two names.
func checkServerAddress(server string) error {
	lastLabel := server[strings.LastIndexByte(server, '.')+1:]
	_, numberErr := strconv.ParseUint(lastLabel, 0, 64)
	isNumber := numberErr == nil || !strings.ContainsFunc(lastLabel, func(r rune) bool { return r < '0' || r > '9' })
	if _, err := netip.ParseAddr(server); isNumber && err != nil {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s can't be a server: it ends with a number, so Windows may read it as an "+
			"IP address; write that as 192.0.2.1", quote.Text(server))
	}
	literal, isLiteral := strings.CutSuffix(win.LowerName(server), ipv6Literals)
	if !isLiteral {
		return nil
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(literal, "-", ":"))
	if shortest := strings.ReplaceAll(ip.String(), ":", "-"); err != nil || ip.Unmap().Is4() || shortest != literal {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "%s can't be a server: write an IPv6 address in its shortest form and "+
			"without a zone, as 2001-db8--1%s", quote.Text(server), ipv6Literals)
	}
	return nil
}

// nodeServices are the Windows services and kernel drivers, in lower case, on which all drivers depend: the node's
// programs, remote calls, storage, SMB, network and accounts.
var nodeServices = strings.Fields("kubelet kube-proxy csi-proxy csiproxy rke2 k3s rancher-wins containerd docker hns vmcompute " +
	"dcomlaunch eventlog lsm plugplay power profsvc rpceptmapper rpcss schedule winmgmt " +
	"bindflt cimfs npfs vhdmp wcifs " +
	"disk fltmgr iscsiprt mountmgr mpio msdsm msiscsi ntfs partmgr refs smphost spaceport storahci stornvme storsvc vds volmgr volmgrx volsnap vss " +
	"lanmanserver lanmanworkstation mrxsmb mrxsmb10 mrxsmb20 mup rdbss srv2 srvnet " +
	"afd bfe dhcp dnscache http iphlpsvc lmhosts mpssvc ndis netbt netman netprofm netsetupsvc nlasvc nsi tcpip vfpext winnat " +
	"cryptsvc kdc keyiso netlogon samss")

// checkService returns csiproxy.ErrInvalidArgument, with the reason, for an invalid service of a
// driver.
func checkService(service string) error {
	if slices.Contains(nodeServices, win.LowerName(service)) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the service %s can't belong to a driver: all drivers depend on it",
			quote.Text(service))
	}
	if service != strings.TrimSpace(service) {
		return csiproxy.Errorf(csiproxy.ErrInvalidArgument, "the service %q has a blank at the beginning or end", service)
	}
	return win.CheckServiceName(service)
}
