# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)

# The race detector needs a C compiler.
RACE ?= $(if $(shell command -v $${CC:-gcc} 2>/dev/null),-race)
LDFLAGS = -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# The time that released files give as theirs: that of the commit, in seconds since 1970.
SOURCE_DATE_EPOCH ?= $(or $(shell git log -1 --format=%ct 2>/dev/null),0)

# Git is asked once, for all programs of a run.
VERSION := $(VERSION)
COMMIT := $(COMMIT)
export SOURCE_DATE_EPOCH := $(SOURCE_DATE_EPOCH)
# No path and nothing of the working copy gets into a program: the same source and
# version make the same bytes.
#
# The caller's GOFLAGS (such as -mod=vendor), CGO_ENABLED and GOEXPERIMENT count.
BUILD = CGO_ENABLED=$(or $(CGO_ENABLED),0) $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
# SIGN is a command that signs the files for Windows that it is called with, in place.
sign = $(if $(SIGN),$(SIGN) $(1))
WINRES = bin/winres -version '$(VERSION)' -commit '$(COMMIT)'

# Tools run on this machine, whatever system the programs are for. Their modules are
# their own: a vendor directory of the product doesn't have them.
FOR_TOOLS = GOOS= GOARCH= GOFLAGS=$(if $(wildcard tools/vendor),-mod=vendor) GOEXPERIMENT= CGO_ENABLED=0

WINDOWS_ARCHS = amd64 arm64
# Where the programs for Windows are.
BIN_windows-amd64 = bin
BIN_windows-arm64 = bin/windows-arm64
.DEFAULT_GOAL := help
# No target whose name is only letters and dashes is a file.
.PHONY: $(shell sed -n 's/^\([a-z-]*\):\( .*\)*$$/\1/p' Makefile packaging/release.mk)

help:
	@awk -F ':.*## ' '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@printf '\nWhat only CI runs is in .ci/run, what only a release needs in packaging/release.mk.\n'

##@ See it

run: build-here ## start the daemon on a simulated Windows node, show a volume's life, keep serving
	@test/demo --keep

demo: build-here ## show a volume's life and exit; fails if a step has an unexpected result
	@test/demo

##@ Build it

ifeq ($(GOOS),windows)
BIN_windows-$(or $(GOARCH),amd64) = bin
build: build-windows-$(or $(GOARCH),amd64)
else
build: build-here build-windows-amd64 ## build csi-proxy and csi-proxyctl into bin/, for this system and Windows; GOOS=windows: only that
endif

# Also for Windows on arm64, into bin/windows-arm64/.
build-all: build build-windows-arm64

build-here:
	$(BUILD) -o bin/ ./cmd/...

# The programs as they are linked for a system, into bin/.linked/<system>-<arch>/.
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

# make test runs everything once without the race detector, which makes it 4 to 17 times slower,
# and with it what is concurrent. Tests that try very many cases try a sample.
#
# The modules that other tests need, such as Kubernetes' and those of the tools, aren't needed here.
CONCURRENT = ./internal/operation ./internal/wincalls ./internal/server ./internal/rpc
# Tests of what is concurrent in packages with many others have one of these words in their names.
CONCURRENT_TESTS = AtOneTime|Clients|Concurrently|Second|Together|Wait|Watch
TEST_CONCURRENT = $(GO) test $(RACE) -short $(CONCURRENT) && \
	$(GO) test $(RACE) -short -run '$(CONCURRENT_TESTS)' ./internal/daemon ./internal/nodeops/...

test: ## run the tests, and those of what is concurrent also with the race detector
	$(GO) test -short ./...
	$(GO) -C test/published test -short -count=1 ./...
	$(GO) -C csinode test -run '^TestAsKubeletCalls$$' .
	$(if $(RACE),$(TEST_CONCURRENT),@echo 'nothing is run with the race detector, for lack of a C compiler')

# The race detector itself crashes with very many timers in a bubble of synctest
# (https://go.dev/issue/78156), such as those of TestDeadServers, which make test runs without it.
test-race: ## run the tests, all with the race detector
	$(GO) test -race -short -timeout 20m -skip '^TestDeadServers$$' ./...
	$(GO) -C test/published test -race -short -count=1 ./...

test-resilience: ## test each operation with each mishap at each of its calls, and each switch of the simulated Windows, of which make test tries samples
	$(GO) test -timeout 40m ./internal/nodeops/... ./internal/pathpolicy ./internal/sim/winsim

# Each operation at each call of each other one: 21,868 pairs, half of them in one process, which
# take some 20 minutes of a processor. make test tries three calls of 40 pairs, and
# make test-resilience of 6,000, which takes a minute.
#
# Last run with the code of 3307d42a. All passed.
test-pairs:
	GOGC=400 PAIRS=all $(GO) test -timeout 0 -run '^TestPairs$$' ./internal/nodeops

