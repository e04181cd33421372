"""A model's image processor: how many tokens an image has, and the tensors that the model sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlfactory_core.errors import ChatFormatError, ModelError
from rlfactory_core.images import Image, images_in, picture
from rlfactory_core.types import Message

START, PAD, END = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"  # of the Qwen family
_KEPT = 32  # images whose tensors are kept, because each turn and each update needs them again


class QwenVision:
    """The image processor of Qwen2-VL, Qwen2.5-VL and Qwen3-VL; see `protocols.Vision`.

    Args:
        processor: of transformers, with ``patch_size`` and ``merge_size``.
        pad: the id of the token that stands for a part of an image.
        reserved: the ids of all such tokens, those of videos included.
    """

    def __init__(self, processor: Any, pad: int, reserved: Sequence[int]) -> None:
        self.processor, self._pad, self.reserved = processor, pad, reserved
        self.tensors = lru_cache(maxsize=_KEPT)(self._tensors)

    @classmethod
    def of(cls, tokenizer: Any) -> QwenVision:
        """That of the tokenizer's folder or hub id.

        Raises:
            ChatFormatError: it has none, or another kind.
        """
        from transformers import AutoImageProcessor

        place, pad = tokenizer.name_or_path, tokenizer.get_vocab().get(PAD)
        try:
            # Pillow gives the same values on every machine; torchvision need not be installed.
            processor = AutoImageProcessor.from_pretrained(place, backend="pil")
        except Exception as error:  # a damaged file can raise any error
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ChatFormatError(
                f"The image processor of '{place}' cannot be loaded: {reason} Give a folder with "
                "preprocessor_config.json; or name a text format, such as chat.format=hermes, and images are names."
            ) from error
        if pad is None or not hasattr(processor, "merge_size") or not hasattr(processor, "get_number_of_image_patches"):
            raise ChatFormatError(
                f"The models that see images are those of Qwen2-VL, Qwen2.5-VL and Qwen3-VL; '{place}' has the image "
                f"processor {type(processor).__name__}. Name a text format, such as chat.format=hermes: its images "
                "are names."
            )
        ids = tokenizer.get_vocab()
        return cls(processor, pad, [ids[name] for name in (START, PAD, END, "<|video_pad|>") if name in ids])

    # --- Vision -----------------------------------------------------------------------------------------------------

    def images_in(self, messages: Sequence[Message]) -> tuple[str, ...]:
        texts = (message.content for message in messages if message.role != "assistant")
        return tuple(image.digest for text in texts for image in images_in(text))

    def inputs(self, ids: Any, images: Sequence[Sequence[str]]) -> Mapping[str, Any]:
        shown = ids == self._pad
        found: list[tuple[Tensor, Tensor]] = []
        for row, names in zip(shown, images, strict=True):
            lengths = _runs(row)
            mine = [self.tensors(name) for name in names[: len(lengths)]]
            expected = [int(grid.prod()) // self.processor.merge_size**2 for _, grid in mine]
            if lengths != expected:
                raise ModelError(
                    f"A sequence shows images of {lengths} tokens, and its images have {expected}: their files or the "
                    "image processor have changed since the sequence was begun."
                )
            found += mine
        if not found:
            return {}
        pixels, grids = zip(*found, strict=True)
        return {
            "pixel_values": torch.cat(pixels),
            "image_grid_thw": torch.stack(grids),
            "mm_token_type_ids": shown.long(),  # 1: an image
        }

    def save(self, folder: Path) -> None:
        self.processor.save_pretrained(folder)

    # --- for the chat format ----------------------------------------------------------------------------------------

    def text(self, image: Image) -> str:
        """The special tokens that stand for an image."""
        patches = self.processor.get_number_of_image_patches(image.height, image.width, {})
        return START + PAD * int(patches // self.processor.merge_size**2) + END

    def _tensors(self, name: str) -> tuple[Tensor, Tensor]:
        """The patches [patches, values] of an image, and its number of them in time, height and width [3]."""
        found = self.processor(images=[picture(name)], return_tensors="pt")
        return found["pixel_values"], found["image_grid_thw"][0]


def processed_ids(tokenizer: Any, vision: QwenVision, text: str, images: Sequence[Image]) -> tuple[int, ...]:
    """The ids that the model's own processor makes of a rendered text with one pad for each image.

    Raises:
        ModelError: transformers has no processor for the model.
    """
    import transformers
    from transformers import AutoConfig

    kind = AutoConfig.from_pretrained(tokenizer.name_or_path).model_type
    name = transformers.models.auto.processing_auto.PROCESSOR_MAPPING_NAMES.get(kind)
    if name is None:
        raise ModelError(f"transformers {transformers.__version__} has no processor for the architecture {kind}.")
    # The check refuses a processor without one for videos, which needs torchvision.
    lenient = {"check_argument_for_proper_class": lambda _self, _name, _argument: None}
    kind_of_processor: Any = type(name, (getattr(transformers, name),), lenient)
    processor = kind_of_processor(vision.processor, tokenizer, None)
    pixels = [picture(image.digest) for image in images]
    return tuple(processor(text=[text], images=pixels, add_special_tokens=False)["input_ids"][0])


def _runs(row: Tensor) -> list[int]:
    """The lengths of the runs of True; two images never touch, because each has a token at both ends."""
    edges = torch.diff(row.int(), prepend=row.new_zeros(1, dtype=torch.int), append=row.new_zeros(1, dtype=torch.int))
    starts, ends = (edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0]
    lengths: list[int] = (ends - starts).tolist()
    return lengths
