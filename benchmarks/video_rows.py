"""Which request a published generation was: model, sizes, deployment, and what of it cannot be compared.

Settings are those that the source states (the model's repository, its README beside the table or chart); what it leaves
open is in ``ASSUMPTIONS``.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tensor_cast.devices import DeviceProfile
from tensor_cast.models.diffusion.pipeline import Pipeline
from tensor_cast.models.diffusion.reader import load_pipeline
from tensor_cast.models.diffusion.wan import WanDenoiser
from tensor_cast.video_deployment import VideoDeployment
from tensor_cast.video_estimate import VideoEstimate
from tensor_cast.video_simulator import simulate_video
from tensor_cast.video_workload import VideoWorkload

DEVICES = {
    "Atlas A3": "ATLAS_800_A3_560T_128G_DIE",
    "Atlas 800I A2": "ATLAS_800_A2_313T_64G",
    "NVIDIA A100/A800": "A100_SXM_80GB",
    "NVIDIA H100": "H100_SXM_80GB",
    "NVIDIA H20": "H20_96GB",
    "NVIDIA H800/H100": "H800_SXM_80GB",
    "NVIDIA L20": "L20_48GB",
    "RTX 4090": "RTX_4090",
}
"""Published names of devices and the profile that stands for each; ``ASSUMPTIONS`` says where that is a guess."""

ASSUMPTIONS = (
    "Atlas A3: the page names neither die nor rate; priced as a die of the 560T module, on which attention then is as "
    "fast for its vector units as on both Atlas A2. A die of the 752T module would be 23% too fast.",
    "Atlas 800I A2 (64 GB): the page does not name the NPU; priced as the 313T one.",
    "H800/H100: priced as H800. A100/A800: priced as A100.",
    "Wan: 512 text tokens (its code pads to that), guidance in every step, 50 steps for 2.1 and TI2V-5B, 40 for A14B. "
    "480P is 480 x 832, 720P is 720 x 1280 (704 x 1280 and 121 frames for TI2V-5B), 81 frames where none are named.",
    "Wan's own code: eager, the VAE in float32. That of 2.2 embeds the time of every token on every rank, in float32 "
    "(bfloat16 on Ascend). Wan 2.2 states FlashAttention 3 on Hopper; 2.1 does not say, but takes 37% longer a step "
    "for the same forward on the same H20: FlashAttention 2.",
    "float32 products: at the TF32 rate. By the scaling of the A100 rows at most 48 s of a 720P generation are not "
    "shared out, and float32 without it would need 110 s for the time embedding alone.",
    "HunyuanVideo: 256 text tokens, one forward a step (its guidance is distilled). Its text encoders are not priced.",
    "xDiT: flash-attn 2 (the version that its reports name), also under Ulysses and Ring.",
    "USP and Ring rows are priced as Ulysses over all ranks, and FSDP's gathering of weights is not priced.",
    "Wan2.2-TI2V-5B encodes its text on a host that is not named, which is not priced.",
)

WAN21, WAN22 = "Wan-AI/Wan2.1-T2V-14B-Diffusers", "Wan-AI/Wan2.2-T2V-A14B-Diffusers"
WAN22_I2V, HUNYUAN = "Wan-AI/Wan2.2-I2V-A14B-Diffusers", "hunyuanvideo-community/HunyuanVideo"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "HunyuanVideo 1280x720": (HUNYUAN, {"height": 720, "width": 1280, "frame_num": 129, "seq_len": 256}),
    "HunyuanVideo 720x1280": (HUNYUAN, {"height": 720, "width": 1280, "frame_num": 129, "seq_len": 256}),
    "HunyuanVideo 960x960": (HUNYUAN, {"height": 960, "width": 960, "frame_num": 129, "seq_len": 256}),
    "Wan2.1-T2V-1.3B": ("Wan-AI/Wan2.1-T2V-1.3B-Diffusers", {"height": 480, "width": 832}),
    "Wan2.1-T2V-14B 720P": (WAN21, {"height": 720, "width": 1280}),
    "Wan2.1-T2V-14B 832x480": (WAN21, {"height": 480, "width": 832}),
    "Wan2.2-I2V-A14B 1280x720x81f": (WAN22_I2V, {"height": 720, "width": 1280}),
    "Wan2.2-I2V-A14B 480P": (WAN22_I2V, {"height": 480, "width": 832}),
    "Wan2.2-I2V-A14B 720P": (WAN22_I2V, {"height": 720, "width": 1280}),
    "Wan2.2-I2V-A14B 832x480x61f": (WAN22_I2V, {"height": 480, "width": 832, "frame_num": 61}),
    "Wan2.2-T2V-A14B 480P": (WAN22, {"height": 480, "width": 832}),
    "Wan2.2-TI2V-5B": ("Wan-AI/Wan2.2-TI2V-5B-Diffusers", {"height": 704, "width": 1280, "frame_num": 121}),
    "FLUX.1-dev 1024px": ("black-forest-labs/FLUX.1-dev", {"height": 1024, "width": 1024, "seq_len": 512}),
    "ConsisID (CogVideoX-5B)": ("THUDM/CogVideoX-5b", {"height": 480, "width": 720, "frame_num": 49, "seq_len": 226}),
}
"""Published names (their beginning), the model and its sizes."""

STAGES = {"DiT time": ("denoise",), "denoise time": ("denoise",), "VAE decode time": ("vae",)}
_FUSED = re.compile(r"cann-recipes(?!; baseline)|torch\.compile|MindIE-SD")

APART: tuple[tuple[str, str, str], ...] = (
    (
        r"MindIE-SD, attention cache|cache \+ FA sparse",
        "",
        "The run reuses attention between steps, and most of these skip blocks of it too, at settings that are not "
        "published.",
    ),
    (
        r"cann-recipes; baseline",
        "VAE decode",
        "The run moves the VAE between host and device; the row below, without that, is 3.4 times faster.",
    ),
    (
        r"cann-recipes.*VAE parallel",
        "VAE decode",
        "The run shares the VAE's tiles out over the ranks, which is not modelled.",
    ),
    (
        r"UAA; Ulysses5",
        "",
        "Five ranks share out 24 heads unevenly, which is not modelled.",
    ),
)
"""(pattern of framework and parallelism, start of the metric, why the row cannot be compared)."""


@dataclass(frozen=True)
class Request:
    """One published time and the request that it was; ``apart`` says why it cannot be compared."""

    device: str
    ranks: int
    model: str
    how: str
    metric: str
    measured_s: float
    profile: str | None
    pipeline: str
    workload: VideoWorkload
    deployment: VideoDeployment
    time_dtype: str | None = None
    apart: str = ""

    @property
    def key(self) -> str:
        """What tells the row from all others."""
        return "; ".join((self.device, str(self.ranks), self.model, self.how, self.metric))

    @property
    def stages(self) -> tuple[str, ...]:
        """What the published time covers."""
        return next((stages for metric, stages in STAGES.items() if self.metric.startswith(metric)), ("text", "vae"))

    def structure(self) -> str | Pipeline:
        """The model: by name, or as Wan 2.2's own code runs it."""
        if self.time_dtype is None:
            return self.pipeline
        pipeline = load_pipeline(self.pipeline)
        changed = []
        for name, denoiser in pipeline.denoisers:
            assert isinstance(denoiser, WanDenoiser)
            changed.append((name, replace(denoiser, token_timesteps=True, replicated_time=self.time_dtype)))
        return replace(pipeline, denoisers=tuple(changed))


