// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
)

// helpWidth is how many columns a help has, whatever terminal prints it.
const helpWidth = 80

// examples has lines without the name of the program for commands whose flags matter. The example of any other
// command is its usage with exampleArguments.
var examples = `
versions --all
disk watch --serial vol-0abc1234 --timeout 10m
doctor --kubelet-path D:\var\lib\kubelet
drain --wait 25s
iscsi mutual-chap-secret --secret-file C:\secret.txt
service uninstall --restore
smb unmap \\files\data
storage check C:\var\lib\kubelet\pv --spot-fix
storage clean-up --remove
storage disks --serial vol-0abc1234
storage expand C:\var\lib\kubelet\pv --disk-size 20GiB
storage stage C:\var\lib\kubelet\pv --serial vol-0abc1234 --grow
storage unstage C:\var\lib\kubelet\pv --serial vol-0abc1234
support-bundle C:\bundle.zip
volume resize \\?\Volume{1ebec3df…}\ --size 20GiB
`

// exampleArguments has what stands for each argument in an example.
const exampleArguments = `
DISK 2
VOLUME \\?\Volume{1ebec3df…}\
PATH C:\var\lib\kubelet\pv
STAGING C:\var\lib\kubelet\pv
SOURCE C:\var\lib\kubelet\pv
TARGET C:\var\lib\kubelet\pods\1
REMOTE \\files\data
PORTAL 192.0.2.1
IQN iqn.2026-01.com.example:a
NAME MSiSCSI
SERIAL vol-1
FILE disk.img
ID 1
SERVER files
SHARE data
USER pods
`

// quotePaths puts single quotes around the words with backslashes, which a Unix shell would take away.
func quotePaths(example string) string {
	words := strings.Split(example, " ")
	for i, word := range words {
		if runtime.GOOS != "windows" && strings.Contains(word, `\`) {
			words[i] = "'" + word + "'"
		}
	}
	return strings.Join(words, " ")
}

// exampleOf returns the examples of a command in lines with an indent, or "".
func exampleOf(cmd *cobra.Command) string {
	switch {
	case cmd.HasSubCommands():
		return ""
	case cmd.HasExample():
		return strings.TrimRight(cmd.Example, "\n") + "\n"
	}
	example := strings.TrimPrefix(cmd.CommandPath(), "csi-proxyctl ")
	for _, line := range strings.Split(examples, "\n") {
		if strings.HasPrefix(line+" ", example+" ") {
			return "  csi-proxyctl " + quotePaths(line) + "\n"
		}
	}
	for _, argument := range strings.Fields(cmd.Use)[1:] {
		if _, value, isKnown := strings.Cut(exampleArguments, "\n"+strings.Trim(argument, "[].")+" "); isKnown {
			example += " " + value[:strings.IndexByte(value, '\n')]
		}
	}
	return "  csi-proxyctl " + quotePaths(example) + "\n"
}

// helpOf returns what a command does, its usage, examples, commands and flags.
func helpOf(cmd *cobra.Command) string {
	isGroup, usage := cmd.HasSubCommands(), cmd.UseLine()
	if isGroup {
		usage = cmd.CommandPath() + " COMMAND"
	}
	text := fitParagraphs(cmp.Or(cmd.Long, cmd.Short)) + "\nUsage:\n  " + usage + "\n"
	if example := exampleOf(cmd); example != "" {
		text += "\nExamples:\n" + example
	}
	if isGroup {
		text += "\nAvailable Commands:\n"
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			column := 2 + c.NamePadding() + 1
			name := "  " + c.Name()
			text += name + strings.Repeat(" ", column-len(name)) + fit(c.Short, column) + "\n"
		}
	}
	text += "\nFlags:\n" + cmd.LocalFlags().FlagUsagesWrapped(helpWidth)
	if cmd.HasAvailableInheritedFlags() {
		text += "\nGlobal Flags:\n" + cmd.InheritedFlags().FlagUsagesWrapped(helpWidth)
	}
	if isGroup {
		text += "\n\"" + cmd.CommandPath() + " COMMAND --help\" is the help of a command.\n"
	}
	return text
}

// fitParagraphs breaks the lines of paragraphs anew. Lines with an indent stay as they are.
func fitParagraphs(text string) string {
	fitted, paragraph := "", ""
	for _, line := range strings.Split(text+"\n", "\n") {
		if line != "" && line[0] != ' ' {
			paragraph += line + " "
			continue
		}
		if paragraph != "" {
			fitted += fit(paragraph, 0) + "\n"
			paragraph = ""
		}
		fitted += line + "\n"
	}
	return strings.TrimRight(fitted, "\n") + "\n"
}

// fit breaks a text that begins in a column. Further lines begin there, too.
func fit(text string, column int) string {
	fitted, at := "", column
	for _, word := range strings.Fields(text) {
		switch {
		case at == column:
		case at+1+len(word) > helpWidth:
			fitted += "\n" + strings.Repeat(" ", column)
			at = column
		default:
			fitted += " "
			at++
		}
		fitted += word
		at += len(word)
	}
	return fitted
}
