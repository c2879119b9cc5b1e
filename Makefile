# make dev     builds and runs the system; ARGS="--api-address ..." are flags of `overwinter dev`. If packages are missing, it prints
#              the command that installs them; with INSTALL=1, and for root in a container, it runs the command
# make test    installs what is missing and runs everything that CI runs
# make check   runs its fast part: formatting, lint, determinism, generated code, language
# make build   builds the three programs in bin/
# make release writes archives of the three programs and their checksums to dist/, for machines without Go; PLATFORMS="linux/amd64 linux/arm64" selects the platforms
# make bench   measures the system on this machine and writes docs/benchmarks.md; ARGS="--list" lists its parts, ARGS="--only turn"
#              runs one and prints its figures
# make bench-sleepers  measures lists through the API and five idle minutes with a million stored sessions; storing them takes minutes
# make bench-million  times lists and searches of a million stored sessions; needs 3 GB of disk. N=100000 makes fewer
# make chaos   injects every fault in every state, then faults at random; ARGS="-minutes 20 -seed 1234" set duration and seed
# make followers  has clients of every protocol follow one session for five minutes while each part of the system is killed; ARGS="-minutes 20" sets the duration
# make upgrade  replaces the programs of the previous release by those of this build under load, in every order; FROM=COMMIT starts from another commit
# make real-agents  runs the tests of real agents in the whole system with every agent; make test runs each test with one of them
# make forks  forks and reverts sessions of every agent; three minutes
# make overload  has a hundred agents print without a pause for a minute; ARGS="-overload 5m -overload-sessions 200" set duration and number
# make conformance  runs every scenario of every agent's conformance suite with its own process; make test shares one process between some of them
# make conformance-sandbox  runs all tests of every agent in sandboxes with their own network, as this user and, for root, as an ordinary user too
# make test-modal-sdk  runs the tests of Modal's SDK against the local Modal, including those that are known to fail
# make vulncheck  looks for known vulnerabilities in the code that is called; needs the database at vuln.go.dev, or VULNDB=URL
# make check-alerts  checks and tests the alert rules with promtool, which it builds first; a minute
# make pin-images  appends the digests of base images to their tags; needs a registry, and crane, skopeo or docker
# make picture  records the terminal session of the README and writes docs/session.svg
# make agents  installs the agents that tests run, into a cache of the user
# make web     builds the TypeScript packages in web/ and runs their tests that need no server
# make fmt, make generate, make generate-web, make clean

SHELL := /bin/sh
.DEFAULT_GOAL := build
# Prerequisites run in the order in which they are listed. They print what they do, so make itself is quiet.
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# Version stamping runs git, which refuses to work in a clone of another user. Without the paths of the source in
# programs, clones share what Go has compiled.
export GOFLAGS := $(filter-out -buildvcs=% -trimpath%,$(GOFLAGS)) -buildvcs=false -trimpath
# The commit in `overwinter version`; -dirty if files have been changed. An image is built without git: see the Dockerfile.
COMMIT  ?= $(shell git describe --always --abbrev=12 --exclude='*' --dirty 2>/dev/null)
TOOL     = go tool -modfile=tools/tools.mod
DEVTOOL  = go tool -modfile=../tools/tools.mod
# Without cgo, sqlc uses a precompiled parser; with cgo, building it takes an hour.
SQLC     = CGO_ENABLED=0 $(TOOL) sqlc
LINT     = golangci-lint
# Some tests wait for a timeout or a process, and some use all processors: one more package, and one more test of each,
# than processors keep them busy.
# Without debugging information, linking the test programs takes two thirds of the time.
CPUS    := $(shell getconf _NPROCESSORS_ONLN)
# The linters vet all packages before the tests run, and results of an earlier run are not used.
TESTARGS ?= -count 1 -timeout 75m -vet=off -ldflags=-w -p $(shell expr $(CPUS) + 1) -parallel $(shell expr $(CPUS) + 1)

