"""Images a second: the queries of a task through a backbone and a fitted head, as prediction does it."""

from collections.abc import Sequence

import torch

from abomed.bench.timing import Row, Sheet, measure
from abomed.bilevel.inner import adapt_head
from abomed.bilevel.objective import Examples
from abomed.config.bilevel import InnerSettings
from abomed.config.train import Precision
from abomed.engine.evaluate import autocast
from abomed.engine.material import choose_device
from abomed.models import create_backbone, extract

WAYS, SHOTS = 3, 5


def bench_predict(
    backbones: Sequence[str] = ("cnn4",),
    sizes: Sequence[int] = (),
    images: int = 256,
    repeats: int = 20,
    device: str = "auto",
    precision: Precision = "auto",
) -> Sheet:
    """One row for each backbone and size; its 15 labelled images are looked at and fitted anew each time."""
    place, actions, about = choose_device(device), {}, {}
    for backbone in backbones:
        for size in sizes or (0,):
            network = create_backbone(backbone, image_size=size or None, seed=0).to(place)
            side = network.image_size
            support = torch.rand(1, WAYS * SHOTS, 3, side, side, device=place)
            query = torch.rand(1, images, 3, side, side, device=place)
            labels = torch.arange(WAYS, device=place).repeat_interleave(SHOTS)[None]

            def predict(
                network: torch.nn.Module = network,
                support: torch.Tensor = support,
                query: torch.Tensor = query,
                labels: torch.Tensor = labels,
            ) -> torch.Tensor:
                with torch.no_grad(), autocast(place, precision):
                    seen = extract(network, support, query, "support")  # type: ignore[arg-type]
                    head = adapt_head(Examples.of(seen.support, labels, WAYS), InnerSettings()).head
                    return head.logits(seen.query).softmax(2).cpu()

            name = f"{backbone}, {side} px"
            actions[name], about[name] = predict, {"backbone": backbone, "size": side}
    timings = measure(actions, place, repeats)
    rows = [
        Row(name, timing, images, {**about[name], "images_per_second": images / timing.median})
        for name, timing in timings.items()
    ]
    return Sheet("predict", "image", tuple(rows), {"images": images, "precision": precision}, place)
