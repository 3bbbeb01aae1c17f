// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

package library_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	csiproxy "github.com/csi-proxy/csi-proxy"
)

const password = "Tr0ub4dor&3"

// credentials has a secret where fmt can't call methods: in an unexported field.
type credentials struct {
	Username string
	Password csiproxy.Secret
	hidden   csiproxy.Secret
	pointer  *csiproxy.Secret
}

func TestNothingShowsIt(t *testing.T) {
	text := csiproxy.NewSecret(password)
	c := credentials{"user", text, text, &text}
	var log bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(h).Info("mapped", "password", text, "credentials", c, "pointer", &c)
	}
	asJSON, err := json.Marshal(map[string]any{"c": c, "t": text, "keys": map[csiproxy.Secret]int{text: 1}})
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{log.String(), string(asJSON), fmt.Sprint(text),
		fmt.Errorf("map: %w", errors.New(text.String())).Error()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		shown = append(shown, fmt.Sprintf(verb, text), fmt.Sprintf(verb, &text), fmt.Sprintf(verb, c), fmt.Sprintf(verb, &c),
			fmt.Sprintf(verb, []csiproxy.Secret{text}))
	}
	for _, s := range shown {
		if strings.Contains(s, password) || strings.Contains(s, fmt.Sprintf("%x", password)) {
			t.Errorf("it shows in %s", s)
		}
	}
}

func TestReveal(t *testing.T) {
	if got := csiproxy.NewSecret(password).Reveal(); got != password {
		t.Errorf("Reveal gives %q", got)
	}
	if got := (csiproxy.Secret{}).Reveal(); got != "" {
		t.Errorf("the zero value gives %q", got)
	}
	if !csiproxy.NewSecret(password).Equal(csiproxy.NewSecret(password)) || csiproxy.NewSecret(password).Equal(csiproxy.Secret{}) {
		t.Error("Equal compares something else than the texts")
	}
}