def priced(request: Request, device: str | DeviceProfile) -> tuple[float, VideoEstimate]:
    """Seconds of what the published time covers, and the whole estimate."""
    estimate = simulate_video(
        request.structure(),
        device=device,
        workload=request.workload,
        deployment=request.deployment,
        stages=request.stages,
    )
    seconds = estimate.stage_times_s["vae"] if request.stages == ("vae",) else estimate.total_time_s
    return float(seconds), estimate


def requests(measured: Path) -> Iterator[Request]:
    """All rows of video (and of images by the same blocks), in the files' order."""
    with (measured / "e2e.csv").open(encoding="utf-8", newline="") as file:
        for record in csv.DictReader(file):
            name = next((name for name in MODELS if record["model"].startswith(name)), None)
            if name is not None:
                yield _end_to_end(record, *MODELS[name])
    for case in json.loads((measured / "ascend_steps.json").read_text(encoding="utf-8"))["cases"]:
        if case["kind"] == "video":
            yield request_of_case(case)


def _end_to_end(record: dict[str, str], model: str, sizes: dict[str, Any]) -> Request:
    framework, parallelism = record["framework"], record["parallelism"]
    how = f"{framework}; {parallelism}"
    flux, a14b = "FLUX" in model, "A14B" in model
    cfg = 2 if "CFG2" in parallelism else 1
    ranks = 1 if "VAE parallel only" in parallelism else int(record["num_devices"])
    steps = 28 if flux else 40 if a14b else 50
    workload = VideoWorkload(
        **{"frame_num": 1 if flux else 81, "seq_len": 512, **sizes},
        sample_step=steps,
        use_cfg=not flux and model != HUNYUAN,
    )
    older = framework == "Wan2.1 repo" or "xDiT" in framework
    own_code = framework.endswith(" repo")
    deployment = VideoDeployment(
        world_size=ranks,
        ulysses_size=ranks // cfg,
        cfg_parallel=cfg == 2,
        compile=_FUSED.search(framework) is not None,
        attention_backend="flash_attention_2" if older else "flash_attention",
        vae_dtype="float32" if own_code else None,
    )
    time_dtype = "float32" if framework == "Wan2.2 repo" else "bfloat16" if a14b and "cann" in framework else None
    device = record["device"].split(" (")[0]
    request = Request(
        device=device,
        ranks=int(record["num_devices"]),
        model=record["model"],
        how=how,
        metric=record["metric"],
        measured_s=float(record["value"]),
        profile=DEVICES.get(device),
        pipeline=model,
        workload=workload,
        deployment=deployment,
        time_dtype=time_dtype,
    )
    return replace(request, apart=_why_apart(request))


