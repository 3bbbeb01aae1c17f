// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/csi-proxy/csi-proxy/secret"
)

const password = "Tr0ub4dor&3"

// credentials has a secret where fmt can't call methods: in an unexported field.
type credentials struct {
	Username string
	Password secret.Text
	hidden   secret.Text
	pointer  *secret.Text
}

func TestNothingShowsIt(t *testing.T) {
	text := secret.New(password)
	c := credentials{"user", text, text, &text}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("mapped", "password", text, "credentials", c, "pointer", &c)
	}
	asJSON, err := json.Marshal(map[string]any{"c": c, "t": text, "keys": map[secret.Text]int{text: 1}})
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(asJSON), fmt.Sprint(text),
		fmt.Errorf("map: %w", errors.New(text.String())).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		shown = append(shown, fmt.Sprintf(verb, text), fmt.Sprintf(verb, &text), fmt.Sprintf(verb, c), fmt.Sprintf(verb, &c),
			fmt.Sprintf(verb, []secret.Text{text}))
	}
	for _, s := range shown {
		if strings.Contains(s, password) || strings.Contains(s, fmt.Sprintf("%x", password)) {
			t.Errorf("it shows in %s", s)
		}
	}
}

func TestReveal(t *testing.T) {
	if got := secret.New(password).Reveal(); got != password {
		t.Errorf("Reveal gives %q", got)
	}
	if got := (secret.Text{}).Reveal(); got != "" {
		t.Errorf("the zero value gives %q", got)
	}
	if !secret.New(password).Equal(secret.New(password)) || secret.New(password).Equal(secret.Text{}) {
		t.Error("Equal compares something else than the texts")
	}
}
