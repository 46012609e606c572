# SPDX-License-Identifier: Apache-2.0
"""Reference engines: NumPy stand-ins for trainers and rollout engines, and an oracle for them.

They cut, fuse, pad and transpose a checkpoint the way the real ones do, need no device, and
import nothing of the project.  `make(spec)` builds one worker of any of them; a spec is a plain
dict (JSON) that `oracle` understands too, by rules written separately.
"""


def make(spec, alloc=None):
    """Build the engine of one worker.

    spec: {"framework": megatron | fsdp2 | vllm | sglang, "model": fields of models.Config,
    and the settings that the framework's class lists in its DEFAULTS}; or that of a generic worker.
    alloc: callable (shape, NumPy dtype) -> writable array; numpy.zeros when absent.
    """
    framework = spec.get("framework")
    if framework == "megatron":
        from .megatron import Engine
    elif framework == "fsdp2":
        from .fsdp2 import Engine
    elif framework == "vllm":
        from .vllm import Engine
    elif framework == "sglang":
        from .sglang import Engine
    elif framework == "generic":
        from .generic import Engine
    else:
        raise ValueError(f"unknown framework {framework!r}: megatron, fsdp2, vllm, sglang or "
                         "generic")
    return Engine(spec, alloc)
