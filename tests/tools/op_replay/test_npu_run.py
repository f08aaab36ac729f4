"""start_microbench.py on an NPU, through stand-ins for msprof, torch_npu and vllm-ascend."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from tensor_cast.errors import ModelingError  # noqa: E402
from tensor_cast.performance_model.profiling_database.statistics import duration_us  # noqa: E402
from tensor_cast.performance_model.profiling_database.table import read_table  # noqa: E402
from tests.tools.op_replay.conftest import forget_standins  # noqa: E402
from tests.tools.op_replay.small_rows import BF, SMALL_ROWS, attention, cells, row, write_database  # noqa: E402
from tests.tools.op_replay.standins.npu_schemas import OP_PLUGIN_RELEASES, VLLM_ASCEND_RELEASES  # noqa: E402

UNMATCHED = {("MatMulV2", 2)}
"""The second spelling of one matrix product."""
EP = ("--dispatch-ffn-combine-ep-size", "2")


def durations(directory, kernel):
    table = read_table(directory / f"{kernel}.csv")
    if "Average Duration(us)" not in table.columns:
        return [None] * len(table.rows)
    place = table.columns.index("Average Duration(us)")
    return [duration_us(row[place]) for row in table.rows]


def decode(lengths):
    return attention(
        {0: f"2,4,16 {BF}", 1: f"8,8,16 {BF}", 2: f"8,8,16 {BF}", 5: "2 INT64", 6: "2 INT64", 14: "2,4 INT32"},
        [f"2,4,16 {BF}"],
        Runtime_actual_seq_lengths_kv_values=lengths,
    )


def test_all_kernels_are_launched_recorded_and_written_back(tmp_path, start, npu_machine):
    """One run over everything: 36 kernels, DispatchFFNCombine on two ranks, one PROF_ directory a process."""
    rows_of = {
        **SMALL_ROWS,
        "FusedInferAttentionScore": [*SMALL_ROWS["FusedInferAttentionScore"], *map(decode, ("3,3", "30,30"))],
    }
    for kernel, rows in rows_of.items():
        write_database(tmp_path / "db", kernel, rows)
    result = start(*EP, "--repeat-count", "2", **npu_machine)
    assert result.returncode == 0, result.stderr[-3000:]
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["failed"] == status["skipped"] == []
    assert len(status["success"]) == 36
    assert "failed" not in result.stderr
    empty = {
        (kernel, number)
        for kernel in rows_of
        for number, duration in enumerate(durations(tmp_path / "db", kernel))
        if duration is None
    }
    # torch.mm launches MatMulV2 on this machine: the other two kernels' equal rows get its time
    assert empty == UNMATCHED
    table = read_table(tmp_path / "db" / "DispatchFFNCombine.csv")
    assert table.rows[0][table.columns.index("EP Size")] == "2"
    assert table.rows[0][table.columns.index("MicroBench aicore_time(us)")] == "0.250000"
    assert not list((tmp_path / "db").glob("msprof_run_*"))
    # the Triton kernel's operands are unknown to the profiler: its rows are told apart by their order, shortest of two
    first, second = durations(tmp_path / "db", "split_qkv_rmsnorm_rope_kernel")
    assert second == first + 2
    # and so are attention rows of equal shapes and other lengths
    *_, short, long = durations(tmp_path / "db", "FusedInferAttentionScore")
    assert long == short + 2


VERSIONED = [("torch_npu", release) for release in OP_PLUGIN_RELEASES] + [
    ("vllm", release) for release in VLLM_ASCEND_RELEASES
]
CALLED_SINCE = {"LightningIndexer": "7.3.0", "AddRmsNormBias": "0.13.0", "split_qkv_rmsnorm_rope_kernel": "0.13.0"}
OF_VLLM_ASCEND = ("AddRmsNormBias", "DispatchFFNCombine", "SparseFlashAttention", "split_qkv_rmsnorm_rope_kernel")


@pytest.mark.parametrize(("library", "release"), VERSIONED)
def test_every_call_fits_the_signatures_of_each_release(npu_machine, monkeypatch, library, release):
    """All kernels of a library, each row called once."""
    from tools.perf_data_collection.op_replay import DispatchFFNCombine_run, catalog, npu
    from tools.perf_data_collection.op_replay.backends import NpuBackend
    from tools.perf_data_collection.op_replay.operands import OperandMaker

    releases = VLLM_ASCEND_RELEASES if library == "vllm" else OP_PLUGIN_RELEASES
    kernels = [name for name in SMALL_ROWS if (name in OF_VLLM_ASCEND) == (library == "vllm")]
    monkeypatch.setenv("STANDIN_VLLM_ASCEND" if library == "vllm" else "STANDIN_OP_PLUGIN", release)
    monkeypatch.setenv("ATB_HOME_PATH", "/atb")
    monkeypatch.setattr(DispatchFFNCombine_run, "group_name", lambda: "hccl_world_0")
    forget_standins()
    maker = OperandMaker(NpuBackend())
    early = {name for name in kernels if releases.index(CALLED_SINCE.get(name, releases[0])) > releases.index(release)}
    for name in kernels:
        kernel = catalog.load(name)
        for given in SMALL_ROWS[name]:
            npu.prepare(kernel.needs)
            operands = kernel.operands(row(name, given), maker)
            if name in early:
                with pytest.raises(ModelingError, match=r"^This (torch_npu|vLLM-Ascend) "):
                    kernel.launch(*operands)
            else:
                kernel.launch(*operands)


def test_what_fails_is_listed_and_everything_else_is_written(tmp_path, start, npu_machine):
    """An operator that breaks, one without its libraries, one that this torch_npu lacks, a row of no known dtype."""
    unknown = cells(["4 FLOAT8_E9"], ["4 FLOAT8_E9"])
    write_database(tmp_path / "db", "Add", [unknown, SMALL_ROWS["Add"][0]])
    write_database(tmp_path / "db", "SwiGlu", [{**SMALL_ROWS["SwiGlu"][0], "Average Duration(us)": "77"}])
    for name in ("LightningIndexer", "ReshapeAndCacheNdKernel", "RmsNorm"):
        write_database(tmp_path / "db", name, SMALL_ROWS[name])
    broken = {"STANDIN_BREAKS": "npu_swiglu", "STANDIN_OP_PLUGIN": "7.2.0", "ATB_HOME_PATH": ""}
    result = start(**{**npu_machine, **broken})
    assert result.returncode == 0, result.stderr
    assert None not in durations(tmp_path / "db", "RmsNorm")
    assert durations(tmp_path / "db", "SwiGlu") == [77.0]
    assert [value is None for value in durations(tmp_path / "db", "Add")] == [True, False]
    assert "- Success: 2\n- Failed: 3" in result.stdout
    for sentence in (
        "SwiGlu_run.py: No row could be measured: RuntimeError: npu_swiglu call failed, error code is 561002",
        "ReshapeAndCacheNdKernel_run.py: The ATB libraries are not set up: install NNAL",
        "This torch_npu has no npu_lightning_indexer: it came with op-plugin 7.3.0.",
        "Dtype FLOAT8_E9 cannot be made in torch",
    ):
        assert sentence in result.stdout


@pytest.mark.parametrize(
    ("mode", "flags", "status", "message"),
    [
        ("fails", (), 0, "warning: msprof ended with status 1; what it recorded is used."),
        ("empty", (), 1, "Nothing was measured: msprof ended with status 1. What the run left is in"),
        ("first", ("--ops", "RmsNorm", "Add"), 0, "status 1 and no profile: operators run one by one."),
        ("first", ("--ops", "RmsNorm", "Add", "--fail-fast"), 1, "Nothing was measured: msprof ended with status 1"),
    ],
)
def test_when_msprof_fails_what_it_recorded_counts(tmp_path, start, npu_machine, mode, flags, status, message):
    write_database(tmp_path / "db", "RmsNorm", SMALL_ROWS["RmsNorm"])
    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"])
    result = start(*flags, STANDIN_MSPROF=mode, **npu_machine)
    assert result.returncode == status
    assert message in result.stderr
    assert (None not in durations(tmp_path / "db", "RmsNorm")) == (status == 0)
    assert len(list((tmp_path / "db").glob("msprof_run_*"))) == status


@pytest.mark.parametrize(
    ("change", "operator", "message"),
    [
        ({"ASCEND_CUSTOM_OPP_PATH": " "}, "AddRmsNormBias", "export ASCEND_CUSTOM_OPP_PATH="),
        ({"LD_LIBRARY_PATH": ""}, "SparseFlashAttention", "export LD_LIBRARY_PATH="),
        ({"PATH": "/usr/bin:/bin"}, "Add", "msprof not found: install CANN's toolkit"),
        ({"STANDIN_NPUS": "0"}, "Add", "No NPU is available to torch_npu"),
        ({"PYTHONPATH": ""}, "Add", "torch_npu is not installed: install the torch and torch_npu"),
    ],
)
def test_what_is_missing_is_said_with_its_remedy(tmp_path, start, npu_machine, monkeypatch, change, operator, message):
    if "PYTHONPATH" in change:
        monkeypatch.setattr("sys.path", [path for path in sys.path if not path.endswith("standins")])
    path = write_database(tmp_path / "db", operator, SMALL_ROWS[operator])
    before = path.read_bytes()
    result = start(**{**npu_machine, **change})
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert path.read_bytes() == before
    assert list((tmp_path / "db").glob("msprof_run_*")) == []


def test_dispatch_ffn_combine_is_left_out_of_a_missing_only_run_with_too_few_npus(tmp_path, start, npu_machine):
    path = write_database(tmp_path / "db", "DispatchFFNCombine", SMALL_ROWS["DispatchFFNCombine"])
    before = path.read_bytes()
    alone = start("--update-mode", "missing-only", "--ops", "DispatchFFNCombine", **npu_machine)
    assert alone.returncode == 0, alone.stderr
    assert "needs 16 NPUs and 2 are visible" in alone.stderr
    assert "| DispatchFFNCombine | 0 | 0 | 0 | 0 | 0 |" in alone.stdout
    assert path.read_bytes() == before
    write_database(tmp_path / "db", "Add", SMALL_ROWS["Add"])
    everything = start("--update-mode", "missing-only", **npu_machine)
    assert everything.returncode == 0, everything.stderr
    assert None not in durations(tmp_path / "db", "Add")
    assert path.read_bytes() == before


def test_termination_writes_back_what_is_recorded(tmp_path, command, npu_machine):
    write_database(tmp_path / "db", "RmsNorm", SMALL_ROWS["RmsNorm"])
    write_database(tmp_path / "db", "SwiGlu", SMALL_ROWS["SwiGlu"])
    environment = {**os.environ, **npu_machine, "STANDIN_SLOW": "npu_swiglu=60"}
    process = subprocess.Popen(command(), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = tmp_path / "db" / ".replay_journal.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (journal.exists() and journal.read_text().count('"started"') == 3):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert None not in durations(tmp_path / "db", "RmsNorm")
    assert durations(tmp_path / "db", "SwiGlu") == [None, None]


def test_several_machines_need_a_port_and_a_fitting_spread(tmp_path, capsys):
    from tools.perf_data_collection import start_microbench

    write_database(tmp_path / "db", "DispatchFFNCombine", SMALL_ROWS["DispatchFFNCombine"])
    base = ["--database-path", str(tmp_path / "db")]
    assert start_microbench.main([*base, "-nproc-per-node", "8"]) == 2
    assert "8 processes on 1 machines are not the EP size 16" in capsys.readouterr().err
    assert start_microbench.main([*base, "-nproc-per-node", "8", "-nnodes", "2"]) == 2
    assert "Several machines need -master-port" in capsys.readouterr().err
    assert start_microbench.main([*base, "-nnodes", "3"]) == 2
    assert "The EP size 16 cannot be shared out evenly over 3 machines" in capsys.readouterr().err


def test_rows_of_another_ep_size_wait_for_theirs(tmp_path, start):
    row = SMALL_ROWS["DispatchFFNCombine"][0]
    write_database(tmp_path / "db", "DispatchFFNCombine", [{**row, "EP Size": "4"}, {**row, "EP Size": "2"}])
    result = start("--backend", "cpu", *EP)
    assert result.returncode == 0, result.stderr
    [other, own] = durations(tmp_path / "db", "DispatchFFNCombine")
    assert other is None
    assert own is not None
    assert "It belongs to EP size 4: run with --dispatch-ffn-combine-ep-size 4." in result.stdout


def test_two_ranks_give_what_the_reference_says():
    """The fused dispatch, experts and combine over gloo, against float64 with both ranks' weights."""
    import torch.multiprocessing

    torch.multiprocessing.spawn(_compare_rank, args=(_port(),), nprocs=2)


def _port():
    from tools.perf_data_collection.op_replay.team import _free_port

    return _free_port()


def _compare_rank(rank, port):
    import torch.distributed as dist

    from tests.tools.op_replay.small_rows import row
    from tools.perf_data_collection.op_replay.backends import CpuBackend
    from tools.perf_data_collection.op_replay.DispatchFFNCombine_run import KERNEL
    from tools.perf_data_collection.op_replay.operands import OperandMaker

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    for settings in ({"balanced": True}, {"balanced": False}):
        small = row("DispatchFFNCombine", SMALL_ROWS["DispatchFFNCombine"][0])
        operands = KERNEL.operands(small, OperandMaker(CpuBackend(), settings, seed=rank))
        output, counts = KERNEL.host(*operands)
        right, right_counts = KERNEL.reference(*operands)
        assert abs(output.double().numpy() - right).max() <= 3e-2 * abs(right).max()
        assert len(set(right.ravel())) > 100
        assert (counts.numpy() == right_counts).all()
        assert set(operands[0].ids.flatten().tolist()) - set(range(3)), "no token leaves its rank"
    dist.destroy_process_group()
