// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sort"
	"strings"

	csiproxy "github.com/csi-proxy/csi-proxy"
	"github.com/csi-proxy/csi-proxy/api"
	"github.com/csi-proxy/csi-proxy/internal/ops/nodeops"
	"github.com/csi-proxy/csi-proxy/internal/ops/pathpolicy"
	"github.com/csi-proxy/csi-proxy/internal/ops/scope"
	"github.com/csi-proxy/csi-proxy/internal/serve/admin"
	"github.com/csi-proxy/csi-proxy/internal/serve/pipe"
	"github.com/csi-proxy/csi-proxy/internal/serve/server"
	"github.com/csi-proxy/csi-proxy/internal/text/didyoumean"
	"github.com/csi-proxy/csi-proxy/internal/text/jsonfile"
	"github.com/csi-proxy/csi-proxy/internal/text/quote"
	"github.com/csi-proxy/csi-proxy/internal/windows/win"
)

// driversProblem is what is wrong with the file of -drivers at one place.
type driversProblem struct {
	jsonfile.Position
	driver    string // its name or number; empty for the file
	isWarning bool
	text      string
}

// String returns the problem as a line, as compilers write them behind the name of the file.
func (p driversProblem) String() string {
	var kind, driver string
	if p.isWarning {
		kind = "warning: "
	}
	if p.driver != "" {
		driver = "driver " + p.driver + ": "
	}
	return quote.Terminal(fmt.Sprintf("%d:%d: %s%s%s", p.Line, p.Column, kind, driver, p.text))
}

// driversError says all that is wrong with a file of -drivers.
type driversError struct {
	path     string
	problems []driversProblem
}

func (e *driversError) Error() string {
	lines := e.Lines()
	return lines[0] + ": " + strings.Join(lines[1:], "; ")
}

// Lines returns a heading and a line for each problem, the refusals first.
func (e *driversError) Lines() []string {
	count := 0
	var refusals, warnings []string
	for _, p := range e.problems {
		line := fmt.Sprintf("%s:%v", e.path, p)
		if p.isWarning {
			warnings = append(warnings, line)
		} else {
			count++
			refusals = append(refusals, line)
		}
	}
	heading := "there is a problem"
	if count > 1 {
		heading = fmt.Sprintf("there are %d problems", count)
	}
	return slices.Concat([]string{"-drivers=" + e.path + ": " + heading}, refusals, warnings)
}

// maxDriversFile bounds the file, in bytes.
const maxDriversFile = 1 << 20

