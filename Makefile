# Everything that a person does here, and that CI does too. `make` alone lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

scripts := $(wildcard hack/*.sh .ci/* examples/*/*/*.sh)

chart-readme := --chart-search-root charts --sort-values-order file --log-level warning

# The models and the simulation: fast, and deterministic, for tokio's own choices come from the seed.
optimised := RUSTFLAGS='--cfg tokio_unstable' cargo test --locked --profile prove --target-dir target/prove

.PHONY: help demo demo-picture plots test test-all nightly test-oldest oldest-rust prometheus compile prove simulate scale torture manifests agents connection instructions mutants verify fix docs bench peers audit image check-image reproducible from-nothing release e2e-node

help: ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The environment does not count, because the demo would install things in a cluster that the user did not name.
demo: ## See it elect a leader: make demo [KUBECONFIG=/path], in two clusters: make demo STORE=consul (or bucket, hub)
	@exec hack/demo.sh $(if $(filter command,$(origin STORE)),--store '$(STORE)') $(if $(filter command,$(origin KUBECONFIG)),'$(KUBECONFIG)')

# A run that fails changes nothing.
demo-picture: ## Run the demo, and make the picture of it that README shows: docs/pictures/demo.svg
	@mkdir -p target
	hack/demo.sh >target/demo.txt
	mv target/demo.txt docs/pictures/demo.txt
	cargo run --quiet --locked --bin lictor-docs -- demo

test: ## Run the tests that take minutes: all but those that are marked as slow; the first time, it builds a control plane
	@hack/test.sh quick

test-all: ## Run all tests: also those that wait for locks to expire, 1,000 simulated seeds, 3 minutes of torture (half an hour)
	@hack/test.sh all

# The commands of .github/workflows/nightly.yaml: a test compares them.
nightly: ## Run what takes hours: the long model, 20,000 seeds, 30 minutes of torture and of random manifests, an hour of connections, the instructions of a decision, the oldest Kubernetes and Rust, a release's files, empty caches
	$(MAKE) prove
	$(MAKE) simulate SEEDS=20000
	$(MAKE) torture MINUTES=30
	$(MAKE) manifests MINUTES=30
	$(MAKE) connection MINUTES=60
	$(MAKE) instructions
	$(MAKE) test-oldest
	$(MAKE) oldest-rust
	$(MAKE) prometheus
	$(MAKE) release
	$(MAKE) from-nothing

# API server, controller manager and scheduler are of that version; kubectl and all else are those of `make test-all`.
test-oldest: ## Run the tests on a control plane of the oldest Kubernetes that is supported, 1.33
	@hack/tools.sh etcd kubectl helm kwok kwokctl consul libfaketime gitops helm-controller health browser page-modules >/dev/null
	@export KUBE_APISERVER KUBE_CONTROLLER_MANAGER KUBE_SCHEDULER; \
	KUBE_APISERVER=$$(hack/tools.sh kube-apiserver-1.33); \
	KUBE_CONTROLLER_MANAGER=$$(hack/tools.sh kube-controller-manager-1.33); \
	KUBE_SCHEDULER=$$(hack/tools.sh kube-scheduler-1.33); \
	"$$KUBE_APISERVER" --version; \
	cargo test --locked --test cluster --test chart -- --include-ignored

# Into a directory of its own, so that the usual compiler's work is not done again.
oldest-rust: ## Compile the program and all tests with the oldest Rust that the documents promise, which rustup fetches
	version=$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml); \
	rustup toolchain install --profile minimal --no-self-update "$$version" && \
	cargo "+$$version" check --workspace --all-targets --locked --target-dir target/oldest-rust

prometheus: ## Judge the chart's alerts by promtool, and by a Prometheus that scrapes a real operator; builds Prometheus the first time (10 min)
	@hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl helm kwok kwokctl promtool prometheus >/dev/null
	cargo test --locked --test prometheus

compile: ## Compile what `make test-all` and `make e2e-node` run, and run none of it
	cargo test --locked --no-run
	cargo test --locked --no-run --test torture --test node --test prometheus
	$(optimised) --no-run --test model --test simulation

e2e-node: ## Install the image by Helm on real nodes, and break things there (takes root; 10 min): make e2e-node [ONLY=switches] [RUNS=20]
	@hack/node-plan.sh '$(ONLY)' '$(RUNS)'
	@if hack/node.sh try; then \
	  hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet kube-proxy node-root kwok kwokctl helm consul >/dev/null; \
	  hack/image.sh; \
	  LICTOR_NODE_ONLY='$(ONLY)' LICTOR_NODE_RUNS='$(RUNS)' cargo test --locked --test node -- --nocapture; \
	else hack/skip.sh 'the tests on real nodes'; fi

simulate: ## Run the operator, and agents, in a simulated world, faults and all: make simulate [SEEDS=10000] [SEED=17]
	LICTOR_SEEDS='$(or $(SEEDS),10000)' $(if $(SEED),LICTOR_SEED='$(SEED)') $(optimised) --test simulation -- --nocapture whatever

scale: ## Count what many simulated clusters ask of one Consul, and write the tables of docs/scale.md: make scale [CLUSTERS=128]
	$(if $(CLUSTERS),LICTOR_CLUSTERS='$(CLUSTERS)') $(optimised) --test simulation -- --ignored --nocapture scale_of_one_consul

torture: ## Break real servers and links at random, and judge every revision: make torture [MINUTES=10] [SEED=17]
	@hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl consul >/dev/null
	rm -rf target/torture
	LICTOR_TORTURE_MINUTES='$(or $(MINUTES),10)' LICTOR_TORTURE_SEED='$(SEED)' LICTOR_TORTURE_DIR='$(CURDIR)/target/torture' \
	  cargo test --locked --test torture -- --nocapture no_promise

agents: ## Break processes, links and servers under real agents, and see that no two commands run at once: make agents [FAULTS=1000] [SEED=17]
	@hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl consul >/dev/null
	LICTOR_AGENT_FAULTS='$(or $(FAULTS),1000)' $(if $(SEED),LICTOR_SEED='$(SEED)') \
	  cargo test --locked --test agent -- --ignored --nocapture no_fault

manifests: ## Apply manifests at random on real controllers, and see that nothing that is not lictor's is harmed: make manifests [MINUTES=30] [SEED=17]
	@hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl >/dev/null
	LICTOR_MANIFEST_SECONDS=$$((60 * $(or $(MINUTES),30))) $(if $(SEED),LICTOR_SEED='$(SEED)') cargo test --locked --test cluster -- --ignored --nocapture no_manifest_harms

connection: ## Hold a connection to a server that closes it each second, and see no leader lost: make connection [MINUTES=60]
	LICTOR_CONNECTION_SECONDS=$$((60 * $(or $(MINUTES),60))) cargo test --locked --package lictor --lib -- --ignored --nocapture connection

instructions: ## Count the instructions of one decision among 10 and among many elections; fails if they grow by a tenth (Valgrind, minutes): make instructions [ELECTIONS=10000]
	@if command -v valgrind >/dev/null; then \
	  LICTOR_COUNTED_AMONG='$(or $(ELECTIONS),10000)' cargo test --locked --package lictor --lib -- --ignored --nocapture one_decision; \
	else hack/skip.sh 'Valgrind is not installed (Debian: valgrind)'; fi

prove: ## Check the model of the protocol within its long bounds; takes an hour or so, and some GiB
	$(optimised) --package lictor-core --test model -- --include-ignored --nocapture --test-threads 1

verify: ## Check all that needs no cluster: format, lints, layers, dependencies, generated files; writes nothing
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@# With --all-targets, Cargo leaves out what `cargo test` does not run by itself.
	cargo clippy --workspace --test model --test simulation --test torture --test node --test prometheus --locked -- -D warnings
	cargo test --quiet --locked --package lictor --test architecture --test pages
	@echo 'crds/lictor.dev.yaml is what `lictor crd` prints'
	@cargo run --quiet --locked -- crd | diff -u crds/lictor.dev.yaml - || { echo 'crds/lictor.dev.yaml is out of date: make fix'; exit 1; }
	@cmp crds/lictor.dev.yaml charts/lictor/crds/lictor.dev.yaml || { echo 'the chart has other CRDs: make fix'; exit 1; }
	@echo 'the pages and pictures that are made are up to date'
	@cargo run --quiet --locked --bin lictor-docs -- --check
	@docs=$$(hack/tools.sh helm-docs) && echo 'charts/lictor/README.md is what helm-docs makes of the values' && \
	  diff -u charts/lictor/README.md <("$$docs" $(chart-readme) --dry-run) || { echo 'charts/lictor/README.md is out of date: make fix'; exit 1; }
	@if command -v npm >/dev/null; then echo 'hack/front-end.sh check'; hack/front-end.sh check; else hack/skip.sh 'npm is not installed (Debian: npm)'; fi
	@deny=$$(hack/cargo-tool.sh cargo-deny) && echo 'cargo deny check bans licenses sources' && "$$deny" --locked check --hide-inclusion-graph bans licenses sources
	@lint=$$(hack/tools.sh actionlint) && echo 'actionlint .github/workflows' && "$$lint" -shellcheck= .github/workflows/*.yaml
	@echo 'Dockerfile and workflows name one version of Rust'
	@[ "$$(grep -rhoE '(rust:|RUST: )[0-9.]+' Dockerfile .github | sed 's/.*[: ]//' | sort -u | wc -l)" = 1 ] || { grep -rnE '(rust:|RUST: )[0-9.]+' Dockerfile .github; exit 1; }
	@# SC2317 takes functions that are called by a trap or by name for dead code.
	@if command -v shellcheck >/dev/null; then echo 'shellcheck $(scripts)'; shellcheck --exclude=SC2317 $(scripts); else hack/skip.sh 'shellcheck is not installed (Debian: shellcheck)'; fi

fix: ## Format, and make the generated files anew
	cargo fmt --all
	cargo run --quiet -- crd >crds/.lictor.dev.yaml
	mv crds/.lictor.dev.yaml crds/lictor.dev.yaml
	cp crds/lictor.dev.yaml charts/lictor/crds/
	@docs=$$(hack/tools.sh helm-docs) && echo 'helm-docs $(chart-readme)' && "$$docs" $(chart-readme)
	cargo run --quiet --bin lictor-docs

# A release also sets DOCUMENTS, the address of its docs; without it, links lead to the newest files.
docs: ## Build the site of the documentation, and check its links: target/site/index.html
	@hack/require.sh rust c
	@mdbook=$$(hack/cargo-tool.sh mdbook) && SOURCE=$$(hack/addresses.sh source) REGISTRY=$$(hack/addresses.sh registry) cargo run --quiet --locked --bin lictor-site -- "$$mdbook"

bench: ## Measure the operator against a real control plane; fails where a target is missed (an hour and three quarters), the ratios alone take 10 min: make bench [ARGS=--quick] [ARGS='failover --runs 20'] [ARGS=agents]
	@hack/require.sh rust c go
	@hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl consul consul-1.8 libfaketime elector >/dev/null
	cargo bench --bench operator --locked $(if $(ARGS),-- $(ARGS))

peers: ## Measure lictor beside client-go, kube-scheduler and consul lock: who leads next, and when two act (half an hour): make peers [ARGS='--peer-runs 3'], start and rest alone: ARGS='--peer-runs 0'
	@hack/require.sh rust c go
	@hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl consul elector >/dev/null
	LICTOR_BENCH_JSON='$(CURDIR)/target/bench/peers.json' cargo bench --bench operator --locked -- peers $(ARGS)

# The files of `make bench`, `make peers` and `make e2e-node` are in target/bench/. Those whose figures a page has are kept in benches/results/.
plots: ## Make the plots and tables of the pages anew, from the figures in benches/results/
	cargo run --quiet --locked --bin lictor-docs -- plots

audit: ## Ask the advisory database about the dependencies; needs the network
	@hack/audit.sh

image: ## Make the image as users get it, as an archive, without a registry: make image [TAR=target/image/lictor.tar]
	@hack/image.sh $(TAR)

check-image: ## Look into the image, and run it: in an empty directory, as nobody, against a real control plane
	@hack/tools.sh etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kwok kwokctl >/dev/null
	hack/check-image.sh

reproducible: ## Build program and image twice, in different directories, and compare; takes 15 min
	hack/reproducible.sh

from-nothing: ## Run the README's commands with empty caches, and time each (over an hour): make from-nothing [COMMANDS='demo image']
	@hack/from-nothing.sh $(COMMANDS)

release: ## Make and check the files of a release, and publish none: target/release-files/
	rm -rf target/release-files
	hack/image.sh
	hack/release.sh program target/image/lictor.tar $(if $(filter aarch64 arm64,$(shell uname -m)),arm64,amd64)
	hack/release.sh plugins
	hack/release.sh rest
	hack/check-release.sh {darwin,windows}-{amd64,arm64}

mutants: ## Change the core in a thousand ways, and see that its tests notice (an hour or two): make mutants [ARGS='--re claim.rs']
	@tool=$$(hack/cargo-tool.sh cargo-mutants) && export PROPTEST_CASES=32 LICTOR_SEEDS=300 && rm -rf "$${tool%/bin/*}/mutants.out" && \
	  { "$$tool" mutants --package lictor-core --output "$${tool%/bin/*}" -C=--lib $(ARGS) || [ $$? = 2 ]; } && \
	  "$$tool" mutants --output "$${tool%/bin/*}" --iterate --minimum-test-timeout 60 -C=--test=scenarios -C=--test=decisions $(ARGS)
