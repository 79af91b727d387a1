"""The choice of the engine and of the number of teachers in flight, from public facts: network, settings, machine."""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from teacher_student.arguments import ArgumentError
from teacher_student.teachers.engines.batched import BatchedEngine, linear_layers
from teacher_student.teachers.engines.interface import Engine, Stack
from teacher_student.teachers.engines.sequential import SequentialEngine
from teacher_student.teachers.engines.vectorized import VmapEngine
from teacher_student.teachers.randomness import key_dropouts, shard_seed
from teacher_student.teachers.settings import TrainingSettings

Network = Callable[[], nn.Module]
_ENGINES: dict[str, type[Engine]] = {"batched": BatchedEngine, "vmap": VmapEngine, "sequential": SequentialEngine}
_DEFAULT_CACHE = 32 * 2**20
_log = logging.getLogger(__name__)


def build_engine(network: Network, settings: TrainingSettings, example: Tensor, device: torch.device) -> Engine:
    """Build the engine that `settings.engine` names, or the one that the rule picks.

    The rule: a plain sequence of linear layers and ReLU takes "batched"; convolutions on a CPU, batch normalisation,
    recurrent layers and whatever fails the isolation probe take "sequential"; the rest takes "vmap".

    Args:
        network: builds one teacher's network, an `nn.Module`.
        settings: public constants.
        example: a batch of zeros, shaped like a batch of records.
        device: where the teachers are trained.

    Raises:
        ArgumentError: the named engine cannot train this network, or would couple its teachers.
    """
    with torch.random.fork_rng(devices=[]):  # what a network draws for itself is the same in every process, and in resumed runs
        torch.default_generator.manual_seed(0)
        base = network().to(settings.dtype)
    keys = key_dropouts(base)
    name = settings.engine if settings.engine != "auto" else _rule(base, settings, keys, example, device)
    if name == "vmap" and _stateful(base):
        raise ArgumentError(
            "engine=vmap must get a network without buffers that training changes, got some (batch normalisation?); "
            "convert it with group_normalized(), or use engine=sequential"
        )
    engine = _ENGINES[name](base, settings, keys)
    if name == "vmap" and settings.engine == "vmap" and not _isolated(engine, example):
        raise ArgumentError("engine=vmap must get a network that keeps stacked teachers apart; use engine=sequential")
    return engine


def num_classes_of(network: Network, example: Tensor) -> int:
    """Return the width of the network's scores, tried on zeros: the list of classes never comes from the records.

    Raises:
        ArgumentError: no network, or one that does not take the example.
    """
    module = network()
    if not isinstance(module, nn.Module):
        raise ArgumentError(f"network must be a callable that returns an nn.Module, got {type(module).__name__}")
    try:
        with torch.no_grad():
            scores = module.to(example.dtype).eval()(example)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(f"network must take records of shape {tuple(example.shape[1:])}, but fails: {reason}") from error
    if not isinstance(scores, Tensor) or scores.ndim != 2 or len(scores) != len(example):
        raise ArgumentError("network must return class scores of shape (batch, num_classes)")
    return int(scores.shape[1])


def _stateful(base: nn.Module) -> bool:
    """Whether a teacher is more than its parameters: running statistics, or any other buffer that is saved with it."""
    return any(name in base.state_dict() for name, _ in base.named_buffers())


def _rule(base: nn.Module, settings: TrainingSettings, keys: list[str], example: Tensor, device: torch.device) -> str:
    if linear_layers(base) is not None:
        return "batched"
    convolutional = any(isinstance(module, nn.modules.conv._ConvNd) for module in base.modules())
    if (convolutional and device.type == "cpu") or _stateful(base):
        return "sequential"
    if _isolated(VmapEngine(base, settings, keys), example):
        return "vmap"
    _log.info("the network cannot be stacked; its teachers are trained one after the other")
    return "sequential"


