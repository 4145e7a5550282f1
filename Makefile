# Tidegate: build it, run it, test it. `make help` lists what there is; the work is done by `cargo xtask`.

DIR    ?= examples/site
LISTEN ?= 127.0.0.1:8080
# The console is for this machine: where others are listened for there is none.
CONSOLE ?= $(if $(filter 127.%,$(LISTEN)),--console)

# rustup puts cargo where a fresh shell does not look yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

DESTDIR ?= /
PREFIX ?= /usr/local
# Whom people write to about the package, as `Name <address>`, and its kind of processor (amd64, arm64).
MAINTAINER ?=
ARCHITECTURE ?=

.PHONY: help run test test-all bench fmt clean ready packages package-test install
.DEFAULT_GOAL := help

help:
	@echo 'make run [DIR=folder] [LISTEN=address]   build, and serve a folder ($(DIR) on $(LISTEN))'
	@echo 'make test                                install the test tools, run every check that takes minutes'
	@echo 'make test-all                            the same, then count instructions, and fuzz'
	@echo 'make bench                               measure every figure that has a goal, beside the best peers'
	@echo 'make packages [MAINTAINER="Name <address>"] [ARCHITECTURE=arm64]'
	@echo '                                         make the package of Debian and the container image (target/packages)'
	@echo 'make package-test                        install, upgrade and remove them in a copy of this system, as root'
	@echo 'make install [DESTDIR=/] [PREFIX=/usr/local]   build, and put everything where it belongs'
	@echo 'make fmt                                 format the sources'
	@echo 'make clean                               remove what was built'
	@echo 'cargo xtask --help                       the single steps'

run: ready
	@cargo xtask site
	@cargo xtask console
	@cargo build --release --locked --package tidegate
	@exec target/release/tidegate serve '$(DIR)' --listen '$(LISTEN)' $(CONSOLE)

test: ready
	@cargo xtask test

test-all: ready
	@cargo xtask test --all

bench: ready
	@cargo xtask tools --for bench
	@cargo xtask bench rows

packages: ready
	@cargo xtask packages $(if $(MAINTAINER),--maintainer '$(MAINTAINER)') $(if $(ARCHITECTURE),--architecture $(ARCHITECTURE))

package-test: ready
	@cargo xtask package-test

install: ready
	@cargo xtask install --destdir '$(DESTDIR)' --prefix '$(PREFIX)'

fmt: ready
	@cargo fmt --all

clean: ready
	@cargo clean

# Debian 12 packages a cargo that is too old, so it comes from rustup. The linker is apt's business.
ready:
	@command -v cargo >/dev/null || { \
	    echo 'cargo is missing; this installs it:'; \
	    echo "    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile default"; \
	    exit 1; }
	@command -v cc >/dev/null || { \
	    echo 'no C compiler to link with; installing gcc'; \
	    sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	    $$sudo apt-get update -qq && $$sudo apt-get install -y -qq --no-install-recommends gcc libc6-dev >/dev/null; }
