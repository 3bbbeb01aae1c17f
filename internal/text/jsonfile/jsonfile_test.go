// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package jsonfile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

type inner struct {
	Text   string  `json:"text"`
	Number *uint32 `json:"number"`
}

type outer struct {
	IsOn   bool     `json:"isOn"`
	Texts  []string `json:"texts"`
	Inners []inner  `json:"inners"`
	Count  int      `json:"count"`
	Hidden string   `json:"-"`
}

func TestDecode(t *testing.T) {
	const text = "\xef\xbb\xbf{\n  \"isOn\": true, \"texts\": [\"ä\", \"b\"],\n\t\"inners\": [{\"text\": \"x\\n\", \"number\": 0},\n{}], \"count\": 7}\n"
	var got outer
	f := Decode([]byte(text), &got)
	zero := uint32(0)
	want := outer{IsOn: true, Texts: []string{"ä", "b"}, Inners: []inner{{"x\n", &zero}, {}}, Count: 7}
	if !reflect.DeepEqual(got, want) || len(f.Problems) > 0 {
		t.Errorf("%+v, %v", got, f.Problems)
	}
	for path, want := range map[string]Position{"": {1, 1}, "isOn": {2, 11}, "texts": {2, 26}, "texts[0]": {2, 27}, "texts[1]": {2, 32},
		"inners[0].number": {3, 39}, "inners[1]": {4, 1}, "inners[1].text": {4, 1}, "inners[1].text[4].x": {4, 1}, "inners[9]": {3, 12}, "none": {1, 1}} {
		if got := f.At(path); got != want {
			t.Errorf("%s is at %v, want %v", path, got, want)
		}
	}
}

// Each problem is found, at its place, and what is beside it is decoded.
func TestProblems(t *testing.T) {
	for text, want := range map[string]string{
		"":                     `1:1 "" the file is empty; it must be a JSON object`,
		" \n":                  `1:1 "" the file is empty`,
		"{":                    `1:2 "" the file isn't JSON: it ends too soon`,
		"{\n\"texts\": [],\n}": `3:1 "" the file isn't JSON: invalid character '}'`,
		"isOn: true":           `1:1 "" the file isn't JSON: invalid character 'i'`,
		"{}\n {}":              `2:2 "" there is more than one JSON value in the file`,
		"{}]":                  `1:3 "" there is more than one JSON value in the file`,
		"[]":                   `1:1 "" the file must be an object, not a list`,
		"null":                 `1:1 "" the file must be an object, not null`,
		`{"text": 1}`:          `1:2 "" unknown key "text"; did you mean texts?`,
		`{"IsOn": true}`:       `1:2 "" unknown key "IsOn"; did you mean isOn?`,
		`{"Hidden": ""}`:       `1:2 "" unknown key "Hidden"; the keys are count, inners, isOn, texts`,
		`{"zz": {"isOn": [{}], "a": 1}, "count": 3}`: `1:2 "" unknown key "zz"; the keys are count, inners, isOn, texts`,
		`{"count": 1,` + "\n" + `"count": [2]}`:      `2:1 "" the key "count" is there already, in line 1`,
		`{"isOn": "true"}`:                           `1:10 "isOn" isOn must be true or false, not a text`,
		`{"texts": {}}`:                              `1:11 "texts" texts must be a list, not an object`,
		`{"texts": null}`:                            `1:11 "texts" texts must be a list, not null`,
		`{"texts": ["a", 2, "c"]}`:                   `1:17 "texts[1]" texts[1] must be a text, not the number 2`,
		`{"inners": [3]}`:                            `1:13 "inners[0]" inners[0] must be an object, not the number 3`,
		`{"inners": [{"number": -1}]}`:               `1:24 "inners[0].number" number must be a whole number, 0 or more, not the number -1`,
		`{"inners": [{"number": 4294967296}]}`:       `1:24 "inners[0].number" number must be a whole number, 0 or more, not the number 4294967296`,
		`{"count": 1.5}`:                             `1:11 "count" count must be a whole number, 0 or more, not the number 1.5`,
		`{"count": -1}`:                              `1:11 "count" count must be a whole number, 0 or more, not the number -1`,
		`{"count": false, "texts": [true], "x": 0}`: `1:11 "count" count must be a whole number, 0 or more, not false
1:28 "texts[0]" texts[0] must be a text, not true
1:35 "" unknown key "x"; the keys are count, inners, isOn, texts`,
	} {
		var got outer
		lines := ""
		for _, p := range Decode([]byte(text), &got).Problems {
			lines += fmt.Sprintf("%d:%d %q %s\n", p.Line, p.Column, p.Path, p.Text)
		}
		if !strings.HasPrefix(lines, want) || strings.Count(lines, "\n") != strings.Count(want, "\n")+1 {
			t.Errorf("%s:\n%swant\n%s", text, lines, want)
		}
		if strings.Contains(text, `"count": 3`) && got.Count != 3 {
			t.Errorf("%s: decoded %+v", text, got)
		}
	}
	var got outer
	if Decode([]byte(`{"texts": []}`), &got); got.Texts == nil {
		t.Error("an empty list is a missing one")
	}
}

// Whatever the file is, package json agrees where there is no problem.
func FuzzDecode(f *testing.F) {
	f.Add(`{"isOn": true, "texts": ["a"], "inners": [{"text": "b", "number": 1}], "count": 2}`)
	f.Add("\xef\xbb\xbf{\"x\":[{},null,1e9]}\n")
	f.Fuzz(func(t *testing.T, text string) {
		var got, want outer
		file := Decode([]byte(text), &got)
		for _, p := range file.Problems {
			if p.Line < 1 || p.Column < 1 || p.Text == "" {
				t.Fatalf("%q: %+v", text, p)
			}
		}
		if len(file.Problems) > 0 {
			return
		}
		if err := json.Unmarshal([]byte(strings.TrimPrefix(text, "\xef\xbb\xbf")), &want); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is %+v, want %+v", text, got, want)
		}
	})
}
