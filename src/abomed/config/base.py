"""What every settings model shares. No module below `config` may import torch: help must answer at once."""

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """A frozen group of settings: unknown names are refused, field docstrings are the help texts."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )
