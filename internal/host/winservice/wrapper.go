// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winservice

import (
	"encoding/xml"
	"strings"
)

// Wrappers make a service of any program: the service's command line is the wrapper's, which
// starts the program. nssm and srvany have the program in the service's parameters in the registry,
// WinSW in an XML file beside itself. AKS' nodes have CSI Proxy under nssm.
//
// A wrapper's settings are never changed: once its command line is the service's again, it starts
// what it started before.

// wrapper is what is known of a service's program that may be a wrapper.
type wrapper struct {
	program string // the service's
	// parameter returns a value of the service's parameters, with variables expanded; empty for none.
	parameter func(name string) (string, error)
	// file returns the content of a file; nil for none.
	file func(path string) ([]byte, error)
	// expand expands variables of the environment.
	expand func(text string) (string, error)
	// line returns the command line of a program and its arguments, quoted where needed.
	line func(args []string) string
}

// commandLine returns that of the program which the wrapper starts; empty if it is no wrapper.
func (w wrapper) commandLine() (string, error) {
	if line, err := w.winSW(); err != nil || line != "" {
		return line, err
	}
	// Parameters of an earlier wrapper stay when the service gets another program.
	if isOurProgram(w.program) {
		return "", nil
	}
	program, err := w.parameter("Application")
	if err != nil || program == "" {
		return "", err
	}
	arguments, err := w.parameter("AppParameters")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(w.line([]string{program}) + " " + arguments), nil
}

// winSWConfig is the part of WinSW's configuration that says what it starts.
//
// https://github.com/winsw/winsw/blob/v2.12.0/doc/xmlConfigFile.md
type winSWConfig struct {
	XMLName        xml.Name `xml:"service"`
	Executable     string   `xml:"executable"`
	Arguments      string   `xml:"arguments"`
	StartArguments string   `xml:"startarguments"`
	Argument       []string `xml:"argument"`
	StartArgument  []string `xml:"startargument"`
}

// winSW is commandLine for WinSW, which is renamed for each service. Other programs may have an XML
// file beside them, so one counts only if it starts a CSI Proxy.
func (w wrapper) winSW() (string, error) {
	base := w.program
	if dot := strings.LastIndexByte(base, '.'); dot > strings.LastIndexAny(base, `\/`) {
		base = base[:dot]
	}
	content, err := w.file(base + ".xml")
	if err != nil || content == nil {
		return "", err
	}
	var config winSWConfig
	if xml.Unmarshal(content, &config) != nil {
		return "", nil
	}
	text := func(raw string) (string, error) {
		directory := w.program[:max(0, strings.LastIndexAny(w.program, `\/`))]
		return w.expand(strings.ReplaceAll(strings.TrimSpace(raw), "%BASE%", directory))
	}
	program, err := text(config.Executable)
	if err != nil || !isOurProgram(program) || strings.EqualFold(program, w.program) {
		return "", err
	}
	arguments, err := text(config.StartArguments + " " + config.Arguments)
	if err != nil {
		return "", err
	}
	all := []string{program}
	for _, raw := range append(config.StartArgument, config.Argument...) {
		argument, err := text(raw)
		if err != nil {
			return "", err
		}
		all = append(all, argument)
	}
	return strings.TrimSpace(w.line(all) + " " + arguments), nil
}

// isOurProgram reports whether a program is a CSI Proxy by its name.
func isOurProgram(path string) bool {
	name := strings.ToLower(path[strings.LastIndexAny(path, `\/`)+1:])
	return strings.Contains(name, "csi-proxy") || strings.Contains(name, "csiproxy")
}

// onDrive takes a path without a drive, which Windows takes against that of the working directory,
// against a drive. The published daemon's first instructions have such paths.
func onDrive(drive, path string) string {
	if path == "" || path[0] != '\\' && path[0] != '/' || len(path) > 1 && (path[1] == '\\' || path[1] == '/') {
		return path
	}
	return drive + path
}
