"""Recorded evaluations that several tests read; each is made once, by the command itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.main import main

TEXT = (
    *("evaluate", "text", "--model", "qwen3", "--spec", "0.6b", "--device", "ATLAS_800_A2_376T_64G"),
    *("--decode", "--num-queries", "8", "--query-length", "1", "--context-length", "512"),
    *("--quantize-linear-action", "DISABLED", "--num-hidden-layers-override", "2"),
)
VIDEO = (
    *("evaluate", "video", "--model", "wan2.2", "--spec", "t2v-14b", "--device", "ATLAS_800_A2_376T_64G"),
    *("--resolution", "480x832", "--frame-num", "81", "--quantize-linear-action", "DISABLED"),
)


@pytest.fixture(scope="session")
def text_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decode of two layers on one device, with advice."""
    root = tmp_path_factory.mktemp("text")
    assert main([*TEXT, "--output-dir", str(root)]) == 0
    return root / "qwen3_0.6b_a2-376t-64g_w1_tp1_dp1_ep1"


@pytest.fixture(scope="session")
def shared_text_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on four devices, shared out as recommended, reported in Chinese."""
    root = tmp_path_factory.mktemp("shared-text")
    options = ("--world-size", "4", "--accept-recommended", "--iterations", "1", "--language", "zh")
    assert main([*TEXT, *options, "--output-dir", str(root)]) == 0
    return root / "qwen3_0.6b_a2-376t-64g_w4_tp4_dp1_ep1"


@pytest.fixture(scope="session")
def video_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The generation of a video on four devices, shared out as the user says."""
    root = tmp_path_factory.mktemp("video")
    options = ("--world-size", "4", "--ulysses-size", "4", "--no-advice")
    assert main([*VIDEO, *options, "--output-dir", str(root)]) == 0
    return root / "wan2.2_t2v-14b_a2-376t-64g_w4_u4_cfg0"
