// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package repository

import (
	"cmp"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Directories of others' files, and of what is built.
var notOurs = []string{".git", "bin", "dist", "node_modules", "vendor"}

// markdownFiles returns the paths of our pages.
func markdownFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(notOurs, d.Name()) {
			return fs.SkipDir
		}
		if !d.IsDir() && filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d pages, %v", len(paths), err)
	}
	return paths
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// Each link from one of our pages to a file of the repository leads to something, also to
// a heading that is there.
func TestLinksInDocs(t *testing.T) {
	links := 0
	for _, path := range markdownFiles(t) {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(readText(t, path), ""), -1) {
			file, fragment, _ := strings.Cut(match[1], "#")
			if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
				continue
			}
			links++
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: a link to %s: %v", path, match[1], err)
			} else if fragment != "" && filepath.Ext(target) == ".md" &&
				!slices.Contains(anchors(readText(t, target)), fragment) {
				t.Errorf("%s: a link to %s: there is no such heading", path, match[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links were found", links)
	}
}

var pageInCode = regexp.MustCompile(`(?:^|[^/\w]|/blob/main/)(docs/[a-z0-9/-]+\.md)(?:#([a-z0-9-]+))?`)

// The pages that errors, manifests, scripts and comments name exist, also the heading.
func TestPagesInCode(t *testing.T) {
	found := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && slices.Contains(notOurs, d.Name()) {
			return cmp.Or(err, fs.SkipDir)
		}
		if !d.Type().IsRegular() || !slices.Contains([]string{"", ".go", ".yml", ".yaml", ".json", ".mk", ".txt", ".tpl",
			".mjs", ".proto", ".sh"}, filepath.Ext(path)) {
			return nil
		}
		for _, match := range pageInCode.FindAllStringSubmatch(readText(t, path), -1) {
			found++
			if _, err := os.Stat(match[1]); err != nil {
				t.Errorf("%s: %v", path, err)
			} else if match[2] != "" && !slices.Contains(anchors(readText(t, match[1])), match[2]) {
				t.Errorf("%s: %s has no heading %s", path, match[1], match[2])
			}
		}
		return nil
	})
	if err != nil || found < 50 {
		t.Errorf("%d names of pages, %v", found, err)
	}
}

// anchors are the names that a page's headings have in links.
func anchors(page string) (names []string) {
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, match[1])
		names = append(names, name)
	}
	return names
}

var (
	inlineCode = regexp.MustCompile("`[^`]+`")
	makeInCode = regexp.MustCompile(`(?m)^ *(?:[A-Z]+=\S+ )*make ([a-z][a-z0-9-]*)`)
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z0-9%-]*(?: [a-z][a-z0-9%-]*)*):(?:[^=]|$)`)
)

// The targets of make that our pages name exist.
func TestMakeTargetsInDocs(t *testing.T) {
	var targets []string
	for _, path := range []string{"Makefile", "deploy/packaging/release.mk"} {
		for _, match := range makeTarget.FindAllStringSubmatch(readText(t, path), -1) {
			targets = append(targets, strings.Fields(match[1])...)
		}
	}
	found := 0
	for _, path := range markdownFiles(t) {
		// In sentences make is a word: only what stands in code is a target.
		text := readText(t, path)
		code := fence.FindAllString(text, -1)
		for _, span := range inlineCode.FindAllString(fence.ReplaceAllString(text, ""), -1) {
			code = append(code, strings.Trim(span, "`"))
		}
		for _, match := range makeInCode.FindAllStringSubmatch(strings.Join(code, "\n"), -1) {
			found++
			if !slices.ContainsFunc(targets, func(target string) bool {
				prefix, _, pattern := strings.Cut(target, "%")
				return target == match[1] || pattern && prefix != "" && strings.HasPrefix(match[1], prefix)
			}) {
				t.Errorf("%s names make %s, which is no target", path, match[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d targets", found)
	}
}

// Each alert leads to what to do about it, and what to do is about an alert.
func TestAlertsHaveRunbooks(t *testing.T) {
	rules, page := readText(t, "deploy/charts/csi-proxy/files/rules.yml"), readText(t, "docs/monitoring.md")
	rule := regexp.MustCompile(`(?s)- alert: (\w+)\n(.*?)(?:\n\n|$)`)
	var alerts []string
	for _, match := range rule.FindAllStringSubmatch(rules, -1) {
		alerts = append(alerts, match[1])
		url := "https://github.com/csi-proxy/csi-proxy/blob/main/docs/monitoring.md#" + strings.ToLower(match[1])
		if !strings.Contains(match[2], "runbook_url: "+url+"\n") {
			t.Errorf("%s doesn't lead to %s", match[1], url)
		}
	}
	var described []string
	for _, match := range regexp.MustCompile(`(?m)^### (CSIProxy\w+)$`).FindAllStringSubmatch(page, -1) {
		described = append(described, match[1])
	}
	slices.Sort(alerts)
	slices.Sort(described)
	if len(alerts) < 10 || !slices.Equal(alerts, described) {
		t.Errorf("the alerts are %q, docs/monitoring.md has %q", alerts, described)
	}
}

// README.md and docs/openshift.md send nobody to a tag of this repository that doesn't exist.
func TestTagsExist(t *testing.T) {
	out, err := exec.Command("git", "tag").Output()
	if err != nil {
		t.Skip("the tags can't be listed: ", err)
	}
	tags := strings.Fields(string(out))
	elsewhere := regexp.MustCompile(`https://\S+`) // in repositories of others
	for _, path := range []string{"README.md", "docs/openshift.md"} {
		text := elsewhere.ReplaceAllString(readText(t, path), "")
		for _, named := range regexp.MustCompile(`\bv\d+\.\d+\.\d+\b`).FindAllString(text, -1) {
			if !slices.Contains(tags, named) {
				t.Errorf("%s names %s, and the tags are %q", path, named, tags)
			}
		}
	}
}

// What CI runs of others is pinned by commit: a tag can be moved.
func TestActionsArePinned(t *testing.T) {
	workflows, err := filepath.Glob(".github/workflows/*.yml")
	if err != nil || len(workflows) < 3 {
		t.Fatalf("%q, %v", workflows, err)
	}
	used := regexp.MustCompile(`(?m)\buses: +(\S+)(.*)$`)
	pinned := regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}$`)
	for _, path := range workflows {
		for _, match := range used.FindAllStringSubmatch(readText(t, path), -1) {
			if !pinned.MatchString(match[1]) || !strings.HasPrefix(match[2], " # v") {
				t.Errorf("%s: %s isn't a commit with its version as a comment", path, match[0])
			}
		}
	}
}
