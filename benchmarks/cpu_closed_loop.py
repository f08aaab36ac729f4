"""Measure, predict, run: does a database of this machine's kernels tell how long a decoder takes on it?

    python benchmarks/cpu_closed_loop.py [--layers 4] [--repeat 7] [--threads 2]

Fills a temporary database with rows around (never at) the sizes of two steps of a decoder of Qwen3-0.6B's widths,
measures them with ``start_microbench.py --backend cpu``, and fits a profile of this machine to them. Predicts a
prefill and a decode step twice, with ``performance_model="profiling"`` from the rows and analytically on the fitted
profile, and runs the same steps in torch on the same threads. Prints all three, what the fit leaves on rows that it has
not seen, and where the predicted time comes from. Needs PyTorch and about three minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch
import torch.nn.functional as functional

from tensor_cast import Deployment, Estimate, TextWorkload, simulate
from tensor_cast.calibration import calibrate
from tensor_cast.devices import DeviceProfile
from tensor_cast.performance_model.profiling_database.schema import BASE_COLUMNS
from tensor_cast.performance_model.profiling_database.table import Table, table_bytes
from tools.perf_data_collection.op_replay.host.attention import attend, paged
from tools.perf_data_collection.op_replay.host.pieces import rms_norm, rotate, swiglu

ROOT = Path(__file__).resolve().parents[1]
HIDDEN, INNER, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY, BLOCK = 1024, 3072, 16, 8, 128, 151936, 128
Q, KV = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
PREFILL_TOKENS = 384
DECODE_BATCH, DECODE_CONTEXT = 12, 1000
GRID_TOKENS = (1, 4, 8, 16, 64, 256, 512, 1024)
GRID_PROMPTS = (*range(16, 129, 16), *range(160, 353, 32), *range(448, 1025, 64))
GRID_DECODE = [(batch, context) for batch in (1, 2, 4, 8, 16) for context in (256, 512, 768, 1536)]
ANY_DEVICE = "ATLAS_800_A3_752T_128G_DIE"
"""Times ops without rows; the output says how little that is."""
EPSILON = 1e-6


def main() -> None:
    """Measure, predict, run, compare."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as directory:
        database, model = Path(directory) / "database", Path(directory) / "model"
        write_grid(database)
        write_config(model, arguments.layers)
        start = time.monotonic()
        measure(database, arguments)
        print(f"measured the grid in {time.monotonic() - start:.0f} s")
        fitted = calibrated(database)
        decoder = Decoder(arguments.layers)
        prefill = TextWorkload(num_queries=1, query_length=PREFILL_TOKENS)
        decode = TextWorkload(num_queries=DECODE_BATCH, query_length=1, context_length=DECODE_CONTEXT - 1, decode=True)
        for name, workload, step in (("prefill", prefill, decoder.prefill), ("decode", decode, decoder.decode)):
            measured_s = shortest(step, arguments.repeat)
            deployment = Deployment(compile=True, block_size=BLOCK)
            for how, device, source in (
                ("from rows", ANY_DEVICE, {"performance_model": "profiling", "database": database}),
                ("on the fitted profile", fitted, {}),
            ):
                estimate = simulate(str(model), device=device, workload=workload, deployment=deployment, **source)
                report(f"{name}, {how}", estimate, measured_s)


def calibrated(database: Path) -> DeviceProfile:
    """A profile of this machine from its rows alone; prints what they leave of the half that it has not seen."""
    memory_bytes = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    found = calibrate(database, "MY_CPU", memory_bytes=memory_bytes)
    for fit in found.classes:
        errors = fit.kept or f"median error {fit.after.median:.1%}, p90 {fit.after.p90:.1%}"
        print(f"  {fit.key:18} {fit.fitted_rows:3} rows fitted, {fit.other_rows:3} others: {errors}")
    return found.profile


