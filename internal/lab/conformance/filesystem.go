// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/reflect/protoreflect"
)

var filesystemChecks = []Check{
	{
		Name: "filesystem.mkdir", Group: "filesystem", Methods: []string{"Mkdir", "PathExists"},
		Promise: "Mkdir makes a directory with its parents; one that exists is a success.",
		run: func(t *trial) {
			path := t.dir() + `\a\b`
			t.want(!t.exists(path), "%s exists before Mkdir", path)
			for range 2 {
				t.do("Mkdir", fields{"path": path})
				t.want(t.exists(path), "%s doesn't exist after Mkdir", path)
			}
		},
	},
	{
		Name: "filesystem.any-case", Group: "filesystem", Methods: []string{"Mkdir", "PathExists"},
		Promise: "Paths are the same in any case, also the kubelet directory's.",
		run: func(t *trial) {
			path := t.dir() + `\Name`
			t.do("Mkdir", fields{"path": path})
			for _, same := range []string{strings.ToUpper(path), strings.ToLower(path)} {
				t.want(t.exists(same), "%s exists and %s doesn't", path, same)
			}
		},
	},
	{
		Name: "filesystem.rmdir", Group: "filesystem", Methods: []string{"Rmdir"},
		Promise: "Rmdir removes an empty directory, and one that isn't empty only with force; with force, a missing path " +
			"is a success.",
		run: func(t *trial) {
			path := t.dir() + `\a`
			t.do("Mkdir", fields{"path": path + `\b`})
			t.refused(codes.FailedPrecondition, "Rmdir", fields{"path": path})
			t.want(t.exists(path+`\b`), "a directory that isn't empty is removed without force")
			t.do("Rmdir", fields{"path": path + `\b`})
			t.want(!t.exists(path+`\b`), "an empty directory isn't removed")
			t.do("Mkdir", fields{"path": path + `\b\c`})
			for range 2 {
				t.do("Rmdir", fields{"path": path, "force": true})
				t.want(!t.exists(path), "a directory isn't removed with force")
			}
		},
	},
	{
		Name: "filesystem.rmdir-link", Group: "filesystem", Methods: []string{"Rmdir"},
		Promise: "Rmdir of a link removes the link, with force or without, and leaves what it leads to.",
		run: func(t *trial) {
			for _, force := range []bool{false, true} {
				target, link := t.linked()
				t.do("Rmdir", fields{"path": link, "force": force})
				t.want(!t.exists(link), "the link isn't removed (force: %t)", force)
				t.want(t.exists(target+`\kept`), "what the link led to is removed (force: %t)", force)
			}
		},
	},
	{
		Name: "filesystem.rmdir-tree-with-link", Group: "filesystem", Methods: []string{"Rmdir"},
		Promise: "Rmdir with force removes links below the directory and never follows them.",
		run: func(t *trial) {
			target, link := t.linked()
			tree := link[:strings.LastIndex(link, `\`)]
			t.do("Rmdir", fields{"path": tree, "force": true})
			t.want(!t.exists(tree), "the directory isn't removed")
			t.want(t.exists(target+`\kept`), "what a link below led to is removed")
		},
	},
	{
		Name: "filesystem.rmdir-mount-point", Group: "filesystem", Methods: []string{"Rmdir"},
		Promise: "Rmdir with force of a mount point, or of a tree with one, leaves the files of the volume.",
		run: func(t *trial) {
			d := t.volumeDisk()
			t.do("Rmdir", fields{"path": t.withFile(d), "force": true})
			tree := t.dir()
			t.do("Mkdir", fields{"path": tree + `\m`})
			t.mountAt(d, tree+`\m`)
			t.do("Rmdir", fields{"path": tree, "force": true})
			t.want(!t.exists(tree), "the directory isn't removed")
			path := t.mount(d)
			t.want(t.exists(path+`\kept`), "a directory on the volume is gone")
			t.do("Rmdir", fields{"path": path + `\kept`})
		},
	},
	{
		Name: "filesystem.rmdir-contents", Group: "filesystem", Methods: []string{"RmdirContents"},
		Promise: "RmdirContents empties a directory, which stays, and never follows links.",
		run: func(t *trial) {
			target, link := t.linked()
			tree := link[:strings.LastIndex(link, `\`)]
			t.do("Mkdir", fields{"path": tree + `\a\b`})
			for range 2 {
				t.do("RmdirContents", fields{"path": tree})
				t.want(t.exists(tree), "the directory itself is removed")
				t.want(!t.exists(tree+`\a`) && !t.exists(link), "the directory isn't empty")
			}
			t.want(t.exists(target+`\kept`), "what a link led to is removed")
		},
	},
	{
		Name: "filesystem.symlink", Group: "filesystem", Methods: []string{"CreateSymlink", "IsSymlink"},
		Promise: "CreateSymlink makes target_path a link to source_path; IsSymlink says whether a path is one.",
		run: func(t *trial) {
			target, link := t.linked()
			t.want(t.exists(link+`\kept`), "the link doesn't lead to its source")
			t.want(t.do("IsSymlink", fields{"path": link}).is("isLink"), "the link is none")
			t.want(!t.do("IsSymlink", fields{"path": target}).is("isLink"), "a directory is a link")
		},
	},
	{
		Name: "filesystem.symlink-dangling", Group: "filesystem", Methods: []string{"IsSymlink", "PathExists"},
		Promise: "A link whose target is gone exists, and is no link to IsSymlink.",
		run: func(t *trial) {
			target, link := t.linked()
			t.do("Rmdir", fields{"path": target, "force": true})
			t.want(t.exists(link), "a link whose target is gone doesn't exist")
			t.want(!t.do("IsSymlink", fields{"path": link}).is("isLink"), "IsSymlink is true for a link whose target is gone")
		},
	},
	{
		Name: "filesystem.symlink-missing", Group: "filesystem", Methods: []string{"IsSymlink"},
		Promise: "IsSymlink of a path that doesn't exist is an error.",
		run: func(t *trial) {
			t.refused(codes.NotFound, "IsSymlink", fields{"path": t.dir() + `\missing`})
		},
	},
	{
		Name: "filesystem.symlink-mount-point", Group: "filesystem", Methods: []string{"IsSymlink"},
		Promise: "IsSymlink is true for the mount point of a volume.",
		run: func(t *trial) {
			t.want(t.do("IsSymlink", fields{"path": t.mount(t.volumeDisk())}).is("isLink"), "a mount point is no link")
		},
	},
	{
		Name: "filesystem.path-context", Group: "filesystem", Methods: []string{"Mkdir", "PathExists", "Rmdir"},
		only:    pathContexts,
		Promise: "The old path contexts PLUGIN and POD are both accepted.",
		run: func(t *trial) {
			for context, name := range []string{`\plugin`, `\pod`} {
				request := fields{"path": t.dir() + name, "context": context}
				t.do("Mkdir", request)
				t.want(t.do("PathExists", request).is("exists"), "%v doesn't exist", request)
				t.do("Rmdir", request.With("force", true))
				t.want(!t.do("PathExists", request).is("exists"), "%v exists after Rmdir", request)
			}
		},
	},
}

// pathContexts are versions with a path context.
func pathContexts(service protoreflect.ServiceDescriptor) bool {
	return fieldOf(methodOf(service, "Mkdir").Input(), "context") != nil
}

// linked makes a directory with a directory in it, and in another directory a link to
// it.
func (t *trial) linked() (target, link string) {
	target, link = t.dir(), t.dir()+`\link`
	t.do("Mkdir", fields{"path": target + `\kept`})
	t.do("CreateSymlink", fields{"source": target, "target": link})
	return target, link
}

// withFile mounts a volume and makes a directory on it. It returns the mount point.
func (t *trial) withFile(d *disk) string {
	path := t.mount(d)
	t.do("Mkdir", fields{"path": path + `\kept`})
	return path
}
