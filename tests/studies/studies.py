# SPDX-License-Identifier: Apache-2.0
"""The studies: which deployments each has, and what is drawn of what was predicted."""
import collections
import os

import peers
from chart import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, Chart

DEPLOYMENTS = os.path.join(os.path.dirname(__file__), "..", "bench", "deployments")
QWEN = "Qwen3-30B-A3B"
Study = collections.namedtuple("Study", "name cases draw")
# x: on the chart. args: of wbctl simulate. trainers, copies: workers that train, copies of the model among them.
Case = collections.namedtuple("Case", "x args trainers copies", defaults=(0, 1))


def on(model, trainer, rollout, engines, *more):
    return ("--model", model, "--trainer", trainer, "--rollout", rollout, "--engines", str(engines), *more)


def bench(name):
    return (os.path.join(DEPLOYMENTS, name + ".yaml"),)


def ms(lines, what):
    return [line[what + "_ms"] for line in lines]


def paper_mode(lines, what):
    return [line[what + "_over_tmin_paper"] * line["t_min_ms"] for line in lines]


def add_both(chart, lines):
    """The agents' flow, the paper's, and the bound, in ms."""
    chart.add("EWTT", ms(lines, "ewtt"), BLUE)
    chart.add("AGST", ms(lines, "agst"), BLUE, dash="5 4", mark="square")
    chart.add("EWTT, mode paper", paper_mode(lines, "ewtt"), ORANGE)
    chart.add("AGST, mode paper", paper_mode(lines, "agst"), ORANGE, dash="5 4", mark="square")
    chart.add("bound (T_min)", ms(lines, "t_min"), GREY, dash="2 3", mark=chart.bound_mark())


def add_peers(chart, lines, cases):
    chart.add("rank-0 broadcast,\nby bytes alone", [peers.broadcast(x) for x in lines], PURPLE)
    chart.add("single-source P2P,\nby bytes alone",
              [peers.single_source(x, c.trainers, c.copies) for x, c in zip(lines, cases)], GREEN)


# ---- the paper's four deployments -----------------------------------------------------------------------------------

SIZES = {"a": (8, 1), "b": (16, 2), "c": (64, 1), "d": (256, 1)}
FOUR = [Case(f"({n}) {g}+{g} GPUs", bench(n), g, c) for n, (g, c) in SIZES.items()]


def draw_deployments(lines, _, paper):
    said = [paper["deployments"][n] for n in SIZES]
    c = Chart("The paper's four deployments: time over the bound", "", "time / T_min", [x.x for x in FOUR],
              note="Paper: its section 4.2. AGST, early: trainers go on once what they have not sent lies in their slots.")
    c.add("EWTT", [x["ewtt_over_tmin_loop"] for x in lines], BLUE)
    c.add("AGST", [x["agst_over_tmin_loop"] for x in lines], BLUE, dash="5 4", mark="square")
    c.add("AGST, early", [x["agst_early_over_tmin"] for x in lines], SKY, dash="5 4", mark="square")
    c.add("EWTT, mode paper", [x["ewtt_over_tmin_paper"] for x in lines], ORANGE)
    c.add("AGST, mode paper", [x["agst_over_tmin_paper"] for x in lines], ORANGE, dash="5 4", mark="square")
    c.add("EWTT, the paper says", [x["ewtt_over_tmin"] for x in said], BLACK, mark="diamond", hollow=True, line=False)
    c.add("AGST, the paper says", [x["agst_over_tmin"] for x in said], BLACK, mark="square", hollow=True, line=False)
    return c


