// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutate measures what the tests notice. It changes the code in one place, runs the
// tests of all packages that use the changed one, as make test does, and sees whether any fails:
//
//	mutate [-n 100] [-seed 1] [-time 1h] [-equivalent file] package…
//
// Of each package it tries a sample of the changes, which the seed decides: the packages take
// turns, so each has had its share when the time is up. The working copy isn't touched. It prints
// each change that no test noticed, and for each package the share of those that one did.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

func main() {
	n := flag.Int("n", 100, "how many changes to try in each `package`")
	seed := flag.Uint64("seed", 1, "decides which changes are tried")
	limit := flag.Duration("time", time.Hour, "begin no change after this time")
	equivalent := flag.String("equivalent", "", "`file` with the changes that no test can notice, a line for each: the change, a tab, the reason")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Args(), *n, *seed, *limit, *equivalent); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// result is how a change ended.
type result int

const (
	noticed result = iota
	survived
	invalid // it doesn't compile
)

// score is what is known of a package.
type score struct {
	pkg      *goPackage
	changes  []change // in the order of the sample
	users    []string // the other packages whose tests use it
	known    int      // of the sample, those that are listed as equivalent
	tried    int
	survived int
}

func run(out io.Writer, patterns []string, n int, seed uint64, limit time.Duration, equivalentFile string) error {
	equivalents, err := readEquivalents(equivalentFile)
	if err != nil {
		return err
	}
	scores, err := sample(patterns, seed)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, s := range scores { // or each change would be noticed
		failing, err := s.pkg.test(dir, nil, append([]string{s.pkg.ImportPath}, s.users...))
		if err != nil {
			return err
		}
		if failing {
			return fmt.Errorf("tests that use %s fail without any change: mend them first, and find them by go test -short ./...", s.pkg.ImportPath)
		}
	}
	end := time.Now().Add(limit)
	for more := true; more && time.Now().Before(end); {
		more = false
		for _, s := range scores {
			if s.tried+s.known == n || len(s.changes) == 0 || time.Now().After(end) {
				continue
			}
			more = true
			c := s.changes[0]
			s.changes = s.changes[1:]
			if equivalents[c.String()] {
				s.known++
				continue
			}
			r, err := s.try(dir, c)
			if err != nil {
				return err
			}
			if r != invalid {
				s.tried++
			}
			if r == survived {
				s.survived++
				fmt.Fprintf(out, "%s:%d: not noticed: %s\n", c.file, c.line, c)
			}
		}
	}
	return report(out, scores)
}

// sample returns the changes of each package in an order that the seed decides.
func sample(patterns []string, seed uint64) (scores []*score, err error) {
	all, err := list("./...")
	if err != nil {
		return nil, err
	}
	chosen, err := list(patterns...)
	if err != nil {
		return nil, err
	}
	for _, p := range chosen {
		changes, err := p.changes()
		if err != nil {
			return nil, err
		}
		if len(changes) == 0 {
			continue
		}
		r := rand.New(rand.NewPCG(seed, 0))
		r.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
		scores = append(scores, &score{pkg: p, changes: changes, users: usersOf(p.ImportPath, all)})
	}
	if len(scores) == 0 {
		return nil, errors.New("the packages have no code to change")
	}
	return scores, nil
}

// try makes a change and runs the tests: first those of the package, which mostly notice.
func (s *score) try(dir string, c change) (result, error) {
	changed := filepath.Join(dir, "changed.go")
	text, err := c.apply()
	if err == nil {
		err = os.WriteFile(changed, text, 0o600)
	}
	if err != nil {
		return invalid, err
	}
	overlay := map[string]string{filepath.Join(s.pkg.Dir, filepath.Base(c.file)): changed}
	if compiles, err := goCommand(dir, overlay, "build", s.pkg.ImportPath); err != nil || !compiles {
		return invalid, err
	}
	failing, err := s.pkg.test(dir, overlay, nil)
	if err == nil && !failing && len(s.users) > 0 {
		failing, err = s.pkg.test(dir, overlay, s.users)
	}
	if failing {
		return noticed, err
	}
	return survived, err
}

// test runs the tests of the package, or of others that use it, and reports whether any fails.
func (p *goPackage) test(dir string, overlay map[string]string, users []string) (failing bool, err error) {
	if users == nil {
		users = []string{p.ImportPath}
	}
	passed, err := goCommand(dir, overlay, append([]string{"test", "-short", "-vet=off", "-failfast", "-timeout=5m"}, users...)...)
	return !passed, err
}

// goCommand runs the go command with files in the place of others, also in the go commands that
// tests run, and reports whether it succeeds.
func goCommand(dir string, overlay map[string]string, args ...string) (bool, error) {
	text, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return false, err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+file))
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return false, nil
	}
	return err == nil, err
}

// goPackage is what the go command says of a package.
type goPackage struct {
	ImportPath, Dir           string
	GoFiles                   []string
	Deps                      []string
	TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles []string
}

func list(patterns ...string) (all []*goPackage, err error) {
	cmd := exec.Command("go", append([]string{"list", "-json"}, patterns...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, &stderr)
	}
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		p := new(goPackage)
		if err := decoder.Decode(p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// usersOf returns the other packages whose tests use a package.
func usersOf(path string, all []*goPackage) (users []string) {
	uses := map[string]bool{path: true} // not counting tests
	for _, p := range all {
		uses[p.ImportPath] = uses[p.ImportPath] || slices.Contains(p.Deps, path)
	}
	for _, p := range all {
		reaches := uses[p.ImportPath] || slices.ContainsFunc(append(p.TestImports, p.XTestImports...), func(i string) bool { return uses[i] })
		if reaches && p.ImportPath != path && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			users = append(users, p.ImportPath)
		}
	}
	return users
}

// readEquivalents returns the changes that are listed in a file.
func readEquivalents(file string) (map[string]bool, error) {
	listed := map[string]bool{}
	if file == "" {
		return listed, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		change, reason, _ := strings.Cut(line, "\t")
		if strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s: the change %q has no reason", file, change)
		}
		listed[change] = true
	}
	return listed, nil
}

func report(out io.Writer, scores []*score) error {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "noticed\ttried\tscore\tequivalent\tpackage")
	for _, s := range scores {
		share := "-"
		if s.tried > 0 {
			share = fmt.Sprintf("%d %%", 100*(s.tried-s.survived)/s.tried)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%s\n", s.tried-s.survived, s.tried, share, s.known, s.pkg.ImportPath)
	}
	return w.Flush()
}
