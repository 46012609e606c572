# SPDX-License-Identifier: Apache-2.0
"""What is imported in vLLM's workers under verl on a CPU; see no_amx.py and verl_cpu.py."""
import no_amx  # noqa: F401
import verl_cpu  # noqa: F401

from weightbridge.adapters import verl_vllm


class Rollout(verl_vllm.Extension):
    """verl's extension of vLLM's workers, with transfers."""
