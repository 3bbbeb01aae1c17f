# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

GO ?= go
# Git is asked once, for all programs of a run. SOURCE_DATE_EPOCH is the time that released files give as theirs:
# that of the commit, in seconds since 1970.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)
VERSION := $(VERSION)
COMMIT := $(COMMIT)
export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)

# No path and nothing of the working copy gets into a program: the same source and version make the same bytes. The
# caller's GOFLAGS, CGO_ENABLED and GOEXPERIMENT count.
#
# The tags leave unused code out of the programs: of grpc golang.org/x/net/trace, whose templates keep the linker from
# removing methods; of net/http HTTP/2, which only TLS can negotiate.
TAGS := $(shell cat cmd/build-tags)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
BUILD = CGO_ENABLED=$(or $(CGO_ENABLED),0) $(GO) build -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '$(LDFLAGS)'
# SIGN is a command that signs the files for Windows that it is called with, in place.
sign = $(if $(SIGN),$(SIGN) $(1))
WINRES = bin/winres -version '$(VERSION)' -commit '$(COMMIT)'
# Tools run on this machine, whatever system the programs are for. Their modules are their own: a vendor directory of
# the product doesn't have them.
FOR_TOOLS = GOOS= GOARCH= GOFLAGS=$(if $(wildcard tools/vendor),-mod=vendor) GOEXPERIMENT= CGO_ENABLED=0
WINDOWS_ARCHS = amd64 arm64
# Where the programs for Windows are.
BIN_windows-amd64 = bin
BIN_windows-arm64 = bin/windows-arm64

.DEFAULT_GOAL := help
# No target whose name is only letters and dashes is a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):\( .*\)*$$/\1/p' Makefile deploy/packaging/release.mk)

help:
	@awk -F ':.*## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile deploy/packaging/release.mk
	@printf '\nWhat CI runs is in .ci/. deploy/packaging/release.mk has more targets.\n'

##@ See it

run: build-here ## start the daemon on a simulated node, show a volume's life, keep serving
	@# At a terminal in a process group of its own, so that Ctrl-C is for it, and make ends with 0 as it does.
	@if [ -t 0 ]; then bash -mc 'test/demo --keep; exit $$?'; else test/demo --keep; fi

demo: build-here ## show a volume's life and exit; fails if a step has an unexpected result
	@test/demo

##@ Build it

ifeq ($(GOOS),windows)
BIN_windows-$(or $(GOARCH),amd64) = bin
build: build-windows-$(or $(GOARCH),amd64)
else
build: build-here build-windows-amd64 ## build the programs into bin/, for this system and Windows
endif

build-here:
	@command -v $(firstword $(GO)) >/dev/null || { echo 'there is no go command in PATH: install Go 1.26 or later, https://go.dev/doc/install'; exit 1; }
	@$(GO) list -deps ./cmd/... >/dev/null # says what it downloads
	@[ -e bin/csi-proxyctl ] || echo 'building csi-proxy and csi-proxyctl: the first build takes a minute of processor time, on a busy machine up to five minutes'
	@$(BUILD) -o bin/ ./cmd/...

# build-windows-arm64 builds into bin/windows-arm64/. What is linked for a system is in bin/.linked/<system>-<arch>/.
link-%: FORCE
	GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) $(BUILD) -o bin/.linked/$*/ ./cmd/...

build-windows-%: link-windows-% bin/winres
	$(WINRES) -description 'CSI Proxy: the storage operations of a node, for CSI drivers' \
		bin/.linked/windows-$*/csi-proxy.exe $(BIN_windows-$*)/csi-proxy.exe
	$(WINRES) -description 'CSI Proxy from the command line' \
		bin/.linked/windows-$*/csi-proxyctl.exe $(BIN_windows-$*)/csi-proxyctl.exe
	$(call sign,$(BIN_windows-$*)/csi-proxy.exe $(BIN_windows-$*)/csi-proxyctl.exe)

bin/winres bin/pack: bin/%: FORCE
	@$(FOR_TOOLS) $(GO) -C tools build -o ../bin/ ./$*

FORCE:

##@ Test it

# RACE=: without the second half.
RACE ?= yes
test: ## run all tests; those of concurrent code also with the race detector
	test/run
	$(if $(RACE),test/race)

test-race: ## run the tests of concurrent code with the race detector
	test/race

test-resilience: ## inject every fault at every Windows call; make test runs a sample
	test/resilience

test-csi: build-here ## test the example driver with csi-sanity, and docs/test-your-driver.md
	test/driver/run

test-deploy: ## test the manifests, the chart and the plugin for kubectl, without a server
	$(GO) -C test/kubernetes/cluster test -count=1 .
	$(GO) -C cmd/kubectl-csi_proxy test ./...

test-cluster: build-here ## test the same with Prometheus and a real kube-apiserver
	test/kubernetes/cluster/run

test-kubelet: ## test the example driver under a real kubelet
	test/kubernetes/kubelet/lab

test-windows: ## test the Windows programs under Wine, if there is Wine
	test/wine/test-windows
	test/driver/lab/test life

lint: ## check formatting, vet for Linux and Windows, staticcheck
	tools/lint

fuzz: ## fuzz each decoder for 20 s
	test/fuzz

# PEERS='v1.2.1.exe v1.3.0.exe': also other daemons, under Wine. benchstat wants six samples.
bench: ## measure times, memory and size; compare runs with benchstat
	@echo 'commit: $(VERSION)'; date -u '+date: %Y-%m-%d'
	$(GO) test -run '^$$' -bench . -benchtime 1s -count 6 ./internal/lab/bench
	test/wine/compare-windows $(PEERS)

##@ Write it

figures: build-windows-amd64 ## write internal/lab/bench/figures.txt: what each operation costs
	$(GO) test -count=1 -run '^TestFigures$$' ./internal/lab/bench -update
	deploy/packaging/check-size -update bin/csi-proxy.exe bin/csi-proxyctl.exe

generate: build-here ## regenerate code and pages
	tools/generate

# BASE=/csi-proxy/: for a server that has the site at this path.
docs: ## build docs/ as a site, into bin/docs/; needs Node.js and npm
	cd tools/site && npm ci --ignore-scripts && npm run build

include deploy/packaging/release.mk