// loadDrivers reads the file of -drivers, if there is one, into the options, and checks it.
func (o *options) loadDrivers() error {
	if o.driversPath == "" {
		return nil
	}
	data, err := readBounded(o.driversPath, maxDriversFile)
	if err != nil {
		advice := ""
		if o.checkOnly && runtime.GOOS != "windows" && errors.Is(err, fs.ErrNotExist) && strings.Contains(o.driversPath, `\`) {
			advice = "; this system has no such path: name a copy of the file before the command line, csi-proxy -check -drivers COPY 'LINE'"
		}
		return fmt.Errorf("-drivers=%s: %w%s", o.driversPath, err, advice)
	}
	c := driversCheck{options: o}
	c.decode(data)
	if slices.ContainsFunc(c.problems, func(p driversProblem) bool { return !p.isWarning }) {
		return &driversError{o.driversPath, c.problems}
	}
	c.file.Sum, c.file.Warnings = sha256.Sum256(data), c.problems
	o.drivers, o.ofDrivers = c.file, c.ofDrivers
	_, err = nodeops.New(nil, o.Options, o.ofDrivers...) // which asks the node nothing yet
	return err
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the file is longer than %d bytes", limit)
	}
	return data, err
}

// driversCheck is the check of a file of drivers. It goes on after a problem, to find all.
type driversCheck struct {
	options   *options
	form      *jsonfile.File
	file      driversFile
	ofDrivers []nodeops.Driver
	problems  []driversProblem
}

// decode decodes the file, and checks it.
func (c *driversCheck) decode(data []byte) {
	c.form = jsonfile.Decode(data, &c.file)
	for _, p := range c.form.Problems {
		c.problems = append(c.problems, driversProblem{Position: p.Position, driver: c.driverAt(p.Path), text: p.Text})
	}
	if len(c.file.Drivers) == 0 && len(c.form.Problems) == 0 {
		c.refuse("drivers", "the file names no driver")
	}
	for i := range c.file.Drivers {
		c.checkEntry(i)
	}
	var owners []scope.Driver
	for _, driver := range c.ofDrivers {
		owners = append(owners, driver.Driver)
	}
	for _, p := range scope.Check(owners) {
		c.addOfScope(p)
	}
	c.checkDirectories()
	sort.SliceStable(c.problems, func(i, j int) bool {
		a, b := c.problems[i], c.problems[j]
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) < 0
	})
}

// driverAt returns how messages name the driver at a path of the file: by its name, or else by its number. A path outside of
// all drivers gives "".
func (c *driversCheck) driverAt(path string) string {
	var i int
	if n, _ := fmt.Sscanf(path, "drivers[%d]", &i); n == 0 || i >= len(c.file.Drivers) {
		return ""
	}
	if name := c.file.Drivers[i].Name; name != "" {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprint(i + 1)
}

func (c *driversCheck) add(path string, isWarning bool, format string, args ...any) {
	c.problems = append(c.problems, driversProblem{c.form.At(path), c.driverAt(path), isWarning, fmt.Sprintf(format, args...)})
}

func (c *driversCheck) refuse(path, format string, args ...any) { c.add(path, false, format, args...) }

// pathOf returns the path in the file of a place that package scope has found.
func pathOf(p scope.Place) string {
	if p.Field == scope.FieldName {
		return fmt.Sprintf("drivers[%d].%s", p.Driver, p.Field)
	}
	return fmt.Sprintf("drivers[%d].%s[%d]", p.Driver, p.Field, p.Index)
}

// addOfScope adds a problem that package scope has found, with the line of the other place.
func (c *driversCheck) addOfScope(p scope.Problem) {
	text := p.Text
	if p.Other != nil {
		text += fmt.Sprintf(" (line %d)", c.form.At(pathOf(*p.Other)).Line)
	}
	if p.Field == scope.FieldPortals && c.ofDrivers[p.Driver].Portals[p.Index] == (csiproxy.ISCSIPortal{}) {
		return // checkEntry has the problem of a text that is no portal
	}
	c.add(pathOf(p.Place), p.IsWarning, "%s", text)
}

// maxPipeName is how long Windows lets the name of a pipe be, without \\.\pipe\.
//
// Source: https://learn.microsoft.com/windows/win32/api/namedpipeapi/nf-namedpipeapi-createnamedpipew (256
// characters in all)
const maxPipeName = 256 - len(`\\.\pipe\`)

// checkEntry checks one driver by itself, fills in its defaults, and adds it to the drivers of the node.
func (c *driversCheck) checkEntry(i int) {
	entry, path := &c.file.Drivers[i], fmt.Sprintf("drivers[%d]", i)
	isNamePart := func(r rune) bool {
		return 'a' <= r|0x20 && r|0x20 <= 'z' || '0' <= r && r <= '9' || strings.ContainsRune("-.", r)
	}
	switch err := pathpolicy.CheckDriverName(entry.Name); {
	case entry.Name == "" || strings.ContainsFunc(entry.Name, func(r rune) bool { return !isNamePart(r) }):
		c.refuse(path+".name", "the name must be that of the CSIDriver, of letters, digits, dots and hyphens")
	case strings.EqualFold(entry.Name, admin.Driver): // as Windows compares the names of pipes
		c.refuse(path+".name", "the name is taken by the endpoints of administrators")
	case len(api.DriverEndpointName(entry.Name, "filesystem", "v1alpha1")) > maxPipeName:
		c.refuse(path+".name", "the name is too long for the name of a pipe")
	case err != nil:
		c.refuse(path+".name", "%v", err)
	}
	c.checkGroups(i)
	if entry.PipeSecurity != "" {
		if warning, err := checkSecurityDescriptor(entry.PipeSecurity, c.options.checkOnly); err != nil || warning != "" {
			c.add(path+".pipeSecurity", err == nil, "%s", cmp.Or(warning, fmt.Sprint(err)))
		}
	}
	own := nodeops.Driver{Driver: scope.Driver{Name: entry.Name, Servers: entry.SMBServers, Services: entry.Services},
		Dirs: entry.Directories, Reformat: entry.Reformat}
	if entry.Reformat && (len(entry.Directories) == 0 || !slices.Contains(entry.Groups, "volume")) {
		c.refuse(path+".reformat", "reformat is of no use without directories and the group volume: it lets FormatVolume empty "+
			"volumes that are mounted right in one of the directories")
	}
	for _, p := range entry.Disks {
		own.Disks = append(own.Disks, scope.DiskPattern{Bus: p.Bus, Vendor: p.Vendor, Product: p.Product,
			SerialNumber: p.SerialNumber, Adapter: p.Adapter, Target: p.ISCSITarget})
	}
	for k, text := range entry.ISCSIPortals {
		portal, err := win.ParsePortalText(text)
		if err != nil {
			c.refuse(fmt.Sprintf("%s.iscsiPortals[%d]", path, k), "portal %q: %v", text, err)
			portal.Address, portal.Port = "", 0
		}
		own.Portals = append(own.Portals, csiproxy.ISCSIPortal(portal))
	}
	c.ofDrivers = append(c.ofDrivers, own)
	if c.options.pipeSecurity != pipe.DefaultSecurityDescriptor {
		entry.PipeSecurity = cmp.Or(entry.PipeSecurity, c.options.pipeSecurity)
	}
	entry.PipeSecurity = cmp.Or(entry.PipeSecurity, pipe.DriverSecurityDescriptor())
	entry.MaxCalls = cmp.Or(entry.MaxCalls, c.options.maxCalls, server.DefaultMaxCalls)
}

// checkSecurityDescriptor checks the text of a security descriptor. Only Windows can parse it, so -check on another system
// gives a warning.
func checkSecurityDescriptor(text string, checkOnly bool) (warning string, _ error) {
	if checkOnly && runtime.GOOS != "windows" && text != "" {
		return "the security descriptor isn't checked: only Windows reads it", nil
	}
	return "", pipe.CheckSecurityDescriptor(text)
}

// checkGroups fills in the groups of a driver that names none, and checks that groups and objects match: a group needs an object
// to work on, and an object a group that works on it.
func (c *driversCheck) checkGroups(i int) {
	entry, path := &c.file.Drivers[i], fmt.Sprintf("drivers[%d]", i)
	hasDisks, hasServers, hasPortals := len(entry.Disks) > 0, len(entry.SMBServers) > 0, len(entry.ISCSIPortals) > 0
	if entry.Groups == nil {
		if !hasDisks && !hasServers && !hasPortals && len(entry.Services) == 0 && len(entry.Directories) == 0 {
			c.refuse(path, "the file gives the driver nothing: give it disks, smbServers, iscsiPortals, directories or services; "+
				"or name the groups that it needs for its own directories alone, such as [\"filesystem\"]")
		}
		entry.Groups = []string{"disk", "volume", "filesystem", "storage"}
		if hasServers {
			entry.Groups = append(entry.Groups, "smb")
		}
		if hasPortals {
			entry.Groups = append(entry.Groups, "iscsi")
		}
		if len(entry.Services) > 0 {
			c.refuse(path+".services", "services need the group system, which no driver has by default: add groups with it")
		}
		return
	}
	if len(entry.Groups) == 0 {
		c.refuse(path+".groups", "groups is empty, and would leave the driver no endpoint")
		return
	}
	isKnown := func(group string) bool { return slices.Contains(api.Groups(), group) }
	for k, group := range entry.Groups {
		at := fmt.Sprintf("%s.groups[%d]", path, k)
		switch {
		case !isKnown(group):
			c.refuse(at, "unknown group %q%s", group, cmp.Or(didyoumean.Hint("", group, api.Groups()),
				"; the groups are "+strings.Join(api.Groups(), ", ")))
		case group == "disk" && !hasDisks && !hasPortals:
			c.refuse(at, "the group disk is of no use without disks or iscsiPortals")
		case group == "smb" && !hasServers:
			c.refuse(at, "the group smb is of no use without smbServers")
		case group == "iscsi" && !hasPortals:
			c.refuse(at, "the group iscsi is of no use without iscsiPortals")
		}
	}
	has := func(groups ...string) bool { // an unknown one may be meant to be one of these
		return slices.ContainsFunc(entry.Groups, func(group string) bool { return !isKnown(group) || slices.Contains(groups, group) })
	}
	for _, needs := range []struct {
		field  string
		given  bool
		groups []string // one of which uses it
	}{
		{"disks", hasDisks, []string{"disk", "volume", "storage"}},
		{"directories", len(entry.Directories) > 0, []string{"volume", "filesystem", "smb", "storage"}},
		{"smbServers", hasServers, []string{"smb", "storage"}},
		{"iscsiPortals", hasPortals, []string{"iscsi", "storage"}},
		{"services", len(entry.Services) > 0, []string{"system"}},
	} {
		if needs.given && !has(needs.groups...) {
			c.refuse(path+"."+needs.field, "%s are of no use without the group %s: add it to groups", needs.field,
				strings.Join(needs.groups, " or "))
		}
	}
}

// checkDirectories checks the further directories of the drivers, each beside those of the drivers before it.
func (c *driversCheck) checkDirectories() {
	paths := c.options.pathOptions()
	node, err := pathpolicy.New(paths)
	if err != nil {
		return // check has said so
	}
	for i, driver := range c.ofDrivers {
		var good []string
		for k, dir := range driver.Dirs {
			if err := node.CheckDirectory(driver.Name, dir); err != nil {
				c.refuse(fmt.Sprintf("drivers[%d].directories[%d]", i, k), "directory %q: %v", dir, err)
			} else {
				good = append(good, dir)
			}
		}
		if pathpolicy.CheckDriverName(driver.Name) != nil {
			continue // checkEntry has said so
		}
		with := paths
		with.Drivers = append(slices.Clip(paths.Drivers), pathpolicy.Driver{Name: driver.Name, Dirs: good, Reformat: driver.Reformat})
		next, err := pathpolicy.New(with)
		if err != nil {
			c.refuse(fmt.Sprintf("drivers[%d]", i), "%v", err)
			continue
		}
		paths, node = with, next
		c.file.Drivers[i].directories = node.DirectoriesOf(driver.Name)
	}
}