def report(name: str, estimate: Estimate, measured_s: float) -> None:
    predicted_s = sum(kernel.count * float(kernel.timing.time.total_s) for kernel in estimate.kernels)
    error = predicted_s / measured_s - 1
    print(f"\n{name}: predicted {predicted_s * 1e3:.1f} ms, run {measured_s * 1e3:.1f} ms, {error:+.1%}")
    rows: dict[str, tuple[float, str]] = {}
    for kernel in estimate.kernels:
        seconds, _ = rows.get(kernel.op.name, (0.0, ""))
        types = "+".join(kernel.timing.kernel_types) or "analytic"
        rows[kernel.op.name] = (seconds + kernel.count * float(kernel.timing.time.total_s), types)
    for op, (seconds, types) in sorted(rows.items(), key=lambda item: -item[1][0]):
        print(f"  {seconds * 1e3:9.3f} ms  {op:24} {types}")


def measure(database: Path, arguments: argparse.Namespace) -> None:
    script = ROOT / "tools" / "perf_data_collection" / "start_microbench.py"
    flags = ["--database-path", str(database), "--backend", "cpu", "--repeat-count", str(arguments.repeat)]
    flags += ["--status-path", str(database / "status.json")]
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    subprocess.run([sys.executable, str(script), *flags], check=True, env=environment, stdout=subprocess.DEVNULL)


def shortest(step: Callable[[], torch.Tensor], repeat: int) -> float:
    """Seconds of the fastest of some runs, as a row's duration is the fastest of its runs."""
    times = []
    with torch.inference_mode():
        step()
        for _ in range(repeat):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    return min(times)