.PHONY: web generate-web dev build release test conformance conformance-sandbox test-modal-sdk vulncheck check-alerts pin-images agents bench bench-million bench-sleepers chaos followers upgrade overload forks real-agents check setup programs fmt generate clean \
	picture check-format check-lint check-workflows check-generated check-language check-vulnerabilities

# Temporal's server is by far the largest part of the first build, and not needed if an address is given.
dev: WITHOUT_CGO = 1
dev: setup own $(if $(TEMPORAL_ADDRESS),,bin/overwinter-temporal)
	@echo '== starting; the terminal and the logs that it names show what follows'
	@exec bin/overwinter dev $(ARGS)

build: setup-go programs

programs: own bin/overwinter-temporal

.PHONY: own
own:
	@mkdir -p bin
	@test -e bin/overwinter || echo '== building overwinter: a minute or two the first time, with the download of modules'
	go build -ldflags '-X main.commit=$(COMMIT)' -o bin/overwinter ./cmd/overwinter
	CGO_ENABLED=0 go build -ldflags '-s -w' -o bin/overwinter-runner ./cmd/overwinter-runner

# Linking this program takes a while even if it is up to date.
bin/overwinter-temporal: devserver/go.mod devserver/go.sum $(shell find devserver -name '*.go' ! -name '*_test.go')
	@mkdir -p bin
	@test -e $@ || echo "== building Temporal's server: about 3 minutes the first time on 2 processors; set TEMPORAL_ADDRESS to use one that runs"
	cd devserver && go build -ldflags '-s -w' -o ../$@ .

# Archives of the same commit are the same, with the same release of Go: their files have the commit's time. The programs are static.
PLATFORMS ?= linux/amd64
VERSION = $(shell sed -n 's/^const release = "\(.*\)"/\1/p' cmd/overwinter/version.go)
release: setup-go
	@rm -rf dist
	@for platform in $(PLATFORMS); do \
		os=$${platform%/*} arch=$${platform#*/}; name=overwinter_$(VERSION)_$${os}_$$arch; \
		echo "== $$name: Temporal's server takes minutes"; \
		mkdir -p dist/$$name && cp LICENSE README.md CHANGELOG.md dist/$$name/ && export CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch && \
		go build -ldflags '-s -w -X main.commit=$(COMMIT)' -o dist/$$name/overwinter ./cmd/overwinter && \
		go build -ldflags '-s -w' -o dist/$$name/overwinter-runner ./cmd/overwinter-runner && \
		(cd devserver && go build -ldflags '-s -w' -o ../dist/$$name/overwinter-temporal .) && \
		tar -C dist --sort=name --mode='u=rwX,go=rX' --owner=0 --group=0 --numeric-owner --mtime="$$(git log -1 --format=%cI)" -cf - $$name | gzip -n > dist/$$name.tar.gz && \
		rm -rf dist/$$name || exit 1; \
	done
	@cd dist && sha256sum *.tar.gz > SHA256SUMS && cat SHA256SUMS

# The last line is the summary of all modules' tests. They fetch agents with npm, serve a
# repository with git, and count prompts with curl. The package test comes first: it takes longest and mostly waits, so
# that the others run at the same time. Those of devserver wait for Temporal to delete files and run alongside, with their output in
# a file until the others have ended.
test: NEEDS = npm git curl
test: INSTALL ?= 1
test: setup agents check check-vulnerabilities programs
	@$(TOOL) gotestsum --format pkgname --format-hide-empty-pkg --raw-command -- \
		sh -c 'output=$$(mktemp) || exit 1; trap "rm -f $$output" EXIT; (cd devserver && go test -json $(TESTARGS) ./...) >$$output & \
			status=0; go test -json $(TESTARGS) ./test ./... || status=1; wait $$! || status=1; cat $$output; exit $$status'