def _isolated(engine: Engine, example: Tensor) -> bool:
    """Probe with made-up records: train two teachers for two steps, twice, with other records for the first teacher.

    Returns whether the second teacher kept every bit.
    """
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn((3, *example.shape), generator=generator).to(example.dtype)
    labels = torch.zeros((2, len(example)), dtype=torch.int64)
    stack = {name: torch.stack([value.detach()] * 2) for name, value in engine.network.named_parameters()}
    keys = torch.tensor([1, 2])
    engine.network.train()
    before = _attributes(engine.network)
    try:
        seen = []
        for features in (noise[[0, 2]], noise[[1, 2]]):
            packed = engine.pack(stack)
            for _ in range(2):
                engine.gradients(packed, features, labels, keys)
                packed = [(tensor - 0.1 * tensor.grad).detach() for tensor in packed if tensor.grad is not None]
            seen.append(packed)
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        _log.info("the network cannot be stacked: %s", error)
        return False
    unchanged = _attributes(engine.network) == before
    return unchanged and all(torch.equal(one[1], other[1]) for one, other in zip(*seen, strict=True))


def _attributes(network: nn.Module) -> list[dict[str, int]]:
    """Identities of every attribute of every module: a forward pass that keeps something in one of them shows here."""
    return [{name: id(value) for name, value in vars(module).items() if name != "training"} for module in network.modules()]


def chunk_size(engine: Engine, settings: TrainingSettings, num_teachers: int, record: Tensor, device: torch.device) -> int:
    """Return the number of teachers in flight, at most `num_teachers`: a function of public constants and of the machine.

    On a CPU parameters, gradients and momentum (3 tensors) and the batch, read and written, fill at most half of the last-level
    cache: beyond it cache misses eat the gain, and in smaller chunks the fixed cost of a step weighs more. On an accelerator
    parameters, their gradients and copies, the batch, and all values kept for the backward pass with their gradients fill half
    its memory. A sequential engine has one teacher in flight. The manifest keeps the result.
    """
    if not engine.lockstep:
        return 1
    if settings.chunk is not None:
        return min(settings.chunk, num_teachers)
    size = torch.empty(0, dtype=settings.dtype).element_size()
    parameters = sum(parameter.numel() for parameter in engine.network.parameters())
    batch = settings.batch_size * record.numel()
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        kept = settings.batch_size * _kept_values(engine.network, record)
        return max(1, min(num_teachers, int(memory / 2 / size / (6 * parameters + 4 * batch + 2 * kept))))
    return max(1, min(num_teachers, int(_last_level_cache() / 2 / size / (3 * parameters + 2 * batch))))


def _kept_values(network: nn.Module, record: Tensor) -> int:
    """Count what a forward pass on one record keeps for the backward pass, parameters aside: tried on zeros, on the CPU."""
    tried = copy.deepcopy(network).cpu().train()
    own = {tensor.data_ptr() for tensor in tried.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with torch.random.fork_rng(devices=[]), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        scores = tried(record.expand(2, *record.shape))  # normalisation by batches refuses a single record
    kept[scores.data_ptr()] = scores.numel()
    return sum(kept.values()) // 2


def _last_level_cache() -> int:
    """Return the bytes of the CPU's last-level cache, or a common size where the system does not say."""
    path = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    try:
        text = path.read_text().strip()
        return int(text.rstrip("KM")) * {"K": 2**10, "M": 2**20}.get(text[-1], 1)
    except (OSError, ValueError):
        return _DEFAULT_CACHE


def initial_stack(network: Network, settings: TrainingSettings, master_seed: int, shards: range | tuple[int, ...]) -> Stack:
    """Start every teacher from its own seed, on the CPU, whatever the device.

    Where `network` is a class whose `starts_alike` is true, or a partial of one, one start serves all teachers. A function that
    returns such a network is called for every teacher, since it may change the start.
    """
    states: list[dict[str, Tensor]] = []
    made_by = network.func if isinstance(network, functools.partial) else network
    alike = isinstance(made_by, type) and vars(made_by).get("starts_alike", False)
    with torch.random.fork_rng(devices=[]):
        for shard in shards:
            torch.default_generator.manual_seed(shard_seed(master_seed, shard, "start"))
            module = network().to(settings.dtype)
            key_dropouts(module)
            states.append(copy.copy(module.state_dict()))
            if alike:
                states *= len(shards)
                break
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}
