# Running make without a target lists every target that has a "## text".

# Go refuses -modfile inside a workspace, and the clone may be in one.
export GOWORK := off

# Without the path of the clone in them, compiled packages are the same in every clone, and so the Go
# cache holds them once for all clones.
export GOFLAGS := $(GOFLAGS) -trimpath

# staticcheck comes from a separate module, so that the product does not depend on it. This command
# builds it and prints its path.
STATICCHECK := go tool -modfile=tools/go.mod -n staticcheck

.DEFAULT_GOAL := help
.PHONY: help build client test browser clients durable chaos sim bench lint fmt run screenshots release released installed manifests

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The values for /v1/version. Without git, the server uses those that the Go toolchain recorded.
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -X weir/internal/build.commit=$(COMMIT) -X weir/internal/build.built=$(shell date -u +%Y-%m-%dT%H:%M:%SZ)

build: ## build the server into bin/weir
	@go build -ldflags '$(LDFLAGS)' -o bin/weir ./cmd/weir

client: ## bundle the JavaScript client again, after a change of clients/js/src
	@tools/bundle

test: browser ## run lint and all tests, with the race detector if a C compiler is installed
	@tools/test

browser:
	@tools/browser

clients: browser
	@tools/clients

durable: browser ## run the whole conformance suite of Durable Streams, on the journal and on a cluster; about 2 minutes
	@tools/clients durable

screenshots: browser ## take the manual's screenshots again; writes all pages in all variants to bin/screenshots
	@mkdir -p docs/images
	PICTURES=$(CURDIR)/docs/images go test -count=1 -timeout 45m -run '^TestBrowser$$' -v ./internal/dashboard

# A failure prints the seed. make chaos ARGS="-trials.seed=N" repeats the same random choices.
chaos: ## kill the nodes of a cluster, cut its network, fill its disks, set its clocks wrong, grow and shrink it, under load, then hang up on servers 2,000 times; about 36 minutes
	go test -count=1 -timeout 90m -run '^TestStorm$$' -v ./internal/trials -trials.kills 25 -trials.cuts 15 -trials.fulls 5 -trials.clocks 5 $(ARGS)
	go test -count=1 -timeout 20m -run '^TestGrowAndShrink$$' -v ./internal/trials -trials.grow
	go test -count=1 -timeout 20m -run '^TestHangUp$$' -v ./internal/trials -trials.hangups 1000

# A failure prints the command that repeats it, such as make sim ARGS="-seed N".
sim: ## run simulations for 10 minutes, or as ARGS="-time 1h" says, with a process per core
	go test -count=1 -timeout 0 -run '^TestSim$$' -v ./internal/sim -time 10m $(ARGS)

bench: ## measure Weir, the limits of this machine and other servers; ARGS="-h" lists flags
	cd bench && go run . $(ARGS)

release: ## build the archives, packages and images of a release into bin/dist; see tools/release
	@tools/release

released: manifests ## build a release twice, compare the files, and check signature, checksums, program and image
	@tools/released

# kube-score has a module of its own, because the libraries of Kubernetes would slow down every other
# use of tools/go.mod. It wants a limit of CPU time, which would make the server wait in the middle of
# a sync although the machine is idle.
manifests: ## check the files in deploy/kubernetes with kube-score
	@for file in deploy/kubernetes/*.yaml; do \
		go tool -modfile=tools/kubernetes/go.mod kube-score score --ignore-container-cpu-limit --exit-one-on-warning $$file || exit 1; done

installed: ## install the packages of bin/dist in a clean Debian system, run the service, remove them
	@tools/installed

# tools/test sets RACE to -race, so that go vet and staticcheck use the packages that it compiles for
# its tests. Then go vet also reads, without the race detector, the packages that have other files
# without it. The tag keeps the C library of Pebble, which takes longest to compile, out of the
# benchmark. GOGC=400 costs memory and saves a fifth of the CPU time.
lint: export GOGC ?= 400
lint: ## run gofmt, go vet and staticcheck, and lint the OpenAPI description
	@echo '== gofmt -l .'
	@files=$$(find . -name node_modules -prune -o -name '*.go' -exec gofmt -l {} +) || exit 1; if [ -n "$$files" ]; then \
		echo 'these files are not formatted; run `make fmt`:'; echo "$$files"; exit 1; fi
	@echo '== go vet ./...'
	@go vet $(RACE) ./...
	@if [ -n "$(RACE)" ]; then go vet $$(dirname $$(grep -rl --include='*.go' --exclude-dir=node_modules '^//go:build.*!race' .)); fi
	@echo '== go vet ./... (bench)'
	@cd bench && go vet -tags pebblegozstd ./...
	@echo '== staticcheck ./...'
	@program=$$($(STATICCHECK)) && GOFLAGS="$$GOFLAGS $(RACE)" $$program ./...
	@echo '== tools/bundle check'
	@tools/bundle check
	@tools/openapi/lint

fmt: ## format all Go files
	gofmt -w .

run: build ## build and run the server, with its data in ./weir-data; ARGS="--help" lists flags
	@bin/weir serve $(ARGS)
