# Copyright The CSI Proxy Authors.
# SPDX-License-Identifier: Apache-2.0

# What only releases need; the Makefile includes this. RELEASE.md says what is released, and how.
# From the repository's root:
#
#	make image-sim           the image of the simulated node, for Linux; see docs/test-your-driver.md
#	make publish-image IMAGE=repository:tag
#	                         the image of the HostProcess container alone
#	make protos              the .proto files as a module of buf, bin/.protos; see docs/go-authors.md
#	make release             all that is released but the plugin, into dist/
#	make release-plugin      the plugin for kubectl, for six platforms, with krew's manifest, into dist/
#	make check-release       again, in another directory and without a cache: every byte is the same

# The packages whose tests on Windows internal/lab/wintest/assumptions.txt names, apart from
# test/windows, which is a module of its own.
WINTEST_PACKAGES = internal/lab/storagelife internal/host/logfile internal/serve/pipe internal/host/winservice internal/windows/winread internal/windows/winsys internal/windows/winsys/wmi
# The files of the repository that they read.
WINTEST_FILES = internal/windows/win/testdata/abi/layout.txt internal/windows/win/testdata/abi/samples.txt
# Lists the modules of tests, which their programs don't name, as they are after replacements; this repository's
# have no version.
LIST_MODULES = -deps -test -f '{{with .Module}}{{with or .Replace .}}{{if .Version}}{{.Path}} {{.Version}}{{end}}{{end}}{{end}}'

##@ Put it on a cluster

kubectl-csi-proxy: ## build the plugin for kubectl, bin/kubectl-csi_proxy
	CGO_ENABLED=0 $(GO) -C cmd/kubectl-csi_proxy build -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '-s -w -X main.version=$(VERSION)' -o ../../bin/kubectl-csi_proxy .

wintest: $(addprefix wintest-,$(WINDOWS_ARCHS)) ## build csi-proxy-wintest.exe, which tests this source on Windows

# The daemon with the simulated node, and the program that controls it: the released ones for
# Windows have nothing of it.
build-sim-windows-%: bin/winres FORCE
	GOOS=windows GOARCH=$* $(BUILD) -tags '$(TAGS),simulated' -o bin/.linked/windows-$*/csi-proxy-sim.exe ./cmd/csi-proxy
	$(WINRES) -description 'CSI Proxy on a simulated node, for tests of CSI drivers' \
		bin/.linked/windows-$*/csi-proxy-sim.exe $(BIN_windows-$*)/csi-proxy-sim.exe
	GOOS=windows GOARCH=$* $(BUILD) -tags '$(TAGS),simulated' -o bin/.linked/windows-$*/csi-proxyctl-sim.exe ./cmd/csi-proxyctl
	$(WINRES) -description 'CSI Proxy from the command line, with the control of a simulated node' \
		bin/.linked/windows-$*/csi-proxyctl-sim.exe $(BIN_windows-$*)/csi-proxyctl-sim.exe
	$(call sign,$(BIN_windows-$*)/csi-proxy-sim.exe $(BIN_windows-$*)/csi-proxyctl-sim.exe)

