// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command mutate measures what the tests notice. It changes the code in one place, runs the
// tests that reach that place, as make test does, and sees whether any fails:
//
//	mutate [-n 100] [-seed 1] [-time 1h] [-equivalent file] [-only expression] [-tests packages] package…
//
// Of each package it tries a sample of the changes, which the seed decides: the packages take
// turns, so each has had its share when the time is up. It prints each change that no test
// noticed, and for each package the share of those that one did.
//
// All changes are compiled in at once, and the environment says which one is made. So each
// package's tests are compiled once, and run once, one by one, to see what they reach. The
// working copy isn't touched.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	n := flag.Int("n", 100, "how many changes to try in each `package`")
	seed := flag.Uint64("seed", 1, "decides which changes are tried")
	limit := flag.Duration("time", time.Hour, "begin no change after this time")
	equivalent := flag.String("equivalent", "",
		"`file` with the changes that no test can notice, a line for each: the change, a tab, the reason")
	by := flag.String("tests", "./...",
		"run the tests of these `packages` only, with blanks between; the score is that or more")
	only := flag.String("only", "", "try all changes whose description matches the `expression`, in the place of a sample")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Args(), *n, *seed, *limit, *equivalent, *only, strings.Fields(*by)); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// score is what is known of a package.
type score struct {
	pkg      *goPackage
	changes  []change // in the order of the sample
	known    int      // of the sample, those that are listed as equivalent
	tried    int
	survived int
}

func run(out io.Writer, patterns []string, n int, seed uint64, limit time.Duration, equivalentFile, only string,
	by []string) error {
	matching, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	end := time.Now().Add(limit)
	equivalents, err := readEquivalents(equivalentFile)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &build{dir: dir}
	scores, err := b.instrumented(patterns)
	if err != nil {
		return err
	}
	if err := b.tests(out, scores, by); err != nil {
		return err
	}
	for _, s := range scores {
		r := rand.New(rand.NewPCG(seed, 0))
		r.Shuffle(len(s.changes), func(i, j int) { s.changes[i], s.changes[j] = s.changes[j], s.changes[i] })
		s.changes = slices.DeleteFunc(s.changes, func(c change) bool { return !matching.MatchString(c.String()) })
		if only != "" {
			n = max(n, len(s.changes))
		}
	}
	var mu sync.Mutex
	b.each(n*len(scores), func(i int) {
		s, round := scores[i%len(scores)], i/len(scores)
		if round >= len(s.changes) || time.Now().After(end) {
			return
		}
		c := s.changes[round]
		known := equivalents[c.String()]
		noticed, reaching := false, 0
		if !known {
			var err error
			if noticed, reaching, err = b.try(s.pkg, c); err != nil {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(out, "%s:%d: left out: %v: %s\n", c.file, c.line, err, c)
				return
			}
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case known:
			s.known++
		case noticed:
			s.tried++
		default:
			s.tried++
			s.survived++
			fmt.Fprintf(out, "%s:%d: not noticed by %d packages: %s\n", c.file, c.line, reaching, c)
		}
	})
	return report(out, scores)
}

// build has the tests of a module with all changes compiled in.
type build struct {
	dir   string
	users []*tests
}

// tests are the tests of a package that use a changed one, and what they reach.
type tests struct {
	pkg     *goPackage
	program string
	took    map[string]time.Duration // by the test's name
	reached map[int][]string         // the tests that reach a change
}

// each does something n times, on all processors.
func (b *build) each(n int, do func(i int)) {
	var all sync.WaitGroup
	places := make(chan bool, runtime.GOMAXPROCS(0))
	for i := range n {
		places <- true
		all.Go(func() {
			do(i)
			<-places
		})
	}
	all.Wait()
}

