# SPDX-License-Identifier: Apache-2.0
"""The frameworks as worker.py has them: a class each, with what it takes to build one rank on a CPU."""
import os

import torch


def raw(t):
    return t.detach().contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else t.detach().reshape(1).view(
        torch.uint8).numpy().tobytes()


def read(folder):
    """(name, tensor) of a checkpoint."""
    from safetensors.torch import load_file

    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            yield from load_file(os.path.join(folder, file)).items()


class Worker:
    def __init__(self, said):
        self.said, self.common = said, {"socket": said["socket"], "connect_timeout": 120.0}
        torch.set_num_threads(1)
        self.build()

    def tensors(self):
        """Name -> this rank's memory of everything that a transfer writes or reads."""
        return dict(self.model.named_parameters())

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

    def build(self):
        import transformers

        kind = getattr(torch, self.said.get("dtype", "bfloat16"))
        self.model = transformers.AutoModelForCausalLM.from_pretrained(self.said["model"], dtype=kind)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01) if self.said["role"] == "trainer" else None
        torch.manual_seed(int(self.said["rank"]))

    def sender(self):
        from weightbridge.adapters import transformers

        return transformers.sender(self.model, dtype=torch.bfloat16, **self.common)

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
        ids = torch.randint(3, 1000, (2, 16))
        self.model(input_ids=ids, labels=ids).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def export(self, folder):
        """Each parameter whole and in BF16, then what Transformers writes of that."""
        full, floats = {}, {n for n, _ in self.model.named_parameters(remove_duplicate=False)}
        for name, t in self.model.state_dict().items():
            t = t.full_tensor() if hasattr(t, "full_tensor") else t
            full[name] = t.to(torch.bfloat16) if name in floats else t
        if self.model.config.tie_word_embeddings:
            full.pop("lm_head.weight", None)
        if self.said["rank"] == 0:
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

        return fsdp2.sender(self.model, dtype=torch.bfloat16, rank=self.said["rank"], **self.common)


class VLLM(Worker):
    """vLLM's model class with its load_weights, tensor parallel, without what prepares weights for kernels."""

    def build(self):
        said = self.said
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ.setdefault("VLLM_DIST_IDENT", os.path.basename(os.path.dirname(said["store"])))  # its shared memory's name
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


class Megatron(Worker):
    """Megatron-core's modules and the Bridge's loader and exporter.  Attention does not run on a CPU, so the optimizer gets
    gradients that are made up, alike wherever a parameter is there twice."""

    def build(self):
        import megatron_cpu

        said = self.said
        self.bridge, self.model = megatron_cpu.build(said["model"], said["store"], said["rank"], said["n"],
                                                     **said.get("parallel", {}))
        from weightbridge.adapters import megatron

        self.held = megatron.Chunks(self.model, self.bridge)
        self.held.load(read(said["model"]))
        self.optimizer, self.steps = torch.optim.AdamW(self.model.parameters(), lr=0.01), 0

    def tensors(self):
        return self.held.params()

    def sender(self):
        from weightbridge.adapters import megatron

        return megatron.sender([self.model], self.bridge, self.said["model"], **self.common)

    def step(self):
        import zlib

        self.steps += 1
        for name, t in self.tensors().items():
            made = torch.randn(t.shape, generator=torch.Generator().manual_seed(zlib.crc32(f"{name} {self.steps}".encode())))
            if t.requires_grad:
                t.grad = made.to(t.dtype)
            else:
                t.add_(made)
        self.optimizer.step()

    def export(self, folder):
        import shutil

        from safetensors.torch import save_file

        found = {name: t.contiguous().clone() for name, t in self.bridge.export_hf_weights([self.model], cpu=True,
                                                                                          show_progress=False)}
        if self.said["rank"] == 0:
            os.mkdir(folder)
            save_file(found, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
            shutil.copy(os.path.join(self.said["model"], "config.json"), folder)
        torch.distributed.barrier()
