SHELL := /bin/bash
.DEFAULT_GOAL := help

tool := go tool -modfile=.ci/tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
ARGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

.PHONY: demo
demo: setup build ## watch a zombie writer being stopped, with real processes
	@go run ./deploy/demo -lychgate bin/lychgate $(ARGS)

.PHONY: test
test: setup build ## run every test with the race detector
	@$(tool) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- -race -timeout 15m $(ARGS) ./...

.PHONY: test-versions
test-versions: ## test the fence in the oldest and the newest PostgreSQL (RELEASES="14 15 16 17 18")
	@set -e; for release in $(or $(RELEASES),14 18); do \
		bin=$$(.ci/postgres $$release); echo "PostgreSQL $$release in $$bin"; \
		POSTGRESQL_BIN=$$bin go test -count=1 $(ARGS) ./sql/... ./fencestore/pgstore; \
		POSTGRESQL_BIN=$$bin go test -count=1 $(ARGS) -run 'Leg|TLS|InTheClear|Replication|Stream|Cancel|Same' ./adapters/postgres; \
	done

.PHONY: test-drivers
test-drivers: ## run the drivers of other languages against the proxy
	@deploy/setup.sh drivers
	@LYCHGATE_DRIVERS=all go test -count=1 -timeout 10m $(ARGS) ./adapters/postgres/drivers

.PHONY: soak
soak: setup build ## take locks over at random while proxies are killed (ARGS="-time 10m")
	@go run ./chaos/soak -lychgate bin/lychgate $(ARGS)

.PHONY: chaos
chaos: setup build ## real processes in network namespaces, with faults of every kind; takes root (SEED=7 TIME=10m ARGS="-nodes 5")
	@go run ./chaos/cluster -lychgate bin/lychgate -time $(or $(TIME),45s) $(if $(SEED),-seed $(SEED)) $(ARGS)
	@go run ./chaos/cluster -lychgate bin/lychgate -time $(or $(TIME),45s) $(if $(SEED),-seed $(SEED)) -nodes 5 $(ARGS)
	@go run ./chaos/cluster -lychgate bin/lychgate -time 30s $(if $(SEED),-seed $(SEED)) -no-fence $(ARGS)

.PHONY: chaos-long
chaos-long: ## the same for long (TIME=2h)
	@$(MAKE) --no-print-directory chaos TIME=$(or $(TIME),1h)

.PHONY: explore
explore: ## visit every state near the beginning of the lock machine (STATES=200000000: for hours)
	@go test ./fencestore/memstore ./proxy/gate -run '^TestExplore$$' -count=1 -timeout 0 -v -explore.states 0
	@go test ./coordinator/internal/lock -run '^TestExplore$$' -count=1 -timeout 0 -v \
		-explore.states $(or $(STATES),5000000) -explore.workers $(or $(WORKERS),$(shell nproc)) $(ARGS)

.PHONY: sim
sim: ## simulate 10,000 hours of clusters, clients and stores, from seeds (HOURS=100, SEED=7: that one, told)
	@go test ./coordinator/internal/group -run '^TestSeeds$$' -count=1 -timeout 0 -v \
		-sim.hours $(or $(HOURS),10000) -sim.seed $(or $(SEED),0) $(ARGS)

.PHONY: seeded-bugs
seeded-bugs: ## plant known bugs one by one: the tests that must find each do (ARGS="-only last-in-first-out")
	@go run ./chaos/seeded/hunt $(ARGS)

.PHONY: build
build: ## build bin/lychgate, one static binary
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/lychgate ./cmd/lychgate

.PHONY: setup
setup: ## install what this machine lacks (PostgreSQL, PgBouncer)
	@deploy/setup.sh

.PHONY: lint
lint: ## run the linters and check that the code is formatted
	@$(tool) golangci-lint run ./...

.PHONY: generate
generate: ## regenerate the code of the protobuf files
	@$(tool) buf generate --config .ci/buf.yaml --template .ci/buf.gen.yaml --path coordinator

.PHONY: generated
generated: generate ## check that the generated code is current
	@git diff --exit-code -- '*.pb.go' '*.pb.gw.go' '*.swagger.json' && test -z "$$(git ls-files --others --exclude-standard -- '*.pb.go' '*.pb.gw.go')"

.PHONY: fuzz
fuzz: ## fuzz every parser for FUZZTIME each (default 30s)
	@.ci/fuzz $(or $(FUZZTIME),30s)

.PHONY: power
power: ## cut a node's power 200 times and look at 1,000 disks (ARGS='-power.seed 7 -power.cuts 500')
	@go test -count=1 -timeout 60m -v -run TestPowerCuts ./coordinator/internal/group -args -power.cuts 200 -power.images 5 $(ARGS)

.PHONY: bench-lock
bench-lock: build ## measure the coordinator beside etcd (ARGS=--quick: about a minute)
	@cd .ci/etcd && CGO_ENABLED=0 go build -trimpath -o ../../bin/lychgate-bench-etcd .
	@bin/lychgate bench lock $(ARGS)

.PHONY: bench-proxy
bench-proxy: setup build ## measure the proxy beside PgBouncer (ARGS=--quick: about a minute)
	@bin/lychgate bench proxy $(ARGS)

.PHONY: bench
bench: ## run every benchmark (ARGS=-benchtime=1x: once each)
	@go test -run '^$$' -bench . -benchmem $(ARGS) ./...
