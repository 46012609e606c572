# SPDX-License-Identifier: Apache-2.0
"""A trainer that drives vLLM and has a source of vLLM's, which gives whole tensors (test_vllm_api is of one that sends its
shards), and what the engine refuses."""
import sys

from fx import Cluster, python, run
from test_vllm_api import deploy, updates


def a_trainer_with_a_source_of_vllms_sends_what_it_gives():
    updates("qwen3-tied", 2, 1, gives="source", senders=2)


def ranks_that_do_not_send_go_through_the_source():
    updates("llama", 1, 1, gives="source", senders=1)


def what_the_engine_refuses_the_trainer_says_at_once():
    python("torch")
    python("vllm")
    with Cluster() as c:
        _, trainers = deploy(c, "qwen3-moe", 1, 1, n=1, gives="sender")
        print(trainers()[0].expect(r"^error .*holds experts, which .* does not load anew", 60.0, reject="^connected")[0])


if __name__ == "__main__":
    tests = [a_trainer_with_a_source_of_vllms_sends_what_it_gives, ranks_that_do_not_send_go_through_the_source,
             what_the_engine_refuses_the_trainer_says_at_once]
    run(*[t for t in tests if not sys.argv[1:] or t.__name__ in sys.argv[1:]])
