# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# The race detector needs a C compiler.
RACE ?= $(if $(shell command -v $${CC:-gcc} 2>/dev/null),-race)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

WINDOWS_ARCHS = amd64 arm64
# The modules apart from the product: what they need must not become its own.
SIDE_MODULES = test/published tools

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
		while IFS='|' read -r t d; do printf '  make %-16s %s\n' "$$t" "$$d"; done

.PHONY: run
run: build bin/demo ## start the daemon on a simulated Windows node, show a volume's life, keep serving
	@bin/demo -keep

.PHONY: demo
demo: build bin/demo ## show a volume's life and exit; fails unless all was as expected
	@bin/demo

.PHONY: bin/demo
bin/demo:
	@CGO_ENABLED=0 $(GO) build -o bin/demo ./internal/demo

.PHONY: build
build: ## build bin/csi-proxy and bin/csi-proxyctl for this system
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: test
test: ## run the tests, with the race detector
	@test -n '$(RACE)' || echo 'without the race detector, for lack of a C compiler'
	$(GO) test $(RACE) ./...
	cd test/published && $(GO) test $(RACE) -short -count=1 ./...
	$(GO) -C tools test ./...

.PHONY: test-published
test-published: ## drive the daemon with the published client, every sequence with every crash
	cd test/published && $(GO) test -count=1 -timeout 20m ./...

.PHONY: bench
bench: ## measure; the ratios within one run are what counts
	$(GO) test -run '^$$' -bench . -benchtime 2s ./internal/bench

.PHONY: lint
lint: bin/staticcheck ## check formatting, vet for Linux and Windows, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...
	for arch in $(WINDOWS_ARCHS); do CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet ./... || exit 1; done
	for module in $(SIDE_MODULES); do (cd $$module && $(GO) vet ./...) || exit 1; done
	@# Together, so that what only one system uses isn't taken as unused.
	printf 'linux: GOOS=linux\nwindows: GOOS=windows\n' | CGO_ENABLED=0 bin/staticcheck -matrix ./...

bin/staticcheck: tools/go.mod
	$(GO) -C tools build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

.PHONY: generate
generate: ## print the generated code again; the C side needs gcc-mingw-w64-x86-64
	$(GO) -C tools run ./protogen
	$(GO) generate ./internal/winsys/...
	@if command -v x86_64-w64-mingw32-gcc >/dev/null; then $(GO) -C internal/win/testdata/abi run print.go; \
		else echo 'skipped: internal/win/testdata/abi, for lack of x86_64-w64-mingw32-gcc'; fi
