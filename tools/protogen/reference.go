// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// version is a version of a group.
type version struct {
	group, name string
	file        protoreflect.FileDescriptor
}

func (v version) service() protoreflect.ServiceDescriptor { return v.file.Services().Get(0) }

// pages are the pages of the reference, with their groups in the order in which drivers meet them.
var pages = []struct {
	path, title, about string
	groups             []string
}{
	{
		"docs/api-v1.md", "API reference: the published groups",
		"Each call and message of the groups that drivers of every generation use, and which version has it. " +
			"They never change.",
		[]string{"disk", "volume", "filesystem", "smb", "iscsi", "system"},
	},
	{
		"docs/api-storage.md", "API reference: the storage group",
		"Each call and message of this project's own group. [storage-api.md](storage-api.md) says how to use it.",
		[]string{ours},
	},
}

// ours is the group that isn't a published one. It may change, and never had a short name.
const ours = "storage"

// reference returns the pages of the API reference by their path below the repository's root.
func reference(contract []*descriptorpb.FileDescriptorProto) (map[string][]byte, error) {
	files, err := protodesc.NewFiles(&descriptorpb.FileDescriptorSet{File: contract})
	if err != nil {
		return nil, err
	}
	groups := make(map[string][]version)
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		dir := strings.TrimPrefix(path.Dir(file.Path()), namePrefix)
		v := version{group: path.Dir(dir), name: path.Base(dir), file: file}
		groups[v.group] = append(groups[v.group], v)
		return true
	})
	for _, v := range groups[ours] {
		if err := documented(v.file); err != nil {
			return nil, err
		}
	}
	written := make(map[string][]byte)
	for _, page := range pages {
		var b strings.Builder
		fmt.Fprintf(&b, "# %s\n\n", page.title)
		b.WriteString(wrap(page.about))
		b.WriteString(wrap("`make generate` writes this page from the `.proto` files in `api`, where the comments are; " +
			"[go-authors.md](go-authors.md#other-languages) says how to make a client of them. " +
			"Fields are given with their numbers on the wire, and with versions where these differ. Errors are gRPC statuses, see [troubleshooting.md](troubleshooting.md)."))
		for _, group := range page.groups {
			versions := groups[group]
			delete(groups, group)
			slices.SortFunc(versions, func(a, b version) int { return compareVersions(b.name, a.name) })
			writeGroup(&b, group, versions)
		}
		text := strings.TrimRight(b.String(), "\n") + "\n"
		if err := distinct(text); err != nil {
			return nil, fmt.Errorf("%s: %w", page.path, err)
		}
		written[page.path] = []byte(text)
	}
	if len(groups) > 0 {
		return nil, fmt.Errorf("no page has the groups %q", slices.Sorted(maps.Keys(groups)))
	}
	return written, nil
}

// distinct returns an error if two headings of a page are the same, so that a link to one is
// ambiguous.
func distinct(page string) error {
	seen := make(map[string]bool)
	for line := range strings.Lines(page) {
		hashes, name, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.Trim(hashes, "#") != "" {
			continue
		}
		if name = strings.ToLower(name); seen[name] {
			return fmt.Errorf("two headings are %q", name)
		}
		seen[name] = true
	}
	return nil
}

// documented returns an error for a field without a comment.
func documented(file protoreflect.FileDescriptor) error {
	for i := range file.Messages().Len() {
		fields := file.Messages().Get(i).Fields()
		for i := range fields.Len() {
			if comment(fields.Get(i)) == "" {
				return fmt.Errorf("%s has no comment", fields.Get(i).FullName())
			}
		}
	}
	return nil
}

var versionName = regexp.MustCompile(`^v(\d+)(?:(alpha|beta)(\d+))?$`)

// compareVersions orders versions as Kubernetes does: v1 is newer than v1beta1. v2alpha1 is
// newer than v1, of which it has all calls.
func compareVersions(a, b string) int {
	key := func(name string) []int {
		m := versionName.FindStringSubmatch(name)
		stage := map[string]int{"alpha": 0, "beta": 1, "": 2}[m[2]]
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi("0" + m[3])
		return []int{major, stage, minor}
	}
	return slices.Compare(key(a), key(b))
}

