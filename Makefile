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
# The packages whose tests on Windows docs/windows-proof.md names, apart from
# test/windows, which is a module of its own.
WINTEST_PACKAGES = internal/logfile internal/pipe internal/winservice internal/winsys internal/winsys/wmi
# The files of the repository that they read.
WINTEST_FILES = internal/win/testdata/abi/layout.txt internal/win/testdata/abi/samples.txt
# Lists the modules of tests, which their programs don't name.
LIST_MODULES = -deps -test -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}'
# The modules apart from the product: what they need must not become its own.
SIDE_MODULES = test/published test/cluster test/monitoring kubectl-csi-proxy tools tools/release examples/csi-driver
# Those that have a side for Windows.
WINDOWS_SIDE_MODULES = test/windows examples/csi-driver

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | \
		while IFS='|' read -r t d; do printf '  make %-20s %s\n' "$$t" "$$d"; done

.PHONY: run
run: build-here ## start the daemon on a simulated Windows node, show a volume's life, keep serving
	@test/demo --keep

.PHONY: demo
demo: build-here ## show a volume's life and exit; fails if a step has an unexpected result
	@test/demo

.PHONY: build
ifeq ($(GOOS),windows)
BIN_windows-$(or $(GOARCH),amd64) = bin
build: build-windows-$(or $(GOARCH),amd64)
else
build: build-here build-windows-amd64 ## build csi-proxy and csi-proxyctl into bin/, for this system and for Windows on amd64; with GOOS=windows for Windows only
endif

.PHONY: build-all
build-all: build build-windows-arm64 ## like build, and also for Windows on arm64, into bin/windows-arm64/

.PHONY: build-here
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

.PHONY: kubectl-csi-proxy
kubectl-csi-proxy: ## build the plugin for kubectl, bin/kubectl-csi_proxy
	CGO_ENABLED=0 $(GO) -C kubectl-csi-proxy build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o ../bin/kubectl-csi_proxy .

.PHONY: wintest
wintest: $(addprefix wintest-,$(WINDOWS_ARCHS)) ## build csi-proxy-wintest.exe, which tests this source on a Windows machine with one command

# The daemon with the simulated node, which the released one for Windows doesn't have.
build-sim-windows-%: bin/winres FORCE
	GOOS=windows GOARCH=$* $(BUILD) -tags simulated -o bin/.linked/windows-$*/csi-proxy-sim.exe ./cmd/csi-proxy
	$(WINRES) -description 'CSI Proxy on a simulated node, for tests of CSI drivers' \
		bin/.linked/windows-$*/csi-proxy-sim.exe $(BIN_windows-$*)/csi-proxy-sim.exe
	$(call sign,$(BIN_windows-$*)/csi-proxy-sim.exe)

# The tests' programs into bin/.wintest/<arch>/, and all into one program.
wintest-%: build-windows-% build-sim-windows-% bin/pack
	rm -rf bin/.wintest/$* && mkdir -p bin/.wintest/$*
	for package in $(WINTEST_PACKAGES); do \
		CGO_ENABLED=0 GOOS=windows GOARCH=$* $(GO) test -c -trimpath -buildvcs=false -ldflags '-s -w' \
			-o bin/.wintest/$*/$$(echo $$package | tr / -).exe ./$$package || exit 1; \
	done
	CGO_ENABLED=0 GOOS=windows GOARCH=$* $(GO) -C test/windows test -c -trimpath -buildvcs=false -ldflags '-s -w' \
		-o ../../bin/.wintest/$*/test-windows.exe .
	GOOS=windows GOARCH=$* $(GO) list $(LIST_MODULES) $(addprefix ./,$(WINTEST_PACKAGES)) | sort -u >bin/.wintest/$*/packages.modules
	GOOS=windows GOARCH=$* $(GO) -C test/windows list $(LIST_MODULES) . | sort -u >bin/.wintest/$*/test-windows.modules
	GOOS=windows GOARCH=$* $(BUILD) -o bin/.linked/windows-$*/csi-proxy-wintest.exe ./internal/lab/wintest
	$(WINRES) -description 'Tests of CSI Proxy on Windows' \
		bin/.linked/windows-$*/csi-proxy-wintest.exe bin/.wintest/$*/csi-proxy-wintest.exe
	bin/pack -program bin/.wintest/$*/csi-proxy-wintest.exe windows-proof.md=docs/windows-proof.md \
		csi-proxy.exe=$(BIN_windows-$*)/csi-proxy.exe csi-proxy-sim.exe=$(BIN_windows-$*)/csi-proxy-sim.exe csi-proxyctl.exe=$(BIN_windows-$*)/csi-proxyctl.exe \
		$(foreach f,$(WINTEST_FILES),source/$(f)=$(f)) \
		$(foreach p,$(WINTEST_PACKAGES) test/windows,tests/$(p)=bin/.wintest/$*/$(subst /,-,$(p)).exe) \
		>$(BIN_windows-$*)/csi-proxy-wintest.exe
	chmod +x $(BIN_windows-$*)/csi-proxy-wintest.exe

