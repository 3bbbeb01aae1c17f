# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

WINDOWS_ARCHS = amd64 arm64
# The modules apart from the product: what they need must not become its own.
SIDE_MODULES = test/published tools

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
		while IFS='|' read -r t d; do printf '  make %-16s %s\n' "$$t" "$$d"; done

.PHONY: run
run: build ## start the daemon on a simulated Windows node, show a volume's life, keep serving
	@$(GO) run ./internal/demo -keep

.PHONY: demo
demo: build ## show a volume's life and exit; fails unless all was as expected
	@$(GO) run ./internal/demo

.PHONY: build
build: ## build bin/csi-proxy and bin/csi-proxyctl for this system
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: test
test: ## run the tests with the race detector
	$(GO) test -race ./...
	cd test/published && $(GO) test -race -short ./...
	cd tools && $(GO) test ./...

.PHONY: bench
bench: ## measure: ratios within one run, see docs/performance.md
	$(GO) test -run '^$$' -bench . -benchtime 1s ./internal/bench/...

.PHONY: lint
lint: ## check formatting, vet for Linux and Windows, staticcheck
	@test -z "$$(gofmt -l .)" || { echo 'not formatted:'; gofmt -l .; exit 1; }
	$(GO) vet ./...
	for arch in $(WINDOWS_ARCHS); do CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet ./... || exit 1; done
	for module in $(SIDE_MODULES); do (cd $$module && $(GO) vet ./...) || exit 1; done
	$(STATICCHECK) ./...
	GOOS=windows $(STATICCHECK) ./...

.PHONY: generate
generate: ## print the generated code again
	$(GO) -C tools run ./protogen
