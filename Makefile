# SPDX-License-Identifier: Apache-2.0
# One Makefile for the whole tree.  `make help` lists the targets.
# Knobs: V=1  VARIANT=release|debug|asan|tsan|cov|fuzz|fuzzcov|analyze  O=DIR  T=test  STRICT=1  FUZZ_S=s
#        CUDA=auto|yes|no (device code: where a CUDA compiler is found; from PyPI when there is none; never)
.DEFAULT_GOAL := all
MAKEFLAGS += --no-builtin-rules
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:

VERSION := $(shell sed -n 's/^.define WB_VERSION "\(.*\)"/\1/p' agent/include/weightbridge/version.h)
ABI     := 0
VARIANT ?= release
BUILD   ?= build
O       := $(BUILD)/$(VARIANT)
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
MANDIR  ?= $(PREFIX)/share/man
DOCDIR  ?= $(PREFIX)/share/doc/weightbridge
PKG_CONFIG ?= pkg-config
ifeq ($(origin CC),default)
CC := gcc
endif
ifneq ($(filter fuzz fuzzcov,$(VARIANT)),)
CC := clang
endif

ifneq ($(V),1)
say = @printf '  %-7s %s\n' $(1) '$(2)' &&
endif

# ---- configuration: goals that need no compiler skip the probes ------------
NOCONF := clean help format format-check dist deps measure mutants
ifneq ($(filter-out $(NOCONF),$(or $(MAKECMDGOALS),all)),)
DEPS_DEBIAN := gcc make pkg-config libuv1-dev libcurl4-openssl-dev libjansson-dev libyaml-dev \
               libssl-dev libmicrohttpd-dev libxxhash-dev libibverbs-dev check
DEPS_PKG := libuv libcurl jansson yaml-0.1 openssl libmicrohttpd libxxhash libibverbs
missing := $(strip $(foreach p,$(DEPS_PKG),$(if $(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null && echo y),,$(p))) \
           $(if $(shell $(PKG_CONFIG) --exists check 2>/dev/null && echo y),,check))
ifneq ($(missing),)
$(info missing: $(missing))
$(info $(shell tests/common/deps.sh $(DEPS_DEBIAN) >&2; echo done))
still := $(strip $(foreach p,$(DEPS_PKG) check,$(if $(shell $(PKG_CONFIG) --exists $(p) 2>/dev/null && echo y),,$(p))))
$(if $(still),$(error missing: $(still).  On Debian: apt-get install $(DEPS_DEBIAN)))
endif
DEP_CFLAGS := $(shell $(PKG_CONFIG) --cflags $(DEPS_PKG))
UV_LIBS    := $(shell $(PKG_CONFIG) --libs libuv)
JSON_LIBS  := $(shell $(PKG_CONFIG) --libs jansson)
SSL_LIBS   := $(shell $(PKG_CONFIG) --libs openssl)
YAML_LIBS  := $(shell $(PKG_CONFIG) --libs yaml-0.1)
HTTPD_LIBS := $(shell $(PKG_CONFIG) --libs libmicrohttpd)
CURL_LIBS  := $(shell $(PKG_CONFIG) --libs libcurl)
CHK_CFLAGS := $(shell $(PKG_CONFIG) --cflags check)
CHK_LIBS   := $(shell $(PKG_CONFIG) --libs check)
endif

