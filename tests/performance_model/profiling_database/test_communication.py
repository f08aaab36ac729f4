"""Reading measured collectives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.performance_model.profiling_database.communication import COMMUNICATION_FILES, read_collectives


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / COMMUNICATION_FILES["all_gather"]
    path.write_text("\r\n".join(lines) + "\r\n", newline="")
    return path


def test_rows_with_a_duration_are_read(tmp_path: Path) -> None:
    rows = read_collectives(
        write(
            tmp_path,
            "message_bytes,num_devices,dtype,topology_tier,Duration(us),bandwidth_gbps",
            "1024,8,DT_BF16,1,6.40,0.16",
            "2048,8,DT_BF16,1,0,0",
            "4096,16,DT_BF16,0,8.5,0.48",
        )
    )
    assert rows.message_bytes.tolist() == [1024.0, 4096.0]
    assert rows.num_devices.tolist() == [8.0, 16.0]
    assert rows.topology_tier.tolist() == [1.0, 0.0]
    assert rows.duration_us.tolist() == [6.4, 8.5]


def test_tier_may_be_unknown_and_the_file_empty(tmp_path: Path) -> None:
    rows = read_collectives(write(tmp_path, "message_bytes,num_devices,Average Duration(us)", "1024,8,6.40"))
    assert np.isnan(rows.topology_tier).tolist() == [True]
    assert read_collectives(write(tmp_path, "message_bytes,num_devices,Duration(us)")).duration_us.size == 0


def test_the_first_valid_duration_of_each_row_counts(tmp_path: Path) -> None:
    path = write(tmp_path, "message_bytes,num_devices,Average Duration(us),Duration(us)", "1024,8,,6.4", "2048,8,7,9")
    assert read_collectives(path).duration_us.tolist() == [6.4, 7.0]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (("message bytes,num_devices,Duration(us)",), r"no column 'message_bytes' \(is it 'message bytes'\?\)"),
        (("message_bytes,num_devices,time",), r"has none of the columns 'Average Duration\(us\)'"),
        (("message_bytes,num_devices,Duration(us)", "1 KiB,8,6.4"), r"line 2: message_bytes is '1 KiB', not a whole"),
        (("message_bytes,num_devices,Duration(us)", "1024,nan,6.4"), r"line 2: num_devices is 'nan', not a whole"),
        (("message_bytes,num_devices,Duration(us)", "1024,-8,6.4"), r"line 2: num_devices is '-8', not a whole"),
        (("message_bytes,num_devices,topology_tier,Duration(us)", "1024,8,inf,6.4"), r"topology_tier is 'inf'"),
    ],
)
def test_bad_files(tmp_path: Path, lines: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ModelingError, match=sentence):
        read_collectives(write(tmp_path, *lines))