bin/winres bin/pack: bin/%: FORCE
	@$(FOR_TOOLS) $(GO) -C tools build -o ../bin/ ./$*

# What only releases need is a module of its own, so that a build needs none of it.
bin/sbom bin/notices bin/image bin/msi bin/relnotes: bin/%: FORCE
	@$(FOR_TOOLS) GOFLAGS= $(GO) -C tools/release build -o ../../bin/ ./$*

FORCE:

.PHONY: check-build
check-build: ## build for Windows in a new clone, as other projects do: each architecture, and from a vendor directory
	copy=$$(mktemp -d) && trap "rm -rf $$copy" EXIT && \
		git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $$copy && cd $$copy && \
		for arch in $(WINDOWS_ARCHS); do \
			GOOS=windows GOARCH=$$arch $(MAKE) build && file bin/csi-proxy.exe && rm -r bin || exit 1; \
		done && \
		$(GO) mod vendor && $(GO) -C tools mod vendor && \
		GOFLAGS=-mod=vendor GOPROXY=off CGO_ENABLED=1 GOOS=windows $(MAKE) build && file bin/csi-proxy.exe

# What is released of the programs: zips of the daemon for each Windows, and of the one with
# the simulated node, which is for those who write drivers, for each system.
RELEASED = $(addprefix windows-,$(WINDOWS_ARCHS)) $(addprefix sim-windows-,$(WINDOWS_ARCHS)) sim-linux-amd64 sim-linux-arm64

# collect makes bin/.release/<name>, which has programs, a bill of materials of each, and the
# licences of all that they contain: $(call collect,name,program…).
define collect
	rm -rf bin/.release/$(1) && mkdir -p bin/.release/$(1)
	cp LICENSE $(2) bin/.release/$(1)/
	bin/notices $(2) >bin/.release/$(1)/LICENSES.txt
	for program in $(notdir $(2)); do \
		bin/sbom -version '$(VERSION)' bin/.release/$(1)/$$program >bin/.release/$(1)/$$program.cdx.json || exit 1; \
	done
endef

collect-windows-%: build-windows-% bin/sbom bin/notices
	$(call collect,windows-$*,$(addprefix $(BIN_windows-$*)/,csi-proxy.exe csi-proxyctl.exe))

collect-sim-windows-%: build-sim-windows-% build-windows-% bin/sbom bin/notices
	$(call collect,sim-windows-$*,$(addprefix $(BIN_windows-$*)/,csi-proxy-sim.exe csi-proxyctl.exe))

collect-sim-linux-%: link-linux-% bin/sbom bin/notices
	cp bin/.linked/linux-$*/csi-proxy bin/.linked/linux-$*/csi-proxy-sim
	$(call collect,sim-linux-$*,$(addprefix bin/.linked/linux-$*/,csi-proxy-sim csi-proxyctl))

# Prints name=path for each file of a folder, as bin/pack and bin/image take it.
files_of = $$(cd $(1) && LC_ALL=C && for f in *; do printf '%s=%s/%s ' "$$f" '$(1)' "$$f"; done)

IMAGE_ARCHIVE = bin/csi-proxy-image-windows-amd64.tar

.PHONY: image
image: collect-windows-amd64 bin/image ## build the image of the HostProcess container, without Docker, into bin/; see docs/image.md
	bin/image build -version '$(VERSION)' -commit '$(COMMIT)' -created $(SOURCE_DATE_EPOCH) \
		$(call files_of,bin/.release/windows-amd64) >$(IMAGE_ARCHIVE)

.PHONY: push-image
push-image: image ## build the image and push it: IMAGE=repository:tag
	bin/image push $(IMAGE_ARCHIVE) '$(or $(IMAGE),$(error say where to, such as IMAGE=registry.example.org/csi-proxy:v1.2.3))'

MSI = bin/csi-proxy-windows-amd64.msi

