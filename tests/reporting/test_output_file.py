"""Result files: whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tensor_cast.errors import ModelingError
from tensor_cast.reporting.output_file import check_writable, write_whole


def test_a_file_is_replaced_whole_and_keeps_its_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    write_whole(link, "größer")
    assert target.read_text(encoding="utf-8") == "größer"
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, target]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "text")
    (tmp_path / "b").touch()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "text")
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"
    target.write_text("old", encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ModelingError, match=r"Cannot write .*target: no space left on device\.") as refused:
        write_whole(target, "new")
    assert refused.value.exit_status == 1
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    check_writable(tmp_path / "new", "--json")
    with pytest.raises(ModelingError, match="is a directory"):
        check_writable(tmp_path, "--json")
    with pytest.raises(ModelingError, match="there is no directory"):
        check_writable(tmp_path / "no" / "new", "--json")


def test_the_processs_own_stdout_is_written_to(tmp_path: Path) -> None:
    # /dev/stdout leads to "/proc/…/fd/pipe:[…]", which has no directory.
    read_end, write_end = os.pipe()
    name = tmp_path / "stdout"
    name.symlink_to(f"/dev/fd/{write_end}")
    write_whole(name, "text")
    assert os.read(read_end, 100) == b"text"
    os.close(read_end)
    os.close(write_end)
