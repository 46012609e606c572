# SPDX-License-Identifier: Apache-2.0
"""verl on a CPU, by verl's own hook for devices: to be imported before anything asks verl for its device."""
import contextlib
import types

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import set_platform


def _nothing(*_args, **_more):
    return 0


class CPU(PlatformBase):
    device_name, vendor_name = "cpu", "none"
    device_module = types.SimpleNamespace(synchronize=_nothing, empty_cache=_nothing, ipc_collect=_nothing, set_device=_nothing,
                                          memory_allocated=_nothing, memory_reserved=_nothing,
                                          mem_get_info=lambda *_: (1 << 30, 1 << 30), is_available=lambda: True)

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    set_device = synchronize = manual_seed = manual_seed_all = set_allocator_settings = empty_cache = _nothing
    profiler_start = profiler_stop = _nothing

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CPU_VISIBLE_DEVICES"

    def nvtx_range(self, msg):
        return contextlib.nullcontext()

    def ray_resource_name(self):
        return "CPU"

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False


CPU.__abstractmethods__ = frozenset()  # what is not asked for here
set_platform(CPU())
