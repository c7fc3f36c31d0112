"""How many tasks a device takes at once, and what is said when they were too many.

Decisions a reader would question:

- What autograd keeps of one image is counted, not guessed: one small pass adds up the tensors that a backward pass
  would need. A compiled pass in bfloat16 keeps less, so the count is a bound; and no backbone needs a table.
- Evaluation keeps nothing for a backward pass, but is cut in the same way: its largest layer is a part of the sum.
- A method that differentiates through steps of its own keeps what no count of one pass tells. So it is asked: two
  meta-gradients of made-up tasks, of one and of two, at the start, the middle and the end of the training, since
  some take more steps in between. The difference of their peaks is what a task costs.
- Half of what is free is planned with: the allocator's blocks, the heads and the compiler's workspaces need the rest.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from abomed.config.episodes import EpisodeSpec
from abomed.engine.memory import peak_memory
from abomed.errors import ConfigError
from abomed.methods.base import Method, TaskImages
from abomed.methods.parts import ITERATION
from abomed.models import Backbone, extract

_SHARE = 0.5
_ROWS = 2  # of each side: batch statistics need more than one value


def backbone_chunk(
    chunk: int, backbone: Backbone, images_per_task: int, device: torch.device, free: int | None = None
) -> int | None:
    """Tasks per backbone pass: as asked; else one by one on a processor, where a larger batch leaves the caches and
    is slower, and elsewhere as many as fit into `free` bytes (of a GPU: what is free now)."""
    if chunk:
        return chunk
    if device.type == "cpu":
        return 1
    if free is None:
        if device.type != "cuda":
            return None
        free = torch.cuda.mem_get_info(device)[0]
    return max(1, int(_SHARE * free / (images_per_task * bytes_per_image(backbone))))


def method_chunk(
    chunk: int,
    method: Method,
    backbone: Backbone,
    spec: EpisodeSpec,
    device: torch.device,
    iterations: int,
    free: int | None = None,
) -> int | None:
    """Tasks at once in meta-training with `method`, by the same rules; see there for `chunk` and `free`."""
    if chunk or method.fast_forward or device.type == "cpu":
        return backbone_chunk(chunk, backbone, spec.ways * spec.images_per_class, device, free)
    if free is None:
        if device.type != "cuda":
            return None
        free = torch.cuda.mem_get_info(device)[0]
    try:
        return max(1, int(_SHARE * free / bytes_per_task(method, backbone, spec, iterations)))
    except torch.OutOfMemoryError:  # already of two tasks
        return 1


def bytes_per_task(method: Method, backbone: Backbone, spec: EpisodeSpec, iterations: int) -> float:
    """What a meta-gradient holds for one more task, in the most demanding phase. Nothing is left behind."""
    averages = {name: buffer.clone() for name, buffer in backbone.named_buffers()}
    worst = 0.0
    for number in sorted({0, iterations // 2, iterations - 1}):
        peaks = []
        for count in (1, 2):
            tasks = _made_up(backbone, spec, count)
            memory = {ITERATION: torch.tensor(number)}
            peaks.append(_peak(method, backbone, tasks, memory))
        worst = max(worst, peaks[1] - peaks[0])
    for name, buffer in backbone.named_buffers():
        buffer.copy_(averages[name])
    return worst


def _peak(method: Method, backbone: Backbone, tasks: TaskImages, memory: dict[str, Tensor]) -> int:
    _, peak = peak_memory(lambda: method.meta_gradient(backbone, tasks, memory, chunk=len(tasks)))
    learned = [] if method.learned is None else list(method.learned.parameters())
    for parameter in (*backbone.parameters(), *learned):
        parameter.grad = None
    return peak


def _made_up(backbone: Backbone, spec: EpisodeSpec, tasks: int) -> TaskImages:
    like = next(backbone.parameters())

    def side(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(spec.ways, device=like.device).repeat_interleave(count).expand(tasks, -1)
        size = backbone.image_size
        return like.new_zeros(tasks, spec.ways * count, 3, size, size), labels

    return TaskImages(*side(spec.shots), *side(spec.queries), spec.ways)


def bytes_per_image(backbone: Backbone) -> float:
    """What autograd keeps of one image in float32, parameters not counted."""
    own = {parameter.untyped_storage().data_ptr() for parameter in backbone.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    place = next(backbone.parameters()).device
    images = torch.zeros(1, _ROWS, 3, backbone.image_size, backbone.image_size, device=place)
    with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
        features = extract(backbone, images, images, "support")
    del features  # until here, so that no storage was freed and its address used again
    return sum(kept.values()) / (2 * _ROWS)


def fewer_tasks(chunk: int | None, tasks: int) -> str:
    """What helps a training that took `chunk` of its `tasks` at once."""
    taken = tasks if chunk is None else min(chunk, tasks)
    if taken > 1:
        return f"fewer tasks at once, with the same result: --chunk {taken // 2}"
    return "a smaller --backbone, --image-size, --shots or --queries, or --device cpu"


@contextmanager
def memory_advice(remedy: str) -> Iterator[None]:
    """Turn the device's complaint about memory into a sentence that says what helps."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        # "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of …"
        sentences = str(error).split(". ")
        found = sentences[1] if len(sentences) > 1 else sentences[0]
        raise ConfigError("the GPU ran out of memory", found=found, right=remedy) from None