def _why_apart(request: Request) -> str:
    if request.profile is None:
        return "The device is not named."
    if re.search(r"; (CFG2 )?TP\d", request.how):
        return "Tensor parallelism of a denoiser is not modelled."
    for pattern, metric, why in APART:
        if re.search(pattern, request.how) and request.metric.startswith(metric):
            return why
    return ""


def request_of_case(case: Mapping[str, Any]) -> Request:
    """The denoising step of a video case of ``ascend_steps.json``."""
    workload = VideoWorkload(
        height=case["height"],
        width=case["width"],
        frame_num=case["frame_num"],
        sample_step=case["sample_step"],
        batch_size=case["batch_size"],
        seq_len=case["seq_len"],
        use_cfg=case["use_cfg"],
    )
    deployment = VideoDeployment(
        world_size=case["world_size"],
        ulysses_size=case["ulysses_size"],
        cfg_parallel=case["cfg_parallel"],
        quantize_linear=case["quantize_linear_action"],
        dtype=case["dtype"],
        compile=True,
    )
    return Request(
        device=case["device"],
        ranks=case["world_size"],
        model=f"{case['model'].split('/')[1]} {case['width']}x{case['height']}x{case['frame_num']}f, one step",
        how=f"regression suite; {case['quantize_linear_action']}, ulysses {case['ulysses_size']}"
        f"{' CFG2' if case['cfg_parallel'] else ''}",
        metric="DiT time",
        measured_s=case["measured_s"],
        profile=case["device"],
        pipeline=case["model"],
        workload=workload,
        deployment=deployment,
    )
