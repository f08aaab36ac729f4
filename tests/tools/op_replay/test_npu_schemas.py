"""The signatures that the stand-ins hold calls against: are they the collected ones, where these lie beside?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.tools.op_replay.standins import npu_schemas

torch = pytest.importorskip("torch")
SIGNATURES = Path(__file__).resolve().parents[4] / "shared" / "contracts" / "op_signatures.json"
NAMESPACES = {
    "torch_npu": npu_schemas.TORCH_NPU,
    "torch.ops._C_ascend": npu_schemas.C_ASCEND,
    "torch.ops.vllm": npu_schemas.VLLM,
}
CARRIED = [
    (namespace, name, since)
    for namespace, functions in NAMESPACES.items()
    for name, history in functions.items()
    for since in history
]


def form(name, text):
    """A signature as argument names, types, kinds and defaults."""
    schema = torch._C.parse_schema(f"{name}{text}" if text.startswith("(") else text)
    return [(item.name, str(item.type), item.kwarg_only, item.default_value) for item in schema.arguments], len(
        schema.returns
    )


@pytest.mark.parametrize(("namespace", "name", "since"), CARRIED)
def test_a_carried_signature_is_the_collected_one(namespace, name, since):
    text = NAMESPACES[namespace][name][since]
    arguments, _ = form(name, text)
    ranked = {argument for function, argument in npu_schemas.RANKS if function == name}
    assert ranked <= {argument for argument, *_ in arguments}
    if not SIGNATURES.is_file():
        return
    apis = json.loads(SIGNATURES.read_text())["apis"]
    key = "torch_npu.atb.npu_ring_mla.out" if name == "npu_ring_mla" else f"{namespace}.{name}"
    if namespace == "torch.ops.vllm":
        collected = [[item["name"] for item in entry["args"]] for entry in apis[key]["schemas"]]
        assert [argument for argument, *_ in arguments] in collected
        return
    collected = [
        form(name, re.sub(r"\)->", ") ->", re.sub(r"^[^(]*", "", entry["schema"], count=1)))
        for entry in apis[key]["schemas"]
        if _has(entry, since)
    ]
    assert form(name, text) in collected


def _has(entry, since):
    releases = entry.get("branches") or [tag.lstrip("v") for tag in entry.get("tags", ())]
    return not releases or releases == ["HEAD"] or any(release.startswith(since) for release in releases)
