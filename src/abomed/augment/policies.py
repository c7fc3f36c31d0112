"""Which pool of operations an image set gets: by name, by file, or by what the images are."""

from abomed.config.policies import POLICIES, MedRAugSettings, Policy, PolicyEntry, load_policy

__all__ = ["POLICIES", "Policy", "PolicyEntry", "choose_policy", "load_policy", "resolve_policy"]

_BY_SOURCE = {"pap-smear": "pap-smear", "isic2018": "isic2018", "bchi": "breakhis"}


def choose_policy(source_name: str) -> str:
    """The name of the policy for images of that named source; a safe general one for all others.

    All magnifications of BreaKHis and the set BCHI are breast tissue stained with H&E, hence one policy.
    """
    name = source_name.strip().lower()
    if name.startswith("breakhis"):
        return "breakhis"
    return _BY_SOURCE.get(name, "general")


def resolve_policy(settings: MedRAugSettings, source_name: str = "") -> Policy:
    """The policy that `settings` mean for images of that source, with their N and range of M."""
    name = choose_policy(source_name) if settings.policy == "auto" else settings.policy
    policy = load_policy(name)
    low = policy.magnitude[0] if settings.magnitude_low is None else settings.magnitude_low
    high = policy.magnitude[1] if settings.magnitude_high is None else settings.magnitude_high
    changed = {
        "operations": policy.operations if settings.operations is None else settings.operations,
        # One end may be given alone and lie beyond the policy's other end, which then follows it.
        "magnitude": (min(low, high), high) if settings.magnitude_low is None else (low, max(low, high)),
    }
    return Policy.model_validate({**policy.model_dump(), **changed})