def draw_peers(lines, cases, paper):
    said = [paper["deployments"][n] for n in SIZES]
    t_min = ms(lines, "t_min")
    c = Chart("Two peers' designs at the paper's deployments", "", "AGST in ms", [x.x for x in FOUR], log_y=True,
              note="Measured: AGST of Miles' two mechanisms, from the speed-ups in the paper's section 4.2.\n"
                   "By bytes alone: no calls, no tensors one by one (peers.py).")
    c.add("AGST", ms(lines, "agst"), BLUE, mark="square")
    c.add("AGST, the paper says", [s["agst_over_tmin"] * t for s, t in zip(said, t_min)], BLACK, mark="square", hollow=True,
          line=False)
    add_peers(c, lines, cases)
    for name, key, colour in (("broadcast, measured", "broadcast_over_agst", PURPLE), ("P2P, measured", "p2p_over_agst", GREEN)):
        c.add(name, [s[key] * s["agst_over_tmin"] * t for s, t in zip(said, t_min)], colour, mark="diamond", hollow=True,
              line=False)
    return c


# ---- nodes ----------------------------------------------------------------------------------------------------------

ROLLOUT_NODES = [Case(n, on(QWEN, "megatron:tp8,ep8", "sglang:tp8,ep8", n), 8) for n in (1, 2, 4, 8, 16)]
TRAINER_NODES = [Case(n, on(QWEN, f"megatron:tp8,ep8,dp{n}", "sglang:tp8,ep8", 4), 8 * n, n) for n in (1, 2, 3, 4)]


def draw_rollout_nodes(lines, cases, paper):
    said = paper["rollout_nodes"]
    last = dict(zip((c.x for c in cases), lines)).get(said["nodes"])
    ratio = f"{peers.single_source(last, 8, 1) / last['ewtt_ms']:.0f}" if last else "?"
    c = Chart("More rollout nodes, one trainer node", "rollout nodes, an engine each", "time in ms", [x.x for x in cases], log_x=True,
              log_y=True, note=f"{QWEN}, TP8 EP8 on both sides, as in the paper's section 4.3. P2P at {said['nodes']} nodes takes "
              f"{ratio} times our EWTT by\nbytes alone; the paper measured {said['p2p_over_ours']} times (section 1).")
    add_both(c, lines)
    add_peers(c, lines, cases)
    return c


def draw_trainer_nodes(lines, cases, _):
    c = Chart("More trainer nodes, four rollout nodes", "trainer nodes, a copy of the model each", "time in ms", [x.x for x in cases],
              log_y=True, note=f"{QWEN}, TP8 EP8 on both sides, as in the paper's section 4.3.")
    add_both(c, lines)
    add_peers(c, lines, cases)
    return c


# ---- layouts --------------------------------------------------------------------------------------------------------

PAIRS = [Case(f"TDP{t} RDP{r}", on(QWEN, trainer, rollout, r), 16, t)
         for t, trainer in ((1, "megatron:tp16,ep16"), (2, "megatron:tp8,ep8,dp2"))
         for r, rollout in ((1, "sglang:tp16,ep16"), (2, "sglang:tp8,ep8"), (4, "sglang:tp4,ep4"))]


def draw_parallelism(lines, cases, _):
    c = Chart("Six pairs of layouts on 16 and 16 GPUs", "copies of the model in the trainer (TDP) and in engines (RDP)",
              "time in ms", [x.x for x in cases],
              note=f"{QWEN}; TP and EP are 16 / DP, as in the paper's section 4.3. With RDP1 a node needs half of the model.")
    add_both(c, lines)
    return c


# ---- memory ---------------------------------------------------------------------------------------------------------

# Trainers have their share of it, as in the defaults of the model's parameters.
BUFFERS = [Case(g, bench("b") + ("--set", f"rolloutMiB={1024 * g},trainerMiB={256 * g},roundTrainerMiB={333 * g}"), 16, 2)
           for g in (1, 2, 3, 4, 6, 8)]


