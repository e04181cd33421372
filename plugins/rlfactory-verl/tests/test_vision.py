"""Which models see images on verl, and what is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlfactory_verl.vision import check_images, shows_images

from rlfactory_core.chat import ChatConfig
from rlfactory_core.errors import ChatFormatError
from rlfactory_core.plugins.registry import Registry
from rlfactory_core.runner.making import make_chat

pytest.importorskip("transformers")
pytest.importorskip("rlfactory_vision", reason="without it no tool returns an image")


def folder(tmp_path: Path, **facts: object) -> str:
    """A model's folder that has its configuration only."""
    (tmp_path / "config.json").write_text(json.dumps(facts))
    return str(tmp_path)


def test_a_model_that_sees_images_does_unless_a_text_format_is_named(tmp_path: Path) -> None:
    vlm = folder(tmp_path, model_type="qwen3_vl", vision_config={"depth": 2}, image_token_id=7)
    assert shows_images(ChatConfig(), vlm)
    assert not shows_images(ChatConfig(format="hermes"), vlm)


def test_a_text_model_and_one_that_cannot_be_read_see_none(tmp_path: Path) -> None:
    for model in (folder(tmp_path, model_type="qwen3"), str(tmp_path / "missing"), None):
        assert not shows_images(ChatConfig(), model)


def test_a_model_without_an_image_processor_is_refused_before_anything_starts(tmp_path: Path) -> None:
    tiny_vision = pytest.importorskip("tiny_vision")
    model = tiny_vision.make_vlm(tmp_path / "vlm", "qwen3_vl")
    (model / "preprocessor_config.json").unlink()
    with pytest.raises(ChatFormatError, match=r"preprocessor_config\.json"):
        check_images(ChatConfig(), str(model), make_chat(ChatConfig(), Registry()))