// writeGroup writes the section of a group, whose versions are given with the newest one first.
func writeGroup(b *strings.Builder, group string, versions []version) {
	newest := versions[0]
	// The last paragraph of a service's comment is about its version.
	about, _ := cutLast(comment(newest.service()))
	fmt.Fprintf(b, "## %s\n\n", group)
	b.WriteString(wrap(escape(about)))

	b.WriteString("| version | service on the wire | endpoint on Windows | |\n|---|---|---|---|\n")
	for _, v := range versions {
		service := "`" + string(v.service().FullName()) + "`"
		if group != ours {
			service = "`" + v.name + "." + string(v.service().Name()) + "`, " + service
		}
		_, note := cutLast(comment(v.service()))
		fmt.Fprintf(b, "| %s | %s | `\\\\.\\pipe\\csi-proxy-%s-%s` | %s |\n", v.name, service, group, v.name, cell(note))
	}

	b.WriteString("\n| call |")
	for _, v := range versions {
		fmt.Fprintf(b, " %s |", v.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(versions)) + "\n")
	calls := names(versions, func(v version) (all []protoreflect.Descriptor) {
		for i := range v.service().Methods().Len() {
			all = append(all, v.service().Methods().Get(i))
		}
		return all
	})
	for _, call := range calls {
		fmt.Fprintf(b, "| [%s](#%s) |", call, strings.ToLower(string(call)))
		for _, v := range versions {
			if v.service().Methods().ByName(call) != nil {
				b.WriteString(" yes |")
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}

	described := make(map[protoreflect.Name]bool)
	b.WriteString("\n")
	for _, call := range calls {
		fmt.Fprintf(b, "### %s\n\n", call)
		of := func(v version) protoreflect.MethodDescriptor { return v.service().Methods().ByName(call) }
		i := slices.IndexFunc(versions, func(v version) bool { return of(v) != nil })
		b.WriteString(wrap(escape(comment(of(versions[i])))))
		for _, side := range []struct {
			title string
			of    func(protoreflect.MethodDescriptor) protoreflect.MessageDescriptor
			plain bool
		}{
			{"Request", protoreflect.MethodDescriptor.Input, !of(versions[i]).IsStreamingClient()},
			{"Response", protoreflect.MethodDescriptor.Output, !of(versions[i]).IsStreamingServer()},
		} {
			message := side.of(of(versions[i]))
			described[message.Name()] = true
			title := fmt.Sprintf("%s `%s`", side.title, message.Name())
			if !side.plain {
				title = fmt.Sprintf("Stream of `%s`", message.Name())
			}
			writeFields(b, title, versions, func(v version) protoreflect.MessageDescriptor {
				if of(v) == nil {
					return nil
				}
				return side.of(of(v))
			})
		}
	}

	messages := names(versions, func(v version) (all []protoreflect.Descriptor) {
		for i := range v.file.Messages().Len() {
			if m := v.file.Messages().Get(i); !described[m.Name()] {
				all = append(all, m)
			}
		}
		return all
	})
	enums := names(versions, func(v version) (all []protoreflect.Descriptor) {
		for i := range v.file.Enums().Len() {
			all = append(all, v.file.Enums().Get(i))
		}
		return all
	})
	if len(messages)+len(enums) > 0 {
		fmt.Fprintf(b, "The messages and enumerations that calls of the group %s have in common:\n\n", group)
	}
	for _, name := range messages {
		fmt.Fprintf(b, "### %s\n\n", name)
		of := func(v version) protoreflect.MessageDescriptor { return v.file.Messages().ByName(name) }
		i := slices.IndexFunc(versions, func(v version) bool { return of(v) != nil })
		b.WriteString(wrap(escape(comment(of(versions[i])))))
		writeFields(b, "Fields", versions, of)
	}
	for _, name := range enums {
		fmt.Fprintf(b, "### %s\n\n", name)
		of := func(v version) protoreflect.EnumDescriptor { return v.file.Enums().ByName(name) }
		i := slices.IndexFunc(versions, func(v version) bool { return of(v) != nil })
		b.WriteString(wrap(escape(comment(of(versions[i])))))
		var all rows
		for _, v := range versions {
			if of(v) == nil {
				continue
			}
			for i := range of(v).Values().Len() {
				value := of(v).Values().Get(i)
				all.add(v, comment(value), fmt.Sprintf("`%s`", value.Name()), strconv.Itoa(int(value.Number())))
			}
		}
		b.WriteString(all.table(versionsWith(versions, of), "value", "number", "meaning") + "\n")
	}
}

// writeFields writes a table of the fields that a message has in any version.
func writeFields(b *strings.Builder, title string, versions []version,
	of func(version) protoreflect.MessageDescriptor) {
	var all rows
	for _, v := range versions {
		if of(v) == nil {
			continue
		}
		for i := range of(v).Fields().Len() {
			field := of(v).Fields().Get(i)
			all.add(v, comment(field), fmt.Sprintf("`%s`", field.Name()), strconv.Itoa(int(field.Number())),
				"`"+typeOf(field)+"`")
		}
	}
	if len(all) == 0 {
		fmt.Fprintf(b, "%s: no fields.\n\n", title)
		return
	}
	fmt.Fprintf(b, "%s:\n\n%s\n", title, all.table(versionsWith(versions, of), "field", "number", "type", "meaning"))
}

// versionsWith returns the names of the versions that have something.
func versionsWith[D interface {
	comparable
	protoreflect.Descriptor
}](versions []version, of func(version) D) (have []string) {
	var none D
	for _, v := range versions {
		if of(v) != none {
			have = append(have, v.name)
		}
	}
	return have
}

// rows are fields or values. One that is the same in several versions is one row.
type rows []row

type row struct {
	cells    []string
	meaning  string
	versions []string
}

func (r *rows) add(v version, meaning string, cells ...string) {
	for i := range *r {
		if slices.Equal((*r)[i].cells, cells) {
			(*r)[i].versions = append((*r)[i].versions, v.name)
			return
		}
	}
	*r = append(*r, row{cells, meaning, []string{v.name}})
}

// table returns the rows as a table with a column for each name. all are the versions that a row can be of. If
// a row isn't of all of them, there is another column, with the versions of each.
func (r rows) table(all []string, names ...string) string {
	differ := slices.ContainsFunc(r, func(row row) bool { return !slices.Equal(row.versions, all) })
	if differ {
		names = append(names, "versions")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, row := range r {
		fmt.Fprintf(&b, "| %s | %s |", strings.Join(row.cells, " | "), cell(row.meaning))
		switch {
		case differ && slices.Equal(row.versions, all):
			b.WriteString(" all |")
		case differ:
			fmt.Fprintf(&b, " %s |", strings.Join(row.versions, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// names returns the names of what the versions have, each once: those of the newest version
// first, in its order.
func names(versions []version, of func(version) []protoreflect.Descriptor) (all []protoreflect.Name) {
	for _, v := range versions {
		for _, d := range of(v) {
			if !slices.Contains(all, d.Name()) {
				all = append(all, d.Name())
			}
		}
	}
	return all
}

func typeOf(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsMap():
		return fmt.Sprintf("map<%s, %s>", typeOf(field.MapKey()), typeOf(field.MapValue()))
	case field.IsList():
		return "repeated " + elementOf(field)
	case field.HasOptionalKeyword():
		return "optional " + elementOf(field)
	}
	return elementOf(field)
}

func elementOf(field protoreflect.FieldDescriptor) string {
	switch {
	case field.Message() != nil:
		return relativeName(field, field.Message())
	case field.Enum() != nil:
		return relativeName(field, field.Enum())
	}
	return field.Kind().String()
}

// relativeName returns a type's name without that of its package.
func relativeName(field protoreflect.FieldDescriptor, d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(field.ParentFile().Package())+".")
}

// comment returns what stands above a declaration, or behind it, with a blank line between
// paragraphs.
func comment(d protoreflect.Descriptor) string {
	location := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := location.LeadingComments
	if strings.TrimSpace(text) == "" {
		text = location.TrailingComments
	}
	var paragraphs []string
	for _, p := range strings.Split(text, "\n\n") {
		paragraphs = append(paragraphs, strings.Join(strings.Fields(p), " "))
	}
	return strings.TrimSpace(strings.Join(paragraphs, "\n\n"))
}

// cutLast cuts the last paragraph off, if there are several.
func cutLast(text string) (before, last string) {
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		return text[:i], text[i+2:]
	}
	return text, ""
}

// cell makes text fit for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(escape(text)), " "), "|", `\|`)
}

// escape keeps backslashes and what looks like HTML as they are in Markdown.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "<", "&lt;", "*", `\*`).Replace(text)
}

// wrap returns text, of paragraphs, wrapped at 100 columns, with a blank line at its end.
func wrap(text string) string {
	const columns = 100
	var b strings.Builder
	for _, paragraph := range strings.Split(text, "\n\n") {
		column := 0
		for i, word := range strings.Fields(paragraph) {
			switch n := len([]rune(word)); {
			case i == 0:
				column = n
			case column+1+n > columns:
				b.WriteByte('\n')
				column = n
			default:
				b.WriteByte(' ')
				column += 1 + n
			}
			b.WriteString(word)
		}
		b.WriteString("\n\n")
	}
	return b.String()
}
