# SPDX-License-Identifier: Apache-2.0
"""The frameworks as worker.py has them: a class each, with what it takes to build one rank on a CPU."""
import copy
import ctypes
import json
import os
import sys

import torch


def raw(t):
    """A tensor's bytes.  Not by numpy(): storage that NumPy has seen cannot be resized, as Megatron does to offload it."""
    t = t.detach().contiguous()
    return ctypes.string_at(t.data_ptr(), t.nbytes) if t.nbytes else b""


def shared_name(store):
    """A name for what the processes of a group share on this machine, which no other group has, of this test or of another:
    vLLM makes its shared memory anew and fails where one of that name is there.  The end of the test
    removes what has the name of its folder."""
    return "-".join((os.path.basename(os.path.dirname(store)), os.path.basename(store)))


def read(folder):
    """(name, tensor) of a checkpoint."""
    from safetensors.torch import load_file

    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            yield from load_file(os.path.join(folder, file)).items()


class Worker:
    def __init__(self, said):
        self.said, self.common = said, {"socket": said["socket"], "connect_timeout": 120.0}
        if "maps" in said:
            self.common["cache_dir"] = said["maps"]
        with open(os.path.join(said["model"], "config.json"), encoding="utf-8") as f:
            self.words = json.load(f)["vocab_size"]
        torch.set_num_threads(1)
        self.build()

    @staticmethod
    def imports():
        """What a build imports, before a worker is forked (forks.py)."""

    def tensors(self):
        """Name -> this rank's memory of everything that a transfer writes or reads."""
        return dict(self.model.named_parameters())

    def padding(self):
        """Name -> the part of a trainer's parameter that is for words of nobody, where this rank has one."""
        found = {}
        for name in ("model.embed_tokens.weight", "lm_head.weight", "embedding.word_embeddings.weight", "output_layer.weight"):
            t = self.tensors()[name].detach() if name in self.tensors() else None
            if t is not None and t.shape[0] > max(0, self.words - self.first_word(t.shape[0])):
                found[name] = t[max(0, self.words - self.first_word(t.shape[0])):]
        assert found or not self.said.get("pad") or self.said["rank"] < self.said["n"] - 1, "the last rank has no padding"
        return found

    def first_word(self, _rows):
        """The word of the first of so many rows that this rank has."""
        return 0

    def places(self):
        return {n: (t.data_ptr(), tuple(t.shape), t.stride()) for n, t in self.tensors().items()}

    def content(self):
        return {n: raw(t) for n, t in self.tensors().items()}

    def loaded(self, folder):
        """What the engine's own loader makes of a checkpoint, over a sentinel."""
        with torch.no_grad():
            for t in self.tensors().values():
                t.fill_(7)
        self.load(read(folder))
        return self.content()


class Transformers(Worker):
    """The module of Transformers as it is: a trainer of one process, or an engine of one."""

    @staticmethod
    def imports():
        import torch.distributed.fsdp  # noqa: F401
        import transformers
        import weightbridge.adapters.fsdp2
        import weightbridge.adapters.transformers  # noqa: F401

        for name in ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM"):
            getattr(transformers, name)

    def build(self):
        import transformers

        kind = getattr(torch, self.said.get("dtype", "bfloat16"))
        self.model = transformers.AutoModelForCausalLM.from_pretrained(self.said["model"], dtype=kind)
        if self.said.get("pad"):
            self.model.resize_token_embeddings(pad_to_multiple_of=self.said["pad"])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01) if self.said["role"] == "trainer" else None
        torch.manual_seed(int(self.said["rank"]))

    def sender(self):
        from weightbridge.adapters import transformers

        return transformers.sender(self.model, **self.checkpoint(), **self.common)

    def checkpoint(self):
        """What says what is sent: the module, or the engines' folder where that has fewer rows."""
        return {"manifest": self.said["model"]} if self.said.get("pad") else {"dtype": torch.bfloat16}

    def load(self, weights):
        from weightbridge.adapters import fsdp2

        fsdp2.exports(self.model, **self.checkpoint()).load(weights)

    def receiver(self):
        from weightbridge.adapters import transformers

        return transformers.receiver(self.model, engine=self.said["engine"], **self.common)

    def tensors(self):
        return {n: t.to_local() if hasattr(t, "to_local") else t for n, t in self.model.state_dict().items()}

    def loaded(self, folder):
        import transformers

        other = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        return {n: raw(t) for n, t in other.state_dict().items()}

    def step(self):
        ids = torch.randint(3, self.words, (2, 16))
        self.model(input_ids=ids, labels=ids).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        for name, b in self.model.named_buffers():
            if name.endswith("e_score_correction_bias"):  # of a router: no optimizer moves it
                b.add_(1)

    def export(self, folder):
        """Each parameter whole and in BF16, then what Transformers writes of that; padding it takes off by itself, from a
        module that is not trained."""
        import transformers

        full, floats = {}, {n for n, _ in self.model.named_parameters(remove_duplicate=False)}
        for name, t in self.model.state_dict().items():
            t = t.full_tensor() if hasattr(t, "full_tensor") else t
            full[name] = t.to(torch.bfloat16) if name in floats else t
        if self.model.config.tie_word_embeddings:
            full.pop("lm_head.weight", None)
        if self.said["rank"] == 0 and self.said.get("pad"):
            other = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(self.model.config), dtype=torch.bfloat16)
            other.load_state_dict(full, strict=not self.model.config.tie_word_embeddings)
            for name, b in other.named_buffers():
                b.data = full.get(name, b)  # in the type that it has: a router's bias is FP32
            other.resize_token_embeddings(self.words)
            other.save_pretrained(folder)
        elif self.said["rank"] == 0:
            self.model.save_pretrained(folder, state_dict=full)
            self.model.config.dtype = "bfloat16"
            self.model.config.save_pretrained(folder)
        if self.said["n"] > 1:
            torch.distributed.barrier()