# The tests' programs into bin/.wintest/<arch>/, and all into one program.
wintest-%: build-windows-% build-sim-windows-% bin/pack
	rm -rf bin/.wintest/$* && mkdir -p bin/.wintest/$*
	for package in $(WINTEST_PACKAGES); do \
		CGO_ENABLED=0 GOOS=windows GOARCH=$* $(GO) test -c -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '-s -w' \
			-o bin/.wintest/$*/$$(echo $$package | tr / -).exe ./$$package || exit 1; \
	done
	CGO_ENABLED=0 GOOS=windows GOARCH=$* $(GO) -C test/windows test -c -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '-s -w' \
		-o ../../bin/.wintest/$*/test-windows.exe .
	GOOS=windows GOARCH=$* $(GO) list $(LIST_MODULES) $(addprefix ./,$(WINTEST_PACKAGES)) | sort -u >bin/.wintest/$*/packages.modules
	GOOS=windows GOARCH=$* $(GO) -C test/windows list $(LIST_MODULES) . | sort -u >bin/.wintest/$*/test-windows.modules
	GOOS=windows GOARCH=$* $(BUILD) -o bin/.linked/windows-$*/csi-proxy-wintest.exe ./internal/lab/wintest
	$(WINRES) -description 'Tests of CSI Proxy on Windows' \
		bin/.linked/windows-$*/csi-proxy-wintest.exe bin/.wintest/$*/csi-proxy-wintest.exe
	bin/pack -program bin/.wintest/$*/csi-proxy-wintest.exe \
		csi-proxy.exe=$(BIN_windows-$*)/csi-proxy.exe csi-proxy-sim.exe=$(BIN_windows-$*)/csi-proxy-sim.exe csi-proxyctl.exe=$(BIN_windows-$*)/csi-proxyctl.exe \
		csi-proxyctl-sim.exe=$(BIN_windows-$*)/csi-proxyctl-sim.exe \
		$(foreach f,$(WINTEST_FILES),source/$(f)=$(f)) \
		$(foreach p,$(WINTEST_PACKAGES) test/windows,tests/$(p)/csi-proxy.test.exe=bin/.wintest/$*/$(subst /,-,$(p)).exe) \
		>$(BIN_windows-$*)/csi-proxy-wintest.exe
	chmod +x $(BIN_windows-$*)/csi-proxy-wintest.exe

bin/sbom bin/notices bin/image bin/chart: bin/%: FORCE
	@$(FOR_TOOLS) $(GO) -C tools build -o ../bin/ ./release/$*

# What is released of the programs: zips of the daemon for each Windows, and of the one with
# the simulated node, which is for those who write drivers, for each system.
RELEASED = $(addprefix windows-,$(WINDOWS_ARCHS)) $(addprefix sim-windows-,$(WINDOWS_ARCHS)) sim-linux-amd64 sim-linux-arm64

# collect makes bin/.release/<name>, which has programs, a bill of materials of each, and the
# licences of all that they contain: $(call collect,name,program…).
define collect
	rm -rf bin/.release/$(1) && mkdir -p bin/.release/$(1)
	cp LICENSE NOTICE $(2) bin/.release/$(1)/
	bin/notices $(2) >bin/.release/$(1)/LICENSES.txt
	for program in $(notdir $(2)); do \
		bin/sbom -version '$(VERSION)' bin/.release/$(1)/$$program >bin/.release/$(1)/$$program.cdx.json || exit 1; \
	done
endef

collect-windows-%: build-windows-% bin/sbom bin/notices
	$(call collect,windows-$*,$(addprefix $(BIN_windows-$*)/,csi-proxy.exe csi-proxyctl.exe))

collect-sim-windows-%: build-sim-windows-% bin/sbom bin/notices
	$(call collect,sim-windows-$*,$(addprefix $(BIN_windows-$*)/,csi-proxy-sim.exe csi-proxyctl-sim.exe))

collect-sim-linux-%: link-linux-% bin/sbom bin/notices
	cp bin/.linked/linux-$*/csi-proxy bin/.linked/linux-$*/csi-proxy-sim
	$(call collect,sim-linux-$*,$(addprefix bin/.linked/linux-$*/,csi-proxy-sim csi-proxyctl))

# Prints name=path for each file of a folder, as bin/pack and bin/image take it.
files_of = $$(cd $(1) && LC_ALL=C && for f in *; do printf '%s=%s/%s ' "$$f" '$(1)' "$$f"; done)

IMAGE_ARCHIVE = bin/csi-proxy-image-windows-amd64.tar

SIM_IMAGE_ARCHIVE = bin/csi-proxy-sim-image-linux.tar
BUILD_IMAGE = bin/image build -version '$(VERSION)' -commit '$(COMMIT)' -created $(SOURCE_DATE_EPOCH)

# The version is the tag of the image. A node that has an image with this tag doesn't pull a newer build.
check-version:
	@[ '$(VERSION)' != unknown ] || { echo 'git knows no version here: set VERSION, to another value for each build, and COMMIT' && exit 1; }

image: check-version $(IMAGE_ARCHIVE) ## build the image of the HostProcess container, without Docker

image-sim: $(SIM_IMAGE_ARCHIVE)

$(IMAGE_ARCHIVE): collect-windows-amd64 bin/image
	$(BUILD_IMAGE) windows/amd64 $(call files_of,bin/.release/windows-amd64) >$@

