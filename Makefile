# Every target with a "## text" after it is shown by `make`.

# A workspace around the clone would refuse -modfile below.
export GOWORK := off

# staticcheck comes from a module of its own, so that it is no dependency of the product.
STATICCHECK := go tool -modfile=tools/go.mod staticcheck

.DEFAULT_GOAL := help
.PHONY: help build test browser clients chaos bench lint fmt run screenshots

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# What /v1/version says. Without git it is what the Go toolchain knows.
COMMIT := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -X main.buildCommit=$(COMMIT) -X main.buildTime=$(shell date -u +%Y-%m-%dT%H:%M:%SZ)

build: ## build the server into bin/weir
	go build -ldflags '$(LDFLAGS)' -o bin/weir ./cmd/weir

test: browser lint ## check format, vet, staticcheck, then all tests, those of Go under the race detector
	@tools/test

browser:
	@tools/browser

clients: browser
	@tools/clients

screenshots: browser ## the manual's pictures of the dashboard anew; every page, light and dark, wide and narrow, to bin/screenshots
	@mkdir -p docs/images
	PICTURES=$(CURDIR)/docs/images go test -count=1 -run '^TestBrowser$$' -v ./internal/dashboard

# A failure prints the seed: make chaos ARGS="-trials.seed=N" makes the same choices.
chaos: ## three nodes, 25 kills under load, 15 cuts of the network and other faults: about 20 minutes
	go test -count=1 -timeout 60m -run '^Test(Chaos|Partition)$$' -v ./internal/trials -trials.kills 25 -trials.cuts 15 $(ARGS)

bench: ## measure beside the limits of this machine and beside peers; ARGS="-h" lists flags
	cd bench && go run . $(ARGS)

lint: ## check format, vet, staticcheck, and the description of the interface
	@echo '== gofmt -l .'
	@files=$$(gofmt -l .) || exit 1; if [ -n "$$files" ]; then \
		echo 'not formatted, run `make fmt`:'; echo "$$files"; exit 1; fi
	@echo '== go vet ./...'
	@go vet ./...
	@echo '== go vet ./... (bench)'
	@cd bench && go vet ./...
	@echo '== staticcheck ./...'
	@$(STATICCHECK) ./...
	@tools/openapi/lint

fmt: ## format all Go files
	gofmt -w .

run: ## build and run the service, with its data in ./weir-data; ARGS="--help" lists flags
	@go run -ldflags '$(LDFLAGS)' ./cmd/weir serve $(ARGS)