class FSDP2(Transformers):
    """fully_shard on every layer and the root, gloo."""

    def build(self):
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        said = self.said
        dist.init_process_group("gloo", init_method="file://" + said["store"], rank=said["rank"], world_size=said["n"])
        super().build()
        mesh = dist.device_mesh.init_device_mesh("cpu", (said["n"],))
        for layer in self.model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def sender(self):
        from weightbridge.adapters import fsdp2

        return fsdp2.sender(self.model, rank=self.said["rank"], **self.checkpoint(), **self.common)

    def first_word(self, _rows):
        return self.said["rank"] * -(-self.model.config.vocab_size // self.said["n"])


class VLLM(Worker):
    """vLLM's model class with its load_weights, tensor parallel, without what prepares weights for kernels."""

    @staticmethod
    def imports():
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        import vllm.engine.arg_utils
        import vllm.model_executor.model_loader.utils
        import vllm.model_executor.models.deepseek_v2
        import vllm.model_executor.models.llama
        import vllm.model_executor.models.qwen2
        import vllm.model_executor.models.qwen3
        import vllm.model_executor.models.qwen3_moe  # noqa: F401
        import weightbridge  # noqa: F401

    def build(self):
        said = self.said
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("VLLM_DIST_IDENT", shared_name(said["store"]))  # of its shared memory
        from vllm.config import set_current_vllm_config
        from vllm.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
        from vllm.engine.arg_utils import EngineArgs
        from vllm.model_executor.model_loader.utils import initialize_model

        self.config = EngineArgs(model=said["model"], skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True,
                                 max_model_len=64, tensor_parallel_size=said["n"], load_format="dummy",
                                 distributed_executor_backend="external_launcher",
                                 enable_expert_parallel=bool(said.get("ep"))).create_engine_config()
        self.config.parallel_config.rank = said["rank"]
        with set_current_vllm_config(self.config):
            init_distributed_environment(said["n"], said["rank"], "file://" + said["store"], said["rank"], "gloo")
            initialize_model_parallel(said["n"], 1)
            torch.set_default_dtype(torch.bfloat16)
            self.model = initialize_model(self.config)
            torch.set_default_dtype(torch.float32)
        self.load(read(said["model"]))

    def load(self, weights):
        from vllm.config import set_current_vllm_config

        with set_current_vllm_config(self.config):
            self.model.load_weights(iter(weights))

    def receiver(self):
        import weightbridge

        return weightbridge.ReceiverAdapter(self.load, params=self.model, manifest=self.said["model"],
                                            engine=self.said["engine"], rank=self.said["rank"], **self.common)


def _no_kernels():
    """SGLang's CPU kernels are in no package that can be had; without them it asks vLLM for some.  Nothing here computes."""
    import importlib.machinery
    import types

    for name in ("vllm", "vllm._custom_ops"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules["vllm"].__path__ = []
    for kernel in ("rotary_embedding", "rms_norm", "fused_add_rms_norm", "awq_dequantize"):
        setattr(sys.modules["vllm._custom_ops"], kernel, None)


class SGLang(Worker):
    """SGLang's model class with its load_weights, over tensor-parallel ranks, and SGLang's own WeightUpdater, which calls
    the adapter by its name as it does in an engine."""

    @staticmethod
    def imports():
        _no_kernels()
        import sglang.srt.model_executor.model_runner_components.weight_updater
        import sglang.srt.models.registry
        import sglang.srt.server_args
        import weightbridge.adapters.sglang  # noqa: F401

    def build(self):
        if "vllm" not in sys.modules:
            _no_kernels()
        from sglang.srt import runtime_context
        from sglang.srt.configs.model_config import ModelConfig
        from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
        from sglang.srt.layers.dp_attention import init_dp_gathered_buffer, initialize_dp_attention
        from sglang.srt.model_loader.utils import get_model_architecture
        from sglang.srt.server_args import ServerArgs
        from weightbridge.adapters import sglang

        said = self.said
        args = ServerArgs(model_path=said["model"], device="cpu", dtype="bfloat16", tp_size=said["n"],
                          skip_tokenizer_init=True, load_format="dummy", custom_weight_loader=[sglang.LOADER],
                          **({"ep_size": said["n"]} if said.get("ep") else {}),
                          **({"dp_size": said["n"], "enable_dp_attention": True} if said.get("dp") else {}))
        runtime_context.publish(args, role="scheduler",
                                ranks=runtime_context.SpawnRanks(world_rank=said["rank"], gpu_id=said["rank"]))
        init_distributed_environment(world_size=said["n"], rank=said["rank"], local_rank=said["rank"], backend="gloo",
                                     distributed_init_method="file://" + said["store"])
        initialize_model_parallel()
        self.config = ModelConfig.from_server_args(args)
        initialize_dp_attention(args)
        init_dp_gathered_buffer(self.config)
        torch.set_default_dtype(torch.bfloat16)
        self.model = get_model_architecture(self.config)[0](config=self.config.hf_config, quant_config=None)
        torch.set_default_dtype(torch.float32)
        self.load(read(said["model"]))

    def load(self, weights):
        self.model.load_weights(iter(weights))

    def tensors(self):
        """Parameters, and the halves of kv_b that MLA computes with."""
        found = super().tensors()
        for name, m in self.model.named_modules():
            for key in ("w_kc", "w_vc"):
                if isinstance(getattr(m, key, None), torch.Tensor):
                    found[f"{name}.{key}"] = getattr(m, key)
        return found

    def receiver(self):
        import weightbridge
        from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
        from weightbridge.adapters import sglang

        said, updater = self.said, WeightUpdater(
            tp_rank=self.said["rank"], device="cpu", gpu_id=0, model_config=self.config, custom_weight_loaders=[sglang.LOADER],
            get_model=lambda: self.model, update_model_fields=None, recapture_cuda_graph=None, get_model_runner=None)

        class Engine:
            """The three calls of sglang.Engine, for this rank alone."""

            def begin_weight_update(self):
                updater.begin_weight_update()
                return True, ""

            def update_weights_from_tensor(self, named_tensors, load_format):
                return updater.update_weights_from_tensor(named_tensors, load_format)

            def end_weight_update(self):
                updater.end_weight_update(run_post_load=False)
                return True, ""

        class Receiver:
            engine = Engine()

            def connect(self):
                """And what is refused on the way: it is said, and the engine goes on."""
                init = {"engine": said["engine"], "socket": said["socket"], "timeout": 120.0}
                self.refused("not connected", sglang.update)
                self.refused("no/such is no folder", sglang.connect, manifest="no/such", **init)
                if said["n"] > 1:  # one alone: the others do not wait for it
                    self.refused("no/such is no folder" if said["rank"] else "another rank could not connect", sglang.connect,
                                 manifest="no/such" if said["rank"] else None, **init)
                sglang.connect(self.engine, **init)
                self.refused("connected already", sglang.connect, **init)
                self.refused("no transfer came within 0.01 s", sglang.update, timeout=0.01)

            def refused(self, words, call, **fields):
                try:
                    call(self.engine, **fields)
                except weightbridge.WeightBridgeError as e:
                    assert words in str(e), e
                else:
                    raise AssertionError(f"it was not said that {words}")

            def update(self, timeout=240.0):
                import types

                try:
                    return types.SimpleNamespace(version=sglang.update(self.engine, timeout))
                except weightbridge.errors.WeightBridgeTimeout:
                    return None

            def close(self):
                sglang.disconnect(self.engine)

        return Receiver()


class Megatron(Worker):
    """Megatron-core's modules and the Bridge's loader and exporter.  Attention does not run on a CPU, so the optimizer gets
    gradients that are made up, alike wherever a parameter is there twice."""

    @staticmethod
    def imports():
        import megatron_cpu
        import weightbridge.adapters.megatron  # noqa: F401
        from megatron.bridge import AutoBridge

        assert megatron_cpu and AutoBridge

    def build(self):
        import megatron_cpu

        said = self.said
        self.bridge, self.model = megatron_cpu.build(said["model"], said["store"], said["rank"], said["n"], said.get("pad"),
                                                     **said.get("parallel", {}))
        from weightbridge.adapters import megatron

        self.held = megatron.Chunks(self.model, self.bridge)
        self.held.load(read(said["model"]))
        self.is_wrapped, self.steps = bool(said.get("parallel", {}).get("wrapped")), 0
        self.optimizer = (megatron_cpu.optimizer(self.model) if self.is_wrapped else
                          torch.optim.AdamW([p for chunk in self.model for p in chunk.parameters()], lr=0.01))

    def tensors(self):
        return self.held.params()

    def sender(self):
        from weightbridge.adapters import megatron

        if self.is_wrapped:
            self.refused()
        return megatron.sender(self.model, self.bridge, self.said["model"], **self.common)

    def load(self, weights):
        from weightbridge.errors import WeightBridgeError

        weights = dict(weights)
        try:  # on all ranks alike, and before any of them waits for another
            self.held.load({**weights, "model.embed_tokens.weight": torch.zeros(2000, 128)}.items())
        except WeightBridgeError as e:
            assert "model.embed_tokens.weight has 2000 rows" in str(e), e
        else:
            raise AssertionError("a checkpoint of more words was loaded")
        self.held.load(weights.items())

    def first_word(self, rows):
        return self.said["rank"] * rows if self.said.get("parallel", {}).get("tp") else 0

    def step(self):
        import zlib

        import megatron_cpu

        self.steps += 1
        for name, t in self.tensors().items():
            made = torch.randn(t.shape, generator=torch.Generator().manual_seed(zlib.crc32(f"{name} {self.steps}".encode())))
            if not t.requires_grad:
                t.add_(made)
            elif self.is_wrapped:
                t.main_grad.copy_(made)
            else:
                t.grad = made.to(t.dtype)
        if self.is_wrapped:
            with megatron_cpu.AsOnGpu():
                self.optimizer.step()
        else:
            self.optimizer.step()

    def refused(self):
        """A module that is cut as Megatron-FSDP cuts."""
        from torch.distributed.tensor import Shard, distribute_tensor
        from weightbridge.adapters import megatron
        from weightbridge.errors import WeightBridgeError

        mesh, cut = torch.distributed.device_mesh.init_device_mesh("cpu", (self.said["n"],)), torch.nn.Linear(4, 4, bias=False)
        cut.weight = torch.nn.Parameter(distribute_tensor(cut.weight.detach(), mesh, [Shard(0)]))
        try:
            megatron.Chunks([cut], self.bridge)
        except WeightBridgeError as e:
            assert "parameter weight is cut over ranks as a DTensor" in str(e), e
        else:
            raise AssertionError("a module under Megatron-FSDP was taken")

    def move(self):
        """The flat buffers leave their memory and come back, as Megatron offloads and reloads them."""
        import megatron_cpu

        for b in megatron_cpu.buffers(self.model):
            b.param_data_cpu = torch.empty_like(b.param_data)  # or it would take cpu() of it, which is no copy here
            b.offload_to_cpu(move_grads=False)
            between = torch.empty(b.param_data_size, dtype=b.param_data.dtype)  # it takes the place that is free now
            b.reload_from_cpu(move_grads=False)
            del between

    def gathered(self):
        """While it lasts each rank has what all have stepped; afterwards it has its own part of that, as after a step."""
        import contextlib

        import megatron_cpu

        @contextlib.contextmanager
        def one():
            kept = [(b.param_data, b.param_data.clone()) for b in megatron_cpu.buffers(self.model)]
            with torch.no_grad():
                for chunk in self.model:
                    chunk.start_param_sync(force_sync=True)
            assert any(not torch.equal(now, was) for now, was in kept), "nothing was left to gather"
            yield
            for now, was in kept:
                now.copy_(was)
        return one() if self.is_wrapped else contextlib.nullcontext()

    def export(self, folder):
        import shutil

        from safetensors.torch import save_file

        with self.gathered():
            found = {name: t.contiguous().clone() for name, t in self.bridge.export_hf_weights(self.model, cpu=True,
                                                                                              show_progress=False)}
        for name in ("model.embed_tokens.weight", "lm_head.weight") if self.said.get("pad") else ():
            if name in found:  # the Bridge writes padding, too, and no engine of this vocabulary takes that
                found[name] = found[name][:self.words].clone()
        if self.said["rank"] == 0:
            os.mkdir(folder)
            save_file(found, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
            shutil.copy(os.path.join(self.said["model"], "config.json"), folder)
        torch.distributed.barrier()
