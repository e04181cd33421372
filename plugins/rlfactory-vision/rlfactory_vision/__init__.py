"""Images from tools, and vision-language models that see them."""

from __future__ import annotations

from rlfactory_core.images import MAX_BYTES, MAX_IMAGES, MAX_PIXELS, Image

__all__ = ["MAX_BYTES", "MAX_IMAGES", "MAX_PIXELS", "Image"]