.PHONY: msi
msi: collect-windows-amd64 bin/msi ## build the MSI for x64, with wixl, into bin/; see docs/msi.md
	bin/msi -version '$(VERSION)' -created $(SOURCE_DATE_EPOCH) -source packaging/msi -files bin/.release/windows-amd64 $(MSI)
	$(call sign,$(MSI))

.PHONY: test-msi
test-msi: bin/msi ## install, repair, upgrade, downgrade and remove the MSI under Wine; says so and skips if there is no Wine
	test/wine/msi

.PHONY: release
release: $(addprefix collect-,$(RELEASED)) image msi wintest bin/pack bin/relnotes ## build what is released into dist/; RELEASE.md says how to release it
	rm -rf dist && mkdir dist
	bin/relnotes -version '$(VERSION)' CHANGELOG.md >dist/RELEASE-NOTES.md
	$(foreach name,$(RELEASED),bin/pack -created $(SOURCE_DATE_EPOCH) $(call files_of,bin/.release/$(name)) >dist/csi-proxy-$(name)-$(VERSION).zip &&) true
	cp $(IMAGE_ARCHIVE) dist/csi-proxy-image-windows-amd64-$(VERSION).tar
	cp $(MSI) dist/csi-proxy-windows-amd64-$(VERSION).msi
	@# The tests on Windows have modules, and versions of modules, that no other program has.
	for arch in $(WINDOWS_ARCHS); do \
		tests=dist/csi-proxy-wintest-windows-$$arch-$(VERSION).exe; \
		[ $$arch = amd64 ] && dir=$(BIN_windows-amd64) || dir=$(BIN_windows-arm64); \
		cp $$dir/csi-proxy-wintest.exe $$tests && \
		bin/sbom -version '$(VERSION)' $$tests $$dir/csi-proxy-sim.exe $$dir/csi-proxyctl.exe bin/.wintest/$$arch/*.modules >$$tests.cdx.json || exit 1; \
	done
	bin/notices bin/.wintest/amd64/packages.modules >dist/LICENSES-wintest.txt
	cd test/windows && ../../bin/notices ../../bin/.wintest/amd64/test-windows.modules >>../../dist/LICENSES-wintest.txt
	cd dist && sha256sum -- * >SHA256SUMS

.PHONY: check-release
check-release: release ## build the release again, in another directory and without a cache, and compare every byte
	copy=$$(mktemp -d) && trap "rm -rf $$copy" EXIT && \
		git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $$copy && \
		GOCACHE=$$copy/.cache $(MAKE) -C $$copy release VERSION='$(VERSION)' COMMIT='$(COMMIT)' && \
		diff dist/SHA256SUMS $$copy/dist/SHA256SUMS

.PHONY: test
test: test-deploy ## run the tests, with the race detector
	@test -n '$(RACE)' || echo 'without the race detector, for lack of a C compiler'
	$(GO) test $(RACE) ./...
	cd test/published && $(GO) test $(RACE) -short -count=1 ./...
	$(FOR_TOOLS) $(GO) -C tools test ./...
	$(FOR_TOOLS) $(GO) -C tools/release test ./...

.PHONY: test-resilience
test-resilience: ## test each operation with each mishap at each of its calls to Windows, of which make test tries a sample
	$(GO) test ./internal/nodeops/... ./internal/pathpolicy

# How long each fuzz target and each long test runs.
FUZZTIME ?= 20s
SOAK ?= 2m
# The packages of the product that have functions of a kind in their tests.
packages_with = $(shell grep -rlE '^func $(1)' --include='*_test.go' --exclude-dir=test --exclude-dir=tools --exclude-dir=examples . | \
	xargs -r -n1 dirname | sort -u)

.PHONY: fuzz
fuzz: ## fuzz each decoder for FUZZTIME, 20s unless given
	@for package in $(call packages_with,Fuzz); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
			echo "$$package $$target" && \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$package || exit 1; \
		done; \
	done

.PHONY: soak
soak: ## run each long, random test for SOAK, 2m unless given; SOAK_SEED repeats one
	SOAK=$(SOAK) $(GO) test -count=1 -timeout 0 -run '^TestSoak' -v $(call packages_with,TestSoak)

.PHONY: docs
docs: ## build docs/ as a site with a search, into bin/docs/; needs Node.js and npm
	@# Not npm ci, which refuses a lock file without the optional modules of other systems.
	cd site && npm install && npm run plots && npm run build

.PHONY: recording
recording: build-here ## record a run of make run as docs/images/make-run.svg; needs Node.js
	node site/recording.mjs 'make run' test/demo >bin/make-run.svg
	mv bin/make-run.svg docs/images/make-run.svg

.PHONY: test-published
test-published: ## test the daemon with the published client, every sequence with every crash
	cd test/published && $(GO) test -count=1 -timeout 20m ./...

.PHONY: test-deploy
test-deploy: ## test the manifests and the chart in deploy, and the plugin for kubectl, without a server
	$(GO) -C test/cluster test .
	$(GO) -C kubectl-csi-proxy test ./...

.PHONY: test-cluster
test-cluster: ## test deploy and the plugin for kubectl with a real kube-apiserver, which is built the first time
	bin=$$(test/cluster/setup) && CSI_PROXY_CLUSTER=$$bin $(GO) -C test/cluster test -count=1 ./server

.PHONY: test-monitoring
test-monitoring: build-here ## test deploy/monitoring with Debian's prometheus: each panel has data, each alert fires when it should
	cd test/monitoring && $(GO) test -count=1 ./...

.PHONY: test-csi
test-csi: ## test the example driver, with the CSI project's csi-sanity over the pipe and in process, and the commands of docs/quickstart-driver.md
	cd examples/csi-driver && $(GO) test $(RACE) -count=1 -skip TestSanity ./...
	for via in pipe in-process; do \
		(cd examples/csi-driver && $(GO) test $(RACE) -count=1 -run TestSanity -v . -via=$$via -ginkgo.no-color) || exit 1; \
	done
	test/quickstart

.PHONY: test-driver-lab
test-driver-lab: ## run the example driver's Windows program under Wine, beside the daemon on a simulated node; skips if there is no Wine
	test/driver-lab/test

.PHONY: test-windows
test-windows: ## test the Windows programs under Wine, also as a service; says so and skips if there is no Wine
	test/wine/test-windows

.PHONY: conformance-windows
conformance-windows: ## check our daemon and the published one against the wire contract, under Wine
	test/wine/conformance

.PHONY: compare-windows
compare-windows: ## measure the Windows daemon under Wine, and PEER=other.exe if given
	test/wine/compare-windows '$(PEER)'

.PHONY: windows-proof
windows-proof: ## write the reports of csi-proxy-wintest, REPORT='file…', into docs/windows-proof.md
	$(GO) run ./internal/lab/wintest docs/windows-proof.md $(REPORT)

.PHONY: bench
bench: ## measure; only ratios within one run are comparable
	$(GO) test -run '^$$' -bench . -benchtime 2s ./internal/lab/bench

.PHONY: mutate
mutate: ## change the code of PACKAGES bit by bit and see which changes no test notices; takes minutes a package
	for package in $(or $(PACKAGES),$(error say which, such as PACKAGES='./internal/wincalls')); do \
		$(GO) run github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0 unleash --workers 1 --timeout-coefficient 5 $$package || exit 1; \
	done

.PHONY: lint
lint: bin/staticcheck ## check formatting, vet for Linux and Windows, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not formatted: $$unformatted"; exit 1; }
	$(GO) vet ./...
	for arch in $(WINDOWS_ARCHS); do \
		CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet ./... && \
		CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet -tags simulated ./cmd/csi-proxy || exit 1; \
	done
	for module in $(SIDE_MODULES); do (cd $$module && $(GO) vet ./...) || exit 1; done
	for module in $(WINDOWS_SIDE_MODULES); do for arch in $(WINDOWS_ARCHS); do \
		(cd $$module && CGO_ENABLED=0 GOOS=windows GOARCH=$$arch $(GO) vet ./...) || exit 1; \
	done; done
	@# Together, so that what only one system uses isn't taken as unused.
	printf 'linux: GOOS=linux\nwindows: GOOS=windows\nsimulated: GOOS=windows -tags=simulated\n' | CGO_ENABLED=0 bin/staticcheck -matrix ./...

bin/staticcheck: tools/go.mod
	$(FOR_TOOLS) $(GO) -C tools build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

.PHONY: generate
generate: ## regenerate the generated code and pages; the C side needs gcc-mingw-w64-x86-64
	$(FOR_TOOLS) $(GO) -C tools run ./protogen
	$(GO) test -count=1 -run '^TestReference$$' ./cmd/csi-proxy ./cmd/csi-proxyctl -update
	$(GO) test -count=1 -run '^TestGoAPI$$' . -update
	$(GO) generate ./internal/winsys/...
	@if command -v x86_64-w64-mingw32-gcc >/dev/null; then $(GO) -C internal/win/testdata/abi run print.go; \
		else echo 'skipped: internal/win/testdata/abi, for lack of x86_64-w64-mingw32-gcc'; fi