# ---- device code: kernels/*.cu, compiled where a CUDA compiler is found; the rest is the same without
CUDA ?= auto
ifneq ($(filter-out $(NOCONF),$(or $(MAKECMDGOALS),all)),)
ifeq ($(filter auto yes no,$(CUDA)),)
$(error CUDA=$(CUDA): auto, yes or no)
endif
ifneq ($(CUDA),no)
CUDA_ROOT := $(shell kernels/toolchain.sh $(if $(filter yes,$(CUDA)),install,find))
endif
ifeq ($(CUDA)$(CUDA_ROOT),yes)
$(error CUDA=yes: no CUDA compiler, and kernels/toolchain.sh could not install one (it needs g++, pip and PyPI))
endif
endif
NVCC_FLAGS := -std=c++17 -O3 -Werror all-warnings -Xptxas -v -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
GPU_IMAGES := $(if $(CUDA_ROOT),$(patsubst kernels/%.cu,$(BUILD)/gpu/%.fatbin,$(wildcard kernels/*.cu)))

WARN := -Wall -Wextra -Wshadow -Wvla -Wformat=2 -Wundef -Wpointer-arith -Wstrict-prototypes \
        -Wmissing-prototypes -Wold-style-definition -Wwrite-strings -Wcast-qual \
        -Wimplicit-fallthrough -Wconversion -Wno-sign-conversion
WERROR ?= -Werror

FLAGS_release := -O2 -g -fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
FLAGS_debug   := -O0 -g3 -DWB_DEBUG
FLAGS_asan    := -O1 -g1 -DWB_DEBUG -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
FLAGS_tsan    := -O1 -g1 -DWB_DEBUG -fsanitize=thread
FLAGS_cov     := -O0 -g3 --coverage
FLAGS_analyze := -O1 -fanalyzer -DWB_ANALYZE
FLAGS_fuzz    := -O1 -g3 -DWB_DEBUG -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
FLAGS_fuzzcov := -O1 -g -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping
ifeq ($(filter undefined,$(origin FLAGS_$(VARIANT))),undefined)
$(error unknown VARIANT=$(VARIANT): release, debug, asan, tsan, cov, fuzz, fuzzcov or analyze)
endif

override CPPFLAGS += -I. -Iagent -Iagent/include -D_GNU_SOURCE
override CFLAGS   += -std=c11 -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections \
                     $(WARN) $(WERROR) $(FLAGS_$(VARIANT)) $(DEP_CFLAGS)
override LDFLAGS  += $(FLAGS_$(VARIANT)) -Wl,--as-needed -Wl,--gc-sections

# ---- modules: one folder = one archive, in link order (users before used) ---
MODULES := agent/daemon agent/ctl agent/client operator-shim operator-shim/serve \
           operator-shim/reconcile operator-shim/kube operator-shim/spec agent/transfer agent/predict agent/flow agent/xport \
           agent/lane agent/extract agent/net agent/mem agent/proto agent/page planner/deploy planner kernels agent/base
SUB_agent/xport := agent/xport/tcp agent/xport/shm agent/xport/verbs
# Files with main() are programs, not part of their module's archive.
MAINS   := agent/daemon/main.c agent/ctl/main.c operator-shim/main.c
src      = $(filter-out $(MAINS),$(sort $(foreach d,$(1) $(SUB_$(1)),$(wildcard $(d)/*.c))))
obj      = $(patsubst %,$(O)/obj/%.o,$(1))
archive  = $(O)/lib/libwb-$(subst /,-,$(1)).a
PRESENT := $(foreach m,$(MODULES),$(if $(call src,$(m)),$(m)))
ARCHIVES:= $(foreach m,$(PRESENT),$(call archive,$(m)))

AGENT   := $(if $(wildcard agent/daemon/main.c),$(O)/bin/weightbridge-agent)
OPERATOR:= $(if $(wildcard operator-shim/main.c),$(O)/bin/weightbridge-operator)
WBCTL   := $(if $(wildcard agent/ctl/main.c),$(O)/bin/wbctl)
# The client links libc alone: none of these may pull in another library.
CLIENT_MODULES := $(filter agent/client agent/lane agent/extract agent/mem agent/proto planner kernels agent/base,$(PRESENT))
PUBLIC_A := $(foreach m,agent/client agent/extract,$(call archive,$(m))) # these hold the WB_API functions
HAVE_CLIENT := $(wildcard agent/client/libweightbridge.map)
CLIENT_SO := $(if $(HAVE_CLIENT),$(O)/lib/libweightbridge.so.$(ABI))
CLIENT_A  := $(if $(HAVE_CLIENT),$(O)/lib/libweightbridge.a)

UNITS   := $(patsubst tests/unit/%.c,$(O)/tests/%,$(wildcard tests/unit/test_*.c))
ANSWERS := $(O)/tools/answers
FUZZERS := $(patsubst tests/fuzz/%.c,$(O)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
BENCHES := $(patsubst tests/bench/%.c,$(O)/bench/%,$(wildcard tests/bench/*.c))
TOOLS   := $(patsubst tests/tools/%.c,$(O)/tools/%,$(wildcard tests/tools/*.c))
COMMON  := $(call obj,$(wildcard tests/common/*.c))

.PHONY: all lib ci ci-all check check-units check-processes check-cluster check-sim check-kill check-engines check-roce check-gpu check-cuda check-packages mutants asan tsan asan-units asan-processes asan-all tsan-units tsan-processes tsan-all coverage fuzz fuzz-run fuzz-cover fuzz-report lint measure format format-check analyze \
        demo bench bench-gpu bench-peers bench-planner studies install release dist clean help deps FORCE
all: $(AGENT) $(OPERATOR) $(WBCTL) lib  ## daemons, wbctl and the client library
lib: $(ARCHIVES) $(CLIENT_SO) $(CLIENT_A)  ## only the libraries

$(O)/obj/%.c.o: %.c $(O)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(CPPFLAGS) $(CFLAGS) $(XCFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(O)/obj/agent/page/page.c.o: agent/page/page.html
ifeq ($(VARIANT),release)
$(O)/obj/kernels/%.c.o: XCFLAGS := -O3
endif
$(O)/obj/kernels/gpu.c.o: $(GPU_IMAGES) $(BUILD)/gpu/flags
$(O)/obj/kernels/gpu.c.o: XCFLAGS += $(if $(GPU_IMAGES),-DWBK_GPU_IMAGES='"$(BUILD)/gpu"')
$(BUILD)/gpu/%.fatbin: kernels/%.cu $(BUILD)/gpu/flags
	$(call say,NVCC,$<) $(CUDA_ROOT)/bin/nvcc --fatbin $(NVCC_FLAGS) -I. -MMD -MP -MF $(@:.fatbin=.d) -MT $@ -o $@.$$$$ $< >$(@:.fatbin=.log) 2>&1 || { cat $(@:.fatbin=.log); exit 1; }; mv $@.$$$$ $@
$(O)/obj/tests/%.c.o: XCFLAGS := $(CHK_CFLAGS) -Wno-conversion -Wno-missing-prototypes
$(BUILD)/gpu/bench/%.fatbin: tests/bench/gpu/%.cu $(BUILD)/gpu/flags
	@mkdir -p $(@D)
	$(call say,NVCC,$<) $(CUDA_ROOT)/bin/nvcc --fatbin $(NVCC_FLAGS) -o $@.$$$$ $< >$(@:.fatbin=.log) 2>&1 || { cat $(@:.fatbin=.log); exit 1; }; mv $@.$$$$ $@
$(O)/obj/tests/bench/gpu/scans.c.o: XCFLAGS += -DWBT_REDUCE='"$(BUILD)/gpu/bench/reduce.fatbin"'
# The device code as the CPU plays it (tests/cuda).
$(O)/obj/tests/cuda/%.cu.o: kernels/%.cu tests/cuda/shim.h $(O)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<) $(CC) $(CPPFLAGS) $(CFLAGS) -fno-strict-aliasing -Wno-missing-prototypes -Wno-conversion -MMD -MP -MF $(@:.o=.d) -x c -include tests/cuda/shim.h -c -o $@ $<

define module
$(call archive,$(1)): $(call obj,$(call src,$(1)))
endef
$(foreach m,$(PRESENT),$(eval $(call module,$(m))))
$(O)/lib/libwb-%.a:
	@mkdir -p $(@D) && rm -f $@
	$(call say,AR,$@) ar rcs $@ $^

link = @mkdir -p $(@D) && printf '  %-7s %s\n' LD $@ && $(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) \
       -Wl,--start-group $(filter %.a,$^) -Wl,--end-group
ALL_LIBS = $(UV_LIBS) $(JSON_LIBS) $(SSL_LIBS) $(YAML_LIBS) $(HTTPD_LIBS) $(CURL_LIBS) -lpthread -ldl -lm
ifneq ($(AGENT),)
$(AGENT): $(call obj,agent/daemon/main.c) $(ARCHIVES) ; $(link) $(ALL_LIBS)
endif
ifneq ($(OPERATOR),)
$(OPERATOR): $(call obj,operator-shim/main.c) $(ARCHIVES) ; $(link) $(ALL_LIBS)
endif
ifneq ($(WBCTL),)
$(WBCTL): $(call obj,agent/ctl/main.c) $(ARCHIVES) ; $(link) $(ALL_LIBS)
endif
ifneq ($(CLIENT_SO),)
$(CLIENT_SO): $(foreach m,$(CLIENT_MODULES),$(call archive,$(m))) agent/client/libweightbridge.map
	@mkdir -p $(@D)
	$(call say,LD,$@) $(CC) -shared -Wl,-soname,$(@F) $(if $(filter asan tsan,$(VARIANT)),,-Wl,-z,defs) \
	  -Wl,--version-script=agent/client/libweightbridge.map $(LDFLAGS) -o $@ \
	  -Wl,--whole-archive $(filter $(PUBLIC_A),$^) -Wl,--no-whole-archive \
	  -Wl,--start-group $(filter-out $(PUBLIC_A),$(filter %.a,$^)) -Wl,--end-group -lpthread
	@ln -sf $(@F) $(O)/lib/libweightbridge.so
$(CLIENT_A): $(call obj,$(foreach m,$(CLIENT_MODULES),$(call src,$(m))))
	@rm -f $@
	$(call say,AR,$@) ar rcs $@ $^
endif
# A libibverbs without devices (tests/fakeverbs), and what must hold on it as on real ones.
FAKEVERBS := $(O)/fake/libibverbs.so.1
$(FAKEVERBS): $(call obj,$(wildcard tests/fakeverbs/*.c)) tests/fakeverbs/fakeverbs.map
	@mkdir -p $(@D)
	$(call say,LD,$@) $(CC) -shared -Wl,-soname,$(@F) -Wl,--version-script=tests/fakeverbs/fakeverbs.map $(LDFLAGS) -o $@ $(filter %.o,$^) -lpthread
# The same as it was before it knew dma-bufs.
FAKEVERBS_OLD := $(O)/fake/old/libibverbs.so.1
$(FAKEVERBS_OLD): $(call obj,$(wildcard tests/fakeverbs/*.c)) tests/fakeverbs/fakeverbs.map
	@mkdir -p $(@D)
	@sed '/^IBVERBS_1.12/,/^}/d' tests/fakeverbs/fakeverbs.map >$(@D)/map
	$(call say,LD,$@) $(CC) -shared -Wl,-soname,$(@F) -Wl,--version-script=$(@D)/map $(LDFLAGS) -o $@ $(filter %.o,$^) -lpthread
RC := $(O)/tools/rc_semantics
$(RC): $(call obj,$(addprefix tests/roce/,rc_semantics.c rc_pair.c rc_windows.c))
	@mkdir -p $(@D)
	$(call say,LD,$@) $(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(shell $(PKG_CONFIG) --libs libibverbs) -lpthread

PLAYED := $(patsubst kernels/%.cu,$(O)/obj/tests/cuda/%.cu.o,$(wildcard kernels/*.cu)) $(call obj,tests/cuda/shim.c)
$(O)/tests/test_kernels_gpu: $(PLAYED) $(call obj,tests/cuda/gpu.c tests/cuda/scans.c)
# A CUDA driver without devices (tests/cuda/driver).
FAKECUDA := $(O)/fakecuda/libcuda.so.1
$(FAKECUDA): $(call obj,$(wildcard tests/cuda/driver/*.c)) $(PLAYED) tests/cuda/driver/fakecuda.map
	@mkdir -p $(@D)
	$(call say,LD,$@) $(CC) -shared -Wl,-soname,$(@F) -Wl,--version-script=tests/cuda/driver/fakecuda.map $(LDFLAGS) -o $@ $(filter %.o,$^) -lpthread
MATRIX := $(O)/tools/cuda_matrix
$(MATRIX): $(call obj,$(wildcard tests/cuda/matrix/*.c) tests/common/fx_cuda.c tests/common/fx_beside.c) $(ARCHIVES) ; $(link) $(ALL_LIBS)
$(UNITS): | $(FAKEVERBS) $(FAKEVERBS_OLD) $(FAKECUDA)
$(O)/bench/verbs: | $(FAKEVERBS)
# Its calls of these come to the test first, which counts them.
$(O)/tests/test_xport_path: private override LDFLAGS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=reallocarray,--wrap=pthread_mutex_lock
$(O)/tests/test_operator_certs: private override LDFLAGS += -Wl,--wrap=wb_kube_send
# What a driver says in the situations that we rely on (tests/cuda/answers.txt).
$(ANSWERS): $(call obj,$(wildcard tests/cuda/answers*.c)) $(ARCHIVES) ; $(link) $(ALL_LIBS)
$(UNITS): $(O)/tests/%: $(O)/obj/tests/unit/%.c.o $(COMMON) $(ARCHIVES) ; $(link) $(CHK_LIBS) $(ALL_LIBS)
$(O)/bench/gpu: $(call obj,$(wildcard tests/bench/gpu/*.c))
$(BENCHES): $(O)/bench/%: $(O)/obj/tests/bench/%.c.o $(COMMON) $(ARCHIVES) ; $(link) $(CHK_LIBS) $(ALL_LIBS)
TOY := $(call obj,$(wildcard tests/tools/toy/*.c))
$(O)/tools/toy_worker: $(TOY)
$(O)/tools/extract_gpu: LDFLAGS += -Wl,--as-needed  # runs where only a driver is
$(TOOLS): $(O)/tools/%: $(O)/obj/tests/tools/%.c.o $(ARCHIVES) ; $(link) $(ALL_LIBS)
$(FUZZERS): $(O)/fuzz/%: $(O)/obj/tests/fuzz/%.c.o $(ARCHIVES) ; $(link) -fsanitize=fuzzer $(ALL_LIBS)

# Programs that speak other versions of the protocol, for the tests of what happens when those meet.
VERSIONED := $(shell grep -l WBP_VERSION_M agent/*/*.c operator-shim/*/*.c)
define speaking
$(O)/obj/v$(1)-$(2)/%.c.o: %.c $(O)/flags
	@mkdir -p $$(@D)
	$$(call say,CC,$$@) $$(CC) $$(CPPFLAGS) $$(CFLAGS) -DWBP_VERSION_MIN=$(1) -DWBP_VERSION_MAX=$(2) -MMD -MP -MF $$(@:.o=.d) -c -o $$@ $$<
$(O)/tools/agent-v$(1)-$(2): $(call obj,agent/daemon/main.c) $(patsubst %,$(O)/obj/v$(1)-$(2)/%.o,$(VERSIONED)) $(ARCHIVES) ; $$(link) $$(ALL_LIBS)
$(O)/tools/operator-v$(1)-$(2): $(call obj,operator-shim/main.c) $(patsubst %,$(O)/obj/v$(1)-$(2)/%.o,$(VERSIONED)) $(ARCHIVES) ; $$(link) $$(ALL_LIBS)
$(O)/tools/toy_worker-v$(1)-$(2): $(call obj,tests/tools/toy_worker.c) $(TOY) $(patsubst %,$(O)/obj/v$(1)-$(2)/%.o,$(VERSIONED)) $(ARCHIVES) ; $$(link) $$(ALL_LIBS)
endef
$(eval $(call speaking,1,1))
$(eval $(call speaking,2,3))
$(eval $(call speaking,3,4))
# And one whose library shares other memory with its agent.
$(O)/obj/abi0/build.c.o: agent/proto/build.c $(O)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@) $(CC) $(CPPFLAGS) $(CFLAGS) -DWBP_SHARED_ABI=0 -MMD -MP -MF $(@:.o=.d) -c -o $@ $<
$(O)/tools/toy_worker-abi0: $(call obj,tests/tools/toy_worker.c) $(TOY) $(O)/obj/abi0/build.c.o $(ARCHIVES) ; $(link) $(ALL_LIBS)
OTHERS  := $(addprefix $(O)/tools/,agent-v1-1 toy_worker-v1-1 operator-v1-1 agent-v2-3 agent-v3-4 toy_worker-v3-4 operator-v2-3 toy_worker-abi0)

# Rewritten only when the content changes, so a flag change rebuilds and nothing else does.
$(O)/flags: FORCE
	@mkdir -p $(@D); echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)' | cmp -s - $@ || echo '$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS)' > $@
$(BUILD)/gpu/flags: FORCE
	@mkdir -p $(@D); echo '$(CUDA_ROOT) $(NVCC_FLAGS)' | cmp -s - $@ || echo '$(CUDA_ROOT) $(NVCC_FLAGS)' > $@
FORCE:

# All of it in one thread: TSan has nothing to see there (tsan-all runs them all the same).
ONE_THREAD := test_transfer% test_planner% test_reconcile% test_flow% test_serve% test_secrets test_sim test_spec test_proto test_golden test_kernels test_kernels_gpu
# It reads all of its own memory, under ASan the shadow of that as well: 13 s of a processor for the same claims.
READS_ALL := test_secrets
# Tests that start daemons, for the sanitizers: each kind of thing that a daemon does is in one of them.
PROCESSES := test_transfer test_torn test_membership test_joint test_memory test_objects test_modes test_integrity \
             test_hostile test_operator test_adapters test_wbctl test_attach test_verify test_gpu test_bench_agents
CLUSTER_all := $(basename $(notdir $(wildcard tests/cluster/test_*.py)))
CLUSTER_nodes := $(notdir $(basename $(shell grep -lE '^from (cluster|job) import' tests/cluster/test_*.py)))
CLUSTER_controllers := $(notdir $(basename $(shell grep -lE '^from controllers import' tests/cluster/test_*.py)))
CLUSTER_api := $(filter-out $(CLUSTER_nodes) $(CLUSTER_controllers),$(CLUSTER_all))

check: all $(UNITS) $(TOOLS) $(OTHERS) $(RC) $(FAKEVERBS) $(FAKECUDA) $(ANSWERS) $(MATRIX) $(BENCHES)  ## all tests (T="name name" runs those; JOBS=4 at a time; STRICT=1 makes a skip a failure)
	@JOBS=$(JOBS) tests/run.sh $(O) $(T)
check-units: $(UNITS)      ## the C unit tests alone
	@JOBS=$(JOBS) TESTS='$(filter-out $(if $(filter tsan,$(VARIANT)),$(ONE_THREAD:%=$(O)/tests/%)) $(if $(filter asan,$(VARIANT)),$(READS_ALL:%=$(O)/tests/%)),$(UNITS))' tests/run.sh $(O) $(T)
check-processes: all $(TOOLS) $(OTHERS) $(RC) $(FAKEVERBS) $(FAKECUDA) $(MATRIX)  ## the named tests with real processes that sanitizers run
	@JOBS=$${JOBS:-$$(($$(nproc) + 2))} TESTS='$(wildcard $(PROCESSES:%=tests/*/%.py))' tests/run.sh $(O) $(T)
check-cluster: all $(TOOLS) $(OTHERS)  ## in a real Kubernetes, built once in 20 minutes (PART=api: no pods run; nodes: they do; controllers: those of others make them)
	@tests/cluster/build.sh api helm $(if $(filter controllers,$(PART)),controllers,node $(if $(PART),,controllers)) >/dev/null || [ $$? -eq 77 ]
	@$(if $(filter api controllers,$(PART)),,tests/cluster/build.sh rdma >/dev/null || [ $$? -eq 77 ])  # by itself: the others do without
	@python3 -B tests/cluster/compat.py >/dev/null 2>&1 || true  # test_upgrade says why not
	@JOBS=$(or $(JOBS),1) T_LIMIT=$${T_LIMIT:-900} TESTS='$(CLUSTER_$(or $(PART),all):%=tests/cluster/%.py)' tests/run.sh $(O) $(T)
check-sim: $(O)/tests/test_transfer_chaos  ## SEEDS=10000 simulated deployments with faults at any event
	@tests/sim/run.sh $(O)
check-engines: all         ## adapters with real vLLM, SGLang, Megatron, FSDP2 on a CPU, a loop that learns: 10 GB outside the tree, once (about 18 min)
	@JOBS=1 T_LIMIT=$${T_LIMIT:-900} TESTS='$(wildcard tests/frameworks/test_*.py)' tests/run.sh $(O) $(T)
check-roce: all $(RC) $(TOOLS) $(FAKECUDA) $(addprefix $(O)/tests/,test_xport test_xport_ends test_xport_rails test_xport_full test_xport_random)  ## on soft-RoCE devices in a virtual machine: no NIC, no KVM needed (10 min)
	@tests/roce/run.sh $(O) $(T)
check-gpu: $(addprefix $(O)/tests/,test_kernels_gpu test_cuda_driver test_mem_gpu test_lane_gpu test_lane_area_gpu test_client_gpu test_daemon_imports test_extract test_extract_bad test_extract_gpu) $(ANSWERS)  ## on a GPU: the kernels, also under compute-sanitizer; what the driver answers; the unit tests of memory, lanes, clients and extraction
	@tests/cuda/run.sh $(O)
check-cuda:                ## the kernels compiled for GPUs; a compiler comes from PyPI where there is none (105 MB, once)
	+@tests/cuda/compile.sh $(O)
check-kill: all $(TOOLS)   ## KILLS=200 processes killed and stopped at each phase of a transfer (15 min)
	@WB_BUILD=$(abspath $(O)) PYTHONDONTWRITEBYTECODE=1 $$(tests/common/venv.sh) tests/e2e/kill.py
mutants:                   ## fences taken away one by one: does a test fail?  M=WORD some (30 min)
	@tests/mutants/run.py $(M)
submake = +@$(MAKE) --no-print-directory
asan: asan-units asan-processes  ## unit tests and those of PROCESSES under ASan and UBSan (asan-all: all tests)
tsan: tsan-units tsan-processes  ## the same under TSan
define sanitizer
$(1)-units $(1)-processes $(1)-all: $(1)-%:
	$$(submake) VARIANT=$(1) $$(patsubst %-all,%,check-$$*)
endef
$(foreach v,asan tsan,$(eval $(call sanitizer,$(v))))
ci:                        ## what continuous integration runs, within CI_MINUTES=75; what passed unchanged is skipped
	@.ci/run
ci-all:                    ## the same, all of it
	@.ci/run --all
coverage:                  ## the tests with gcov, line totals a file
	$(submake) VARIANT=cov check
	@cd $(BUILD)/cov && for f in $(foreach m,$(PRESENT),$(call src,$(m))); do \
	  gcov -o obj/$$f.o $(CURDIR)/$$f 2>/dev/null | sed -n "s|^Lines executed:\(.*\)% of \(.*\)|\1% of \2 lines  $$f|p" | head -1; done
fuzz:                      ## every fuzz target for FUZZ_S=20 seconds
	$(submake) VARIANT=fuzz fuzz-run
fuzz-run: $(FUZZERS)
	@FUZZ_S=$(FUZZ_S) tests/fuzz/run.sh $(O) $(FUZZERS)
C_FILES = $(wildcard $(shell git ls-files '*.c' '*.h'))
format:                    ## clang-format in place
	@clang-format -i $(C_FILES)
format-check:
	@clang-format --dry-run -Werror $(C_FILES)
fuzz-cover: fuzz           ## and then the lines of each parser that the targets reached
	$(submake) VARIANT=fuzzcov fuzz-report
fuzz-report: $(FUZZERS)
	@tests/fuzz/cover.sh $(O) $(BUILD)/fuzz/grow $(FUZZERS)
lint:                      ## format, layers, headers alone, SPDX lines, cppcheck, clang-tidy, man pages
	@CC="$(CC)" DEP_CFLAGS="$(DEP_CFLAGS)" CPPFLAGS="$(CPPFLAGS)" WARN="$(WARN)" tests/lint/run.sh
measure:                   ## figures of the code: length, nesting, asserts, contracts (REF=commit beside, ARGS="--list --json --trace")
	@python3 -B tests/lint/measure.py $(if $(REF),--ref $(REF)) $(ARGS)
analyze:                   ## gcc -fanalyzer over the tree
	$(submake) VARIANT=analyze lib
demo: all                  ## the whole job on this machine: no GPU, NIC or cluster
	@tests/demo/run.sh $(O)
bench: all $(BENCHES) $(O)/tools/toy_worker ## benchmarks, one JSON object a line
	@tests/bench/run.sh $(O)
bench-peers: all           ## ours beside gloo, Ray, Mooncake, NIXL, checkpoint-engine and awex (5 GB outside the tree, once): the same bytes over loopback (ARGS="--small --case 2->2")
	@$$(tests/common/venv.sh) tests/bench/peers_all.py --out $(O) $(ARGS)
bench-gpu: $(O)/bench/gpu $(if $(CUDA_ROOT),$(BUILD)/gpu/bench/reduce.fatbin) ## kernels on a GPU beside its driver's copies, one JSON object a line (ARGS="--only pack")
	@$(O)/bench/gpu $(ARGS)
bench-planner: $(WBCTL)    ## plans of five large deployments from geometry alone, one JSON object a line
	@tests/bench/planner.sh $(O)
studies: $(WBCTL)          ## curves over deployments beside the paper's figures, as SVG in tests/studies
	@WB_BUILD=$(abspath $(O)) PYTHONDONTWRITEBYTECODE=1 tests/studies/run.py
install: all               ## DESTDIR and PREFIX are honoured
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(LIBDIR) $(DESTDIR)$(PREFIX)/include/weightbridge $(DESTDIR)$(MANDIR)/man8 $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man3 $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(DOCDIR)
	install -m 755 $(AGENT) $(OPERATOR) $(WBCTL) $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(CLIENT_SO) $(DESTDIR)$(LIBDIR)
	ln -sf libweightbridge.so.$(ABI) $(DESTDIR)$(LIBDIR)/libweightbridge.so
	install -m 644 $(CLIENT_A) $(DESTDIR)$(LIBDIR)
	install -m 644 agent/include/weightbridge/*.h $(DESTDIR)$(PREFIX)/include/weightbridge
	install -m 644 agent/daemon/*.8 operator-shim/*.8 $(DESTDIR)$(MANDIR)/man8
	install -m 644 agent/ctl/*.1 $(DESTDIR)$(MANDIR)/man1
	install -m 644 agent/client/*.3 $(DESTDIR)$(MANDIR)/man3
	install -m 644 agent/client/examples/worker.c LICENSE $(DESTDIR)$(DOCDIR)
	sed 's|@PREFIX@|$(PREFIX)|; s|@LIBDIR@|$(LIBDIR)|; s|@VERSION@|$(VERSION)|' agent/client/weightbridge.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/weightbridge.pc
release: all               ## archive, wheel, Debian packages, charts, SBOM and sums, in build/release-VERSION
	@charts/release/release.sh $(O) $(BUILD)/release-$(VERSION)
check-packages: all        ## a release made, installed and used in a Debian without a compiler (2 min)
	@tests/cluster/build.sh helm >/dev/null || [ $$? -eq 77 ]
	@JOBS=1 T_LIMIT=$${T_LIMIT:-600} TESTS='$(wildcard tests/packages/test_*.py)' tests/run.sh $(O) $(T)
dist:                      ## release tarball of HEAD
	@git archive --prefix=weightbridge-$(VERSION)/ -o $(BUILD)/weightbridge-$(VERSION).tar.gz HEAD && ls $(BUILD)/weightbridge-$(VERSION).tar.gz
clean:                     ## remove build/
	@rm -rf $(BUILD)
help:                      ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | column -t -s '|'
-include $(shell find $(O) $(BUILD)/gpu -name '*.d' -type f 2>/dev/null)