# The short forms of both are part of make test. In the second, each agent is installed by npm, through the network of its sandbox.
AGENTS ?= acp claude codex demo gemini opencode
conformance: NEEDS = npm
conformance: setup agents
	@go test $(AGENTS:%=./internal/agent/%) -p 1 -count 1 -timeout 1h -v -run '^TestConforms' -apart

conformance-sandbox: NEEDS = npm
conformance-sandbox: setup
	@go test $(AGENTS:%=./internal/agent/%) -p 1 -count 1 -timeout 3h -v -run '^TestConformsInSandbox$$' -sandboxed-all

# make test runs it without the tests that are known to fail: docs/modal-sdk-tests.md.
test-modal-sdk: setup-go
	@go test ./test/modalsdk -count 1 -v -expected-failures

# Fails if the database cannot be reached, because nothing was checked then.
VULNDB ?= https://vuln.go.dev
vulncheck: setup-go
	@go run ./tools/vulncheck -db $(VULNDB) . devserver

# The same in CI. If the database cannot be reached, it prints one line and continues.
check-vulnerabilities:
	@echo '== vulnerabilities'
	@go run ./tools/vulncheck -lenient -db $(VULNDB) . devserver

# The rules' names, labels and sections are checked by a test of cmd/overwinter; this runs the rules.
PROMTOOL := go run github.com/prometheus/prometheus/cmd/promtool@v0.316.0
check-alerts: setup-go
	@$(PROMTOOL) check rules --lint=all docs/operations/alerts.yaml
	@$(PROMTOOL) test rules docs/operations/alerts_test.yaml

pin-images: setup-go
	@go run ./tools/pinimages

picture: setup programs
	@go run ./tools/picture bin docs/session.svg

# The agents that tests run for real, pinned, in a cache of the user.
agents:
	@go run ./tools/agents

# Run nothing else at the same time; the document records the load of the machine.
bench: setup programs
	@go run ./bench $(ARGS)

bench-sleepers: setup programs
	@go run ./bench --only sleepers --sleepers 1000000 --idle 5m $(ARGS)

N ?= 1000000
bench-million: setup-go
	@go test ./internal/postgres -run '^TestMillion$$' -count 1 -timeout 1h -v -million $(N)

# A fault in every step of a purge and 50,000 sandboxes, then the matrix, then the matrix of forks, then rounds of the storm until the minutes
# have passed or one fails. The matrix and the storm print their seed.
CHAOS ?= ^(TestEveryFaultInEveryState|TestForksCheckpointsRevertsAndImportsAreCompleted|TestStorm)$$
chaos: NEEDS = curl
chaos: ARGS ?= -minutes 10
chaos: setup programs
	@go test ./activities -count 1 -timeout 0 -v -run '^(TestPurgeIsCompleted|TestReconcileHandlesManySandboxes$$)' -all-faults
	@go test ./test -count 1 -parallel 1 -timeout 0 -v -run '$(CHAOS)' -all-faults $(ARGS)

# The short form is part of make test.
followers: NEEDS = npm curl
followers: ARGS ?= -minutes 5
followers: setup programs
	@go test ./test -count 1 -timeout 0 -v -run '^TestEveryClientFollowsSameSession$$' $(ARGS)

# One order is part of make test. The previous release is built from its commit.
upgrade: NEEDS = git curl
upgrade: setup programs
	@go test ./test -count 1 -timeout 0 -v -run '^TestInstallationIsUpgradedUnderLoad$$' -all-upgrades $(if $(FROM),-upgrade-from $(FROM)) $(ARGS)

# The short form is part of make test.
overload: ARGS ?= -overload 1m -overload-sessions 100
overload: setup programs
	@go test ./test -count 1 -timeout 0 -v -run '^TestOverloadHeals$$' $(ARGS)

# The demo agent's part runs in make test.
forks: NEEDS = npm curl
forks: setup agents programs
	@go test ./test -count 1 -timeout 0 -v -run '^TestEveryAgentIsForkedAndReverted$$' -all-forks $(ARGS)