$(SIM_IMAGE_ARCHIVE): collect-sim-linux-amd64 collect-sim-linux-arm64 bin/image
	$(BUILD_IMAGE) linux/amd64 $(call files_of,bin/.release/sim-linux-amd64) \
		linux/arm64 $(call files_of,bin/.release/sim-linux-arm64) >$@

CHART_ARCHIVE = bin/csi-proxy-chart.tgz

chart: check-version bin/chart ## pack the chart
	bin/chart pack -version '$(VERSION)' -created $(SOURCE_DATE_EPOCH) deploy/charts/csi-proxy >$(CHART_ARCHIVE)

# The registry is asked first, before anything is built for minutes.
publish: check-version bin/image bin/chart ## build and push both images and the chart: REGISTRY=registry.example.org
	@[ -n '$(REGISTRY)' ] || { echo 'say where to, such as REGISTRY=registry.example.org' && exit 1; }
	bin/image check '$(REGISTRY)/csi-proxy' '$(REGISTRY)/csi-proxy-sim' '$(REGISTRY)/charts/csi-proxy'
	$(MAKE) image image-sim chart
	bin/chart push $(CHART_ARCHIVE) '$(REGISTRY)/charts/csi-proxy'
	bin/image push $(IMAGE_ARCHIVE) '$(REGISTRY)/csi-proxy:$(VERSION)'
	bin/image push $(SIM_IMAGE_ARCHIVE) '$(REGISTRY)/csi-proxy-sim:$(VERSION)'

publish-image: check-version bin/image
	@[ -n '$(IMAGE)' ] || { echo 'say where to, such as IMAGE=registry.example.org/csi-proxy:v1.2.3' && exit 1; }
	bin/image check '$(IMAGE)'
	$(MAKE) image
	bin/image push $(IMAGE_ARCHIVE) '$(IMAGE)'

release: $(addprefix collect-,$(RELEASED)) $(IMAGE_ARCHIVE) $(SIM_IMAGE_ARCHIVE) chart protos wintest bin/pack
	rm -rf dist && mkdir dist
	deploy/packaging/release-notes '$(VERSION)' CHANGELOG.md >dist/RELEASE-NOTES.md
	$(foreach name,$(RELEASED),bin/pack -created $(SOURCE_DATE_EPOCH) $(call files_of,bin/.release/$(name)) >dist/csi-proxy-$(name)-$(VERSION).zip &&) true
	cp $(IMAGE_ARCHIVE) dist/csi-proxy-image-windows-amd64-$(VERSION).tar
	cp $(SIM_IMAGE_ARCHIVE) dist/csi-proxy-sim-image-linux-$(VERSION).tar
	cp $(CHART_ARCHIVE) dist/csi-proxy-chart-$(VERSION).tgz
	@# For installers that download by a URL. Rancher's joins all entries whose names contain csi-proxy.exe, so the
	@# archive has nothing else.
	tar --format=ustar --owner=0 --group=0 --numeric-owner --mode=0755 --mtime=@$(SOURCE_DATE_EPOCH) --transform='s,^,bin/,' \
		-I 'gzip -9n' -C bin/.release/windows-amd64 -cf $(CURDIR)/dist/csi-proxy-$(VERSION).tar.gz csi-proxy.exe
	cp bin/.release/windows-amd64/csi-proxy.exe bin/.release/windows-amd64/csi-proxy.exe.cdx.json dist/
	bin/notices dist/csi-proxy.exe >dist/LICENSES-csi-proxy.txt
	bin/pack -created $(SOURCE_DATE_EPOCH) $$(cd bin/.protos && find * -type f | LC_ALL=C sort | sed 's|.*|&=bin/.protos/&|') \
		>dist/csi-proxy-protos-$(VERSION).zip
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

# The API for those who make clients of it; api/sim is no part of it. In published/ are the groups
# that the published daemon has, by the names under which that one serves them.
protos:
	rm -rf bin/.protos && mkdir -p bin/.protos && cp LICENSE NOTICE deploy/packaging/protos/buf.yaml bin/.protos/
	for file in $$(cd api && find * -name '*.proto' -not -path 'sim/*'); do \
		install -D -m 644 api/$$file bin/.protos/csiproxy/$$file || exit 1; \
		case $$file in storage/*) continue; esac; \
		mkdir -p bin/.protos/published/$${file%/*} && \
		sed 's/^package csiproxy\.[a-z]*\./package /' api/$$file >bin/.protos/published/$$file || exit 1; \
	done

PLUGIN_PLATFORMS = darwin-amd64 darwin-arm64 linux-amd64 linux-arm64 windows-amd64 windows-arm64
PLUGIN_URL ?= https://github.com/csi-proxy/csi-proxy/releases/download/$(VERSION)

# A zip of the plugin, with a bill of materials and the licences of what it contains.
plugin-%: bin/pack bin/sbom bin/notices FORCE
	rm -rf bin/.plugin/$* && mkdir -p bin/.plugin/$* dist
	CGO_ENABLED=0 GOOS=$(word 1,$(subst -, ,$*)) GOARCH=$(word 2,$(subst -, ,$*)) $(GO) -C cmd/kubectl-csi_proxy build -trimpath -buildvcs=false -tags '$(TAGS)' \
		-ldflags '-s -w -X main.version=$(VERSION)' -o ../../bin/.plugin/$*/kubectl-csi_proxy$(if $(filter windows-%,$*),.exe) .
	cp LICENSE bin/.plugin/$*/
	program=$$(ls bin/.plugin/$*/kubectl-csi_proxy*) && \
		(cd cmd/kubectl-csi_proxy && ../../bin/notices ../../$$program) >bin/.plugin/$*/LICENSES.txt && \
		bin/sbom -version '$(VERSION)' $$program >bin/.plugin/$*/kubectl-csi_proxy.cdx.json
	bin/pack -created $(SOURCE_DATE_EPOCH) $(call files_of,bin/.plugin/$*) >dist/kubectl-csi_proxy-$*-$(VERSION).zip

release-plugin: $(addprefix plugin-,$(PLUGIN_PLATFORMS))
	deploy/packaging/krew '$(VERSION)' '$(PLUGIN_URL)' \
		$(foreach p,$(PLUGIN_PLATFORMS),dist/kubectl-csi_proxy-$(p)-$(VERSION).zip) >dist/csi-proxy-krew-$(VERSION).yaml
	cd dist && rm -f SHA256SUMS && sha256sum -- * >SHA256SUMS

# Installs from the files in dist/, as installers of Windows nodes do.
test-installers:
	CSI_PROXY_DIST='$(CURDIR)/dist' $(FOR_TOOLS) $(GO) -C tools test -count=1 -run '^TestInstallers$$' -v ./release

# Publishes to a registry of the test, and runs the simulated node's image from there. As root.
test-publish:
	CSI_PROXY_PUBLISH='$(CURDIR)' $(FOR_TOOLS) $(GO) -C tools test -count=1 -run '^TestPublish$$' -v ./release/image

# Tests the tools that builds and releases use. make test-csi has ./dropin.
test-tools:
	$(FOR_TOOLS) $(GO) -C tools test $$($(FOR_TOOLS) $(GO) -C tools list ./... | grep -vE '/(dropin|facts)$$')
	@# Go doesn't see a change of the pages, which are outside of that module, and would print the last result.
	$(FOR_TOOLS) $(GO) -C tools test -count=1 ./facts

check-release: release
	copy=$$(mktemp -d) && trap "rm -rf $$copy" EXIT && \
		git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $$copy && \
		GOCACHE=$$copy/.cache $(MAKE) -C $$copy release VERSION='$(VERSION)' COMMIT='$(COMMIT)' && \
		diff dist/SHA256SUMS $$copy/dist/SHA256SUMS

# Builds for Windows in a new clone, as other projects do: each architecture, and from a vendor directory.
check-build:
	copy=$$(mktemp -d) && trap "rm -rf $$copy" EXIT && \
		git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $$copy && cd $$copy && \
		for arch in $(WINDOWS_ARCHS); do \
			GOOS=windows GOARCH=$$arch $(MAKE) build && file bin/csi-proxy.exe && rm -r bin || exit 1; \
		done && \
		$(GO) mod vendor && $(GO) -C tools mod vendor && \
		GOFLAGS=-mod=vendor GOPROXY=off CGO_ENABLED=1 GOOS=windows $(MAKE) build && file bin/csi-proxy.exe
