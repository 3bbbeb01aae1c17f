// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package winsim

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
)

// What the node does by a guess is marked in its code with a sentence after "Guess:", and
// stands in the page about it, as do its switches.
func TestGuessesAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../../docs/test-your-driver.md")
	must(t, err)
	page := strings.Join(strings.Fields(string(b)), " ")
	guesses := 0
	must(t, fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, c := range f.Comments {
			_, guess, ok := strings.Cut(strings.Join(strings.Fields(c.Text()), " "), "Guess: ")
			if !ok {
				continue
			}
			guesses++
			sentence, _, _ := strings.Cut(guess, ". ")
			if sentence = strings.TrimSuffix(sentence, "."); !strings.Contains(page, sentence) {
				t.Errorf("%s has a guess that docs/test-your-driver.md lacks: %s", name, sentence)
			}
		}
		return nil
	}))
	if guesses < 10 {
		t.Errorf("only %d guesses found", guesses)
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Settings]()) {
		if !strings.Contains(page, "`"+field.Name+"`") {
			t.Errorf("docs/test-your-driver.md lacks the switch %s", field.Name)
		}
	}
}