def draw_buffers(lines, cases, paper):
    said = paper["buffers"]
    c = Chart("Memory for buffers, deployment (b)", "GiB of a rollout worker; trainers have a share in proportion", "time / T_min",
              [x.x for x in cases], note="Paper: 4 GiB, its section 4.2; in its appendix EWTT converges to slightly above ideal, "
              "and AGST falls faster.")
    c.add("EWTT", [x["ewtt_over_tmin_loop"] for x in lines], BLUE)
    c.add("AGST", [x["agst_over_tmin_loop"] for x in lines], BLUE, dash="5 4", mark="square")
    c.add("EWTT, mode paper", [x["ewtt_over_tmin_paper"] for x in lines], ORANGE)
    c.add("AGST, mode paper", [x["agst_over_tmin_paper"] for x in lines], ORANGE, dash="5 4", mark="square")
    for name, key, mark in (("EWTT, the paper says", "ewtt_over_tmin", "diamond"), ("AGST, the paper says", "agst_over_tmin", "square")):
        c.add(name, [said[key] if x.x == said["gib"] else None for x in cases], BLACK, mark=mark, hollow=True, line=False)
    return c


# ---- staging --------------------------------------------------------------------------------------------------------

STAGING = [Case(n, bench("b") + ("--staging", n), 16, 2) for n in ("none", "rollout", "trainer", "both")]


def draw_staging(lines, cases, paper):
    c = Chart("Who stages in host memory, deployment (b)", "staged side", "time in ms", [x.x for x in cases],
              note="Paper: AGST, its section 4.4. Ours counts what stands still: a staged trainer until its part is in host memory,\n"
                   "a staged engine while it copies its part from there.")
    c.add("EWTT", ms(lines, "ewtt"), BLUE)
    c.add("AGST", ms(lines, "agst"), BLUE, dash="5 4", mark="square")
    c.add("AGST, the paper says", [paper["staging"][x.x] for x in cases], BLACK, mark="square", hollow=True, line=False)
    c.add("bound (T_min)", ms(lines, "t_min"), GREY, dash="2 3", mark=c.bound_mark())
    return c


# ---- scale ----------------------------------------------------------------------------------------------------------

# Pieces of 1 MiB: a quarter of the events, and the same to 0.2 % at 256.
SCALE = [Case(n, on("Kimi-K2-Instruct", f"megatron:tp8,pp8,cp4,dp{n // 256},ep32,last5", "sglang:tp32,dp8,ep32,dense_tp1", n // 32,
                    "--set", "pieceKiB=1024"), n, n // 256) for n in (256, 512, 1024)]


def draw_scale(lines, cases, _):
    c = Chart("Kimi-K2 on 256 to 1,024 workers a side", "workers a side; engines of 32", "time / T_min", [x.x for x in cases], log_x=True,
              note="T_min is the same for all: more engines, each with as much to get.")
    c.add("EWTT", [x["ewtt_over_tmin_loop"] for x in lines], BLUE)
    c.add("AGST", [x["agst_over_tmin_loop"] for x in lines], BLUE, dash="5 4", mark="square")
    c.add("EWTT, mode paper", [x["ewtt_over_tmin_paper"] for x in lines], ORANGE)
    c.add("AGST, mode paper", [x["agst_over_tmin_paper"] for x in lines], ORANGE, dash="5 4", mark="square")
    return c


STUDIES = [
    Study("deployments", FOUR, draw_deployments),
    Study("peers", FOUR, draw_peers),
    Study("rollout-nodes", ROLLOUT_NODES, draw_rollout_nodes),
    Study("trainer-nodes", TRAINER_NODES, draw_trainer_nodes),
    Study("parallelism", PAIRS, draw_parallelism),
    Study("buffers", BUFFERS, draw_buffers),
    Study("staging", STAGING, draw_staging),
    Study("scale", SCALE, draw_scale),
]
# A small one, for the test of all this: seconds.
SMALL = Study("small", [Case(n, on("Qwen3-0.6B", "megatron:tp2", "vllm:tp2", n), 2) for n in (1, 2)], draw_rollout_nodes)