// instrumented writes the overlay in which all changes of the packages are.
func (b *build) instrumented(patterns []string) ([]*score, error) {
	chosen, err := list(patterns...)
	if err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	alone := map[string]map[int]bool{} // the lines of each file where changes don't compile
	for {
		overlay := map[string]string{}
		sources := map[string]string{} // the file that each one of the overlay stands for
		var scores []*score
		id := 1
		write := func(name, text string) error {
			overlay[name] = filepath.Join(b.dir, strconv.Itoa(len(overlay))+".go")
			return os.WriteFile(overlay[name], []byte(text), 0o600)
		}
		for _, p := range chosen {
			s := &score{pkg: p}
			for _, name := range p.GoFiles {
				file, err := filepath.Rel(here, filepath.Join(p.Dir, name))
				if err != nil {
					return nil, err
				}
				text, err := os.ReadFile(file)
				if err != nil {
					return nil, err
				}
				changes, changed, err := instrument(file, string(text), id, alone[file])
				if err == nil {
					err = write(filepath.Join(p.Dir, name), changed)
				}
				if err != nil {
					return nil, err
				}
				sources[overlay[filepath.Join(p.Dir, name)]] = file
				id += len(changes)
				s.changes = append(s.changes, changes...)
			}
			if len(s.changes) == 0 {
				continue
			}
			if err := write(filepath.Join(p.Dir, "mutants.go"), "package "+p.Name+"\n"+helper); err != nil {
				return nil, err
			}
			scores = append(scores, s)
		}
		if len(scores) == 0 {
			return nil, errors.New("the packages have no code to change")
		}
		text, err := json.Marshal(map[string]any{"Replace": overlay})
		if err == nil {
			err = os.WriteFile(b.overlay(), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
		said, err := b.command(".", nil, "go", append([]string{"build", "-o", os.DevNull}, patterns...)...)
		if err == nil {
			return scores, nil
		}
		added := false
		for _, place := range regexp.MustCompile(`(?m)^(\S+\.go):(\d+):`).FindAllSubmatch(said, -1) {
			file := filepath.Clean(string(place[1]))
			file = cmp.Or(sources[file], file) // with -trimpath, errors name the file of the overlay
			line, _ := strconv.Atoi(string(place[2]))
			if alone[file] == nil {
				alone[file] = map[int]bool{}
			}
			added = added || !alone[file][line] // a line may have several errors
			alone[file][line] = true
		}
		if !added {
			return nil, fmt.Errorf("%w: %s", err, said)
		}
	}
}

func (b *build) overlay() string { return filepath.Join(b.dir, "overlay.json") }

// tests compiles those of some tests that use the packages and runs each once, to see what it reaches.
func (b *build) tests(out io.Writer, scores []*score, by []string) error {
	all, err := list(by...)
	if err != nil {
		return err
	}
	var changed []string
	for _, s := range scores {
		changed = append(changed, s.pkg.ImportPath)
	}
	b.users = usersOf(changed, all)
	errs, failing := make([]error, len(b.users)), make([][]string, len(b.users))
	b.each(len(b.users), func(i int) {
		t := b.users[i]
		// Named as go test does: a program may look at its own name, as csi-proxyctl doctor does.
		t.program = filepath.Join(b.dir, strconv.Itoa(i), path.Base(t.pkg.ImportPath)+".test")
		if said, err := b.command(".", nil, "go", "test", "-c", "-vet=off", "-o", t.program, t.pkg.ImportPath); err != nil {
			errs[i] = fmt.Errorf("tests of %s: %w: %s", t.pkg.ImportPath, err, said)
			return
		}
		said, err := b.command(t.pkg.Dir, nil, t.program, "-test.list", "^(Test|Example|Fuzz)")
		if err != nil {
			errs[i] = fmt.Errorf("tests of %s: %w: %s", t.pkg.ImportPath, err, said)
			return
		}
		t.took, t.reached = map[string]time.Duration{}, map[int][]string{}
		for name := range strings.Lines(string(said)) {
			name = strings.TrimSpace(name)
			file := t.program + "." + name
			start := time.Now()
			said, err := b.command(t.pkg.Dir, []string{"MUTANTS_REACHED=" + file}, t.program, "-test.short",
				"-test.run=^"+name+"$")
			reached, _ := os.ReadFile(file)
			if err != nil { // or each change would be noticed
				failing[i] = append(failing[i], fmt.Sprintf("%s of %s is left out, since it fails without any change: %s", name,
					t.pkg.ImportPath, said))
				continue
			}
			if len(reached) == 0 {
				continue
			}
			t.took[name] = time.Since(start)
			for id := range strings.Lines(string(reached)) {
				id, _ := strconv.Atoi(strings.TrimSpace(id))
				if tests := t.reached[id]; len(tests) == 0 || tests[len(tests)-1] != name {
					t.reached[id] = append(tests, name)
				}
			}
		}
	})
	for _, text := range slices.Concat(failing...) {
		fmt.Fprintln(out, text)
	}
	return errors.Join(errs...)
}

// try makes a change and runs the tests that reach it: first those of its package, which mostly
// notice, then the others, the quickest first. It reports whether any has failed, and how many
// packages have such tests. Tests that take too long have noticed a change if they take a third of
// that time at most without it; or the machine was too busy, which is an error.
func (b *build) try(pkg *goPackage, c change) (noticed bool, reaching int, _ error) {
	var users []*tests
	expected := func(t *tests) (sum time.Duration) {
		for _, name := range t.reached[c.id] {
			sum += t.took[name]
		}
		return sum
	}
	for _, t := range b.users {
		if len(t.reached[c.id]) > 0 {
			users = append(users, t)
		}
	}
	slices.SortFunc(users, func(x, y *tests) int {
		if own := x.pkg.ImportPath == pkg.ImportPath; own != (y.pkg.ImportPath == pkg.ImportPath) {
			return map[bool]int{true: -1, false: 1}[own]
		}
		return cmp.Compare(expected(x), expected(y))
	})
	for _, t := range users {
		limit := 10*expected(t) + time.Minute
		run := func(id int) ([]byte, error) {
			return b.command(t.pkg.Dir, []string{"MUTANT=" + strconv.Itoa(id)}, t.program, "-test.short", "-test.failfast",
				"-test.timeout="+limit.String(), "-test.run=^("+strings.Join(t.reached[c.id], "|")+")$")
		}
		said, err := run(c.id)
		if err == nil {
			continue
		}
		if bytes.Contains(said, []byte("panic: test timed out")) {
			start := time.Now()
			if _, err := run(0); err != nil || time.Since(start) > limit/3 {
				return false, len(users), fmt.Errorf("the tests of %s take longer than before", t.pkg.ImportPath)
			}
		}
		return true, len(users), nil
	}
	return false, len(users), nil
}

// command runs a program in a directory, with the overlay for go commands, also for those that
// tests run, and returns what it printed. What it has started ends with it.
func (b *build) command(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+b.overlay())),
		env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Start()
	if err == nil {
		err = cmd.Wait()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // fails if it has left nothing
	}
	return said.Bytes(), err
}

// goPackage is what the go command says of a package.
type goPackage struct {
	ImportPath, Dir, Name     string
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

// usersOf returns the packages whose tests use one of some packages.
func usersOf(paths []string, all []*goPackage) (users []*tests) {
	uses := map[string]bool{} // not counting tests
	for _, p := range all {
		uses[p.ImportPath] = slices.ContainsFunc(append(p.Deps, p.ImportPath),
			func(d string) bool { return slices.Contains(paths, d) })
	}
	for _, p := range all {
		reaches := uses[p.ImportPath] || slices.ContainsFunc(append(p.TestImports, p.XTestImports...),
			func(i string) bool { return uses[i] })
		if reaches && len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 {
			users = append(users, &tests{pkg: p})
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
