"""What a data set must keep to: limits on single items, and how images without a split get one."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from repair.core.errors import suggest
from repair.core.identity import derive_seed
from repair.core.images import MAX_PIXELS

_SEEDS = 2**63  # `derive_seed` gives 63 bits


class Rules(BaseModel):
    """Options shared by all sources of files; `rules = { max_words = 50 }` in a config file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_bad_rate: float = Field(
        0.05, ge=0, le=1, description="Share of images (and of captions) that may be bad; above it the run stops."
    )
    max_words: int = Field(100, ge=1, description="A caption of more words is set aside.")
    max_characters: int = Field(1000, ge=1, description="A caption of more characters is set aside.")
    max_pixels: int = Field(MAX_PIXELS, ge=1, description="An image of more pixels is set aside, undecoded.")
    check: Literal["full", "header"] = Field(
        "full",
        description="full: every image is decoded once, and the finding kept in the cache; header: only its head is "
        "read (and it is decoded if it looks cut short), so a damaged body stops the run when it is met.",
    )
    split_rates: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        {"train": 0.9, "val": 0.05, "test": 0.05},
        description="Share of images in each split where the data says none; they add up to 1.",
    )
    split_seed: int = Field(0, ge=0, description="Which images these are. Not the run's seed: a test set must stay.")

    @model_validator(mode="before")
    @classmethod
    def _known(cls, values: Any) -> Any:
        unknown = [key for key in values if key not in cls.model_fields] if isinstance(values, Mapping) else []
        if unknown:
            raise ValueError(f'unknown rule "{unknown[0]}": {suggest(str(unknown[0]), cls.model_fields)}')
        return values

    @model_validator(mode="after")
    def _rates_add_up(self) -> "Rules":
        if abs(sum(self.split_rates.values()) - 1) > 1e-6:
            raise ValueError(f"split_rates must add up to 1, not {sum(self.split_rates.values()):g}")
        return self

    def split_of(self, image_id: str) -> str:
        """The split of an image whose data names none: by a hash of its id, so adding images moves no other."""
        position = derive_seed(self.split_seed, "split", image_id) / _SEEDS
        used = [(name, rate) for name, rate in self.split_rates.items() if rate > 0]
        for name, rate in used:
            position -= rate
            if position < 0:
                return name
        return used[-1][0]

    def caption_problem(self, text: str) -> str | None:
        """Why a caption cannot be used, or None."""
        if not text:
            return "empty caption"
        n_words = len(text.split())
        if n_words > self.max_words:
            return f"caption of {n_words} words, more than rules.max_words = {self.max_words}"
        if len(text) > self.max_characters:
            return f"caption of {len(text)} characters, more than rules.max_characters = {self.max_characters}"
        return None