class Decoder:
    """The decoder in torch, with random weights: the kernels' operations in the order of the model."""

    def __init__(self, layers: int) -> None:
        sizes = ((Q + 2 * KV, HIDDEN), (HIDDEN, Q), (2 * INNER, HIDDEN), (HIDDEN, INNER))
        self.layers = [[_random(*size) for size in sizes] for _ in range(layers)]
        self.embedding = _random(VOCABULARY, HIDDEN)
        self.norm = torch.ones(HIDDEN, dtype=torch.bfloat16)
        self.head_norm = torch.ones(HEAD_DIM, dtype=torch.bfloat16)
        self.angles = _random(4096, HEAD_DIM)
        self.width = -(-DECODE_CONTEXT // BLOCK)
        pool = DECODE_BATCH * self.width
        self.caches = [(_random(pool, BLOCK, KV), _random(pool, BLOCK, KV)) for _ in range(layers)]
        self.table = torch.arange(pool).view(DECODE_BATCH, self.width)

    def prefill(self) -> torch.Tensor:
        """One query of PREFILL_TOKENS."""
        positions = torch.arange(PREFILL_TOKENS)

        def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int) -> torch.Tensor:
            heads = (
                query.view(-1, HEADS, HEAD_DIM),
                key.view(-1, KV_HEADS, HEAD_DIM),
                value.view(-1, KV_HEADS, HEAD_DIM),
            )
            return attend(*heads, HEAD_DIM**-0.5, is_causal=True).reshape(-1, Q)

        return self._step(torch.arange(PREFILL_TOKENS), positions, positions, attention, slice(-1, None))

    def decode(self) -> torch.Tensor:
        """One token of each of DECODE_BATCH queries that have DECODE_CONTEXT tokens in all."""
        positions = torch.full((DECODE_BATCH,), DECODE_CONTEXT - 1)
        last = self.table[:, (DECODE_CONTEXT - 1) // BLOCK] * BLOCK + (DECODE_CONTEXT - 1) % BLOCK

        def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: int) -> torch.Tensor:
            caches = [cache.view(-1, BLOCK, KV_HEADS, HEAD_DIM) for cache in self.caches[layer]]
            output = torch.empty_like(query)
            for request in range(DECODE_BATCH):
                own = [paged(cache, self.table[request], DECODE_CONTEXT) for cache in caches]
                alone = query[request].view(1, HEADS, HEAD_DIM)
                output[request] = attend(alone, *own, HEAD_DIM**-0.5, is_causal=True).view(Q)
            return output

        return self._step(torch.arange(DECODE_BATCH), positions, last, attention, slice(None))

    def _step(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        slots: torch.Tensor,
        attention: Callable[..., torch.Tensor],
        sampled: slice,
    ) -> torch.Tensor:
        residual = functional.embedding(tokens, self.embedding)
        update = torch.zeros_like(residual)
        for layer, (qkv, output, gate_up, down) in enumerate(self.layers):
            residual = residual + update
            normed, _ = rms_norm(residual, self.norm, EPSILON)
            query, key, value = self._rotated(torch.mm(normed, qkv.t()), positions)
            for cache, new in zip(self.caches[layer], (key, value), strict=True):
                cache.view(-1, KV).index_copy_(0, slots, new)
            residual = residual + torch.mm(attention(query, key, value, layer), output.t())
            normed, _ = rms_norm(residual, self.norm, EPSILON)
            update = torch.mm(swiglu(torch.mm(normed, gate_up.t())), down.t())
        final, _ = rms_norm(residual + update, self.norm, EPSILON)
        return torch.argmax(torch.mm(final[sampled], self.embedding.t()), dim=-1)

    def _rotated(self, qkv: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        query, key, value = torch.split(qkv, [Q, KV, KV], dim=-1)
        cos, sin = (torch.cat((half, half), dim=-1).unsqueeze(1) for half in self.angles[positions].chunk(2, dim=-1))
        turned = []
        for part in (query, key):
            normed, _ = rms_norm(part.reshape(len(part), -1, HEAD_DIM), self.head_norm, EPSILON)
            turned.append(rotate(normed, cos, sin).flatten(1))
        return turned[0], turned[1], value.contiguous()


def write_grid(database: Path) -> None:
    """Rows of every kernel of the decoder around the sizes of both steps."""
    database.mkdir()
    tokens = GRID_TOKENS
    widths = ((Q + 2 * KV, HIDDEN), (HIDDEN, Q), (2 * INNER, HIDDEN), (HIDDEN, INNER))
    products = [((t, k), (n, k), (t, n)) for n, k in widths for t in tokens]
    products += [((t, HIDDEN), (VOCABULARY, HIDDEN), (t, VOCABULARY)) for t in (1, 4, 8, 16)]
    _write(database, "MatMulV2", ((row[:2], row[2:]) for row in products))
    norm = [
        (((t, HIDDEN), (t, HIDDEN), (HIDDEN,), None), ((t, HIDDEN), ((t, 1), "FLOAT"), (t, HIDDEN))) for t in tokens
    ]
    _write(database, "AddRmsNormBias", norm)
    _write(database, "SwiGlu", ((((t, 2 * INNER),), ((t, INNER),)) for t in tokens))
    gathers = [((VOCABULARY, HIDDEN), ((t,), "INT64"), ((1,), "INT64")) for t in tokens]
    _write(database, "GatherV2", ((row, ((t, HIDDEN),)) for row, t in zip(gathers, tokens, strict=True)))
    pieces = [(((t, Q + 2 * KV), (HEAD_DIM,)), ((t, Q), (t, KV), (t, KV))) for t in tokens]
    _write(database, "split_qkv_rmsnorm_rope_kernel", pieces)
    new, pool = [(t, KV_HEADS, HEAD_DIM) for t in tokens], (256, BLOCK, KV_HEADS, HEAD_DIM)
    _write(database, "ReshapeAndCacheNdKernel", (((n, n, pool, pool, ((n[0],), "INT32")), (pool, pool)) for n in new))
    _write(database, "ArgMaxV2", ((((t, VOCABULARY), None), (((t,), "INT64"),)) for t in (1, 4, 8, 16)))
    _write(database, "Index", ((((512, HIDDEN), ((1,), "INT64"), ((1,), "INT64"), ((1,), "INT64")), ((1, HIDDEN),)),))
    _write(database, "FusedInferAttentionScore", [*_prefill_rows(), *_decode_rows()])


def _prefill_rows() -> Iterable[tuple[tuple[object, ...], tuple[object, ...], dict[str, str]]]:
    for t in GRID_PROMPTS:
        slots = {0: (t, HEADS, HEAD_DIM), 1: (t, KV_HEADS, HEAD_DIM), 2: (t, KV_HEADS, HEAD_DIM)}
        slots |= {4: ((2048, 2048), "INT8"), 5: ((1,), "INT64"), 6: ((1,), "INT64")}
        lengths = {"Runtime actual_seq_lengths_values": str(t), "Runtime actual_seq_lengths_kv_values": str(t)}
        extra = {**lengths, "Runtime avg_seq_len": f"{t}.000000", "Runtime sparse_mode": "3", **_COMMON}
        yield tuple(slots.get(slot) for slot in range(31)), ((t, HEADS, HEAD_DIM),), extra


def _decode_rows() -> Iterable[tuple[tuple[object, ...], tuple[object, ...], dict[str, str]]]:
    for batch, context in GRID_DECODE:
        width = -(-context // BLOCK)
        cache = (batch * width, BLOCK, KV)
        slots = {0: (batch, HEADS, HEAD_DIM), 1: cache, 2: cache, 5: ((batch,), "INT64"), 6: ((batch,), "INT64")}
        slots[14] = ((batch, width), "INT32")
        values = {
            "Runtime actual_seq_lengths_values": ",".join(str(end) for end in range(1, batch + 1)),
            "Runtime actual_seq_lengths_kv_values": ",".join([str(context)] * batch),
        }
        extra = {**values, "Runtime avg_seq_len": f"{context}.000000", "Runtime sparse_mode": "0", **_COMMON}
        extra |= {"Runtime block_size": str(BLOCK)}
        yield tuple(slots.get(slot) for slot in range(31)), ((batch, HEADS, HEAD_DIM),), extra


_COMMON = {
    "Runtime num_heads": str(HEADS),
    "Runtime num_key_value_heads": str(KV_HEADS),
    "Runtime input_layout": "TND",
    "Runtime metadata_completeness": "shape_grid_scene_generated",
}


def _write(database: Path, kernel: str, rows: Iterable[tuple[object, ...]]) -> None:
    tables = []
    for inputs, outputs, *extra in rows:
        cells = ["dynamic", "CPU", *_side(inputs), *_side(outputs)]  # type: ignore[arg-type]
        tables.append({**dict(zip(BASE_COLUMNS, cells, strict=True)), **(extra[0] if extra else {})})  # type: ignore[dict-item]
    columns = list(tables[0])
    content = table_bytes(Table(columns, [[row[name] for name in columns] for row in tables]))
    (database / f"{kernel}.csv").write_bytes(content)


def _side(operands: Iterable[object]) -> tuple[str, str, str]:
    """Cells of one side; an operand is a shape in bfloat16, a shape with its dtype, or absent."""
    shapes, dtypes, formats = [], [], []
    for operand in operands:
        shape, dtype = operand if isinstance(operand, tuple) and isinstance(operand[-1], str) else (operand, "DT_BF16")
        shapes.append("" if shape is None else ",".join(map(str, shape)))
        dtypes.append("DT_UNDEFINED" if shape is None else dtype)
        formats.append("NULL" if shape is None else "ND")
    return f'"{";".join(shapes)}"', ";".join(dtypes), ";".join(formats)


def write_config(directory: Path, layers: int) -> None:
    """The decoder's config.json: widths of Qwen3-0.6B."""
    directory.mkdir()
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 40960,
        "hidden_act": "silu",
        "rms_norm_eps": EPSILON,
        "rope_theta": 1000000,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _random(*shape: int) -> torch.Tensor:
    return (torch.rand(*shape) * 0.04 - 0.02).to(torch.bfloat16)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="decoder layers (default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=7, help="runs of each row and step (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
