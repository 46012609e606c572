# SPDX-License-Identifier: Apache-2.0
"""The contract of every transport, kept by verbs on devices: programs of tests/unit, with rails of both pairs.

Each case opens verbs on the devices (FX_DEVICES), or is in LEFT_OUT with its reason: nothing is left out unseen.
"""
import os
import re
import subprocess

from wire import Crossing

# Who takes a third rail has it on the first one's device.
DEVICES = "rxe_a0,rxe_a1,rxe_a0 rxe_b0,rxe_b1,rxe_b0"
LEFT_OUT = {
    "test_xport": {
        "an_address_that_is_none_is_named": "no transport is opened",
        "registered_transport_is_known_by_name_and_endpoint": "of a transport that a test registers"},
    "test_xport_ends": {},
    "test_xport_rails": {
        "a_socket_is_served_by_the_rail_whose_address_it_came_to": "of the rails of sockets: bytes of verbs are on none",
        "of_an_endpoint_some_addresses_can_be_taken": "no transport is opened",
        "a_capped_rail_moves_all_that_it_has_in_turns": "of sockets that a source serves: with verbs the receiver reads"},
    "test_xport_full": {
        "regions_change_though_nobody_takes_events": "of shared memory, whose source has regions",
        "dialling_silent_peers_keeps_no_healthy_one_out": "of sockets alone, before any of verbs is there"},
    "test_xport_random": {},
}


def cases(text):
    """{case: has one of its turns opened verbs on devices?} of a program's output."""
    found, is_open = {}, False
    for line in text.splitlines():
        is_open |= "fx_verbs: on devices" in line
        m = re.match(r"(?:not )?ok \d+ - [^:]*:[^:]*:(\w+): ", line)
        if m:
            found[m[1]] = found.get(m[1], False) or is_open
            is_open = False
    return found


def keeps(program, least):
    """`least`: bytes that pair 0 carries of what is moved, while the other carries some of what has two rails; None: it
    is of connections, and nothing is moved."""
    env = dict(os.environ, FX_DEVICES=DEVICES, CK_DEFAULT_TIMEOUT="180", CK_VERBOSITY="silent", CK_TAP_LOG_FILE_NAME="-")

    def case():
        with Crossing() as c:
            r = subprocess.run([os.path.join(os.environ["WB_BUILD"], "tests", program)], env=env, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = cases(r.stdout)
        print(program, len(found), "cases, sent", c.bytes, flush=True)
        if r.returncode:
            print(r.stdout[-8000:])
        assert r.returncode == 0, f"{program} fails"
        assert {x for x, opened in found.items() if not opened} == set(LEFT_OUT[program]), found
        assert "by memory windows" in r.stdout, "soft-RoCE had windows of type 2B"
        assert least is None or (c["va0"] > least and c["va1"] > 0), "what was moved did not cross the wires"
    case.__name__ = f"{program} on devices"
    return case
