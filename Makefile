# Redeliver. `make` alone shows what there is.
PYTHON ?= python3
STACK ?= redeliver
SECONDS ?= 600
SEED ?= 1
RIG = REDELIVER_STACK=$(CURDIR)/.local/stack.json cargo test -q -p redeliver-tests

.DEFAULT_GOAL := help
.PHONY: help up run down cli test check fuzz mutants crash-points interleavings sim chaos table-faults redrive deploy smoke clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## Start the local stack: emulator, real binaries, real template (first time: some minutes)
	@$(PYTHON) local/stack.py up

run: up ## The demo: the local stack, a failing receiver, retries and a redrive
	@.venv/sam/bin/python local/demo.py

down: ## Stop the local stack; what is in it is gone
	@$(PYTHON) local/stack.py down

cli: ## Build the command line: target/debug/redeliver, see docs/CLI.md
	cargo build -p operator

test: ## Every check, as CI runs it
	@PYTHON=$(PYTHON) local/test.sh all

check: ## The quick checks: format, lints, tests without AWS, the template
	@PYTHON=$(PYTHON) local/test.sh fast

fuzz: ## Look for bytes that break what must hold, SECONDS=600 for each target; stops at a finding
	@local/fuzz.sh $(SECONDS)

mutants: ## Put faults into the code and name those no test notices (hours; ARGS="-f shared/domain/src/claim.rs")
	@local/mutants.sh $(ARGS)

crash-points: ## Break every call of every story, one at a time and in pairs (a minute)
	@cargo run --quiet -p reliability --bin points -- crash

interleavings: ## Try every order of two on one delivery (some minutes)
	@cargo run --quiet -p reliability --bin points -- orders

sim: DELIVERIES ?= 1000000
sim: ## Simulate a million deliveries with everything that can go wrong (DELIVERIES=n SEED=n)
	@cargo run --quiet -p reliability --bin sim -- $(DELIVERIES) $(SEED)

chaos table-faults: DELIVERIES ?= 20000
chaos: up ## Kill, freeze and starve real processes under load (DELIVERIES=20000 SEED=1)
	@$(RIG) --test chaos -- --deliveries $(DELIVERIES) --seed $(SEED)

table-faults: up ## Real processes while DynamoDB and SQS fail, lie and are away (DELIVERIES=20000 SEED=1)
	@$(RIG) --test table_faults -- --deliveries $(DELIVERIES) --seed $(SEED)

redrive: DELIVERIES ?= 10000
redrive: up ## Redrive so many dead letters at 50 a second, and measure it (DELIVERIES=10000 SEED=1)
	@$(RIG) --test redrive -- --deliveries $(DELIVERIES) --seed $(SEED)

deploy: ## Build and deploy to your AWS account, with your credentials (asks first)
	@$(PYTHON) local/stack.py tools
	PATH="$(CURDIR)/.venv/sam/bin:$$PATH" sam build
	PATH="$(CURDIR)/.venv/sam/bin:$$PATH" sam deploy --stack-name $(STACK) --confirm-changeset

smoke: ## Ask a deployed stack whether it is alive; changes nothing (STACK=name)
	@$(PYTHON) local/stack.py tools
	@.venv/sam/bin/python local/smoke.py $(STACK)

clean: down ## Stop the local stack and remove all that was built or installed here
	rm -rf .local .venv .aws-sam
	cargo clean