test-csi: ## test the example driver: csi-sanity over the pipe and in process, and docs/quickstart-driver.md
	$(GO) -C test/dropin test -count=1 ./...
	$(GO) -C csinode test $(RACE) -count=1 ./...
	$(GO) -C mounter test -count=1 ./...
	$(GO) -C examples/csi-driver test $(RACE) -count=1 -skip TestSanity ./...
	for via in pipe in-process; do \
		$(GO) -C examples/csi-driver test $(RACE) -count=1 -run TestSanity -v . -via=$$via -ginkgo.no-color || exit 1; \
	done
	test/quickstart

test-cluster: ## test deploy and the plugin for kubectl with a real kube-apiserver, which is built the first time
	bin=$$(test/kubernetes/setup kube-apiserver) && CSI_PROXY_CLUSTER=$$bin $(GO) -C test/cluster test -count=1 ./server

# Before a release (RELEASE.md): upgrades the chart from the commit FROM, with a real
# kube-apiserver. make test-msi FROM=… does it for the MSI and the service.
test-upgrade:
	rm -rf bin/.before && mkdir -p bin/.before && git archive $(or $(FROM),e87d536) deploy/charts | tar -x -C bin/.before
	bin=$$(test/kubernetes/setup kube-apiserver) && CSI_PROXY_CLUSTER=$$bin CSI_PROXY_CHART_BEFORE=$(CURDIR)/bin/.before/deploy/charts/csi-proxy \
		$(GO) -C test/cluster test -count=1 -run '^TestChartUpgrade$$' ./server

test-windows: ## test the Windows programs under Wine, also as a service; says so and skips if there is no Wine
	test/wine/test-windows

lint: bin/staticcheck ## check formatting, vet for Linux and Windows, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...
	for arch in $(WINDOWS_ARCHS); do \
		CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet ./... && \
		CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet -tags simulated ./cmd/... || exit 1; \
	done
	@# Together, so that what only one system uses isn't taken as unused.
	printf 'linux: GOOS=linux\nwindows: GOOS=windows\nsimulated: GOOS=windows -tags=simulated\n' | CGO_ENABLED=0 bin/staticcheck -matrix ./...

bin/staticcheck: tools/go.mod
	$(FOR_TOOLS) $(GO) -C tools build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

# How long each fuzz target and each long test runs.
FUZZTIME ?= 20s
SOAK ?= 2m
# The packages of the product that have functions of a kind in their tests.
packages_with = $(shell grep -rlE '^func $(1)' --include='*_test.go' --exclude-dir=test --exclude-dir=tools --exclude-dir=examples . | \
	xargs -r -n1 dirname | sort -u)

fuzz: ## fuzz each decoder for FUZZTIME, 20s unless given
	@for package in $(call packages_with,Fuzz); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target" && \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package || exit 1; \
		done; \
	done

# Runs each long, random test for SOAK, 2m unless given; SOAK_SEED repeats one.
soak:
	SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -run '^TestSoak' -v $(call packages_with,TestSoak)

bench: ## measure; only ratios within one run are comparable
	$(GO) test -run '^$$' -bench . -benchtime 2s ./internal/lab/bench

# What mutate changes, how much of each package, and the seed of the sample.
PACKAGES ?= ./internal/nodeops/... ./internal/wincalls ./internal/operation ./internal/device ./internal/opendisk ./internal/pathpolicy
MUTANTS ?= 100
SEED ?= 1

mutate: ## change the code of PACKAGES in MUTANTS places each and see which changes no test notices; an hour at most
	$(FOR_TOOLS) $(GO) -C tools build -o ../bin/ ./mutate
	bin/mutate -n $(MUTANTS) -seed $(SEED) -equivalent tools/mutate/equivalent.txt $(PACKAGES)

##@ Write it

generate: ## regenerate the generated code and pages; the C side needs gcc-mingw-w64-x86-64
	$(FOR_TOOLS) $(GO) -C tools run ./protogen
	$(GO) test -count=1 -run '^TestReference$$' ./cmd/csi-proxy ./cmd/csi-proxyctl -update
	$(GO) test -count=1 -run '^TestGoAPI$$' . -update
	$(GO) -C test/cluster test -count=1 -run '^TestChartReadme$$' . -update
	$(GO) generate ./internal/winsys/...
	@if command -v x86_64-w64-mingw32-gcc >/dev/null; then $(GO) -C internal/win/testdata/abi run print.go; \
		else echo 'skipped: internal/win/testdata/abi, for lack of x86_64-w64-mingw32-gcc'; fi

docs: ## build docs/ as a site with a search, into bin/docs/; needs Node.js and npm
	@# Not npm ci, which refuses a lock file without the optional modules of other systems.
	cd site && npm install --ignore-scripts && npm run plots && npm run build

# Needs Node.js. Records a run of make run as docs/images/make-run.svg.
recording: build-here
	node site/recording.mjs 'make run' test/demo >bin/make-run.svg
	mv bin/make-run.svg docs/images/make-run.svg

# What follows is for CI, and for those who work on the part that it tests.

