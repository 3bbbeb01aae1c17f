// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command prose measures how plainly comments and pages are written, by two counts in 100 words: negations, and words
// that point at something in place of its name.
//
//	prose                checks the folders and pages in tools/prose/limits.txt, and exits with 1 beyond a limit
//	prose PATTERN...     prints the counts of the folders and files that each matches
//	prose -worst 20 ...  also prints the places with the highest counts
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const limitsFile = "tools/prose/limits.txt"

// count is what the counts of some texts are made of.
type count struct{ words, negations, pointing int }

func (c count) plus(d count) count {
	return count{c.words + d.words, c.negations + d.negations, c.pointing + d.pointing}
}

// of100 returns n in 100 words.
func (c count) of100(n int) float64 { return 100 * float64(n) / float64(max(c.words, 1)) }

var (
	negations = regexp.MustCompile(`(?i)\b(not|no|none|nobody|nothing|never|without|unless|neither|nor|cannot)\b|n't\b`)
	pointing  = regexp.MustCompile(`(?i)\b(it|its|that|this|these|those|one|ones|such|other|others|which|so|whose)\b`)
	// opaque texts are names and addresses, not prose.
	opaque = regexp.MustCompile("https?://\\S+|`[^`]*`|\\]\\([^)]*\\)")
)

func countText(text string) count {
	text = opaque.ReplaceAllString(text, " x ")
	return count{len(strings.Fields(text)), len(negations.FindAllString(text, -1)), len(pointing.FindAllString(text, -1))}
}

// block is a comment, or a paragraph of a page.
type block struct {
	file string
	line int
	text string
}

var (
	comment   = regexp.MustCompile(`^\s*// ?(.*)`)
	directive = regexp.MustCompile(`^\s*//(go:|sys|nolint|\+build)|^\s*// (Copyright|SPDX)|^\s*// ?\t`)
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
)

// proseOf returns the prose of a line, and whether it has any. inCode is whether the line is in a page's block of code.
func proseOf(line string, isPage, inCode bool) (string, bool) {
	if isPage {
		isProse := !inCode && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != ""
		return line, isProse
	}
	found := comment.FindStringSubmatch(line)
	if found == nil || directive.MatchString(line) {
		return "", false
	}
	return found[1], true
}

// blocksOf returns the blocks of a Go file or page; none of a test or of generated code.
func blocksOf(path string) ([]block, error) {
	isPage := strings.HasSuffix(path, ".md")
	if !isPage && (!strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go")) {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil || !isPage && generated.Match(data) {
		return nil, err
	}
	var blocks []block
	inCode, goesOn := false, false
	for i, line := range strings.Split(string(data), "\n") {
		if isPage && strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode, goesOn = !inCode, false
			continue
		}
		text, isProse := proseOf(line, isPage, inCode)
		if isProse && goesOn {
			blocks[len(blocks)-1].text += " " + text
		} else if isProse {
			blocks = append(blocks, block{path, i + 1, text})
		}
		goesOn = isProse
	}
	return slices.DeleteFunc(blocks, func(b block) bool { return len(strings.Fields(b.text)) < 4 }), nil
}

// measure returns the counts of the folders and files that a pattern matches, and their blocks.
func measure(pattern string) (total count, all []block, err error) {
	paths, err := filepath.Glob(pattern)
	for _, path := range paths {
		err = errors.Join(err, filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if name := entry.Name(); name == "testdata" || name == "node_modules" || name == "bin" {
					return filepath.SkipDir
				}
				return nil
			}
			blocks, err := blocksOf(path)
			all = append(all, blocks...)
			return err
		}))
	}
	for _, b := range all {
		total = total.plus(countText(b.text))
	}
	return total, all, err
}

// limit is the most that folders or pages may have, in 100 words.
type limit struct {
	pattern             string
	negations, pointing float64
}

func parseLimits(text string) (limits []limit, _ error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s:%d: want a path and two limits", limitsFile, n)
		}
		l := limit{pattern: fields[0]}
		var errs [2]error
		l.negations, errs[0] = strconv.ParseFloat(fields[1], 64)
		l.pointing, errs[1] = strconv.ParseFloat(fields[2], 64)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", limitsFile, n, err)
		}
		limits = append(limits, l)
	}
	return limits, lines.Err()
}

// check compares what each limit is of.
func check(limits []limit) (err error) {
	for _, l := range limits {
		total, blocks, measureErr := measure(l.pattern)
		if measureErr == nil && total.words == 0 {
			measureErr = fmt.Errorf("%s: %s has no prose", limitsFile, l.pattern)
		}
		err = errors.Join(err, measureErr)
		if n, p := total.of100(total.negations), total.of100(total.pointing); n > l.negations || p > l.pointing {
			err = errors.Join(err, fmt.Errorf("%s: %.1f negations in 100 words, at most %.1f; %.1f pointing words, at most %.1f; "+
				"name the things, and say what is so:\n%s", l.pattern, n, l.negations, p, l.pointing, worst(blocks, 5)))
		}
	}
	return err
}

// worst returns lines with the n blocks that have the highest counts.
func worst(blocks []block, n int) string {
	density := func(b block) float64 { c := countText(b.text); return c.of100(c.negations + c.pointing) }
	long := slices.DeleteFunc(slices.Clone(blocks), func(b block) bool { return len(strings.Fields(b.text)) < 18 })
	slices.SortFunc(long, func(a, b block) int { return cmp.Compare(density(b), density(a)) })
	var lines strings.Builder
	for _, b := range long[:min(n, len(long))] {
		fmt.Fprintf(&lines, "  %s:%d: %.150s\n", b.file, b.line, b.text)
	}
	return lines.String()
}

func run() error {
	count := flag.Int("worst", 0, "print so many `places` with the highest counts")
	flag.Parse()
	if flag.NArg() == 0 {
		text, err := os.ReadFile(limitsFile)
		if err != nil {
			return err
		}
		limits, err := parseLimits(string(text))
		return cmp.Or(err, check(limits))
	}
	var all []block
	for _, pattern := range flag.Args() {
		total, blocks, err := measure(pattern)
		if err != nil {
			return err
		}
		fmt.Printf("%6d words, %.1f negations and %.1f pointing words in 100: %s\n", total.words,
			total.of100(total.negations), total.of100(total.pointing), pattern)
		all = append(all, blocks...)
	}
	fmt.Print(worst(all, *count))
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