# In make test, each of these tests runs with one of the agents, each with another.
real-agents: NEEDS = npm git curl
real-agents: setup agents programs
	@go test ./test -count 1 -timeout 0 -v -all-agents $(ARGS) \
		-run '^(TestEveryAgentKeepsItsMemory|TestEveryAgentInTrouble|TestEveryAgentReachesPeople|TestSessionsMoveThereAndBack|TestSessionOutlivesFiveSandboxes)$$'

check: setup-go check-format check-workflows check-generated check-language check-lint

check-format:
	@echo '== format'
	@files="$$({ $(TOOL) $(LINT) fmt --diff ./...; cd devserver && $(DEVTOOL) $(LINT) fmt -c ../.golangci.yaml --diff ./...; } | sed -n 's/^+++ //p')"; \
		test -z "$$files" || { echo "not formatted (make fmt fixes it):"; echo "$$files"; exit 1; }

check-lint:
	@echo '== lint'
	@$(TOOL) $(LINT) run ./...
	@cd devserver && $(DEVTOOL) $(LINT) run -c ../.golangci.yaml ./...

check-workflows:
	@echo '== workflow determinism'
	@$(TOOL) workflowcheck ./workflows/...

check-language:
	@echo '== language'
	@go test -count 1 ./test/prose

check-generated:
	@echo '== generated code'
	@$(SQLC) diff -f internal/postgres/sqlc.yaml || { echo "generated code is out of date: make generate fixes it"; exit 1; }

fmt:
	@$(TOOL) $(LINT) fmt ./...
	@cd devserver && $(DEVTOOL) $(LINT) fmt -c ../.golangci.yaml ./...

generate:
	$(SQLC) generate -f internal/postgres/sqlc.yaml

# After a change of api/openapi.yaml.
generate-web: web/node_modules
	cd web && npm run --silent generate

web: web/node_modules
	cd web && npm test

web/node_modules: web/package.json web/package-lock.json
	cd web && npm ci --no-audit --no-fund --ignore-scripts
	@touch $@

clean:
	rm -rf bin dist coverage.out web/node_modules web/packages/*/dist web/packages/*/*.tsbuildinfo web/test/out

# Requirements of the build.
.PHONY: setup-go
setup-go:
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer from https://go.dev/dl/"; exit 1; }

# Whether this is a container, where packages may be installed without asking.
CONTAINER = { test -e /.dockerenv || test -e /run/.containerenv || test -e /run/systemd/container; }

# Additional requirements of the system: the programs of a Postgres server, and for tests a C compiler, without which Go builds programs that
# look up users only in /etc/passwd.
setup: setup-go
	@packages=""; \
	$(if $(WITHOUT_CGO),,command -v gcc >/dev/null || packages="gcc libc6-dev";) \
	postgres="$$(command -v postgres || ls -d /usr/lib/postgresql/*/bin/postgres 2>/dev/null || { dir="$$(pg_config --bindir 2>/dev/null)" && ls "$$dir/postgres" 2>/dev/null; })"; \
	test -n "$$postgres" || packages="$$packages postgresql"; \
	for program in $(NEEDS); do command -v $$program >/dev/null || packages="$$packages $$program"; done; \
	test -n "$$packages" || exit 0; \
	sudo=""; install="$(INSTALL)"; \
	if test "$$(id -u)" != 0; then sudo="sudo "; elif $(CONTAINER); then install=$${install:-1}; fi; \
	if test "$$install" = 1 && command -v apt-get >/dev/null && { test -z "$$sudo" || command -v sudo >/dev/null; }; then \
		echo "installing:" $$packages; \
		$$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$packages && exit 0; \
	fi; \
	echo "missing:" $$packages; \
	if command -v apt-get >/dev/null; then \
		echo "Install them and run make again, or run make with INSTALL=1, which does this:"; \
		echo "  $${sudo}apt-get update && $${sudo}apt-get install --no-install-recommends" $$packages; \
	else \
		echo "Install them with your system's package manager and run make again."; \
	fi; \
	exit 1