# The modules apart from the product: what they need must not become its own.
SIDE_MODULES = test/published test/cluster test/kubelet test/monitoring test/dropin kubectl-csi-proxy tools tools/release \
	csinode csinode/kubeevents mounter examples/csi-driver
# Those that have a side for Windows.
WINDOWS_SIDE_MODULES = test/windows test/dropin csinode mounter examples/csi-driver

lint-modules:
	for module in $(SIDE_MODULES); do $(GO) -C $$module vet ./... || exit 1; done
	for module in $(WINDOWS_SIDE_MODULES); do for arch in $(WINDOWS_ARCHS); do \
		CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) -C $$module vet ./... || exit 1; \
	done; done

# The tools that builds and releases use.
test-tools:
	$(FOR_TOOLS) $(GO) -C tools test ./...
	$(FOR_TOOLS) $(GO) -C tools/release test ./...

# The samples of docs/any-language.md. The first needs Node.js and npm, the second Python.
test-javascript: build-here
	cd examples/javascript && npm install --ignore-scripts && npm test

test-python: build-here
	cd examples/python && python3 -B sample_test.py

# The daemon with the published client, every sequence with every crash.
test-published:
	$(GO) -C test/published test -count=1 -timeout 20m ./...

# The manifests and the chart in deploy, and the plugin for kubectl, without a server.
test-deploy:
	$(GO) -C test/cluster test -count=1 .
	$(GO) -C kubectl-csi-proxy test ./...

# The example driver under a real kubelet, with each fault that the test must notice. The first time
# it builds Kubernetes.
KUBELET_LAB = test/kubelet/run -manifests deploy/kustomize/example-driver/simulated -share type=smb,source=//files/data \
	-iscsi type=iscsi,targetPortal=192.0.2.1,iqn=iqn.2001-04.com.example:storage \
	-driver '$(KUBELET_DRIVER) -node-id $$NODE -state-dir $$STATE'
KUBELET_DRIVER = bin/csi-driver -endpoint unix://$$SOCKET -endpoint-dir $$ENDPOINTS
test-kubelet:
	CGO_ENABLED=0 $(GO) -C examples/csi-driver build -trimpath -o ../../bin/ .
	$(KUBELET_LAB) -plant all -table csinode/testdata/kubelet.jsonl

# The same with kubelet, the daemon and the driver as Windows programs, on named pipes, or one line if
# there is no Wine. Building kubelet takes ten minutes once.
test-kubelet-wine: KUBELET_DRIVER = bin/csi-driver.exe -endpoint tcp://$$SOCKET -simulated
test-kubelet-wine:
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) -C examples/csi-driver build -trimpath -o ../../bin/ .
	$(KUBELET_LAB) -windows -full -plant all -table csinode/testdata/kubelet.jsonl || [ $$? = 77 ]

# The same with all scenarios and HISTORIES that the seed makes up, then with the real sidecars, with
# an older kubelet, with older Kubernetes, and under Wine. Not in CI: it takes 30 minutes, and building
# these programs 40 more.
HISTORIES = 20
OLDER = life,number,expansion,two-pods,read-only,manifests,smb-secret,boot,kill,kill-kubelet,open-file,one-pod,in-doubt,refused
test-kubelet-full:
	CGO_ENABLED=0 $(GO) -C examples/csi-driver build -trimpath -o ../../bin/ .
	$(KUBELET_LAB) -full -plant all -table csinode/testdata/kubelet.jsonl
	$(KUBELET_LAB) -seed 0 -histories $(HISTORIES) -only histories
	$(KUBELET_LAB) -sidecars
	KUBELET=v1.34 $(KUBELET_LAB) -table csinode/testdata/kubelet.jsonl -only $(OLDER)
	KUBERNETES=v1.34 $(KUBELET_LAB) -table csinode/testdata/kubelet.jsonl -only $(OLDER)
	$(MAKE) test-kubelet-wine

# deploy/monitoring with Debian's prometheus: each panel has data, each alert fires when it should.
test-monitoring: build-here
	$(GO) -C test/monitoring test -count=1 ./...

# The example driver's Windows program under Wine, beside the daemon on a simulated node.
test-driver-lab:
	test/driver-lab/test

# Our daemon and the published one against the wire contract, under Wine.
conformance-windows:
	test/wine/conformance

# Measures the Windows daemon under Wine, and PEER=other.exe if given.
compare-windows:
	test/wine/compare-windows '$(PEER)'

# Builds for Windows in a new clone, as other projects do: each architecture, and from a vendor directory.
check-build:
	copy=$$(mktemp -d) && trap "rm -rf $$copy" EXIT && \
		git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $$copy && cd $$copy && \
		for arch in $(WINDOWS_ARCHS); do \
			GOOS=windows GOARCH=$$arch $(MAKE) build && file bin/csi-proxy.exe && rm -r bin || exit 1; \
		done && \
		$(GO) mod vendor && $(GO) -C tools mod vendor && \
		GOFLAGS=-mod=vendor GOPROXY=off CGO_ENABLED=1 GOOS=windows $(MAKE) build && file bin/csi-proxy.exe

include packaging/release.mk
